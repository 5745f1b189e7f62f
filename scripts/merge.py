"""Merge an adapter into its base model: `heavydistill merge` as a script.

python scripts/merge.py --adapter out/deliberator --out out/merged
"""

from __future__ import annotations

import sys

from heavydistill.cli.app import main

if __name__ == "__main__":
    main(["merge", *sys.argv[1:]])

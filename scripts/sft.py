"""Train by SFT: `heavydistill sft` as a script, for `accelerate launch`.

    accelerate launch --config_file configs/accelerate/ddp.yaml scripts/sft.py \\
        --config configs/sft/4b-lora.yaml --role deliberator --dataset_name sets/glm

Exit codes: 0 done; 1 it failed; 2 you can fix it; 130 interrupted. `accelerate launch` ends with 1
for all but 0, and prints a traceback below the message.
"""

from __future__ import annotations

import sys

from heavydistill.cli.app import main

if __name__ == "__main__":
    main(["sft", *sys.argv[1:]])

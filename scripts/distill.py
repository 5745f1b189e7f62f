"""Train by on-policy distillation: `heavydistill distill` as a script, for `accelerate launch`.

    accelerate launch --config_file configs/accelerate/single.yaml scripts/distill.py \\
        --config configs/distill/1gpu.yaml --model_name_or_path out/student \\
        --dataset_name sets/glm

Exit codes: 0 done; 1 it failed; 2 you can fix it; 130 interrupted. `accelerate launch` ends with 1
for all but 0, and prints a traceback below the message.
"""

from __future__ import annotations

import sys

from heavydistill.cli.app import main

if __name__ == "__main__":
    main(["distill", *sys.argv[1:]])

"""Merge an adapter into the model that it was trained on.

    python scripts/merge.py --adapter out/deliberator --out out/merged

The new folder holds a whole model with its tokenizer and the chat template of the training, which
transformers, `heavydistill generate --teacher out/merged` and `vllm serve out/merged` load. Before
it gets its name the model is loaded from it and compared with base + adapter on a prompt. LoRA,
rsLoRA and DoRA can be merged; what was trained on a base in 4 bit goes into the base as it lies on
disk. It takes as much memory as the model in its own dtype, with --dtype in float32, and no GPU.

Exit codes: 0 done; 1 what came out is another model, or the disk is full; 2 you can mend it. But
for 0 nothing is under the name --out.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from heavydistill.errors import HeavydistillError, UserError
from heavydistill.train.merge import DTYPES, merge


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--adapter", required=True, help="folder or Hub id of the adapter")
    parser.add_argument("--out", type=Path, required=True, help="the new folder")
    parser.add_argument(
        "--base", help="folder or Hub id of the base model; else the one that the adapter names"
    )
    parser.add_argument("--dtype", choices=DTYPES, help="of the weights; else that of the base")
    chosen = parser.parse_args()
    try:
        merged = merge(chosen.adapter, chosen.out, chosen.base, chosen.dtype)
    except HeavydistillError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UserError) else 1)
    print(f"{chosen.out}: {chosen.adapter} merged into {merged.base}, {merged.dtype}")
    print(
        f"Largest difference of a logit to base + adapter: {merged.difference:.3g}. Rounding the "
        f"weights once changes it by {merged.rounding:.3g}, the adapter by {merged.effect:.3g}."
    )
    if not merged.has_record:
        print(
            "Note: it has no training.json, for the adapter has none or was trained on another "
            "base, so `heavydistill publish` does not take it."
        )
    if merged.is_drowned:
        print(
            f"Note: the adapter changes little more than rounding to {merged.dtype} does, so part "
            "of what it learnt may be lost. Merge with --dtype float32 to keep it."
        )


if __name__ == "__main__":
    main()

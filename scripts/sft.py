"""Train a thinker, a deliberator, or one model for both, on what `heavydistill build` wrote.

    heavydistill build runs/glm --student Qwen/Qwen3-4B --out sets/glm
    accelerate launch --config_file configs/accelerate/single.yaml scripts/sft.py \\
        --config configs/sft/4b-lora.yaml --role deliberator --dataset_name sets/glm

Every flag of TRL's SFTConfig and ModelConfig works but for those that would cut rows, learn
something else or do nothing; each says why. They stand in the file as on the command line, which
wins: --learning_rate 1e-4, --lora_r 128, --report_to trackio, --push_to_hub. Beside them there are
--dataset_name, --role, --too_long, --muon, --evaluate, --license and --dry_run, and in the file
datasets, a mixture. --help lists all; configs/sft/README.md says which file to begin with.

The output folder has the model, its card, its record (training.json), the checkpoints, and with
--evaluate the figures before and after. After a crash the same command with
--resume_from_checkpoint true goes on from the last checkpoint that is whole.

Exit codes: 0 done; 1 it broke; 2 you can mend it; 130 interrupted. `accelerate launch` ends with
1 for all but 0, below what is said here.
"""

from __future__ import annotations

import sys

from heavydistill.run import interrupts


def main() -> None:
    from heavydistill.train.arguments import set_environment

    set_environment()  # before the libraries are imported
    from heavydistill.train import sft
    from heavydistill.train.script import run_script

    run_script(sft.parse(description=__doc__), sft)


if __name__ == "__main__":
    with interrupts.ending_at_once():
        from heavydistill.train.script import exit_code
    sys.exit(exit_code(main))

"""Train a deliberator, a thinker, or both as one, with a verifier's verdict as the reward (GRPO).

    heavydistill build runs/glm --student Qwen/Qwen3-4B --out sets/glm
    accelerate launch --config_file configs/accelerate/single.yaml scripts/grpo.py \\
        --config configs/grpo/1gpu/deliberator.yaml --model_name_or_path out/student \\
        --dataset_name sets/glm

The model is one that SFT made (scripts/sft.py; an adapter is merged first, scripts/merge.py).
Every flag of TRL's GRPOConfig and ModelConfig works but for those that would bend the ratio or
break what the reward sees; each says why. They stand in the file as on the command line, which
wins: --learning_rate 1e-6, --use_vllm true, --report_to trackio, --push_to_hub. Beside them there
are --mode, --preset, --dataset_name or --run, --max_accuracy, --unmeasured,
--too_long, --pass_at_k, --format_share, --held_out, --held_out_from,
--guard_entropy and the
other guards, --chat_template_path, --evaluate, --license and --dry_run, and in the file verify.
--help lists all; configs/grpo/README.md says which file to begin with.

The output folder has the model, its card, its record (training.json), the checkpoints, the curves
(curves.png, curves.svg), and with --evaluate the figures before and after. After a crash the same
command with --resume_from_checkpoint true goes on from the last checkpoint that is whole.

Exit codes: 0 done; 1 it broke; 2 you can mend it; 130 interrupted. `accelerate launch` ends with
1 for all but 0, below what is said here.
"""

from __future__ import annotations

import sys

from heavydistill.run import interrupts


def main() -> None:
    from heavydistill.train.arguments import set_environment

    set_environment()  # before the libraries are imported
    from heavydistill.train.grpo import train
    from heavydistill.train.grpo.config import parse
    from heavydistill.train.script import run_script

    run_script(parse(description=__doc__), train)


if __name__ == "__main__":
    with interrupts.ending_at_once():
        from heavydistill.train.script import exit_code
    sys.exit(exit_code(main))

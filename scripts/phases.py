"""Train by GRPO in several phases, each of which begins with the model that the last one left.

    python scripts/phases.py --config phases.yaml

So a thinker and a deliberator are trained in turns, or a deliberator on harder and harder prompts:

    model_name_or_path: out/student   # what the first phase begins with
    output_dir: out/alternating       # NN-NAME in it is what scripts/grpo.py writes
    launch: [--config_file, configs/accelerate/single.yaml]
    rounds: 2                         # the phases, so many times
    phases:
    - name: thinker
      config: configs/grpo/1gpu/thinker.yaml
      # They win over the file.
      keys: {pass_at_k: 4, scale_rewards: none, max_steps: 100, held_out_from: sets/glm}
    - name: deliberator
      config: configs/grpo/1gpu/deliberator.yaml
      keys: {dataset_name: sets/glm, max_steps: 100}
      refilter: {d: 8}  # before it: the prompts anew, for what the model can do by then

Each phase is started by `accelerate launch`, so this script is not. After a crash or Ctrl-C the
same command goes on: what is done is not done again. --dry_run checks every phase with the model
that is there by now.

Exit codes: 0 done; 1 a phase broke, or could not begin, which its message tells (`accelerate
launch` makes 1 of both); 2 you can mend it; 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from heavydistill.run import interrupts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", type=Path, required=True, help="the file")
    parser.add_argument("--dry_run", action="store_true", help="check everything, train nothing")
    chosen = parser.parse_args()
    model = phases.run(chosen.config, Path(__file__).parent, chosen.dry_run)
    if not chosen.dry_run:
        print(f"The model is in {model}", flush=True)


if __name__ == "__main__":
    with interrupts.ending_at_once():
        from heavydistill.train.grpo import phases
        from heavydistill.train.running import exit_code
    sys.exit(exit_code(main, "The same command goes on where it ended."))

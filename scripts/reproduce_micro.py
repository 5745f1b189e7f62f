"""Make the evidence of the micro models, seed by seed, and its page. See `micro_proof`.

    python scripts/reproduce_micro.py --dry-run        # the plan with its processor time
    python scripts/reproduce_micro.py --seeds 1 2      # these seeds, or what is left of them

Two stages run at once. Stopped by Ctrl-C, a kill or --minutes, the same command continues. The
arms of a seed that are measured stand in docs/evidence/results/seed-N.json, and
docs/evidence/results.md is written from all files there. What stands there is kept when other arms
are added.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from micro_proof.figures import figures_of_seed
from micro_proof.page import page
from micro_proof.runner import Runner
from micro_proof.stages import ARMS, SEEDS, OfSeed, Sizes, Stage, arms_of, read_json, stages

from heavydistill.errors import UserError

EVIDENCE = Path("docs/evidence")
TRIAL = Sizes(traces=90, solutions=60, measured=12, some=6)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=range(1, SEEDS + 1), metavar="N")
    parser.add_argument("--arms", nargs="+", choices=ARMS, help="only these (default: all)")
    parser.add_argument("--out", type=Path, default=Path("out/reproduce"), help="all but the page")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="stages at once")
    parser.add_argument("--minutes", type=float, help="begin no stage after so many minutes")
    parser.add_argument("--dry-run", action="store_true", help="print the plan and run nothing")
    parser.add_argument(
        "--trial", action="store_true", help="a few problems; the page goes into --out"
    )
    chosen = parser.parse_args()
    # A kill ends the stages too, as Ctrl-C does: two commands must not write into one folder.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        run(chosen)
    except UserError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)


def run(chosen: argparse.Namespace) -> None:
    """Run what is left, and write the figures of finished seeds and the page."""
    sizes = TRIAL if chosen.trial else Sizes()
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    runner = Runner(chosen.out, chosen.jobs, lambda line: print(line, flush=True))
    evidence = chosen.out if chosen.trial else EVIDENCE
    shown: set[str] = set()
    until = time.monotonic() + 60 * (chosen.minutes or float("inf"))
    for seed in chosen.seeds:
        arms = [arm for arm in arms_of(seed) if arm in (chosen.arms or ARMS)]
        known = temperatures(evidence)
        planned = stages(chosen.out, seed, arms, sizes, known)
        left = runner.left(planned)  # nothing is written if other commands made what is there
        if chosen.dry_run:  # seeds share the stages that choose a temperature
            print_plan(seed, [stage for stage in left if stage.name not in shown])
            shown |= {stage.name for stage in left}
            continue
        try:
            left = runner.run(left, until)
        finally:
            of_seed = OfSeed(chosen.out, seed, sizes, known)
            write(evidence, figures_of_seed(of_seed, arms, runner, sizes))
        if left:
            print(f"seed {seed}: {len(left)} stages are left; the same command continues")
            return


def temperatures(evidence: Path) -> dict[str, float]:
    """The temperature that was chosen for each arm of seed 1."""
    if not (path := evidence / "results" / "seed-1.json").is_file():
        return {}
    arms = read_json(path)["arms"]
    return {arm: figures["frozen"]["temperature"] for arm, figures in arms.items()}


def print_plan(seed: int, left: list[Stage]) -> None:
    """Print the stages that are left, with their processor time."""
    minutes = sum(stage.minutes for stage in left)
    print(f"seed {seed}: {len(left)} stages, {minutes:.0f} minutes of processor time")
    for stage in left:
        print(f"  {stage.minutes:4g}  {stage.name}")


def write(evidence: Path, figures: dict[str, Any]) -> None:
    """Write the figures of a seed beside those of its arms from before, and the page of all."""
    folder = evidence / "results"
    path = folder / f"seed-{figures['seed']}.json"
    if path.is_file() and (before := read_json(path))["sizes"] == figures["sizes"]:
        for part in ("thinkers", "arms"):
            figures[part] = before[part] | figures[part]
    if not figures["arms"]:
        return
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    seeds = sorted(map(read_json, folder.glob("seed-*.json")), key=lambda seed: seed["seed"])
    (evidence / "results.md").write_text(page(seeds), encoding="utf-8")
    print(f"Wrote {path} and {evidence / 'results.md'}")


if __name__ == "__main__":
    main()

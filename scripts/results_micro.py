"""Write docs/results.md from the runs that scripts/reproduce_micro.sh has left.

    python scripts/results_micro.py out/reproduce --write docs/results.md

A table of base, SFT, GRPO and teacher on the same problems, each seed in rows of its own, then what
GRPO adds to SFT and SFT to the base, paired by problem, and how long each stage took.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from heavydistill.errors import ConfigError, UserError
from heavydistill.metrics import estimators
from heavydistill.metrics.intervals import Interval, bootstrap_difference
from heavydistill.storage import read_traces

METRICS = {
    "M@8": "mean_at_k",
    "V@8": "vote_at_k",
    "P@8": "pass_at_k",
    "HM@4": "heavy_mean_at_d",
    "HP@4": "heavy_pass_at_d",
    "HM@4 - V@8": "heavy_minus_vote",
}
HEAD = """# What the micro models show

Made by `bash scripts/reproduce_micro.sh`, once for each seed, on {cores} CPU cores ({machine},
Python {python}), with nothing downloaded. {problems} problems that no model learnt from; in per
cent, with 95 % bootstrap intervals over problems. K = 8 trajectories a problem, all of which vote;
D = 4 deliberations on a cache of four of them. M@8 is the thinker's own pass@1. Regress: of the
problems whose vote is right, those whose deliberations are wrong.
"""
SHOWN = """## What is shown, and what is not

- A student of 0.6 million parameters that deliberates worse than it votes (base) learns from a
  teacher's traces (SFT), and then from verdicts on its own work (GRPO). What each of the two adds
  stands above, with what it does to the thinker's own pass@1.
- It is procedural arithmetic, and teacher and student are tiny. Nothing here says by how much a
  model of billions of parameters gains, or on which problems.
- The intervals are over problems. What another training seed gives stands in the rows of the seeds.
- The configurations were chosen on other problems than these.
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="what reproduce_micro.sh wrote")
    parser.add_argument("--write", type=Path, required=True, help="a .md file")
    chosen = parser.parse_args()
    try:
        text = "\n".join(written(chosen.folder))
    except UserError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)
    chosen.write.parent.mkdir(parents=True, exist_ok=True)
    chosen.write.write_text(text + "\n", encoding="utf-8")
    print(f"Wrote {chosen.write}")


def written(folder: Path) -> Iterator[str]:
    """The lines of the page."""
    seeds = sorted(path for path in folder.glob("seed-*") if (path / "measured-grpo").is_dir())
    if not seeds:
        raise ConfigError(
            f"{folder} has no seed that was measured to the end",
            "Run `bash scripts/reproduce_micro.sh` first; it goes on where it was.",
        )
    runs = {"base": folder / "measured-base"}
    for seed in seeds:
        number = seed.name.removeprefix("seed-")
        runs[f"SFT, seed {number}"] = seed / "measured-sft"
        runs[f"GRPO, seed {number}"] = seed / "measured-grpo"
    runs["teacher"] = folder / "measured-teacher"
    summaries = {name: _summary(run) for name, run in runs.items()}
    yield HEAD.format(
        cores=_cores(),
        machine=platform.machine(),
        python=".".join(platform.python_version_tuple()[:2]),
        problems=f"{summaries['base']['problems']:,}",
    )
    yield from _metrics(summaries)
    yield "\n## What each stage adds, in points, paired by problem\n"
    yield from _gains(seeds, runs)
    yield "\n## How long it took\n"
    yield from _times(folder)
    yield ""
    yield SHOWN.rstrip()


def _metrics(summaries: dict[str, dict[str, Any]]) -> Iterator[str]:
    yield _line("", *METRICS, "regress")
    yield _line(":--", *["--:"] * (len(METRICS) + 1))
    for name, summary in summaries.items():
        cells = [
            _points(summary[key], signed=key == "heavy_minus_vote") for key in METRICS.values()
        ]
        regress = summary["regress"]
        yield _line(name, *cells, f"{regress['count']:,} of {regress['of']:,}")


def _gains(seeds: list[Path], runs: dict[str, Path]) -> Iterator[str]:
    yield _line("", "M@8", "V@8", "HM@4", "HM@4 - V@8 after it")
    yield _line(":--", *["--:"] * 4)
    values = {name: _values(run) for name, run in runs.items()}
    for seed in seeds:
        number = seed.name.removeprefix("seed-")
        for stage, before in (("SFT", "base"), ("GRPO", f"SFT, seed {number}")):
            name = f"{stage}, seed {number}"
            after, earlier = values[name], values[before]
            added = [
                _points(bootstrap_difference(*_paired(after, earlier, place)), signed=True)
                for place in range(3)
            ]
            over_vote = [(heavy, vote) for _, vote, heavy in after.values()]
            heavy, vote = zip(*over_vote, strict=True)
            yield _line(name, *added, _points(bootstrap_difference(heavy, vote), signed=True))


def _values(run: Path) -> dict[str, tuple[float, ...]]:
    """M, V and HM of each problem."""
    return {
        trace.problem.id: (
            estimators.mean_at_k(trace),
            estimators.vote_at_k(trace),
            estimators.heavy_mean_at_d(trace, 1),
        )
        for trace in read_traces(run)
    }


def _paired(
    after: dict[str, tuple[float, ...]], before: dict[str, tuple[float, ...]], place: int
) -> tuple[list[float], list[float]]:
    if set(after) != set(before):
        raise ConfigError(
            "The measured runs are not over the same problems",
            "Remove the folders measured-* and run scripts/reproduce_micro.sh again.",
        )
    return [after[name][place] for name in after], [before[name][place] for name in after]


def _times(folder: Path) -> Iterator[str]:
    """Minutes of each stage, a column a seed; what serves all seeds stands in the first one's."""
    took: dict[str, dict[str, int]] = {}
    seeds: dict[str, None] = {}
    with (folder / "seconds.tsv").open(encoding="utf-8") as file:
        for seed, stage, seconds in csv.reader(file, delimiter="\t"):
            seeds[seed] = None
            of_stage = took.setdefault(stage, {})
            of_stage[seed] = of_stage.get(seed, 0) + int(seconds)
    totals = {seed: sum(of_stage.get(seed, 0) for of_stage in took.values()) for seed in seeds}
    yield _line("minutes", *(f"seed {seed}" for seed in seeds))
    yield _line(":--", *["--:"] * len(seeds))
    for stage, seconds_of in {**took, "all": totals}.items():
        yield _line(stage, *(_minutes(seconds_of.get(seed)) for seed in seeds))


def _minutes(seconds: int | None) -> str:
    return "-" if seconds is None else f"{seconds / 60:.1f}"


def _summary(run: Path) -> dict[str, Any]:
    try:
        return dict(json.loads((run / "summary.json").read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{run} is no whole run", "Run `bash scripts/reproduce_micro.sh`; it goes on."
        ) from error


def _points(value: Interval | dict[str, float], signed: bool = False) -> str:
    if isinstance(value, Interval):
        mean, low, high = value.mean, value.low, value.high
    else:
        mean, low, high = value["mean"], value["low"], value["high"]
    sign = "+" if signed else ""
    return f"{100 * mean:{sign}.1f} ({100 * low:{sign}.1f} to {100 * high:{sign}.1f})"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _cores() -> int:
    return len(os.sched_getaffinity(0))


if __name__ == "__main__":
    main()

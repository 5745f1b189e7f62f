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
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from heavydistill.errors import ConfigError, UserError
from heavydistill.metrics import estimators
from heavydistill.metrics.intervals import Interval, bootstrap_difference
from heavydistill.metrics.tally import prompts_of, verifiers_of
from heavydistill.pipeline.result import all_traces
from heavydistill.report.text import versions

K, D = 8, 4
METRICS = {
    f"M@{K}": "mean_at_k",
    f"V@{K}": "vote_at_k",
    f"P@{K}": "pass_at_k",
    f"HM@{D}": "heavy_mean_at_d",
    f"HP@{D}": "heavy_pass_at_d",
    f"HM@{D} - V@{K}": "heavy_minus_vote",
}
HEAD = """# What the micro models show

Made by `bash scripts/reproduce_micro.sh`, once for each seed, on {cores} CPU cores ({machine},
Python {python}), with nothing downloaded. {problems} problems that no model learnt from; in per
cent, with 95 % bootstrap intervals over problems. K = {k} trajectories a problem, all of which
vote; D = {d} deliberations on a cache of four of them. M@{k} is the thinker's own pass@1. Regress:
of the problems whose vote is right, those whose deliberations are wrong. {versions}
"""
SHOWN = """## What is shown, and what is not

- A student of 0.6 million parameters (base) is trained on a teacher's traces (SFT), and then on
  verdicts on its own work (GRPO). What each of the two changes stands above, with what it does to
  the thinker's own pass@1; an interval that holds 0 shows no change.
- It is procedural arithmetic, and teacher and student are tiny. Nothing here says by how much a
  model of billions of parameters gains, or on which problems.
- All answers are sampled at temperature 1. Part of what GRPO adds there is that the student is
  surer of its tokens; configs/grpo/README.md tells what is left of it at a low temperature.
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
    begun = sorted(folder.glob("seed-*"))
    seeds = [path for path in begun if (path / "measured-grpo").is_dir()]
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
        k=K,
        d=D,
        versions=_versions(runs.values()),
    )
    if left_out := [path.name for path in begun if path not in seeds]:
        yield f"Not measured to the end, and left out: {', '.join(left_out)}.\n"
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
    yield _line("", f"M@{K}", f"V@{K}", f"HM@{D}", f"HM@{D} - V@{K} after it")
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
        for trace in all_traces(run)
    }


def _versions(runs: Iterable[Path]) -> str:
    prompts: set[str] = set()
    verifiers: set[str] = set()
    for run in runs:
        for trace in all_traces(run):
            prompts |= prompts_of(trace)
            verifiers |= verifiers_of(trace)
    return versions(sorted(prompts), sorted(verifiers))


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
    try:
        lines = (folder / "seconds.tsv").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(
            f"{folder} does not tell how long it took: {error}",
            "Give the folder of `bash scripts/reproduce_micro.sh`.",
        ) from error
    for seed, stage, seconds in csv.reader(lines, delimiter="\t"):
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
        summary = dict(json.loads((run / "summary.json").read_text(encoding="utf-8")))
        is_whole = (summary["k"], summary["d"], summary["missing"]) == (K, D, 0)
    except (OSError, ValueError, LookupError):
        is_whole = False
    if not is_whole:
        raise ConfigError(
            f"{run} is no whole run with K = {K} and D = {D}",
            "Run `bash scripts/reproduce_micro.sh`; it goes on.",
        )
    return summary


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

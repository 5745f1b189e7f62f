"""Write docs/evidence/results.md from the runs of scripts/reproduce_micro.sh.

    python scripts/results_micro.py out/reproduce --write docs/evidence/results.md

The page has a table of base, SFT, GRPO and teacher on the same problems, with rows for each seed;
the differences of SFT to the base and of GRPO to SFT, paired by problem; the number of seeds in
which each holds; and the time of each stage. Runs with different prompts or verifiers are refused.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from heavydistill.errors import ConfigError, UserError
from heavydistill.experiments.comparison import AFTER, side_of
from heavydistill.metrics.comparison import (
    Comparison,
    Side,
    compare_sides,
    refuse_other_verdicts,
    refuse_other_ways,
)
from heavydistill.metrics.controls import GARBLED
from heavydistill.metrics.intervals import Interval, bootstrap_mean
from heavydistill.report.grid import counted, points, versions
from heavydistill.run.result import all_traces

K, D = 8, 4
NAMES = [f"M@{K}", f"V@{K}", f"P@{K}", f"HM@{D}", f"HP@{D}", f"HM@{D} - V@{K}"]
HEAD = """# What the micro models show

Made by `bash scripts/reproduce_micro.sh`, once for each seed, on {cores} CPU cores ({machine},
Python {python}), without a model or data from anywhere else. {problems} problems of seeds that no
training uses; of their texts, {known} stand among the {learnt} that were learnt from. In per cent,
with 95 % intervals over problems. K = {k} trajectories a problem, all of which vote; D = {d}
deliberations on a cache of {width} of them. M@{k} is the thinker's own pass@1. Last columns: of the
problems whose vote is right, those of which not more than half of the deliberations are right;
HM@{d} minus the vote of as many trajectories as take as many written tokens; and HM@{d} minus that
of the same attempts with other values (garbled). Temperature {temperature:g}, top_p {top_p:g},
top_k {top_k}. {versions}
"""
SHOWN = """## What this does not show

- Both models have 0.9 million parameters, and the problems are procedural arithmetic. Nothing here
  says by how much a model of billions of parameters gains, or on which problems.
- A part of what GRPO adds at this temperature is only that the student is surer of its tokens;
  [configs/grpo](../../configs/grpo/README.md) has what is left of it at a low one, seed by seed.
- The intervals are over problems. What another training seed gives stands in the rows of the seeds,
  of which there are few; all of them have one base, one teacher and one set of traces.
- The configurations were chosen on other problems than these.
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="output folder of reproduce_micro.sh")
    parser.add_argument("--write", type=Path, required=True, help="the .md file to write")
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
            f"{folder} has no seed with all measurements",
            "Run `bash scripts/reproduce_micro.sh` first; it continues where it stopped.",
        )
    sides = _measured(folder, seeds)
    added = {
        name: compare_sides(side, sides[_before(name)], {})
        for name, side in sides.items()
        if name.startswith(("SFT", "GRPO"))
    }
    yield _head(folder, seeds, sides.values())
    if left_out := [path.name for path in begun if path not in seeds]:
        yield f"Not measured to the end, and left out: {', '.join(left_out)}.\n"
    yield from _metrics(sides)
    yield "\n## What each stage adds, in points, paired by problem\n"
    yield from _gains(added)
    yield "\n## In how many seeds\n"
    yield from _held(sides, added)
    yield "\n## How long it took\n"
    yield from _times(folder, [_number(seed) for seed in seeds])
    yield ""
    yield SHOWN.rstrip()


def _measured(folder: Path, seeds: list[Path]) -> dict[str, Side]:
    """All measured models, in the order of the table."""
    runs = {"base": folder / "measured-base"}
    for seed in seeds:
        runs[f"SFT, seed {_number(seed)}"] = seed / "measured-sft"
        runs[f"GRPO, seed {_number(seed)}"] = seed / "measured-grpo"
    runs["teacher"] = folder / "measured-teacher"
    for run in runs.values():
        _demand_whole(run)
    sides = {name: side_of(run / AFTER, name) for name, run in runs.items()}
    for side in sides.values():
        refuse_other_ways(sides["base"], side)
        refuse_other_verdicts(sides["base"], side)
    return sides


def _number(seed: Path) -> str:
    return seed.name.removeprefix("seed-")


def _before(name: str) -> str:
    """The model before a stage."""
    return name.replace("GRPO", "SFT") if name.startswith("GRPO") else "base"


def _demand_whole(run: Path) -> None:
    try:
        summary = json.loads((run / AFTER / "summary.json").read_text(encoding="utf-8"))
        is_whole = (summary["k"], summary["d"], summary["missing"]) == (K, D, 0)
    except (OSError, ValueError, LookupError):
        is_whole = False
    if not is_whole:
        raise ConfigError(
            f"{run} is not a complete run with K = {K} and D = {D}",
            "Run `bash scripts/reproduce_micro.sh`; it continues.",
        )


def _head(folder: Path, seeds: list[Path], sides: Iterable[Side]) -> str:
    one, *others = sides
    runs = [folder / "traces", folder / "attempts", *(seed / "own" for seed in seeds)]
    learnt = {trace.problem.text for run in runs for trace in all_traces(run)}
    tallies = [side.tally for side in (one, *others)]
    prompts, verifiers = (
        sorted(set().union(*(getattr(tally, of) for tally in tallies)))
        for of in ("prompts", "verifiers")
    )
    return HEAD.format(
        cores=len(os.sched_getaffinity(0)),
        machine=platform.machine(),
        python=".".join(platform.python_version_tuple()[:2]),
        problems=f"{len(one.tally.rows):,}",
        known=sum(row.question[0] in learnt for row in one.tally.rows),
        learnt=f"{len(learnt):,}",
        k=K,
        d=D,
        width=one.config["cache"]["width"],
        versions=versions(prompts, verifiers),
        **one.config["deliberate"]["sampling"],
    )


def _metrics(sides: dict[str, Side]) -> Iterator[str]:
    yield _line("", *NAMES, "regress", f"HM@{D} - votes", f"HM@{D} - garbled")
    yield _line(":--", *["--:"] * (len(NAMES) + 3))
    for name, side in sides.items():
        values = [change.after for _, _, change in compare_sides(side, None, {}).metrics]
        regress, votes = side.run.summary.regress.interval, _over_votes(side)
        garbled = _over_garbled(side)
        yield _line(
            name,
            *(_points(value, signed="-" in of) for of, value in zip(NAMES, values, strict=True)),
            _points(regress) if regress else "-",
            _points(votes, signed=True) if votes else "-",
            _points(garbled, signed=True) if garbled else "-",
        )


def _over_votes(side: Side) -> Interval | None:
    """HM@D minus the vote with as many written tokens; None if that needs more than K."""
    curve = side.run.summary.curve
    return curve.matched["completion"].heavy_minus_vote if curve else None


def _over_garbled(side: Side) -> Interval | None:
    """HM@D minus HM@D on the same attempts with other values; None if it was not measured."""
    minus = side.minus_controls.get(GARBLED)
    return bootstrap_mean([*minus.values()]) if minus else None


def _gains(added: dict[str, Comparison]) -> Iterator[str]:
    yield _line("", *NAMES)
    yield _line(":--", *["--:"] * len(NAMES))
    for name, comparison in added.items():
        yield _line(name, *(_points(value, signed=True) for value in _differences(comparison)))


def _differences(comparison: Comparison) -> list[Interval]:
    return [change.difference for _, _, change in comparison.metrics if change.difference]


def _held(sides: dict[str, Side], added: dict[str, Comparison]) -> Iterator[str]:
    """Lines that summarize the intervals of all seeds."""
    for stage in ("SFT", "GRPO"):
        of_seeds = [_differences(added[name]) for name in added if name.startswith(stage)]
        for name, values in zip(NAMES, zip(*of_seeds, strict=True), strict=True):
            if name in (f"M@{K}", f"V@{K}", f"HM@{D}"):
                yield f"- {stage} adds to {name}: {_signs(values)}."
    after = [side for name, side in sides.items() if name.startswith("GRPO")]
    over = {f"V@{K}": [side.run.summary.heavy_minus_vote for side in after]}
    over["the vote of as many written tokens"] = [_over_votes(side) for side in after]
    over["the same without the attempts' values"] = [_over_garbled(side) for side in after]
    for name, margins in over.items():
        yield f"- HM@{D} after GRPO is above {name} by: {_signs([v for v in margins if v])}."


def _signs(values: Sequence[Interval]) -> str:
    if not values:
        return "not known"
    means = sorted(value.mean for value in values)
    above = sum(value.low > 0 for value in values)
    below = sum(value.high < 0 for value in values)
    shown = " to ".join(dict.fromkeys(points(mean) for mean in (means[0], means[-1])))
    return (
        f"{shown} points; the interval is above 0 in {above} of {counted(len(values), 'seed')}, "
        f"and below 0 in {below}"
    )


def _times(folder: Path, measured: list[str]) -> Iterator[str]:
    """Minutes of each stage by seed; shared stages are in the column of the first seed."""
    took: dict[str, dict[str, int]] = {}
    try:
        lines = (folder / "seconds.tsv").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(
            f"{folder} has no times: {error}",
            "Give the folder of `bash scripts/reproduce_micro.sh`.",
        ) from error
    for seed, stage, seconds in csv.reader(lines, delimiter="\t"):
        of_stage = took.setdefault(stage, {})
        of_stage[seed] = of_stage.get(seed, 0) + int(seconds)
    seeds = sorted({seed for of_stage in took.values() for seed in of_stage})
    # Alone, a seed would also need the stages that another seed has run.
    whole = {
        seed: sum(of_stage.get(seed, next(iter(of_stage.values()))) for of_stage in took.values())
        for seed in measured
    }
    yield _line("minutes", *(f"seed {seed}" for seed in seeds))
    yield _line(":--", *["--:"] * len(seeds))
    for stage, seconds_of in {**took, "everything for this seed": whole}.items():
        yield _line(stage, *(_minutes(seconds_of.get(seed)) for seed in seeds))


def _minutes(seconds: int | None) -> str:
    return "-" if seconds is None else f"{seconds / 60:.1f}"


def _points(value: Interval, signed: bool = False) -> str:
    sign = "+" if signed else ""
    mean, low, high = (f"{100 * share:{sign}.1f}" for share in (value.mean, value.low, value.high))
    return f"{mean} ({low} to {high})"


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()

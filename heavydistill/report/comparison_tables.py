"""The tables of a comparison as cells, so that the terminal and Markdown show the same.

Not covered: the numbers themselves, which ``metrics.comparison`` computes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

from heavydistill.metrics.comparison import Changes, Comparison, Measured
from heavydistill.metrics.counts import COLUMNS
from heavydistill.metrics.intervals import Interval, Pairs
from heavydistill.metrics.summary import NAMES, STRATA
from heavydistill.report.breakdown import strata_note
from heavydistill.report.text import FEW, counted, marked

Cell = Callable[[Interval | None, bool], str]
"""A value with its interval, and whether it is a difference, in points; ``-`` if there is none."""

_RATES = {
    "rescue": "vote not right, deliberation right",
    "regress": "vote right, deliberation wrong",
    "emergent": "no trajectory right, deliberation right",
}


@dataclass(frozen=True, slots=True)
class Layout:
    """How the tables are shown.

    Attributes:
        cell: How a value is.
        narrow: How it is where many stand side by side.
        of_groups: The metrics that are shown of each group.
    """

    cell: Cell
    narrow: Cell
    of_groups: Collection[str]


@dataclass(frozen=True, slots=True)
class Grid:
    """A table.

    Attributes:
        head: Titles of its columns.
        rows: Label, note on it (or empty), and the cells of the other columns.
        below: What is to be known of all of it, if anything.
    """

    head: list[str]
    rows: list[tuple[str, str, list[str]]]
    below: str = ""

    @property
    def has_few(self) -> bool:
        """Whether anything in it is marked as of few problems."""
        return any(FEW in text for _, note, cells in self.rows for text in (note, *cells))


def runs_of(comparison: Comparison) -> list[Measured]:
    """The run before, if there is one, and the run after."""
    return [run for run in (comparison.before, comparison.after) if run]


def grids(comparison: Comparison, layout: Layout) -> Iterator[Grid]:
    """All tables of a comparison with a run before, in order; those without rows left out."""
    cell = layout.cell
    runs = runs_of(comparison)
    titles = [run.name.capitalize() for run in runs]
    found = [
        _provenance(runs, titles),
        _asked_differently(comparison, titles),
        _metrics(comparison, titles, cell),
        _groups("verifier", comparison.by_verifier, comparison, layout),
        _groups("family", comparison.by_family, comparison, layout),
        _pairs(comparison, runs),
        _strata(runs, titles, cell),
        _habits(runs, titles, cell),
        _tokens(runs, titles),
        _samples(runs),
    ]
    yield from (grid for grid in found if grid.rows)


def _provenance(runs: list[Measured], titles: list[str]) -> Grid:
    """Who and what made each of them."""

    def model(run: Measured, role: str) -> str:
        one = getattr(run, role)
        if one is None:
            return "of another run" if role == "thinker" else "-"
        return f"{one.name} {one.revision}".strip()

    rows = [
        ("Thinker", [model(run, "thinker") for run in runs]),
        ("Deliberator", [model(run, "deliberator") for run in runs]),
        ("Prompts", [",\n".join(run.summary.prompts) for run in runs]),
        ("Verifiers", [",\n".join(run.summary.verifiers) for run in runs]),
        ("heavydistill", [run.heavydistill or "unknown" for run in runs]),
        ("Traces", [_listed(run.summary.statuses) for run in runs]),
    ]
    if any(run.left_out for run in runs):
        told = ["-" if run.left_out is None else f"{run.left_out:,}" for run in runs]
        rows.append(("Rows left out", told))
    return Grid(["Run", *titles], [(label, "", cells) for label, cells in rows])


def _asked_differently(comparison: Comparison, titles: list[str]) -> Grid:
    rows = [
        (one.key, "", [json.dumps(value, ensure_ascii=False) for value in (one.before, one.after)])
        for one in comparison.asked_differently
    ]
    return Grid(["Asked differently", *titles], rows)


def _metrics(comparison: Comparison, titles: list[str], cell: Cell) -> Grid:
    rows = [
        (
            name,
            meaning,
            [
                cell(change.before, is_points),
                cell(change.after, is_points),
                cell(change.difference, True),
            ],
        )
        for name, meaning, change in comparison.metrics
        for is_points in [change is comparison.heavy_minus_vote]
    ]
    return Grid(["Metric, 95% intervals", *titles, "Points"], rows)


def _groups(title: str, groups: dict[str, Changes], comparison: Comparison, layout: Layout) -> Grid:
    """The differences; of one group alone they are those of all problems."""
    shown = [
        (key, name)
        for key, name in zip(NAMES, comparison.names, strict=True)
        if key in layout.of_groups and getattr(comparison, key)
    ]
    rows = [
        (
            name,
            marked(counted(changes.problems, "problem"), changes.problems),
            [layout.narrow(getattr(changes, key).difference, True) for key, _ in shown],
        )
        for name, changes in groups.items()
        if len(groups) > 1
    ]
    return Grid([f"Points by {title}", *(name for _, name in shown)], rows)


def _pairs(comparison: Comparison, runs: list[Measured]) -> Grid:
    told = {
        "vote": (comparison.vote_pairs, _left_out(comparison, runs)),
        "first deliberation": (comparison.deliberation_pairs, ""),
    }
    before, after = (run.name for run in runs)
    rows = [(name, note, _counts(pairs)) for name, (pairs, note) in told.items() if pairs or note]
    head = ["Problems right", "both", f"only {before}", f"only {after}", "neither", "McNemar's p"]
    return Grid(head, rows)


def _left_out(comparison: Comparison, runs: list[Measured]) -> str:
    """Whose votes are not paired, and why; empty if all are."""
    before, after = runs
    if before.summary.k != after.summary.k:
        return f"not paired: K={before.summary.k} and K={after.summary.k}"
    unpaired = comparison.unpaired_votes
    if not unpaired:
        return ""
    return f"without {counted(unpaired, 'problem')} of more than {after.summary.k} trajectories"


def _counts(pairs: Pairs | None) -> list[str]:
    if pairs is None:
        return ["-"] * 5
    counts = (pairs.both, pairs.only_before, pairs.only_after, pairs.neither)
    return [*(f"{count:,}" for count in counts), p_value(pairs.p_value)]


def _strata(runs: list[Measured], titles: list[str], cell: Cell) -> Grid:
    """Of each run its own: a problem may be in another stratum after."""
    rows = []
    for stratum in STRATA:
        groups = [run.summary.by_stratum.get(stratum) for run in runs]
        if any(groups):
            cells = [
                text
                for group in groups
                for text in (
                    marked(f"{group.problems:,}", group.problems) if group else "0",
                    cell(group.heavy_minus_vote if group else None, True),
                )
            ]
            rows.append((stratum, "", cells))
    head = [text for title in titles for text in (f"{title}: problems", f"{title}: HM - V")]
    return Grid(["Stratum", *head], rows, strata_note(*(run.summary for run in runs)))


def _habits(runs: list[Measured], titles: list[str], cell: Cell) -> Grid:
    rows = []
    for name, meaning in _RATES.items():
        rates = [getattr(run.summary, name) for run in runs]
        cells = [f"{cell(rate.interval, False)}\n{rate.count:,} of {rate.of:,}" for rate in rates]
        rows.append((name, meaning, cells))
    copies = [cell(run.summary.vote_copy_rate, False) for run in runs]
    rows.append(("vote copy", "a deliberation repeats the vote", copies))
    first = [_first_place(run, cell) for run in runs]
    rows.append(("first place", "it repeats what stands first, points over chance", first))
    return Grid(["Rate, 95% intervals", *titles], rows)


def _first_place(run: Measured, cell: Cell) -> str:
    if not run.summary.places:
        return cell(None, True)
    first = run.summary.places[0]
    problems = marked(counted(first.problems, "problem"), first.problems)
    return f"{cell(first.over_expected, True)}\n{problems}"


def _tokens(runs: list[Measured], titles: list[str]) -> Grid:
    stages = dict.fromkeys(stage for run in runs for stage in run.summary.usage)
    rows = []
    for stage in stages:
        for what in ("prompt", "completion"):
            cells = []
            for run in runs:
                used = run.summary.usage.get(stage)
                unknown = getattr(used, f"unknown_{what}", 0)
                told = f"{getattr(used, what, 0):,}"
                cells.append(f"{told} and {unknown:,} unknown" if unknown else told)
            rows.append((f"{stage}, {what}", "", cells))
    return Grid(["Tokens", *titles], rows)


def _samples(runs: list[Measured]) -> Grid:
    rows = [
        (stage, run.name, counts.cells)
        for run in runs
        for stage, counts in run.summary.samples.items()
    ]
    return Grid(["Samples", "all", *COLUMNS], rows)


def p_value(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _listed(counts: dict[str, Any]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())

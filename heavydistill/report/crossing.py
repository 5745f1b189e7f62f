"""The table of a crossing: a row a thinker, a column a deliberator.

Not covered: the numbers themselves, which ``metrics.crossing`` computes.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from heavydistill.metrics.crossing import Cell, Crossing, Samplings
from heavydistill.metrics.intervals import Interval
from heavydistill.report.text import (
    counted,
    percent,
    plain,
    points,
    print_if_few,
    print_table,
    sampled,
    versions,
)
from heavydistill.report.text import table as new_table


def print_crossing(crossing: Crossing, console: Console) -> None:
    """Print what each deliberator makes of each thinker's attempts."""
    parts = [
        counted(crossing.problems, "problem"),
        f"K={crossing.k} trajectories",
        f"D={crossing.d} deliberations",
        counted(crossing.rounds, "round"),
    ]
    console.print(plain(", ".join(parts), style="bold"))
    cells = {(cell.thinker, cell.deliberator): cell for cell in crossing.cells}
    readers = list(dict.fromkeys(cell.deliberator for cell in crossing.cells))
    k, d = crossing.k, crossing.d
    columns = [f"M@{k}", f"V@{k}", f"P@{k}", *(f"HM@{d} {reader}" for reader in readers)]
    shown = new_table(console, "Thinker", *columns)
    for thinker in crossing.thinkers:
        own = (thinker.mean_at_k, thinker.vote_at_k, thinker.pass_at_k)
        heavy = [_cell(cells[thinker.name, reader]) for reader in readers]
        shown.add_row(plain(thinker.name), *map(_share, own), *heavy)
    print_table(shown, console)
    console.print(plain(f"Below HM@{d}: HM@{d} - V@{k} in points. With 95% intervals."))
    for told in not_alike(crossing.sampling):
        console.print(plain(told))
    for cell in crossing.cells:
        if cell.unasked:
            line = (
                f"{cell.deliberator} answered nothing on {cell.unasked:,} problem(s) of "
                f"{cell.thinker}, which count as wrong"
            )
            console.print(plain(line), soft_wrap=True)
    for line in unanswered(crossing):
        console.print(plain(line), soft_wrap=True)
    console.print(plain(versions(crossing.prompts, crossing.verifiers)), soft_wrap=True)
    print_if_few(crossing.problems, console)


def _share(value: Interval) -> str:
    return f"{percent(value.mean)}\n{percent(value.low).rstrip('%')} to {percent(value.high)}"


def _cell(cell: Cell) -> str:
    added = cell.heavy_minus_vote
    ends = f"{points(added.low)} to {points(added.high)}"
    return f"{_share(cell.heavy_mean_at_d)}\n{points(added.mean)}\n{ends}"


def unanswered(crossing: Crossing) -> Iterator[str]:
    """How many samples of each row and cell hold no final answer, where any do."""
    for name, counts in crossing.samples.items():
        if counts.unanswered:
            yield (
                f"Without a final answer, {name}: {counts.unanswered:,} of {counts.finished:,} "
                f"that ended ({percent(counts.unanswered_share)}), which count as wrong"
            )


def not_alike(sampling: Samplings) -> Iterator[str]:
    """How models were sampled in the stages in which some were not sampled as others."""
    for stage, of_each in sampling.items():
        told = {name: sampled(chosen) for name, chosen in of_each.items()}
        if len(set(told.values())) > 1:
            each = "; ".join(f"{name}: {how}" for name, how in told.items())
            yield f"Not sampled alike, {stage}: {each}"

"""The figures of an evaluation's controls and of a crossing, as grids.

Controls show what else the same models and caches do, at which cost; a crossing has a row for each
thinker and a column for each deliberator. Not covered: the numbers themselves, which
``metrics.controls`` and ``metrics.crossing`` compute.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from heavydistill.metrics.controls import NAMES, Answering, Controlled
from heavydistill.metrics.crossing import Cell, Crossing, Samplings
from heavydistill.metrics.intervals import Interval
from heavydistill.report.grid import (
    Grid,
    Line,
    bare_ends,
    bracketed,
    counted,
    ends,
    percent,
    points,
    sampled,
    share,
    versions,
)
from heavydistill.report.terminal import plain, print_few_warning, print_grid, print_lines

HEAVY = "deliberation on the attempts"
_CONTROLS_NOTE = (
    "With 95% intervals. Tokens are those of one answer, with the attempts that it reads: written, "
    "and with those read. Of heavy: the share of the written tokens of a deliberation on the "
    "attempts, for controls are not matched in tokens. Heavy adds: points, by problem."
)


def print_controlled(controlled: Controlled, console: Console) -> None:
    """Print what each way to answer achieves and costs, and what the order of attempts does."""
    print_grid(controls(controlled), console)
    print_lines(control_lines(controlled), console)
    print_lines([versions(controlled.prompts, controlled.verifiers)], console)


def ways_to_answer(controlled: Controlled) -> list[tuple[str, Answering, Interval | None]]:
    """(name, figures, what heavy answers add) of heavy answers and each control."""
    others = [(NAMES[each.name], each.answering, each.heavy_minus) for each in controlled.controls]
    return [(HEAVY, controlled.heavy, None), *others]


def controls(controlled: Controlled) -> Grid:
    """Each way to answer: accuracy, tokens, and what deliberation adds."""
    lines = []
    for name, answering, heavy_minus in ways_to_answer(controlled):
        tokens = [
            "unknown" if mean is None else f"{mean:,.0f}"
            for mean in (answering.tokens, answering.all_tokens)
        ]
        adds = bracketed(heavy_minus, signed=True).replace(" (", "\n(") if heavy_minus else ""
        of_heavy = _of_heavy(answering, controlled.heavy)
        lines.append(Line(name, [share(answering.accuracy), *tokens, of_heavy, adds]))
    head = ["Way to answer", "Right", "Written", "And read", "Of heavy", "Heavy adds"]
    return Grid(head, lines, [_CONTROLS_NOTE])


def _of_heavy(answering: Answering, heavy: Answering) -> str:
    """Written tokens over those of a heavy answer."""
    if answering.tokens is None or not heavy.tokens:
        return "unknown"
    return f"{100 * answering.tokens / heavy.tokens:.0f}%"


def control_lines(controlled: Controlled) -> Iterator[str]:
    """The flaws of each way to answer, and what the order of the attempts does."""
    for name, answering, _ in ways_to_answer(controlled):
        flaws = {
            "cut off": answering.cut_off,
            "failed or without an answer": answering.without_answer,
            "with text but no final answer": answering.unanswered,
        }
        found = ", ".join(f"{count:,} {what}" for what, count in flaws.items() if count)
        if found:
            yield f"Of {answering.samples:,} answers ({name}): {found}; they count as wrong"
        if answering.unasked:
            yield (
                f"{answering.unasked:,} problem(s) without an answer ({name}), which count as wrong"
            )
        unknown = {
            "written": answering.unknown_tokens,
            "written and read": answering.unknown_all_tokens,
        }
        for what, count in unknown.items():
            if count:
                yield f"{count:,} problem(s) whose tokens {what} are unknown ({name})"
    if orders := controlled.orders:
        means = ", ".join(percent(mean.mean) for mean in orders.means)
        number = len(orders.means)
        yield f"{number} orders of the same attempts, {orders.problems:,} problems: {means} right"
        differ = percent(orders.between.mean)
        within = f", of one order in {percent(orders.within.mean)}" if orders.within else ""
        yield f"Two deliberations of different orders differ in {differ} of pairs{within}"
        if orders.flips:
            yield f"Due to the order: {bracketed(orders.flips, signed=True)} points"


def print_crossing(crossing: Crossing, console: Console) -> None:
    """Print what each deliberator makes of each thinker's attempts."""
    heading = (
        f"{counted(crossing.problems, 'problem')}, K={crossing.k} trajectories, "
        f"D={crossing.d} deliberations, {counted(crossing.rounds, 'round')}"
    )
    console.print(plain(heading, style="bold"))
    print_grid(crossed(crossing), console)
    print_lines(not_alike(crossing.sampling), console, fold=True)
    print_lines(crossing_lines(crossing), console)
    print_lines([versions(crossing.prompts, crossing.verifiers)], console)
    print_few_warning(crossing.problems, console)


def crossed(crossing: Crossing) -> Grid:
    """A row for each thinker, a column for each deliberator."""
    cells = {(cell.thinker, cell.deliberator): cell for cell in crossing.cells}
    readers = list(dict.fromkeys(cell.deliberator for cell in crossing.cells))
    k, d = crossing.k, crossing.d
    lines = [
        Line(
            thinker.name,
            [
                *map(_share, (thinker.mean_at_k, thinker.vote_at_k, thinker.pass_at_k)),
                *(_crossed_cell(cells[thinker.name, reader]) for reader in readers),
            ],
        )
        for thinker in crossing.thinkers
    ]
    head = ["Thinker", f"M@{k}", f"V@{k}", f"P@{k}", *(f"HM@{d} {reader}" for reader in readers)]
    note = f"Below HM@{d}: HM@{d} - V@{k} in points. With 95% intervals."
    return Grid(head, lines, [note])


def _share(value: Interval) -> str:
    return f"{percent(value.mean)}\n{bare_ends(value)}%"


def _crossed_cell(cell: Cell) -> str:
    added = cell.heavy_minus_vote
    return f"{_share(cell.heavy_mean_at_d)}\n{points(added.mean)}\n{ends(added, signed=True)}"


def crossing_lines(crossing: Crossing) -> Iterator[str]:
    """Problems without deliberations, and samples without a final answer, where there are any."""
    for cell in crossing.cells:
        if cell.unasked:
            yield (
                f"{cell.deliberator} answered nothing on {cell.unasked:,} problem(s) of "
                f"{cell.thinker}, which count as wrong"
            )
    for name, counts in crossing.samples.items():
        if counts.unanswered:
            yield (
                f"Without a final answer, {name}: {counts.unanswered:,} of {counts.finished:,} "
                f"that ended ({percent(counts.unanswered_share)}), which count as wrong"
            )


def not_alike(sampling: Samplings) -> Iterator[str]:
    """How models were sampled in the stages in which some were not sampled as others."""
    for stage, by_model in sampling.items():
        parameters = {name: sampled(chosen) for name, chosen in by_model.items()}
        if len(set(parameters.values())) > 1:
            each = "; ".join(f"{name}: {how}" for name, how in parameters.items())
            yield f"Not sampled alike, {stage}: {each}"

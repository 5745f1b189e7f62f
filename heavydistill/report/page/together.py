"""What an evaluation or a crossing says of its runs together, beside the figures of each.

The files that `heavydistill evaluate` and `heavydistill cross` left in their folders are shown:
what changed from before to after, what other ways to answer are worth (controls), and which
deliberator makes what of whose attempts. They are there once all runs are.

Not covered: the runs themselves (``overview``), and the numbers, which ``metrics`` computes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

from heavydistill.errors import ConfigError
from heavydistill.metrics.comparison import COMPARISON, read_comparison
from heavydistill.metrics.controls import CONTROLS, Answering, Orders, read_controlled
from heavydistill.metrics.controls import NAMES as CONTROLS_NAMES
from heavydistill.metrics.crossing import CROSSING, Cell, read_crossing
from heavydistill.metrics.intervals import Interval
from heavydistill.metrics.summary import NAMES
from heavydistill.report.comparison_tables import Grid, Layout, grids
from heavydistill.report.crossing import not_alike, unanswered
from heavydistill.report.page import plots
from heavydistill.report.page.cards import card, difference, ends, few_warning, scroll, share
from heavydistill.report.page.markup import Html, joined, table, tag
from heavydistill.report.text import FEW_NOTE, counted, percent, points, versions

_HEAVY = "deliberation"
_METRICS = "Metric"
_WAY = (
    "Way to answer",
    "Right",
    "Tokens written",
    "And read",
    "Deliberation adds",
    "Count as wrong",
)
_TOKENS = (
    "Tokens are those of one answer, with the attempts that it reads. Controls are not matched in "
    "tokens, so that a claim should hold in both those written and those with the ones read."
)


def of_folder(folder: Path) -> Html:
    """The section of an evaluation or a crossing; nothing if the folder is neither.

    A file that cannot be read, as one of another version, is named in its place.
    """
    files = {COMPARISON: _changes, CONTROLS: _controls, CROSSING: _crossing}
    cards = [
        _card(folder / name, made) for name, made in files.items() if (folder / name).is_file()
    ]
    cards = [one for one in cards if one]
    if not cards:
        return Html("")
    title = tag("h2", f"{folder.absolute().name}: its runs together")
    return tag("section", title, tag("div", *cards, class_="cards"), class_="runs")


def _card(file: Path, made: Callable[[Path], Html]) -> Html:
    try:
        return made(file)
    except ConfigError as error:
        return card(file.name, tag("p", str(error), class_="banner"), wide=True)


def _changes(file: Path) -> Html:
    """All tables of a comparison; those beside the metrics are folded. Nothing of one run alone."""
    comparison = read_comparison(file)
    if not comparison.before:
        return Html("")
    layout = Layout(cell=_cell, narrow=_cell, of_groups=NAMES)
    tables = {grid.head[0]: _table(grid) for grid in grids(comparison, layout)}
    told = f"{counted(comparison.problems, 'problem')}; points are paired by problem."
    unfolded = [one for title, one in tables.items() if title.startswith(_METRICS)]
    folded = [
        tag("details", tag("summary", title), one)
        for title, one in tables.items()
        if not title.startswith(_METRICS)
    ]
    return card(
        "Before and after",
        tag("div", tag("p", told, class_="note"), *unfolded, *few_warning(comparison.problems)),
        tag("div", *folded),
        wide=True,
    )


def _cell(value: Interval | None, signed: bool) -> str:
    """In two lines."""
    if value is None:
        return "-"
    if signed:
        return f"{points(value.mean)}\n{points(value.low)} to {points(value.high)}"
    return f"{percent(value.mean)}\n{ends(value)}"


def _table(grid: Grid) -> Html:
    """With what is to be known of it below."""
    rows = [
        [_lines(f"{label}\n{note}" if note else label), *map(_lines, cells)]
        for label, note, cells in grid.rows
    ]
    notes = [grid.below, FEW_NOTE if grid.has_few else ""]
    told = (tag("p", note, class_="note") for note in notes if note)
    return joined([scroll(table(grid.head, rows)), *told])


def _lines(cell: str) -> Html:
    """The first line of a cell, and the others below."""
    first, *others = cell.split("\n")
    return joined([first, *(tag("small", line) for line in others)])


def _controls(file: Path) -> Html:
    """Each way to answer with what it costs, among the votes of the evaluated run."""
    controlled = read_controlled(file)
    heavy = (_HEAVY, "deliberation on the attempts", controlled.heavy, None)
    ways: list[tuple[str, str, Answering, Interval | None]] = [heavy]
    ways += [
        (one.name, CONTROLS_NAMES[one.name], one.answering, one.heavy_minus)
        for one in controlled.controls
    ]
    rows = [_way(meaning, answering, added) for _, meaning, answering, added in ways]
    return card(
        "What else the same models do",
        tag("div", *_drawn([*_votes(file.with_name(COMPARISON)), *_dots(ways)])),
        tag("div", _orders(controlled.orders)),
        tag(
            "div",
            scroll(table(_WAY, rows)),
            tag("p", _TOKENS, class_="note"),
            *few_warning(controlled.problems),
            tag("p", versions(controlled.prompts, controlled.verifiers), class_="note"),
            class_="whole",
        ),
        wide=True,
    )


def _drawn(dots: list[plots.Dot]) -> list[Html]:
    """The plot; nothing if no tokens are known."""
    keys = [
        ("vote", "vote of k attempts"),
        ("deliberation", "deliberation"),
        ("control", "control"),
    ]
    return [plots.curve_plot(dots), plots.legend(keys)] if dots else []


def _dots(ways: list[tuple[str, str, Answering, Interval | None]]) -> Iterator[plots.Dot]:
    """Of each way whose tokens are known; ways that meet in one place share a label."""
    met: dict[tuple[float, float], list[str]] = {}
    for name, _, answering, _ in ways:
        if answering.tokens is not None:
            met.setdefault((answering.tokens, answering.accuracy.mean), []).append(name)
    for name, meaning, answering, _ in ways:
        if answering.tokens is None:
            continue
        here = met[answering.tokens, answering.accuracy.mean]
        label = ", ".join(here) if name == here[0] != _HEAVY else ""
        mark = "deliberation" if name == _HEAVY else "control"
        yield plots.Dot(mark, meaning, answering.accuracy, answering.tokens, label)


def _votes(evaluation: Path) -> list[plots.Dot]:
    """Of the evaluated run; which are outdone is known among themselves, and not by controls."""
    curve = read_comparison(evaluation).after.summary.curve
    votes = [p for p in curve.points if p.way == "vote" and p.tokens] if curve else []
    return [dataclasses.replace(plots.dot(vote), outdone=False) for vote in votes]


def _way(meaning: str, answering: Answering, added: Interval | None) -> list[str]:
    """A row of ``_WAY``."""
    return [
        meaning,
        share(answering.accuracy),
        _tokens(answering.tokens, answering.unknown_tokens),
        _tokens(answering.all_tokens, answering.unknown_all_tokens),
        difference(added),
        _flaws(answering),
    ]


def _tokens(mean: float | None, unknown: int) -> Html:
    """Of one answer, with the number of the problems that are not in the mean below."""
    told = tag("small", f"{counted(unknown, 'problem')} unknown") if unknown else ""
    return joined(["-" if mean is None else f"{mean:,.0f}", told])


def _flaws(answering: Answering) -> str:
    flaws = {
        "cut off": answering.cut_off,
        "without an answer": answering.without_answer,
        "with text but no final answer": answering.unanswered,
    }
    told = [f"{count:,} {what} of {answering.samples:,}" for what, count in flaws.items() if count]
    told += [f"{counted(answering.unasked, 'problem')} unasked"] if answering.unasked else []
    return ", ".join(told) or "-"


def _orders(orders: Orders | None) -> Html:
    """What it does to move the attempts of a cache round; nothing if that was not asked."""
    if orders is None:
        return Html("")
    means = ", ".join(percent(mean.mean) for mean in orders.means)
    told = (
        f"{len(orders.means)} orders of the same attempts, {counted(orders.problems, 'problem')}: "
        f"{means} right. Two deliberations of different orders differ in "
        f"{percent(orders.between.mean)} of pairs"
    )
    if orders.within and orders.flips:
        flips = f"{points(orders.flips.low)} to {points(orders.flips.high)}"
        told += (
            f", of one order in {percent(orders.within.mean)}; due to the order: "
            f"{points(orders.flips.mean)} points ({flips})"
        )
    return tag("p", f"{told}.", class_="note")


def _crossing(file: Path) -> Html:
    """A row a thinker, a column a deliberator."""
    crossing = read_crossing(file)
    cells = {(cell.thinker, cell.deliberator): cell for cell in crossing.cells}
    readers = list(dict.fromkeys(cell.deliberator for cell in crossing.cells))
    k, d = crossing.k, crossing.d
    head = ["Thinker", f"M@{k}", f"V@{k}", f"P@{k}", *(f"HM@{d} {reader}" for reader in readers)]
    rows = [
        [
            one.name,
            *map(share, (one.mean_at_k, one.vote_at_k, one.pass_at_k)),
            *(_met(cells[one.name, reader]) for reader in readers),
        ]
        for one in crossing.thinkers
    ]
    told = f"{counted(crossing.problems, 'problem')}; below HM@{d}: HM@{d} - V@{k} in points."
    return card(
        "Thinkers and deliberators",
        tag(
            "div",
            tag("p", told, class_="note"),
            scroll(table(head, rows)),
            *(tag("p", one, class_="note warning") for one in not_alike(crossing.sampling)),
            *(tag("p", one, class_="note warning") for one in unanswered(crossing)),
            *few_warning(crossing.problems),
            tag("p", versions(crossing.prompts, crossing.verifiers), class_="note"),
            class_="whole",
        ),
        wide=True,
    )


def _met(cell: Cell) -> Html:
    added = cell.heavy_minus_vote
    told = f"{points(added.mean)} ({points(added.low)} to {points(added.high)})"
    told += f"; {counted(cell.unasked, 'problem')} unasked" if cell.unasked else ""
    return joined([share(cell.heavy_mean_at_d), tag("small", told)])

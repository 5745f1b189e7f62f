"""What cache width and the number of deliberations buy; see ``metrics.experiments.widths``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console

from heavydistill.metrics.curve import Point
from heavydistill.metrics.experiments.widths import Diversity, WidthFigures, WidthReport
from heavydistill.metrics.intervals import Interval
from heavydistill.metrics.problem_figures import COSTS, Cost
from heavydistill.report.grid import (
    UNKNOWN,
    Grid,
    IntervalCell,
    Line,
    bracketed,
    difference,
    few_warning,
    percent,
)
from heavydistill.report.summary import CURVE_NOTE
from heavydistill.report.terminal import print_grid, print_lines, say

_DEPTHS_NOTE = (
    "Right: the vote of so many deliberations, HM of one. Dollars and seconds are those of an "
    "answer; a stage takes as long as its slowest sample did in the run."
)
_SHOWN_NOTE = (
    "Distinct: share of distinct answers, and of distinct first steps of arithmetic, among the "
    "attempts; smaller for more attempts. Over: differences of HM in points, paired by problem."
)
_BUDGETS: dict[Cost, str] = {"completion": "Tokens written", "all": "And those read"}
_BUDGET_NOTE = (
    "With the tokens of 1, 2, 4, ... attempts a problem: the largest vote of attempts, and of "
    "deliberations on caches, that they pay for."
)


def print_widths(report: WidthReport, console: Console) -> None:
    """Print the headline and the tables."""
    say(headline(report), console, "bold")
    print_lines(lines(report), console)
    for grid in grids(report):
        print_grid(grid, console)


def headline(report: WidthReport) -> str:
    """Return what the widest cache adds over the narrowest one."""
    first = report.caches[0]
    same = [each for each in report.caches if each.cache.selection == first.cache.selection]
    narrow = min(same, key=lambda each: each.cache.width)
    if not narrow.minus_widest:
        return f"Caches of {first.cache.width} attempts, by the number of deliberations"
    less = narrow.minus_widest
    added = Interval(-less.mean, -less.high, -less.low)
    return (
        f"Caches of {first.cache.width} attempts: {bracketed(added, signed=True)} points over "
        f"caches of {narrow.cache.width}"
    )


def lines(report: WidthReport) -> Iterator[str]:
    """Yield sentences on the problems."""
    yield from few_warning(report.problems)
    if report.smaller_pools:
        yield f"Left out: {report.smaller_pools:,} with fewer than {report.k:,} attempts"


def grids(report: WidthReport) -> Iterator[Grid]:
    """Yield the tables of depth, of equal tokens, and of the attempts shown."""
    yield _depths(report)
    for cost in COSTS:
        yield _budgets(report, cost)
    yield _shown(report)


def curves(report: WidthReport) -> dict[str, list[Point]]:
    """Return the points whose tokens are known, of votes and of each kind of cache."""
    groups = {"vote": report.votes} | {
        " ".join(("caches of", *name)): [figures.point for figures in each.depths]
        for *name, each in _named(report)
    }
    return {name: known for name, of in groups.items() if (known := [p for p in of if p.tokens])}


def _named(report: WidthReport) -> list[tuple[str, str, WidthFigures]]:
    """Return (width, selection if there are several, figures) of the caches, narrowest first."""
    of_several = len({each.cache.selection for each in report.caches}) > 1
    return [
        (str(each.cache.width), of_several * each.cache.selection, each)
        for each in sorted(report.caches, key=lambda each: each.cache.width)
    ]


def _depths(report: WidthReport) -> Grid:
    lines = []
    for name, selection, each in _named(report):
        for figures in each.depths:
            point = figures.point
            shares = (IntervalCell(of, narrow=True) for of in (point.accuracy, figures.heavy_pass))
            tokens = (_tokens(point, cost) for cost in COSTS)
            usd = UNKNOWN if figures.usd is None else f"{figures.usd:,.4f}"
            seconds = UNKNOWN if figures.seconds is None else f"{figures.seconds:,.1f}"
            of_round = f"round {point.rounds}" if report.rounds > 1 else ""
            note = " ".join(filter(None, (selection, of_round)))
            lines.append(Line(name, [str(point.d), *shares, *tokens, usd, seconds], note))
    head = ["Attempts", "D", "Right", "HP@D", "Written", "And read", "USD", "Seconds"]
    return Grid(head, lines, [_DEPTHS_NOTE, CURVE_NOTE])


def _tokens(point: Point, cost: Cost) -> str:
    if cost not in point.tokens:
        return UNKNOWN
    return f"{point.tokens[cost].mean:,.0f}{' *' if point.pareto[cost] else '  '}"


def _budgets(report: WidthReport, cost: Cost) -> Grid:
    """Return what the tokens of 1, 2, 4, ... attempts buy, from the cheapest deliberation on."""
    ways = {("vote of attempts", ""): report.votes} | {
        (name, selection): [each.point for each in of.depths if each.point.rounds == report.rounds]
        for name, selection, of in _named(report)
    }
    known = {
        name: [(point.tokens[cost].mean, point) for point in points if cost in point.tokens]
        for name, points in ways.items()
    }
    heavy = [tokens for points in known.values() for tokens, point in points if point.d]
    if not heavy:
        return Grid([], [])
    budget, budgets = next(iter(known.values()))[0][0], list[float]()
    while not budgets or budgets[-1] < max(heavy):
        budgets += [budget] if budget >= min(heavy) else []
        budget *= 2
    lines = [
        Line(name, [_bought(points, budget) for budget in budgets], note)
        for (name, note), points in known.items()
    ]
    head = [_BUDGETS[cost], *(f"{budget:,.0f}" for budget in budgets)]
    return Grid(head, lines, [_BUDGET_NOTE])


def _bought(points: Sequence[tuple[float, Point]], budget: float) -> str:
    """Return the accuracy of the largest vote that a budget pays for."""
    paid = [point for tokens, point in points if tokens <= budget]
    if not paid:
        return UNKNOWN
    number = f"D={paid[-1].d}" if paid[-1].d else f"K={paid[-1].k}"
    return f"{percent(paid[-1].accuracy.mean)} {number}"


def _shown(report: WidthReport) -> Grid:
    def line(name: str, note: str, of: Diversity, *points: Interval | None) -> Line:
        shares = [of.distinct_answers, of.distinct_steps, of.has_right]
        added = [difference(value, narrow=True) if value else "" for value in points]
        cells = [*(IntervalCell(value, narrow=True) for value in shares), *added]
        return Line(name, cells, note)

    lines = [
        line(name, selection, each.shown, each.minus_widest, each.minus_selection)
        for name, selection, each in _named(report)
    ]
    lines.append(line(f"all {report.k}", "", report.pool, None, None))
    own = report.caches[0].cache
    head = ["Attempts", "Distinct answers", "First steps", "A right one"]
    return Grid([*head, f"Over {own.width}", f"Over {own.selection}"], lines, [_SHOWN_NOTE])

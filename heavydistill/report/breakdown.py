"""Tables of the parts of a run: kinds and strata of problems, fewer votes, the same tokens.

Not covered: the numbers themselves, which ``metrics.groups`` and ``metrics.curve`` compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Console

from heavydistill.metrics.curve import Curve, Point, Way
from heavydistill.metrics.intervals import Interval
from heavydistill.metrics.row import COSTS, Cost
from heavydistill.metrics.summary import NAMES, Metrics, Summary
from heavydistill.report.text import (
    counted,
    marked,
    percent,
    plain,
    points,
    print_marks,
    print_table,
    table,
)

COUNTED: dict[Cost, str] = {"completion": "tokens written", "all": "tokens written and read"}
STRATA_NOTE = (
    "Strata are told by the vote itself: in pools of K, HM - V is at most 0 where that is right "
    "(all-right, majority-right), and at least 0 where it is wrong (minority-right, all-wrong)."
)
_WAYS: dict[Way, str] = {
    "vote": "vote of {k}",
    "pass": "any of {k}",
    "deliberation": "deliberation on {k}",
    "heavy_vote": "vote of {d} delib.",
}


def print_breakdown(summary: Summary, console: Console) -> None:
    """Print the metrics of each kind and stratum, and the curve."""
    kinds = {"Verifier": summary.by_verifier, "Family": summary.by_family}
    # Of one kind alone, it is what stands above.
    groups = {title: each for title, each in kinds.items() if len(each) > 1}
    groups["Stratum"] = summary.by_stratum
    for title, each in groups.items():
        _print_groups(title, each, summary, console)
    if note := strata_note(summary):
        console.print(plain(note))
    print_marks([of.problems for each in groups.values() for of in each.values()], console)
    if summary.curve:
        _print_curve(summary.curve, console)


def matched_lines(summary: Summary) -> Iterator[str]:
    """What the tokens of a deliberation are worth in votes, by what is counted."""
    curve = summary.curve
    if not curve:
        return
    heavy, k = f"HM@{summary.d}", curve.k
    for cost, matched in curve.matched.items():
        told = f"{heavy} takes the {COUNTED[cost]} of {matched.votes:,.1f} votes"
        if matched.vote and matched.heavy_minus_vote:
            yield (
                f"{told}, which are right in {ranged(matched.vote)}; {heavy} minus that: "
                f"{ranged(matched.heavy_minus_vote, True)} points"
            )
        else:
            yield f"{told}; to compare, pools need {matched.needs:,} trajectories, and have {k:,}"
    yield from left_out_lines(curve)


def left_out_lines(curve: Curve) -> Iterator[str]:
    """Which problems are in none of its figures, or in none of tokens."""
    if curve.smaller_pools:
        yield (
            f"Left out of what tokens are worth: {curve.smaller_pools:,} with fewer than "
            f"{curve.k:,} trajectories"
        )
    for cost, unknown in curve.unknown_tokens.items():
        if unknown:
            yield f"Left out of {COUNTED[cost]}: {unknown:,}, whose tokens are not all known"


def strata_note(*summaries: Summary) -> str:
    """By what HM - V of their strata is bound; empty where none has it."""
    groups = [group for summary in summaries for group in summary.by_stratum.values()]
    return STRATA_NOTE if any(group.heavy_minus_vote for group in groups) else ""


def name_of(point: Point) -> str:
    """A point of the curve."""
    told = _WAYS[point.way].format(k=point.k, d=point.d)
    return told + (f", round {point.rounds}" if point.rounds > 1 else "")


def ranged(value: Interval | None, signed: bool = False) -> str:
    """A share, or points, with its interval."""
    if value is None:
        return "-"
    told = points if signed else percent
    low, high = (told(end).rstrip("%") for end in (value.low, value.high))
    return f"{told(value.mean)} ({low} to {high})"


def _print_groups(
    title: str, groups: Mapping[str, Metrics], summary: Summary, console: Console
) -> None:
    """A group in two lines, the second with the 95 % intervals in whole points."""
    k, d = summary.k, summary.d
    names = dict(
        zip(NAMES, (f"M@{k}", f"V@{k}", f"P@{k}", f"HM@{d}", f"HP@{d}", "HM - V"), strict=True)
    )
    shown = {key: name for key, name in names.items() if getattr(summary, key) is not None}
    rows = table(console, title, *shown.values())
    for name, metrics in groups.items():
        cells = [_cell(getattr(metrics, key), signed="minus" in key) for key in shown]
        problems = marked(counted(metrics.problems, "problem"), metrics.problems)
        label = plain(name).append(f"\n  {problems}")
        rows.add_row(label, *cells)
    print_table(rows, console)


def _print_curve(curve: Curve, console: Console) -> None:
    """A way to answer each, and beside a vote what no choice among as many can beat."""
    bounds = {point.k: point.accuracy.mean for point in curve.points if point.way == "pass"}
    head = ("Answer", "Right", "95% interval", "Any right", "Written", "And read")
    rows = table(console, *head)
    for point in curve.points:
        if point.way == "pass":
            continue
        value = point.accuracy
        rows.add_row(
            name_of(point),
            percent(value.mean),
            f"{percent(value.low)} to {percent(value.high)}",
            percent(bounds[point.k]) if point.way == "vote" else "",
            *(_tokens(point, cost) for cost in COSTS),
        )
    print_table(rows, console)
    console.print(
        plain(
            "Tokens a problem, written, and with those read. * nothing else is as often right for "
            "as few."
        )
    )


def _tokens(point: Point, cost: Cost) -> str:
    if cost not in point.tokens:
        return "-"
    return f"{point.tokens[cost].mean:,.0f}{' *' if point.pareto[cost] else '  '}"


def _cell(value: Interval, *, signed: bool) -> str:
    if signed:
        return f"{points(value.mean)}\n{100 * value.low:+.0f} to {100 * value.high:+.0f}"
    return f"{100 * value.mean:.1f}\n{100 * value.low:.0f}-{100 * value.high:.0f}"

"""An evaluated run beside its controls: accuracy, cost, and what its attempts are worth.

Not covered: computing the numbers (``metrics.controls``).
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from heavydistill.metrics.controls import (
    ATTEMPT,
    NAMES,
    SKILL,
    WORDING,
    Control,
    ControlReport,
    MethodMetrics,
    kind_of,
)
from heavydistill.metrics.intervals import Interval
from heavydistill.report.grid import (
    Grid,
    Line,
    bracketed,
    counted,
    difference,
    few_note,
    few_warning,
    listed,
    marked,
    percent,
    points,
    share,
    versions,
)
from heavydistill.report.terminal import print_grid, print_lines, say

HEAVY = "heavy"
_NOTE = (
    "With 95% intervals. Tokens are those of one answer, with the attempts that it reads: written, "
    "and with those read. Controls are not matched in tokens. Heavy adds: points, paired by "
    "problem."
)
_WORDINGS = {
    "full": "the run's",
    "short": "brief",
    "none": "no instructions",
    "foreign": "other words",
}
_OF_WORDINGS = (
    "The same attempts. Claims: balanced accuracy. Loses: points against full, paired by problem; "
    "at most: its one-sided 95% bound."
)
_LARGER_POOLS = "sample more attempts than a cache shows, e.g. --k 16 --set cache.width=8"


def print_controlled(controlled: ControlReport, console: Console) -> None:
    """Print accuracy and cost of each way to answer, transplants, and the effect of the order."""
    shown = list(grids(controlled))
    for grid in shown:
        print_grid(grid, console)
    print_lines([*lines(controlled), *few_note(shown)], console)
    print_lines([versions(controlled.prompts, controlled.verifiers)], console)


def print_headline(controlled: ControlReport, console: Console) -> None:
    """Print what deliberation adds over the vote, and what remains without the attempts' values."""
    if sentence := headline(controlled):
        say(sentence[0], console, "bold")
        print_lines([sentence[1]], console)


def headline(controlled: ControlReport) -> tuple[str, str] | None:
    """Return the headline and the numbers that support it; None without garbled attempts."""
    worth = controlled.worth
    if not worth:
        return None
    heavy, without = worth.heavy_minus_vote.mean, worth.garbled_minus_vote.mean
    of_it = points(without)
    if heavy > 0 >= without:
        of_it = f"none of it ({of_it})"
    elif heavy >= without > 0:
        of_it += " of it"
    claim = f"Deliberation {points(heavy)} points over the vote"
    claim += f"; {of_it} without the attempts' values"
    claim += "" if worth.is_shown else ": no use of the attempts shown"
    facts = [
        f"The values add {bracketed(worth.heavy_minus_garbled, signed=True)} points",
        f"without them {bracketed(worth.garbled_minus_vote, signed=True)} over the vote",
    ]
    if worth.garbled_minus_alone:
        facts[-1] += f" and {bracketed(worth.garbled_minus_alone, signed=True)} over no attempts"
    of_all = f"95% intervals, {counted(worth.problems, 'problem')}."
    return claim, " ".join([f"{', '.join(facts)}; {of_all}", *few_warning(worth.problems)])


def grids(controlled: ControlReport) -> Iterator[Grid]:
    """Yield the ways to answer, and the transplants if there are any."""
    yield _ways(controlled)
    rows = [
        ("right attempts out", controlled.falls, "a minority of those shown was right"),
        ("a right attempt in", controlled.rises, "all of those shown were wrong"),
    ]
    transplants = [
        Line(
            name,
            [
                marked(f"{found.problems:,}", found.problems),
                *(share(found.before), share(found.after), difference(found.change)),
            ],
            note,
        )
        for name, found, note in rows
        if found
    ]
    if transplants:
        yield Grid(["Transplant", "Problems", "Right before", "After", "Points"], transplants)
    planted = [
        Line(
            f"{step.shared} of {step.shown} share it",
            [marked(f"{step.problems:,}", step.problems), share(step.right), share(step.follows)],
        )
        for step in controlled.planted
    ]
    if planted:
        yield Grid(["One wrong step, planted", "Problems", "Right", "Follow it"], planted)
    if controlled.wordings:
        yield _wordings(controlled)


def _wordings(controlled: ControlReport) -> Grid:
    """Return each wording with its accuracy, its claims, and its loss against the run's own."""
    rows = []
    for each in controlled.wordings:
        found, is_other = each.compared, each.wording != "full"
        loss = [difference(found.loss), f"{100 * found.loss_at_most:.1f}"] if is_other else ["", ""]
        claims = share(found.claims) if found.claims else "none"
        cells = [share(each.answering.accuracy), difference(found.minus_vote), claims, *loss]
        rows.append(Line(each.wording, cells, _WORDINGS[each.wording]))
    head = ["Wording", "Right", "- vote", "Claims", "Loses", "At most"]
    return Grid(head, rows, [_OF_WORDINGS])


def _ways(controlled: ControlReport) -> Grid:
    """Return each way to answer with its accuracy, tokens, and the gain of deliberation."""
    rows = []
    for name, meaning, answering, heavy_minus in _answers(controlled):
        tokens = [
            "unknown" if mean is None else f"{mean:,.0f}"
            for mean in (answering.tokens, answering.all_tokens)
        ]
        adds = difference(heavy_minus) if heavy_minus else ""
        rows.append(Line(name, [share(answering.accuracy), *tokens, adds], meaning))
    rows += [
        Line(name, ["not asked", *[""] * 3], NAMES[kind_of(name)]) for name in controlled.not_asked
    ]
    head = ["Way to answer", "Right", "Written", "And read", "Heavy adds"]
    return Grid(head, rows, [_NOTE])


def _answers(controlled: ControlReport) -> list[tuple[str, str, MethodMetrics, Interval | None]]:
    """Return (name, meaning, metrics, gain of heavy answers over it) for each way to answer."""
    single = [controlled.attempt] if controlled.attempt else []
    others = [
        (each.name, _meaning(each, controlled), each.answering, each.heavy_minus)
        for each in (*single, *controlled.controls)
    ]
    return [(HEAVY, "deliberation on the attempts", controlled.heavy, None), *others]


def _meaning(control: Control, controlled: ControlReport) -> str:
    meaning = "one attempt of the thinker" if control.name == ATTEMPT else NAMES[control.name]
    if control.name == SKILL and controlled.skill_followed is not None:
        samples = control.answering.samples
        meaning += f", shown in {controlled.skill_followed:,} of {samples:,} answers"
    return f"{meaning}, {control.wording}'s prompt" if control.wording else meaning


def lines(controlled: ControlReport) -> Iterator[str]:
    """Yield sentences on flaws of the ways to answer, on transplants and the attempts' order."""
    for other in controlled.unreported:
        right = bracketed(other.answering.accuracy)
        yield f"Alone with the {other.wording}'s prompt: {right} right"
    for name, why in controlled.not_asked.items():
        yield f"Not asked ({name}): {why}"
    if gain := controlled.skill_minus_attempt:
        adds = bracketed(gain, signed=True)
        yield f"The skill in one context adds {adds} points over one attempt of the thinker"
    for control in controlled.controls:
        if left := controlled.problems - control.problems:
            yield f"{left:,} problem(s) without such attempts are left out ({control.name})"
    yield from _flaws(controlled)
    if controlled.falls and not controlled.rises:
        yield f"No right attempt could be put in: {_LARGER_POOLS}"
    if controlled.rises and not controlled.falls:
        yield "No right attempts could be taken out: no cache has a minority of them"
    if orders := controlled.orders:
        means = ", ".join(percent(mean.mean) for mean in orders.means)
        number = len(orders.means)
        yield f"{number} orders of the same attempts, {orders.problems:,} problems: {means} right"
        differ = percent(orders.between.mean)
        within = f", of one order in {percent(orders.within.mean)}" if orders.within else ""
        yield f"Two deliberations of different orders differ in {differ} of pairs{within}"
        if orders.flips:
            yield f"Due to the order: {bracketed(orders.flips, signed=True)} points"


def _flaws(controlled: ControlReport) -> Iterator[str]:
    ways = [(name, answering) for name, _, answering, _ in _answers(controlled)]
    ways += [(f"{WORDING} {one.wording}", one.answering) for one in controlled.wordings[1:]]
    for name, answering in ways:
        flaws = {
            "cut off": answering.cut_off,
            "failed or without an answer": answering.without_answer,
            "with text but no final answer": answering.unanswered,
        }
        if found := listed(flaws):
            yield f"Of {answering.samples:,} answers ({name}): {found}; they count as wrong"
        problems = {
            "without an answer, which count as wrong": answering.unasked,
            "with an unknown number of written tokens": answering.unknown_tokens,
            "with an unknown number of read tokens": answering.unknown_all_tokens,
        }
        yield from (f"{n:,} problem(s) {what} ({name})" for what, n in problems.items() if n)

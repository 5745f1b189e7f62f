"""Early stopping as a headline, lines and a table; see ``metrics.experiments.stopping``."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from heavydistill.metrics.experiments import stopping
from heavydistill.metrics.experiments.stopping import Loss, RuleFigures, StoppingReport
from heavydistill.report.grid import UNKNOWN, Grid, Line, few_warning, percent, points
from heavydistill.report.terminal import print_grid, print_lines, say

_NAMES: dict[stopping.AnswerRule, str] = {
    "vote": "vote of {k}",
    "stop": "stop if {k} agree",
    "heavy": "deliberation on {k}",
    "gate": "one if short",
}
_NOTE = (
    "Tokens written, US dollars and seconds are per right answer; a stage takes as long as its "
    "slowest sample did in the run. Lost: points against the better of vote and deliberation, with "
    "the one-sided 95% bound, on the problems that did not choose a rule."
)


def print_stopping(report: StoppingReport, console: Console) -> None:
    """Print what early stopping saves and loses, and all rules."""
    title, support = headline(report)
    say(title, console, "bold")
    print_lines([support, *lines(report)], console)
    print_grid(curve(report), console)


def headline(report: StoppingReport) -> tuple[str, str]:
    """Return whether a rule loses little enough, and the numbers behind this."""
    stops = [each for each in report.rules if each.rule == "stop"]
    rule = report.chosen or min(stops, key=lambda each: each.chosen.at_most)
    loss = rule.confirmed if report.chosen else rule.chosen
    over = f"{report.confirming:,} others" if report.chosen else f"{report.choosing:,} problems"
    support = f"Stopping where {rule.k} agree {_change(loss)} over {over}; one-sided 95% bound of "
    support += f"the loss {points(loss.at_most)}."
    support = " ".join([support, *few_warning(report.confirming)])
    if report.stop_at:
        saved = rule.saved["completion"]
        tokens = f"{percent(saved)} of the tokens written" if saved is not None else "attempts"
        return f"Stopping where the first {rule.k} attempts agree saves {tokens}", support
    which = "confirmed" if report.chosen else "shown"
    most = f"{100 * stopping.MAX_LOSS:g} points"
    return f"No rule {which} that saves tokens and loses at most {most}", support


def lines(report: StoppingReport) -> Iterator[str]:
    """Yield sentences on the problems, what is compared, and what would show more."""
    yield (
        f"K={report.k}: {report.choosing:,} problems choose, {report.confirming:,} others confirm"
    )
    vote, heavy = (percent(report.rules[way].right.mean) for way in (report.k - 1, -1))
    yield f"Against the better of both: deliberation is right in {heavy}, the vote in {vote}"
    if report.baseline == "vote":
        yield "This pair is below its vote. Use the vote, which costs less, or another deliberator"
    if report.needs:
        yield f"About {report.needs:,} problems in each half could confirm a rule"
    yield gate(report)
    if report.other_sizes:
        yield f"Left out: {report.other_sizes:,} with another number of attempts"


def gate(report: StoppingReport) -> str:
    """Return what one attempt at short questions loses, and whether a service may use this gate."""
    loss = report.gate.confirmed
    others = f"a stop where {report.stop_at} agree" if report.stop_at else "a deliberation"
    end = "A service may use this gate" if report.gate_at else "No gate is shown on both halves"
    return (
        f"Gate: one attempt at questions of at most {report.gate.k:,} characters, and {others} at "
        f"others, {_change(loss)}; bound {points(loss.at_most)}. {end}"
    )


def curve(report: StoppingReport) -> Grid:
    """Return a row for each way to answer."""
    head = ["Answer", "Right", "Stops", "Tokens", "USD", "Seconds", "Lost"]
    return Grid(head, [*map(_line, [*report.rules, report.gate])], [_NOTE])


def _change(loss: Loss) -> str:
    return f"{'gains' if loss.mean < 0 else 'loses'} {abs(100 * loss.mean):.1f} points"


def _line(rule: RuleFigures) -> Line:
    formats = {"completion": ",.0f", "usd": ",.4f", "seconds": ",.1f"}
    spent = [
        UNKNOWN if (amount := rule.per_right[expense]) is None else format(amount, formats[expense])
        for expense in stopping.EXPENSES
    ]
    lost = f"{points(rule.confirmed.mean)} ({points(rule.confirmed.at_most)})"
    cells = [percent(rule.right.mean), percent(rule.stopped), *spent, lost]
    return Line(_NAMES[rule.rule].format(k=rule.k), cells)

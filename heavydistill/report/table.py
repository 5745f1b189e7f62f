"""The table of a run's metrics, as the user sees it after ``generate``.

Not covered: the numbers themselves, which ``metrics.summary`` computes.
"""

from __future__ import annotations

from collections import Counter

from rich.console import Console
from rich.text import Text

from heavydistill.metrics.counts import Usage
from heavydistill.metrics.intervals import Interval
from heavydistill.metrics.summary import NO_LABEL, Summary
from heavydistill.models.tokenizer import ESTIMATED
from heavydistill.report.breakdown import matched_lines, print_breakdown
from heavydistill.report.samples import print_samples, print_unanswered
from heavydistill.report.text import (
    counted,
    marked,
    percent,
    plain,
    points,
    print_if_few,
    print_marks,
    print_table,
    table,
    versions,
)

_NO_OUTCOME = "not delib."


def print_summary(summary: Summary, console: Console, *, breakdown: bool = False) -> None:
    """Print what a run achieved, what failed in it, what it cost, and by which versions.

    Args:
        summary: Of the run.
        console: Where to.
        breakdown: Print kinds and strata of problems and the curve over tokens as well.
    """
    console.print(_heading(summary))
    _print_metrics(summary, console)
    _print_differences(summary, console)
    print_if_few(summary.problems, console)
    if summary.rounds > 1:
        _print_rounds(summary, console)
    _print_rates(summary, console)
    _print_labels(summary, console)
    if breakdown:
        print_breakdown(summary, console)
    _print_matched(summary, console)
    _print_failures(summary, console)
    _print_judging(summary, console)
    _print_usage(summary, console)
    told = versions(summary.prompts, summary.verifiers)
    console.print(plain(f"\n{told}"), soft_wrap=True)
    print_unanswered(summary, console)


def _heading(summary: Summary) -> Text:
    parts = [
        counted(summary.problems, "problem"),
        f"K={summary.k} trajectories",
        f"D={summary.d} deliberations",
        counted(summary.rounds, "round"),
    ]
    statuses = ", ".join(f"{count:,} {status}" for status, count in summary.statuses.items())
    return Text("\n").join([Text(", ".join(parts), style="bold"), plain(f"Traces: {statuses}")])


def _print_metrics(summary: Summary, console: Console) -> None:
    k, d = summary.k, summary.d
    rows = [
        (f"M@{k}", summary.mean_at_k, "share of trajectories that are right"),
        (f"V@{k}", summary.vote_at_k, "the most frequent answer (the vote) is right"),
        (f"P@{k}", summary.pass_at_k, "any trajectory is right"),
        (f"HM@{d}", summary.heavy_mean_at_d, "share of deliberations that are right"),
        (f"HP@{d}", summary.heavy_pass_at_d, "any deliberation is right"),
    ]
    metrics = table(console, "Metric", "Value", "95% interval", "Meaning")
    metrics.columns[-1].justify = "left"
    for name, value, meaning in rows:
        if value is not None:
            metrics.add_row(name, percent(value.mean), _range(value), meaning)
    print_table(metrics, console)


def _print_differences(summary: Summary, console: Console) -> None:
    if summary.heavy_minus_vote is None or summary.heavy_minus_mean is None:
        console.print(Text("\nNo problem was deliberated, so there is nothing to compare."))
        return
    rows = [
        (f"V@{summary.k}", summary.heavy_minus_vote, "voting"),
        (f"M@{summary.k}", summary.heavy_minus_mean, "a single trajectory"),
    ]
    differences = table(console, "Difference", "Points", "95% interval", "Reading")
    differences.columns[-1].justify = "left"
    for baseline, value, name in rows:
        differences.add_row(
            f"HM@{summary.d} - {baseline}",
            points(value.mean),
            f"{points(value.low)} to {points(value.high)}",
            _reading(value, name),
        )
    print_table(differences, console)


def _reading(difference: Interval, baseline: str) -> Text:
    if difference.low > 0:
        return Text(f"better than {baseline}", style="green")
    if difference.high < 0:
        return Text(f"worse than {baseline}", style="red")
    return Text("no difference shown")


def _print_rounds(summary: Summary, console: Console) -> None:
    d = summary.d
    rounds = table(console, "Round", f"HM@{d}", "95% interval", f"HP@{d}", "95% interval")
    for of_round in summary.per_round:
        mean, any_right = of_round.heavy_mean, of_round.heavy_pass
        rounds.add_row(
            str(of_round.round),
            percent(mean.mean),
            _range(mean),
            percent(any_right.mean),
            _range(any_right),
        )
    print_table(rounds, console)


def _print_rates(summary: Summary, console: Console) -> None:
    rates = table(console, "Rate", "Value", "95% interval", "Problems", "Deliberation")
    rates.columns[-1].justify = "left"
    rows = [
        ("rescue", summary.rescue, "right, vote was not"),
        ("regress", summary.regress, "wrong, vote was right"),
        ("emergent", summary.emergent, "right, no trajectory was"),
    ]
    for name, rate, meaning in rows:
        interval = _range(rate.interval) if rate.interval else ""
        rates.add_row(
            name, percent(rate.share), interval, f"{rate.count:,} of {rate.of:,}", meaning
        )
    if copies := summary.vote_copy_rate:
        rates.add_row("vote copy", percent(copies.mean), _range(copies), "", "repeats the vote")
    if summary.places:
        first = summary.places[0]
        over = first.over_expected
        rates.add_row(
            "first place",
            points(over.mean),
            f"{points(over.low)} to {points(over.high)}",
            marked(f"{first.problems:,}", first.problems),
            "repeats it, over chance",
        )
    print_table(rates, console)
    print_marks([first.problems for first in summary.places[:1]], console)


def _print_matched(summary: Summary, console: Console) -> None:
    """Whether deliberation is worth its tokens, as far as the pools tell."""
    lines = list(matched_lines(summary))
    if lines:
        console.print()
    for line in lines:
        console.print(plain(line))


def _print_labels(summary: Summary, console: Console) -> None:
    """The cross table, without the rows and columns that hold only zeros."""
    outcomes = [outcome for outcome, count in summary.outcomes.items() if count]
    names = [_NO_OUTCOME if outcome == NO_LABEL else outcome for outcome in outcomes]
    labels = table(console, "Stratum", *names, "all")
    for stratum, count in summary.strata.items():
        if count:
            cells = [summary.outcomes_by_stratum[stratum][outcome] for outcome in outcomes]
            labels.add_row(stratum, *(f"{cell:,}" for cell in cells), f"{count:,}")
    labels.add_row("all", *(f"{summary.outcomes[o]:,}" for o in outcomes), f"{summary.problems:,}")
    print_table(labels, console)


def _print_failures(summary: Summary, console: Console) -> None:
    samples = summary.samples
    print_samples(samples, console)
    kinds = Counter(summary.trajectories.failures) + Counter(summary.deliberations.failures)
    if kinds:
        listed = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
        console.print(plain(f"Failed requests: {listed}"))
    for stage, counts in samples.items():
        told = {"Unanswered": counts.unanswered_because, "Undecided": counts.undecided_because}
        for what, because in told.items():
            if because:
                listed = ", ".join(f"{count:,} {reason}" for reason, count in because.items())
                console.print(plain(f"{what} {stage}: {listed}"))


def _print_judging(summary: Summary, console: Console) -> None:
    """What of the figures above rests on a judge and not on rules."""
    told = summary.judging
    if not told.asked:
        return
    decided = told.correct + told.incorrect
    lines = [
        f"A judge decided {counted(decided, 'verdict')} of {told.asked:,} that rules left "
        f"undecided: {told.correct:,} correct, {told.incorrect:,} incorrect; {told.undecided:,} "
        "are still undecided",
        f"Its votes: {told.votes:,}, of which {told.invalid_votes:,} were no verdict and "
        f"{told.failed_votes:,} failed",
        *(f"Judge: {name}, asked about {count:,}" for name, count in told.judges.items()),
    ]
    if told.failed:
        lines += [f"The same command asks again about {counted(told.failed, 'verdict')}"]
    console.print()
    for line in lines:
        console.print(plain(line))


def _print_usage(summary: Summary, console: Console) -> None:
    columns = ("requests", "prompt tokens", "from cache", "completion", "USD")
    usage = table(console, "Usage", *columns)
    for stage, used in summary.usage.items():
        usage.add_row(
            stage,
            f"{used.requests:,}",
            f"{used.prompt:,}",
            "-" if used.unknown_cached == used.requests else f"{used.cached:,}",
            f"{used.completion:,}",
            _cost(used),
        )
    print_table(usage, console)
    for stage, used in summary.usage.items():
        if used.unknown_prompt or used.unknown_completion:
            console.print(
                f"Not reported, {stage}: prompt tokens of {used.unknown_prompt:,}, completion "
                f"tokens of {used.unknown_completion:,}",
                highlight=False,
            )
    if estimated := summary.readers.get(ESTIMATED):
        told = f"The tokens of {estimated:,} of {sum(summary.readers.values()):,} caches are "
        told += "estimated, one for each UTF-8 byte, so they may be cut shorter than they need be."
        console.print(told, style="yellow", highlight=False)


def _cost(used: Usage) -> str:
    """A cached token may cost less than another; one that was not reported is not in it."""
    if used.cost_usd is None:
        return "-"
    cost = f"{used.cost_usd:,.2f}"
    if not used.cost_usd:
        return cost
    unreported = used.unknown_prompt or used.unknown_completion
    if used.cached:
        return f"about {cost}" if unreported else f"at most {cost}"
    return f"at least {cost}" if unreported else cost


def _range(interval: Interval) -> str:
    return f"{percent(interval.low)} to {percent(interval.high)}"

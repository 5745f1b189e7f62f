"""The figures of runs as HTML: what each achieved, what failed in it, what it cost.

The numbers of every plot stand in a table beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from heavydistill.metrics.counts import COLUMNS
from heavydistill.metrics.curve import Curve, MatchedVote, Point
from heavydistill.metrics.intervals import Interval
from heavydistill.metrics.row import COSTS, Cost
from heavydistill.metrics.summary import NO_LABEL, Summary
from heavydistill.report.breakdown import name_of
from heavydistill.report.page import plots
from heavydistill.report.page.cards import (
    card,
    difference,
    ends,
    few_note,
    few_warning,
    numbers,
    scroll,
    share,
)
from heavydistill.report.page.figures import LENGTHS, Figures
from heavydistill.report.page.groups import of_groups
from heavydistill.report.page.markup import Html, joined, table, tag
from heavydistill.report.page.sources import Source
from heavydistill.report.samples import unanswered_warning
from heavydistill.report.text import counted, marked, percent, points
from heavydistill.schema import FAILED

_COSTS: dict[Cost, str] = {"completion": "written", "all": "read and written"}
_CURVE = ("Answer", "Written", "And read", "Right")
_TOKENS = (
    "Tokens a problem, written, and with those read. * nothing else is as often right for as few."
)
_FROM_ROWS = (
    "Added up over the responses in this report, for the run has left no summary of its own: where "
    "its pools are those of another run, what that one paid is in it."
)


def of_run(number: int, source: Source, figures: Figures) -> Html:
    """The section of a run.

    Args:
        number: Of the run, which is in the id of the section.
        source: What is known of it but its traces.
        figures: Of its traces.
    """
    summary = figures.summary
    cards = [
        _metrics(summary),
        of_groups(summary),
        _curve(summary.curve),
        _labels(summary),
        _rates(summary),
        _lengths(figures),
        _usage(figures),
        _failures(summary),
        _asked(source, figures),
    ]
    return tag(
        "section",
        tag("h2", source.name),
        _facts(figures),
        banner(source, figures),
        _unanswered(summary),
        tag("div", *cards, class_="cards"),
        id=f"summary-{number}",
        class_="summary",
    )


def banner(source: Source, figures: Figures) -> Html:
    """What keeps the figures from being those of a whole run, if anything does."""
    if not source.unfinished:
        return Html("")
    told = f"{source.unfinished} In this report: {counted(figures.summary.problems, 'problem')}."
    return tag("p", tag("strong", "Unfinished. "), told, class_="banner", role="status")


def _unanswered(summary: Summary) -> Html:
    """The warning that many responses hold no final answer, if they do."""
    told = " ".join(unanswered_warning(summary))
    return tag("p", tag("strong", "Unanswered. "), told, class_="banner") if told else Html("")


def of_all(sources: Sequence[Source], figures: Sequence[Figures]) -> Html:
    """The runs beside each other, and whether that compares anything; nothing for a single one."""
    if len(sources) < 2:
        return Html("")
    rows = []
    for source, one in zip(sources, figures, strict=True):
        summary = one.summary
        values = (
            summary.mean_at_k,
            summary.vote_at_k,
            summary.pass_at_k,
            summary.heavy_mean_at_d,
            summary.heavy_pass_at_d,
        )
        problems = marked(f"{summary.problems:,}", summary.problems)
        sizes = (problems, str(summary.k), str(summary.d))
        ways = (", ".join(one.verifiers) or "-", ", ".join(one.prompts) or "-")
        added = difference(summary.heavy_minus_vote)
        rows.append([source.label, *sizes, *map(share, values), added, *ways])
    head = ("Run", "Problems", "K", "D", "M@K", "V@K", "P@K", "HM@D", "HP@D", "HM - V")
    return tag(
        "section",
        tag("h2", "Runs"),
        *_comparability(figures),
        scroll(table((*head, "Verifiers", "Prompts"), rows)),
        *few_note(one.summary.problems for one in figures),
        class_="runs",
    )


def _comparability(figures: Sequence[Figures]) -> Iterator[Html]:
    """Whether differences between the runs are those of what was asked."""
    if len({one.problems for one in figures}) == 1:
        note = (
            "All runs are over the same problems. Each interval is of a run by itself; differences "
            "paired by problem are what `heavydistill compare` tells."
        )
        yield tag("p", note, class_="note")
    else:
        note = (
            "The runs are over different problems, or the same with other references or verifiers, "
            "so that differences between these rows may be those of the problems."
        )
        yield tag("p", note, class_="note warning")
    if len({tuple(one.verifiers) for one in figures if one.verifiers}) > 1:
        note = (
            "The runs were judged by different verifiers or versions of them, so that differences "
            "between these rows may be those of the verdicts."
        )
        yield tag("p", note, class_="note warning")


def _facts(figures: Figures) -> Html:
    summary = figures.summary
    thinkers, deliberators = figures.models
    statuses: Counter[str] = Counter()
    for status, count in summary.statuses.items():  # those that failed say why at length
        statuses["failed" if status.startswith(FAILED) else status.replace("_", " ")] += count
    traces = ", ".join(f"{count:,} {status}" for status, count in statuses.most_common())
    facts = [
        counted(summary.problems, "problem"),
        f"K={summary.k} trajectories by {', '.join(thinkers) or 'nobody'}",
        f"D={summary.d} deliberations by {', '.join(deliberators) or 'nobody'}",
        counted(summary.rounds, "round"),
        f"traces: {traces}",
    ]
    if figures.missing:
        facts.append(f"{counted(figures.missing, 'problem')} without a row")
    if figures.left_out:
        facts.append(f"{counted(figures.left_out, 'row')} of the source left out")
    return tag("p", " · ".join(facts), class_="facts")


def _metrics(summary: Summary) -> Html:
    k, d = summary.k, summary.d
    told = [
        (f"M@{k}", summary.mean_at_k, "share of trajectories that are right"),
        (f"V@{k}", summary.vote_at_k, "the most frequent answer is right"),
        (f"P@{k}", summary.pass_at_k, "any trajectory is right"),
        (f"HM@{d}", summary.heavy_mean_at_d, "share of deliberations that are right"),
        (f"HP@{d}", summary.heavy_pass_at_d, "any deliberation is right"),
    ]
    known = [(name, value, meaning) for name, value, meaning in told if value]
    rows = [[name, percent(value.mean), ends(value), meaning] for name, value, meaning in known]
    parts = [scroll(table(("Metric", "Value", "95 % interval", "Meaning"), rows))]
    differences = [
        (f"HM@{d} - V@{k}", summary.heavy_minus_vote),
        (f"HM@{d} - M@{k}", summary.heavy_minus_mean),
    ]
    rows = [
        [name, points(value.mean), f"{points(value.low)} to {points(value.high)}", _reading(value)]
        for name, value in differences
        if value
    ]
    if rows:
        parts.append(scroll(table(("Difference", "Points", "95 % interval", "Reading"), rows)))
    else:
        parts.append(tag("p", "No problem was deliberated.", class_="note"))
    if summary.rounds > 1:
        rows = [
            [str(one.round), share(one.heavy_mean), share(one.heavy_pass)]
            for one in summary.per_round
        ]
        parts.append(scroll(table(("Round", f"HM@{d}", f"HP@{d}"), rows)))
    parts += few_warning(summary.problems)
    plot = plots.metrics_plot([(name, value) for name, value, _ in known])
    return card("Metrics", plot, tag("div", *parts), wide=True)


def _curve(curve: Curve | None) -> Html:
    shown = [point for point in curve.points if point.tokens] if curve else []
    if not curve or not shown:
        return card("Accuracy over tokens", tag("p", "No problem has all its tokens counted."))
    rows = [
        [
            name_of(point),
            *(_spent(point, cost) for cost in COSTS),
            share(point.accuracy),
        ]
        for point in shown
    ]
    entries = [("vote", "vote of k attempts"), ("pass", "any of k is right")]
    if any(point.way == "deliberation" for point in shown):
        entries.append(("deliberation", "one deliberation on k, and votes of several"))
    entries.append(("vote outdone", "hollow: something else is as often right for less"))
    notes = [f"Over {counted(curve.problems, 'problem')}, from the one pool of each."]
    if curve.smaller_pools:
        notes.append(f"{counted(curve.smaller_pools, 'problem')} left out: a smaller pool.")
    notes += [
        f"Of {counted(count, 'problem')} the {_COSTS[cost]} tokens are unknown."
        for cost, count in curve.unknown_tokens.items()
        if count
    ]
    notes += [_matched(_COSTS[cost], matched) for cost, matched in curve.matched.items()]
    return card(
        "Accuracy over tokens",
        plots.curve_plot(list(map(plots.dot, shown))),
        plots.legend(entries),
        tag("p", " ".join(notes), class_="note"),
        numbers(table(_CURVE, rows), _TOKENS),
    )


def _spent(point: Point, cost: Cost) -> Html:
    """Tokens of a way to answer, with a mark if it is on the front."""
    if cost not in point.tokens:
        return Html("-")
    mark = tag("span", "*", class_="front") if point.pareto[cost] else ""
    return joined([f"{point.tokens[cost].mean:,.0f}", mark])


def _matched(counted_as: str, matched: MatchedVote) -> str:
    """What as many votes are worth as take the tokens of a deliberation."""
    told = f"A deliberation takes the {counted_as} tokens of {matched.votes:.1f} votes"
    if not matched.heavy_minus_vote:
        return f"{told}: to compare, a pool needs {matched.needs} attempts."
    added = matched.heavy_minus_vote
    interval = f"{points(added.low)} to {points(added.high)}"
    return f"{told} and is {points(added.mean)} points ({interval}) above them."


def _labels(summary: Summary) -> Html:
    outcomes = [name for name, count in summary.outcomes.items() if count]
    shown = {name: "not deliberated" if name == NO_LABEL else name for name in outcomes}
    rows = [
        [
            stratum,
            *(f"{summary.outcomes_by_stratum[stratum][outcome]:,}" for outcome in outcomes),
            f"{count:,}",
        ]
        for stratum, count in summary.strata.items()
        if count
    ]
    rows.append(
        ["all", *(f"{summary.outcomes[one]:,}" for one in outcomes), f"{summary.problems:,}"]
    )
    return card(
        "Strata and outcomes",
        plots.strata_plot(summary),
        plots.legend(list(shown.items())),
        numbers(table(("Stratum", *shown.values(), "all"), rows)),
    )


def _rates(summary: Summary) -> Html:
    meanings = {
        "rescue": "right, vote was not",
        "regress": "wrong, vote was right",
        "emergent": "right, no trajectory was",
    }
    rates = [(name, getattr(summary, name)) for name in meanings]
    rows = [
        [
            name,
            share(rate.interval),
            f"{rate.count:,} of {rate.of:,}",
            meanings[name],
        ]
        for name, rate in rates
    ]
    rows.append(["vote copy", share(summary.vote_copy_rate), "", "repeats the vote"])
    if summary.places:
        first = summary.places[0]
        meaning = "repeats the first attempt, points over chance"
        over = difference(first.over_expected)
        problems = marked(f"{first.problems:,}", first.problems)
        rows.append(["first place", over, problems, meaning])
    return card(
        "Rescue and regress",
        plots.rates_plot(rates),
        scroll(table(("Rate", "Value", "Problems", "Deliberation"), rows)),
        *few_note(first.problems for first in summary.places[:1]),
    )


def _lengths(figures: Figures) -> Html:
    known = {name: one for name, one in figures.lengths.items() if one}
    if not known:
        return card("Lengths", tag("p", "No server counted the tokens of a response."))
    parts = []
    for stage in ("trajectories", "deliberations"):
        right, wrong = (figures.lengths[f"{stage}, {one}"] for one in ("right", "not right"))
        if right or wrong:
            parts.append(tag("h4", stage.capitalize()))
            parts.append(plots.lengths_plot(right, wrong, f"Tokens written, {stage}"))
    rows = []
    for name in LENGTHS:
        if (three := plots.quartiles(figures.lengths[name])) is not None:
            count = figures.lengths[name].total()
            rows.append([name, f"{count:,}", *(f"{one:,}" for one in three)])
    return card(
        "Lengths, in tokens written",
        *parts,
        plots.legend([("right", "right"), ("wrong", "not right")]),
        numbers(table(("Responses", "Count", "Quartile", "Median", "Quartile"), rows)),
    )


def _usage(figures: Figures) -> Html:
    rows = []
    for stage, used in figures.summary.usage.items():
        cost = "-" if used.cost_usd is None else f"{used.cost_usd:,.2f}"
        unknown = used.unknown_prompt + used.unknown_completion
        told = (used.requests, used.prompt, used.completion, unknown)
        rows.append([stage, *(f"{number:,}" for number in told), cost])
    head = ("Stage", "Requests", "Read", "Written", "Not counted", "USD")
    return card(
        "Cost",
        plots.usage_plot(figures.summary),
        plots.legend([("read", "tokens read"), ("written", "tokens written")]),
        scroll(table(head, rows)),
        "" if figures.is_own_usage else tag("p", _FROM_ROWS, class_="note"),
    )


def _failures(summary: Summary) -> Html:
    rows, notes = [], []
    for stage, counts in summary.samples.items():
        rows.append([stage, *counts.cells])
        because = {
            "failed": counts.failures,
            "unanswered": counts.unanswered_because,
            "undecided": counts.undecided_because,
        }
        for what, reasons in because.items():
            if reasons:
                listed = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())
                notes.append(tag("p", f"{stage.capitalize()} {what}: {listed}", class_="note"))
    judging = summary.judging
    if judging.asked:
        judged = (
            f"A judge was asked about {judging.asked:,} verdicts: {judging.correct:,} correct, "
        )
        judged += f"{judging.incorrect:,} incorrect, {judging.undecided:,} undecided. "
        judged += f"Judges: {', '.join(judging.judges)}."
        notes.append(tag("p", judged, class_="note"))
    return card("What failed", scroll(table(("Responses", "All", *COLUMNS), rows)), *notes)


def _asked(source: Source, figures: Figures) -> Html:
    facts = [
        ("Verifiers", ", ".join(figures.verifiers)),
        ("Prompts", ", ".join(figures.prompts)),
    ]
    parts = [
        tag("dl", *(joined((tag("dt", name), tag("dd", told or "-"))) for name, told in facts))
    ]
    if source.config:
        parts.append(
            tag(
                "details",
                tag("summary", "Configuration"),
                tag("pre", source.config, class_="config", tabindex=0),
            )
        )
    else:
        parts.append(tag("p", "There is no configuration that can be read.", class_="note"))
    return card("How it was asked", *parts)


def _reading(of: Interval) -> str:
    if of.low > 0:
        return "better"
    return "worse" if of.high < 0 else "no difference shown"

"""The metrics of one run as grids: metrics, rates, groups, curve, failures and costs.

Not covered: computing the numbers (``metrics.summary``); comparing runs (``comparison``).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from rich.console import Console

from heavydistill.heavy.judge_votes import is_by_user
from heavydistill.metrics.counts import (
    COLUMNS,
    GenerationCounts,
    Usage,
    answerer_facts,
    unanswered_facts,
)
from heavydistill.metrics.curve import Curve, Point, Way
from heavydistill.metrics.intervals import Interval
from heavydistill.metrics.problem_figures import COSTS, Cost
from heavydistill.metrics.summary import NAMES, NO_LABEL, Summary
from heavydistill.metrics.tool_use import ToolUse
from heavydistill.models.http.finish_reasons import PARSER_AT_FAULT, PARSER_FIX
from heavydistill.models.tokenizer import ESTIMATED
from heavydistill.report import steps
from heavydistill.report.grid import (
    UNKNOWN,
    Grid,
    IntervalCell,
    Line,
    bracketed,
    counted,
    few_note,
    few_warning,
    listed,
    marked,
    marked_problems,
    mean_and_ends,
    percent,
    reading,
    sizes,
    support,
    versions,
)
from heavydistill.report.terminal import print_grid, print_lines, say
from heavydistill.text.extraction import WITH_MARKER

if TYPE_CHECKING:
    from heavydistill.verifiers.markers import CommonMarker

COUNTED: dict[Cost, str] = {"completion": "tokens written", "all": "tokens written and read"}
STRATA_NOTE = (
    "The vote defines the strata: in pools of K, HM - V is at most 0 where that is right "
    "(all-right, majority-right), and at least 0 where it is wrong (minority-right, all-wrong)."
)
CURVE_NOTE = (
    "Tokens a problem, written, and with those read. * nothing else is as often right for as few."
)
NO_DELIBERATION = "No problem was deliberated, so there is nothing to compare."
_MEANINGS = (  # meanings of the shares in `NAMES`
    "share of trajectories that are right",
    "the most frequent answer is right",
    "any trajectory is right",
    "share of deliberations that are right",
    "any deliberation is right",
)
RATES = {
    "rescue": "right, vote was not",
    "regress": "wrong, vote was right",
    "emergent": "right, no trajectory was",
}
CLAIMS = {  # name and meaning of the metrics in `metrics.claims`
    "claim_coverage": ("claims made", "of the attempts shown"),
    "claim_balanced_accuracy": ("true claims, balanced", "50% is a guess"),
    "claim_vote_accuracy": ("true claims of a vote", "that a vote over the attempts would make"),
    "claim_accuracy_when_wrong": ("true, own answer wrong", "of deliberations with a wrong answer"),
    "self_contradiction_share": ("self-contradictions", "of the deliberations"),
    "leak_in_answer": ("leak", "answers that speak of attempts"),
    "leak_in_thinking": ("leak, thinking", "the same of the thinking"),
}
CLAIMS_NOTE = (
    "A claim calls an attempt right or wrong. True, balanced: mean of the shares of right attempts "
    "called right and of wrong ones called wrong. Self-contradictions call right what differs from "
    "their own answer, or wrong what equals it."
)
_WAYS: dict[Way, str] = {
    "vote": "vote of {k}",
    "pass": "any of {k}",
    "deliberation": "deliberation on {k}",
    "heavy_vote": "vote of {d} delib.",
}
# Keys: whether tokens were cached at an unknown price, whether some token counts are unknown.
_BOUNDS = {
    (False, False): "",
    (False, True): "at least ",
    (True, False): "at most ",
    (True, True): "about ",
}


def print_summary(
    summary: Summary, console: Console, *, full: bool = False, is_student: bool = False
) -> None:
    """Print the result of a run: its headline, metrics, lost samples and cost.

    ``is_student`` says that a model under training answered. With ``full``, also print all tables:
    metrics, rates, kinds and strata of problems, the curve over tokens, failures, costs and
    versions, and the number of caches with estimated tokens.
    """
    title, support = headline(summary)
    say(title, console, "bold")
    print_lines([support], console)
    print_lines(_result_lines(summary), console, gap=True)
    if full:
        _print_tables(summary, console)
        print_lines(estimated_lines(summary), console)
    print_unanswered(summary, console, is_student=is_student)


def _result_lines(summary: Summary) -> Iterator[str]:
    """Yield lines with the metrics of a run, its lost samples and its cost."""
    yield ", ".join(sizes_of(summary))
    yield shares_line(summary)
    if summary.heavy_mean_at_d:
        rescue, regress = summary.rescue, summary.regress
        yield (
            f"Deliberation is right on {rescue.count:,} of {rescue.of:,} problems whose vote is "
            f"wrong, and wrong on {regress.count:,} of {regress.of:,} whose vote is right"
        )
    yield from (f"Claims: {line}" for line in claims_line(summary))
    yield from (f"Leak: {line}" for line in leak_line(summary))
    yield from steps.lines(summary)
    if len(summary.statuses) > 1:
        yield f"Traces: {listed(summary.statuses)}"
    yield f"Lost: {lost_samples(summary) or 'nothing'}"
    yield from failed_requests(summary)
    yield from answerer_facts(summary.samples)
    yield from judging_lines(summary)
    stages = summary.usage.values()
    usd = cost(*stages)
    written, tokens = tokens_written(summary), "tokens not reported"
    if written is not None:
        tokens = f"{sum(used.prompt for used in stages):,} tokens read and {written:,} written"
    yield (
        f"Took: {sum(used.requests for used in stages):,} samples, {tokens}"
        + ("" if usd == UNKNOWN else f", {usd} USD")
    )
    yield from unreported_lines(summary)


def tool_lines(used: ToolUse | None) -> Iterator[str]:
    """Yield what the trajectories did with their tools; nothing if they had none."""
    if not used:
        return
    if not used.trajectories:
        yield f"Tools: none of {used.of:,} trajectories ran code"
        return
    each = (
        f"{used.rounds / used.trajectories:.1f} rounds and {used.seconds / used.trajectories:.1f} s"
    )
    ends = ", ".join(f"{count:,} by {name}" for name, count in used.stopped.items())
    yield (
        f"Tools: {used.trajectories:,} of {used.of:,} trajectories ran code, with {each} of tools "
        f"each; they ended {ends or 'by failures'}"
    )
    if used.errors:
        yield f"Errors of tools: {listed(used.errors)}"
    if used.answered:
        share = percent(used.printed / used.answered)
        yield f"Computed, not derived: {share} of their answers were printed and not written before"


def tokens_written(summary: Summary) -> int | None:
    """Return the known tokens written in all stages; None if no sample reported any."""
    stages = summary.usage.values()
    requests = sum(used.requests for used in stages)
    if requests and requests == sum(used.unknown_completion for used in stages):
        return None
    return sum(used.completion for used in stages)


def shares_line(summary: Summary) -> str:
    """Return the metrics that are shares, without intervals, on one line."""
    return ", ".join(f"{name} {percent(value.mean)}" for name, value in named_metrics(summary))


def claims_line(summary: Summary) -> Iterator[str]:
    """Yield the metrics of claims on one line, if there are any claims."""
    coverage, accuracy, vote, _, contradictions, *_ = (getattr(summary, key) for key in CLAIMS)
    if coverage and coverage.mean:
        beside = f"; of a vote {percent(vote.mean)}" if vote else ""
        true = f", {percent(accuracy.mean)} true (balanced{beside})" if accuracy else ""
        against = f"{percent(contradictions.mean)} self-contradictions"
        yield f"on {percent(coverage.mean)} of attempts{true}; {against}"


def leak_line(summary: Summary) -> Iterator[str]:
    """Yield how many answers, and how much of the thinking, speak of attempts; none without any."""
    answer, thinking = summary.leak_in_answer, summary.leak_in_thinking
    if answer and thinking:
        shares = f"{percent(answer.mean)} of the answers, {percent(thinking.mean)} of the thinking"
        yield f"{shares} speak of attempts"


def lost_samples(summary: Summary) -> str:
    """Format, for each stage, how many samples cannot be judged or used, by kind; empty if none."""
    return "; ".join(
        f"{reasons} of {counts.total:,} {stage}"
        for stage, counts in summary.samples.items()
        if (reasons := listed({name: getattr(counts, name) for name in COLUMNS}))
    )


def _print_tables(summary: Summary, console: Console) -> None:
    shown = [metrics(summary), rounds(summary), rates(summary), claims(summary)]
    shown += [steps.table(summary), labels(summary)]
    shown += [*group_grids(summary), *([curve(summary.curve)] if summary.curve else [])]
    for grid in shown:
        print_grid(grid, console)
    print_lines([*few_note(shown), *steps.missing(summary)], console)
    print_lines(matched_lines(summary), console, gap=True)
    print_grid(samples(summary.samples), console)
    print_lines(reason_lines(summary), console)
    print_grid(usage(summary), console)
    print_lines([versions(summary.prompts, summary.verifiers)], console, gap=True)


def print_unanswered(
    summary: Summary, console: Console, *, of: str = "", is_student: bool = False
) -> None:
    """Print the warning about unanswered samples, if any; ``of`` is the name of the run."""
    for line in unanswered_warning(summary, is_student):
        say(f"{of}: {line}" if of else line, console, "bold red")


def headline(summary: Summary) -> tuple[str, str]:
    """Return the result of a run as one sentence, and the numbers that support it."""
    if summary.is_unread:
        parts = [
            f"{counts.finished:,} of {counts.finished:,} {stage} "
            f"({listed(counts.undecided_because | counts.unanswered_because)})"
            for stage, counts in summary.samples.items()
            if counts.finished
        ]
        of_all = [each for each in summary.samples.values() if each.finished]
        is_read = any(each.unanswered != each.finished for each in of_all)
        word, kind = ("judged", "Undecided") if is_read else ("read", "Unread")
        title = f"No answer could be {word}, so nothing was measured"
        return title, f"{kind}: {', '.join(parts)}"
    if any(map(is_by_user, summary.verifiers)):
        counts = [f"{each.decided:,} of {each.total:,} {s}" for s, each in summary.samples.items()]
        title = "Users judged answers that they were shown, so the vote cannot be compared"
        return title, f"Judged: {', '.join(counts)}"
    heavy = summary.heavy_mean_at_d, summary.heavy_minus_vote
    return claim(summary.problems, summary.k, summary.vote_at_k, *heavy)


def claim(
    problems: int, k: int, vote: Interval, heavy: Interval | None, added: Interval | None
) -> tuple[str, str]:
    """Return the headline of a run with these numbers; ``added`` is HM - V."""
    right = percent(vote.mean)
    if not heavy or not added:
        alone = " ".join([NO_DELIBERATION, *few_warning(problems)])
        return f"The vote of {counted(k, 'attempt')}: {right} right", alone
    words = {
        "better": f"Deliberation beats the vote: {percent(heavy.mean)} right against {right}",
        "worse": f"Deliberation loses to the vote: {percent(heavy.mean)} right against {right}",
        "": f"No difference shown: deliberation {percent(heavy.mean)} right, vote {right}",
    }
    return words[reading(added)], support(added, problems)


def sizes_of(summary: Summary) -> list[str]:
    """Return problems, K, D and rounds of a run."""
    return sizes(summary.problems, summary.k, summary.d, summary.rounds)


def _names(summary: Summary) -> dict[str, str]:
    """Return the run's metrics: key to name, with the run's K and D in the name."""
    names = [f"M@{summary.k}", f"V@{summary.k}", f"P@{summary.k}"]
    names += [f"HM@{summary.d}", f"HP@{summary.d}", "HM - V"]
    return {key: name for key, name in zip(NAMES, names, strict=True) if getattr(summary, key)}


def named_metrics(summary: Summary) -> list[tuple[str, Interval]]:
    """Return (name, value) of each metric that is a share, in display order."""
    names = _names(summary)
    return [(names[key], getattr(summary, key)) for key in NAMES[:-1] if key in names]


def metrics(summary: Summary) -> Grid:
    """Return the metrics of all problems, and the gain of deliberation in percentage points."""
    lines = [
        Line(name, [*mean_and_ends(value), meaning])
        for (name, value), meaning in zip(named_metrics(summary), _MEANINGS, strict=False)
    ]
    for name, added, baseline in (
        (f"V@{summary.k}", summary.heavy_minus_vote, "the vote"),
        (f"M@{summary.k}", summary.heavy_minus_mean, "a single trajectory"),
    ):
        if added:
            word = reading(added)
            shown = f"{word} than {baseline}" if word else "no difference shown"
            cells = [*mean_and_ends(added, signed=True), shown]
            lines.append(Line(f"HM@{summary.d} - {name}", cells))
    return Grid(["Metric", "Value", "95% interval", "Meaning"], lines, wordy=True)


def rounds(summary: Summary) -> Grid:
    """Return the metrics of each round; no rows if there is only one round."""
    d, each = summary.d, summary.per_round if summary.rounds > 1 else []
    lines = [
        Line(str(r.round), [*mean_and_ends(r.heavy_mean), *mean_and_ends(r.heavy_pass)])
        for r in each
    ]
    return Grid(["Round", f"HM@{d}", "95% interval", f"HP@{d}", "95% interval"], lines)


def rates(summary: Summary) -> Grid:
    """Return rescue and regress rates, and how often deliberations copy the vote or attempt 1.

    There are no rows without deliberations.
    """
    lines = []
    for name, meaning in RATES.items() if summary.heavy_mean_at_d else ():
        rate = getattr(summary, name)
        shown = mean_and_ends(rate.interval) if rate.interval else [UNKNOWN, ""]
        lines.append(Line(name, [*shown, f"{rate.count:,} of {rate.of:,}", meaning]))
    if copies := summary.vote_copy_rate:
        lines.append(Line("vote copy", [*mean_and_ends(copies), "", "repeats the vote"]))
    for first in summary.places[:1]:
        over, problems = first.over_expected, marked(f"{first.problems:,}", first.problems)
        cells = [*mean_and_ends(over, signed=True), problems, "repeats it, over chance"]
        lines.append(Line("first place", cells))
    return Grid(["Rate", "Value", "95% interval", "Problems", "Deliberation"], lines, wordy=True)


def named_claims(summary: Summary) -> list[tuple[str, Interval]]:
    """Return (name, value) of each metric of claims that has a value."""
    values = [(name, getattr(summary, key)) for key, (name, _) in CLAIMS.items()]
    return [(name, value) for name, value in values if value]


def claims(summary: Summary) -> Grid:
    """Return the metrics of what deliberations say of attempts; no rows if there are none."""
    meanings = dict(CLAIMS.values())
    lines = [
        Line(name, [*mean_and_ends(value), meanings[name]]) for name, value in named_claims(summary)
    ]
    head = ["Claims", "Value", "95% interval", "Meaning"]
    return Grid(head, lines, [CLAIMS_NOTE], wordy=True)


def labels(summary: Summary) -> Grid:
    """Return the numbers of problems by stratum and outcome, without rows or columns of zeros."""
    outcomes = [outcome for outcome, number in summary.outcomes.items() if number]
    names = ["not delib." if outcome == NO_LABEL else outcome for outcome in outcomes]
    counts = {
        stratum: [*(summary.outcomes_by_stratum[stratum][outcome] for outcome in outcomes), number]
        for stratum, number in summary.strata.items()
        if number
    }
    counts["all"] = [*(summary.outcomes[outcome] for outcome in outcomes), summary.problems]
    lines = [Line(label, [f"{n:,}" for n in numbers]) for label, numbers in counts.items()]
    return Grid(["Stratum", *names, "all"], lines)


def group_grids(summary: Summary) -> Iterator[Grid]:
    """Yield the metrics of each verifier, source and stratum; skip a single verifier or source."""
    kinds = {"Verifier": summary.by_verifier, "Source": summary.by_family}
    groups = {title: each for title, each in kinds.items() if len(each) > 1}
    names = _names(summary)
    for title, each in {**groups, "Stratum": summary.by_stratum}.items():
        lines = []
        for label, group in each.items():
            values = ((getattr(group, key), "minus" in key) for key in names)
            cells = [IntervalCell(value, is_added, narrow=True) for value, is_added in values]
            lines.append(Line(label, cells, marked_problems(group.problems)))
        notes = [strata_note(summary)] if title == "Stratum" else []
        if lines:
            yield Grid([title, *names.values()], lines, list(filter(None, notes)))


def strata_note(*summaries: Summary) -> str:
    """Return the note that HM - V within a stratum is bounded; empty if no stratum has HM - V."""
    groups = [group for summary in summaries for group in summary.by_stratum.values()]
    return STRATA_NOTE if any(group.heavy_minus_vote for group in groups) else ""


def curve(curve: Curve, *, passes: bool = False) -> Grid:
    """Return a row for each way to answer, with its accuracy and tokens; a vote also has P@k.

    P@k is the accuracy of the best possible choice among k attempts. With ``passes``, it also has
    separate rows with intervals.
    """
    bounds = {point.k: point.accuracy.mean for point in curve.points if point.way == "pass"}
    lines = []
    for point in (point for point in curve.points if passes or point.way != "pass"):
        bound = percent(bounds[point.k]) if point.way == "vote" else ""
        marks = {cost: " *" if point.pareto[cost] else "  " for cost in point.tokens}
        tokens = [
            f"{point.tokens[cost].mean:,.0f}{marks[cost]}" if cost in marks else UNKNOWN
            for cost in COSTS
        ]
        lines.append(Line(point_name(point), [*mean_and_ends(point.accuracy), bound, *tokens]))
    head = ["Answer", "Right", "95% interval", "Any right", "Written", "And read"]
    return Grid(head, lines, [CURVE_NOTE])


def point_name(point: Point) -> str:
    name = _WAYS[point.way].format(k=point.k, d=point.d)
    return name + (f", round {point.rounds}" if point.rounds > 1 else "")


def matched_lines(summary: Summary) -> Iterator[str]:
    """Yield lines on the votes that cost as much as a deliberation, and on excluded problems."""
    curve = summary.curve
    if not curve:
        return
    heavy, k = f"HM@{summary.d}", curve.k
    for cost, matched in curve.matched.items():
        takes = f"{heavy} takes the {COUNTED[cost]} of {matched.votes:,.1f} votes"
        if matched.vote and matched.heavy_minus_vote:
            added = bracketed(matched.heavy_minus_vote, signed=True)
            right = f"right in {bracketed(matched.vote)}"
            yield f"{takes}, which are {right}; {heavy} minus that: {added} points"
        else:
            yield f"{takes}; to compare, pools need {matched.needs:,} trajectories, and have {k:,}"
    if small := curve.smaller_pools:
        yield f"Left out of this comparison: {small:,} with fewer than {k:,} trajectories"
    for cost, unknown in curve.unknown_tokens.items():
        if unknown:
            yield f"Left out of {COUNTED[cost]}: {unknown:,}, whose tokens are not all known"


def samples(counts: Mapping[str, GenerationCounts]) -> Grid:
    """Return how many samples failed, were cut off, gave no answer or got no verdict, by name."""
    lines = [Line(name, each.cells) for name, each in counts.items() if each.total]
    return Grid(["Samples", "all", *COLUMNS], lines)


def failed_requests(summary: Summary) -> Iterator[str]:
    """Yield the failed requests by reason, if there are any, and the finish reasons not known."""
    failures = (Counter(counts.failures) for counts in summary.samples.values())
    if kinds := sum(failures, Counter[str]()):
        yield f"Failed requests: {listed(dict(kinds.most_common()))}"
    if kinds["answer_in_thinking"]:
        responses = counted(kinds["answer_in_thinking"], "response")
        yield f"In {responses} {PARSER_AT_FAULT}. {PARSER_FIX}"
    for stage, counts in summary.samples.items():
        if ends := counts.unknown_finish_reasons:
            yield (
                f"{stage.capitalize()} with a final answer, but a finish reason that is not known: "
                f"{listed(ends)}"
            )


def reason_lines(summary: Summary) -> Iterator[str]:
    """Yield the reasons why samples are unanswered or undecided."""
    for stage, counts in summary.samples.items():
        if counts.unanswered_because:
            yield f"Unanswered {stage}: {listed(counts.unanswered_because)}"
        if counts.undecided_because:
            yield f"Undecided {stage}: {listed(counts.undecided_because)}"


def judging_lines(summary: Summary) -> Iterator[str]:
    """Yield sentences on verdicts decided by a judge instead of rules; none without a judge."""
    judging = summary.judging
    if not judging.asked:
        return
    yield (
        f"A judge decided {counted(judging.correct + judging.incorrect, 'verdict')} of "
        f"{judging.asked:,} that rules left undecided: {judging.correct:,} correct, "
        f"{judging.incorrect:,} incorrect; {judging.undecided:,} are still undecided"
    )
    yield (
        f"Its votes: {judging.votes:,}, of which {judging.invalid_votes:,} were not a verdict and "
        f"{judging.failed_votes:,} failed"
    )
    for name, number in judging.judges.items():
        yield f"Judge: {name}, asked about {number:,}"
    if judging.failed:
        yield f"The same command asks again about {counted(judging.failed, 'verdict')}"


def cost(*stages: Usage) -> str:
    """Format the cost of stages in US dollars, marked if it is a bound; ``-`` if unknown.

    The cost is an upper bound if tokens were cached at an unknown price, because those may be
    cheaper, and a lower bound if the tokens of some samples are unknown.
    """
    costs = [used.cost_usd for used in stages if used.requests or used.cost_usd is not None]
    prices = [cost for cost in costs if cost is not None]
    if not prices or len(prices) < len(costs):
        return UNKNOWN
    is_partial = any(used.unknown_prompt or used.unknown_completion for used in stages)
    is_most = any(used.cached and not used.has_cached_price for used in stages)
    bound = _BOUNDS[is_most, is_partial] if sum(prices) else ""
    return f"{bound}{sum(prices):,.2f}"


def usage(summary: Summary) -> Grid:
    """Return requests, tokens and cost of each stage that sent requests."""
    lines = []
    for stage, used in summary.usage.items():
        if not used.requests:
            continue
        counts = [f"{used.requests:,}"]
        for kind in ("prompt", "cached", "completion"):
            unknown = getattr(used, f"unknown_{kind}") == used.requests
            counts.append(UNKNOWN if unknown else f"{getattr(used, kind):,}")
        lines.append(Line(stage, [*counts, cost(used)]))
    head = ["Usage", "requests", "prompt tokens", "from cache", "completion", "USD"]
    return Grid(head, lines)


def unreported_lines(summary: Summary) -> Iterator[str]:
    """Yield a line for each stage with samples whose tokens are unknown."""
    for stage, used in summary.usage.items():
        if used.unknown_prompt or used.unknown_completion:
            yield (
                f"Not reported, {stage}: prompt tokens of {used.unknown_prompt:,}, completion "
                f"tokens of {used.unknown_completion:,}"
            )


def estimated_lines(summary: Summary) -> Iterator[str]:
    """Yield a warning if tokens of caches were estimated."""
    if estimated := summary.readers.get(ESTIMATED):
        yield (
            f"The tokens of {estimated:,} of {sum(summary.readers.values()):,} caches are "
            "estimated, one for each UTF-8 byte, so they may be cut shorter than they need be."
        )


def unanswered_warning(summary: Summary, is_student: bool = False) -> list[str]:
    """Return the stages with many unanswered samples, and what can be done about them.

    ``is_student`` says that a model under training answered.
    """
    facts = list(unanswered_facts(summary.samples, summary.by_verifier))
    if not facts:
        return []
    ways = ["train the format first"] if is_student else []
    took_pools = not summary.usage["thinking"].requests  # attempts from another run stay unchanged
    if not took_pools and any(name in WITH_MARKER for name in summary.by_verifier):
        ways.append(
            "set the marker if the answers stand behind one: "
            "--verifier-args '{marker: \"Answer:\"}'"
        )
    if not took_pools and not is_student:
        ways.append("name a verifier that reads this form: --verifier NAME")
    if any(".general.en@" in prompt for prompt in summary.prompts):
        ways.append("ask in the short prompts, which small models follow: --set domain=brief")
    if summary.is_unread and not took_pools and not is_student:
        ways.append(
            "teach the form to weights of yours with worked solutions: heavydistill import FILE "
            "--from solutions, then build and sft"
        )
    fix = "; or ".join(ways)
    return [*facts, *([fix[0].upper() + fix[1:]] if fix else [])]


def marker_noted(marker: str) -> str:
    """Return a sentence about a marker that was found in the references and is used."""
    return (
        f"Every reference ends with `{marker} ANSWER`, so the marker {marker} is used "
        "(--verifier-args names another)."
    )


def marker_found(shared: CommonMarker) -> str:
    """Return a sentence about the answer marker shared by responses without a final answer."""
    return (
        f"{shared.count:,} of the {shared.of:,} unanswered answers that were read end in "
        f"{shared.marker!r} and a value. Of {shared.judged:,} that were judged with this marker, "
        f"{shared.answers:,} give an answer and {shared.right:,} are right."
    )


def marker_value(shared: CommonMarker) -> str:
    """Format the verifier arguments that set the marker, as YAML."""
    return f"{{marker: {json.dumps(shared.marker, ensure_ascii=False)}}}"

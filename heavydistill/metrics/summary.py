"""The summary of a run: its metrics with intervals, its labels, what failed, what it cost.

Metrics are over all problems of the run; see ``estimators`` for what counts as wrong. Rates are
over the problems that have an outcome, so over those that were deliberated, and follow its
reading of right and wrong (``heavy.voting.outcome``); a rate of nothing is None.
``dataclasses.asdict`` of a summary is JSON.

Not covered: prices, which the pipeline knows and fills in; the vote that spends as many
tokens as the deliberation did.
"""

from __future__ import annotations

import typing
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from heavydistill.errors import RunError
from heavydistill.metrics import estimators
from heavydistill.metrics.intervals import Interval, bootstrap_difference, bootstrap_mean
from heavydistill.schema import Generation, Outcome, Stratum, Trace

NO_LABEL = "none"
"""Stands in counts for a stratum or outcome that is null."""

STRATA: tuple[str, ...] = typing.get_args(Stratum)
OUTCOMES: tuple[str, ...] = typing.get_args(Outcome)


@dataclass(frozen=True, slots=True)
class Rate:
    """How many of how many.

    Attributes:
        count: Problems for which it holds.
        of: Problems for which it could hold.
        share: ``count / of``; None if ``of`` is 0.
    """

    count: int
    of: int
    share: float | None


@dataclass(frozen=True, slots=True)
class RoundMetrics:
    """HM@D and HP@D of one round, counted from 1."""

    round: int
    heavy_mean: Interval
    heavy_pass: Interval


@dataclass(frozen=True, slots=True)
class GenerationCounts:
    """What became of the samples of one stage; one sample can count in several.

    Attributes:
        total: Samples.
        failed: The request failed; there is no text.
        failures: Those of each kind (``schema.Failure``), most common first.
        truncated: Cut off at the most tokens.
        empty: Finished without an answer text.
        undecided: The verifier could not tell.
        unjudged: There is text, but no verdict.
    """

    total: int
    failed: int
    failures: dict[str, int]
    truncated: int
    empty: int
    undecided: int
    unjudged: int


@dataclass(frozen=True, slots=True)
class Usage:
    """What one stage took, whenever it was paid for; tokens as far as they are known.

    Attributes:
        requests: Samples that were asked for.
        prompt: Sum of the known counts of tokens read.
        cached: Of those, what the server had in its prefix cache, where it said.
        completion: Sum of the known counts of tokens written.
        unknown_prompt: Samples whose prompt tokens are unknown.
        unknown_cached: Samples of which it is unknown how much was in the prefix cache.
        unknown_completion: Samples whose completion tokens are unknown.
        cost_usd: Of the known tokens, cached ones at the full price; None if that is not known.
    """

    requests: int
    prompt: int
    cached: int
    completion: int
    unknown_prompt: int
    unknown_cached: int
    unknown_completion: int
    cost_usd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a run achieved.

    Attributes:
        problems: Traces in the run.
        k: Most common size of a pool.
        d: Most common number of deliberations in the last round; 0 if there are none.
        rounds: Rounds of deliberation.
        mean_at_k: M@K.
        pass_at_k: P@K, of the whole pool.
        vote_at_k: V@K.
        heavy_mean_at_d: HM@D of the last round; None if no problem was deliberated.
        heavy_pass_at_d: HP@D of the last round; None likewise.
        heavy_minus_vote: HM@D - V@K, paired by problem; None likewise.
        heavy_minus_mean: HM@D - M@K, paired by problem; None likewise.
        per_round: One a round.
        rescue: Deliberation right, of those with the vote wrong or tied.
        regress: Deliberation wrong, of those with the vote right.
        emergent: Deliberation right, of those with no right trajectory.
        vote_copy_rate: Mean share of the last round's deliberations that give the vote's
            answer; None if there was nothing to copy.
        strata: Problems of each stratum.
        outcomes: Problems of each outcome.
        outcomes_by_stratum: Problems of each stratum, then outcome.
        trajectories: What became of the thinker's samples.
        deliberations: What became of the deliberator's samples, all rounds.
        usage: What each stage took, ``thinking`` and ``deliberating`` (all rounds).
        statuses: Traces of each status, most common first.
    """

    problems: int
    k: int
    d: int
    rounds: int
    mean_at_k: Interval
    pass_at_k: Interval
    vote_at_k: Interval
    heavy_mean_at_d: Interval | None
    heavy_pass_at_d: Interval | None
    heavy_minus_vote: Interval | None
    heavy_minus_mean: Interval | None
    per_round: list[RoundMetrics]
    rescue: Rate
    regress: Rate
    emergent: Rate
    vote_copy_rate: float | None
    strata: dict[str, int]
    outcomes: dict[str, int]
    outcomes_by_stratum: dict[str, dict[str, int]]
    trajectories: GenerationCounts
    deliberations: GenerationCounts
    usage: dict[str, Usage]
    statuses: dict[str, int]


def summarize(traces: Sequence[Trace]) -> Summary:
    """The summary of all traces of a run.

    Raises:
        RunError: There are no traces.
    """
    if not traces:
        raise RunError(
            "There are no traces to summarize", "Check that the run had problems and was finished."
        )
    rounds = max((d.round for trace in traces for d in trace.deliberations), default=0)
    means = [estimators.mean_at_k(trace) for trace in traces]
    votes = [estimators.vote_at_k(trace) for trace in traces]
    heavy_means = [estimators.heavy_mean_at_d(trace, rounds) for trace in traces]
    per_round = [_round_metrics(traces, round) for round in range(1, rounds + 1)]
    last = per_round[-1] if per_round else None
    table = _cross_table(traces)
    outcomes = {outcome: sum(row[outcome] for row in table.values()) for outcome in table[NO_LABEL]}
    trajectories = [t for trace in traces for t in trace.pool]
    deliberations = [d for trace in traces for d in trace.deliberations]
    return Summary(
        problems=len(traces),
        k=_most_common(len(trace.pool) for trace in traces),
        d=_most_common(len(estimators.deliberations_of(trace, rounds)) for trace in traces),
        rounds=rounds,
        mean_at_k=bootstrap_mean(means),
        pass_at_k=_interval(traces, estimators.pass_at_k),
        vote_at_k=bootstrap_mean(votes),
        heavy_mean_at_d=last.heavy_mean if last else None,
        heavy_pass_at_d=last.heavy_pass if last else None,
        heavy_minus_vote=bootstrap_difference(heavy_means, votes) if last else None,
        heavy_minus_mean=bootstrap_difference(heavy_means, means) if last else None,
        per_round=per_round,
        rescue=_share_of(outcomes, ["rescued", "emergent"], ["rescued", "emergent", "lost"]),
        regress=_share_of(outcomes, ["overturned"], ["kept", "overturned"]),
        emergent=_share_of(table["all-wrong"], ["emergent"], list(OUTCOMES)),
        vote_copy_rate=_mean_known(estimators.vote_copy_rate(trace, rounds) for trace in traces),
        strata={stratum: sum(row.values()) for stratum, row in table.items()},
        outcomes=outcomes,
        outcomes_by_stratum=table,
        trajectories=_count(trajectories),
        deliberations=_count(deliberations),
        usage={"thinking": _usage(trajectories), "deliberating": _usage(deliberations)},
        statuses=dict(Counter(trace.status for trace in traces).most_common()),
    )


def _interval(traces: Sequence[Trace], estimator: Callable[[Trace], float]) -> Interval:
    return bootstrap_mean([estimator(trace) for trace in traces])


def _round_metrics(traces: Sequence[Trace], round: int) -> RoundMetrics:
    return RoundMetrics(
        round,
        _interval(traces, lambda trace: estimators.heavy_mean_at_d(trace, round)),
        _interval(traces, lambda trace: estimators.heavy_pass_at_d(trace, round)),
    )


def _cross_table(traces: Sequence[Trace]) -> dict[str, dict[str, int]]:
    """Every stratum by every outcome, zeros included, so that all runs have the same keys."""
    table = {stratum: dict.fromkeys((*OUTCOMES, NO_LABEL), 0) for stratum in (*STRATA, NO_LABEL)}
    for trace in traces:
        table[trace.stratum or NO_LABEL][trace.outcome or NO_LABEL] += 1
    return table


def _share_of(counts: dict[str, int], hits: list[str], among: list[str]) -> Rate:
    count, of = sum(counts[key] for key in hits), sum(counts[key] for key in among)
    return Rate(count, of, count / of if of else None)


def _most_common(sizes: Iterable[int]) -> int:
    """The most common size that is not 0, of equally common ones the largest; 0 if all are 0."""
    counts = Counter(size for size in sizes if size)
    return max(counts, key=lambda size: (counts[size], size), default=0)


def _mean_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _count(generations: Sequence[Generation]) -> GenerationCounts:
    why = Counter(generation.unusable_because for generation in generations)
    judged = [generation.verdict for generation in generations if generation.verdict]
    failed = [g for g in generations if g.finish_reason == "error"]
    without_verdict = [g for g in generations if g.verdict is None and g.finish_reason != "error"]
    return GenerationCounts(
        total=len(generations),
        failed=why["error"],
        failures=dict(Counter(g.failure or "unknown" for g in failed).most_common()),
        truncated=why["truncated"],
        empty=why["empty"],
        undecided=sum(verdict.label == "undecided" for verdict in judged),
        unjudged=len(without_verdict),
    )


def _usage(generations: Sequence[Generation]) -> Usage:
    prompt, unknown_prompt = _known(g.prompt_tokens for g in generations)
    cached, unknown_cached = _known(g.cached_tokens for g in generations)
    completion, unknown_completion = _known(g.completion_tokens for g in generations)
    return Usage(
        requests=len(generations),
        prompt=prompt,
        cached=cached,
        completion=completion,
        unknown_prompt=unknown_prompt,
        unknown_cached=unknown_cached,
        unknown_completion=unknown_completion,
    )


def _known(tokens: Iterable[int]) -> tuple[int, int]:
    """(sum of the known ones, how many are unknown)."""
    counts = list(tokens)
    return sum(count for count in counts if count >= 0), sum(count < 0 for count in counts)

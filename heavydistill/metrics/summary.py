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
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from heavydistill.errors import RunError
from heavydistill.metrics import estimators
from heavydistill.metrics.intervals import Interval, bootstrap_difference, bootstrap_mean
from heavydistill.metrics.judging import Judging, JudgingTally
from heavydistill.metrics.usage import Usage, UsageTally
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
        undecided_because: Undecided ones of each reason, most common first.
    """

    total: int
    failed: int
    failures: dict[str, int]
    truncated: int
    empty: int
    undecided: int
    unjudged: int
    undecided_because: dict[str, int]


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
        judging: What a judge made of undecided verdicts.
        usage: What each stage of the run took, ``thinking``, ``deliberating`` (all rounds) and, if
            a judge was asked, ``judging``; ``thinking`` is 0 where it took its pools from another.
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
    judging: Judging = field(default_factory=Judging)
    usage: dict[str, Usage]
    statuses: dict[str, int]


def summarize(traces: Iterable[Trace], voted: Collection[str] | None = None) -> Summary:
    """The summary of all traces of a run, which are read once and not kept.

    Args:
        traces: In any order.
        voted: Where the run took its pools from another one: ids of the trajectories that a judge
            was asked about there. None if it asked for its pools itself.

    Raises:
        RunError: There are no traces.
    """
    rows: list[_Row] = []
    trajectories, deliberations, judging = _Tally(), _Tally(), JudgingTally()
    table = {stratum: dict.fromkeys((*OUTCOMES, NO_LABEL), 0) for stratum in (*STRATA, NO_LABEL)}
    statuses: Counter[str] = Counter()
    for trace in traces:
        rows.append(_Row.of(trace))
        trajectories.add(trace.pool)
        deliberations.add(trace.deliberations)
        judging.add([*trace.pool, *trace.deliberations], voted or ())
        # Every stratum by every outcome, zeros included, so that all runs have the same keys.
        table[trace.stratum or NO_LABEL][trace.outcome or NO_LABEL] += 1
        statuses[trace.status] += 1
    if not rows:
        raise RunError(
            "There are no traces to summarize", "Check that the run had problems and was finished."
        )
    rounds = max(len(row.rounds) for row in rows)
    means, votes = [row.mean for row in rows], [row.vote for row in rows]
    last_round = [row.round(rounds) for row in rows]
    heavy_means = [told.mean for told in last_round]
    per_round = [_round_metrics(rows, round) for round in range(1, rounds + 1)]
    last = per_round[-1] if per_round else None
    outcomes = {outcome: sum(row[outcome] for row in table.values()) for outcome in table[NO_LABEL]}
    return Summary(
        problems=len(rows),
        k=_most_common(row.k for row in rows),
        d=_most_common(told.d for told in last_round),
        rounds=rounds,
        mean_at_k=bootstrap_mean(means),
        pass_at_k=bootstrap_mean([row.any_right for row in rows]),
        vote_at_k=bootstrap_mean(votes),
        heavy_mean_at_d=last.heavy_mean if last else None,
        heavy_pass_at_d=last.heavy_pass if last else None,
        heavy_minus_vote=bootstrap_difference(heavy_means, votes) if last else None,
        heavy_minus_mean=bootstrap_difference(heavy_means, means) if last else None,
        per_round=per_round,
        rescue=_share_of(outcomes, ["rescued", "emergent"], ["rescued", "emergent", "lost"]),
        regress=_share_of(outcomes, ["overturned"], ["kept", "overturned"]),
        emergent=_share_of(table["all-wrong"], ["emergent"], list(OUTCOMES)),
        vote_copy_rate=_mean_known(told.copies for told in last_round),
        strata={stratum: sum(row.values()) for stratum, row in table.items()},
        outcomes=outcomes,
        outcomes_by_stratum=table,
        trajectories=trajectories.counts,
        deliberations=deliberations.counts,
        judging=judging.counts,
        usage={
            "thinking": trajectories.usage if voted is None else UsageTally().usage,
            "deliberating": deliberations.usage,
            **judging.usage,
        },
        statuses=dict(statuses.most_common()),
    )


@dataclass(frozen=True, slots=True)
class _Round:
    """What one round of one problem counts for."""

    mean: float
    any_right: float
    copies: float | None
    d: int

    @classmethod
    def of(cls, trace: Trace, round: int) -> _Round:
        return cls(
            estimators.heavy_mean_at_d(trace, round),
            estimators.heavy_pass_at_d(trace, round),
            estimators.vote_copy_rate(trace, round),
            len(estimators.deliberations_of(trace, round)),
        )


@dataclass(frozen=True, slots=True)
class _Row:
    """What one problem counts for: all that is kept of its trace.

    Attributes:
        rounds: Those that it has.
        without: What a round counts for that it does not have.
    """

    k: int
    mean: float
    vote: float
    any_right: float
    rounds: tuple[_Round, ...]
    without: _Round

    @classmethod
    def of(cls, trace: Trace) -> _Row:
        last = max((d.round for d in trace.deliberations), default=0)
        return cls(
            len(trace.pool),
            estimators.mean_at_k(trace),
            estimators.vote_at_k(trace),
            estimators.pass_at_k(trace),
            tuple(_Round.of(trace, round) for round in range(1, last + 1)),
            _Round.of(trace, last + 1),
        )

    def round(self, number: int) -> _Round:
        return self.rounds[number - 1] if 0 < number <= len(self.rounds) else self.without


class _Tally:
    """What became of the samples of a stage, and what they took."""

    def __init__(self) -> None:
        self._total = self._unjudged = 0
        self._undecided: Counter[str] = Counter()
        self._why: Counter[str | None] = Counter()
        self._failures: Counter[str] = Counter()
        self._usage = UsageTally()

    def add(self, generations: Sequence[Generation]) -> None:
        for generation in generations:
            self._total += 1
            self._why[generation.unusable_because] += 1
            if generation.finish_reason == "error":
                self._failures[generation.failure or "unknown"] += 1
            if generation.verdict:
                if generation.verdict.label == "undecided":
                    self._undecided[generation.verdict.reason] += 1
            elif generation.finish_reason != "error":
                self._unjudged += 1
            self._usage.add(generation)

    @property
    def counts(self) -> GenerationCounts:
        return GenerationCounts(
            total=self._total,
            failed=self._why["error"],
            failures=dict(self._failures.most_common()),
            truncated=self._why["truncated"],
            empty=self._why["empty"],
            undecided=self._undecided.total(),
            unjudged=self._unjudged,
            undecided_because=dict(self._undecided.most_common()),
        )

    @property
    def usage(self) -> Usage:
        return self._usage.usage


def _round_metrics(rows: Sequence[_Row], round: int) -> RoundMetrics:
    told = [row.round(round) for row in rows]
    return RoundMetrics(
        round,
        bootstrap_mean([each.mean for each in told]),
        bootstrap_mean([each.any_right for each in told]),
    )


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

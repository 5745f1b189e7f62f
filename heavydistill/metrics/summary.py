"""The summary of a run: its metrics with intervals, its labels, what failed, what it cost.

Metrics are over all problems of the run; see ``estimators`` for what counts as wrong, ``habits``
for rates and ``curve`` for tokens. A rate of nothing is None. ``dataclasses.asdict`` of a summary
is JSON.

Not covered: prices, which the pipeline knows and fills in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from heavydistill.errors import RunError
from heavydistill.metrics.counts import GenerationCounts
from heavydistill.metrics.curve import Curve, curve_of
from heavydistill.metrics.groups import STRATA, Metrics, breakdown, measure
from heavydistill.metrics.habits import OUTCOMES, Place, Rate, places_of, rates, vote_copy_rate
from heavydistill.metrics.intervals import Interval, bootstrap_difference, bootstrap_mean
from heavydistill.metrics.judging import Judging
from heavydistill.metrics.row import Row
from heavydistill.metrics.tally import Tally
from heavydistill.metrics.usage import Usage
from heavydistill.schema import Trace

NO_LABEL = "none"
"""Stands in counts for a stratum or outcome that is null."""


@dataclass(frozen=True, slots=True)
class RoundMetrics:
    """HM@D and HP@D of one round, counted from 1."""

    round: int
    heavy_mean: Interval
    heavy_pass: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(Metrics):
    """What a run achieved: the metrics of all its problems, and what else there is to say.

    Attributes:
        k: Most common size of a pool.
        d: Most common number of deliberations in the last round; 0 if there are none.
        rounds: Rounds of deliberation.
        heavy_minus_mean: HM@D - M@K, paired by problem; None if no problem was deliberated.
        per_round: One a round.
        rescue: Deliberation right, of those with the vote wrong or tied.
        regress: Deliberation wrong, of those with the vote right.
        emergent: Deliberation right, of those with no right trajectory.
        vote_copy_rate: Mean share of the last round's deliberations that give the vote's
            answer; None if there was nothing to copy.
        places: Of the caches of the last round, how often each is believed.
        by_verifier: The metrics of the problems of each verifier.
        by_family: Likewise of each family of procedural problems.
        by_stratum: Likewise of each stratum that there is.
        curve: Accuracy over tokens; None if there are no trajectories.
        strata: Problems of each stratum.
        outcomes: Problems of each outcome.
        outcomes_by_stratum: Problems of each stratum, then outcome.
        trajectories: What became of the thinker's samples.
        deliberations: What became of the deliberator's samples, all rounds.
        judging: What a judge made of undecided verdicts.
        usage: What each stage of the run took, ``thinking``, ``deliberating`` (all rounds) and, if
            a judge was asked, ``judging``; ``thinking`` is 0 where it took its pools from another.
        statuses: Traces of each status, most common first.
        thoughts: Trajectories with thinking.
        same_texts: Pools whose trajectories are all the same text; see ``tally.Tally``.
        readers: Caches by what counted their tokens.
        prompts: Names and hashes of the wordings that were asked.
        verifiers: Names and versions behind the verdicts.
    """

    k: int
    d: int
    rounds: int
    heavy_minus_mean: Interval | None
    per_round: list[RoundMetrics]
    rescue: Rate
    regress: Rate
    emergent: Rate
    vote_copy_rate: Interval | None
    places: list[Place]
    by_verifier: dict[str, Metrics]
    by_family: dict[str, Metrics]
    by_stratum: dict[str, Metrics]
    curve: Curve | None
    strata: dict[str, int]
    outcomes: dict[str, int]
    outcomes_by_stratum: dict[str, dict[str, int]]
    trajectories: GenerationCounts
    deliberations: GenerationCounts
    judging: Judging = field(default_factory=Judging)
    usage: dict[str, Usage]
    statuses: dict[str, int]
    thoughts: int = 0
    same_texts: int = 0
    readers: dict[str, int] = field(default_factory=dict)
    prompts: list[str]
    verifiers: list[str]

    @property
    def samples(self) -> dict[str, GenerationCounts]:
        """What became of the samples of each stage, by its name in tables."""
        return {"trajectories": self.trajectories, "deliberations": self.deliberations}


def summarize(traces: Iterable[Trace], voted: Collection[str] | None = None) -> Summary:
    """The summary of all traces of a run, which are read once and not kept.

    Args:
        traces: In any order.
        voted: Where the run took its pools from another one: ids of the trajectories that a judge
            was asked about there. None if it asked for its pools itself.

    Raises:
        RunError: There are no traces.
    """
    return summary_of(Tally(traces, voted))


def summary_of(tally: Tally) -> Summary:
    """The summary of traces that were read.

    Raises:
        RunError: There are none.
    """
    rows, rounds = tally.rows, tally.rounds
    if not rows:
        raise RunError(
            "There are no traces to summarize", "Check that the run had problems and was finished."
        )
    last_round = [row.round(rounds) for row in rows]
    k = _most_common(row.k for row in rows)
    d = _most_common(told.d for told in last_round)
    means, heavy_means = [row.mean for row in rows], [told.mean for told in last_round]
    table = _outcomes_by_stratum(rows)
    return Summary(
        **measure(rows, rounds, k, d),
        k=k,
        d=d,
        rounds=rounds,
        heavy_minus_mean=bootstrap_difference(heavy_means, means) if rounds else None,
        per_round=[_round_metrics(rows, round, d) for round in range(1, rounds + 1)],
        **rates(rows),
        vote_copy_rate=vote_copy_rate(last_round),
        places=places_of(last_round),
        by_verifier=breakdown(rows, rounds, k, d, "verifier"),
        by_family=breakdown(rows, rounds, k, d, "family"),
        by_stratum=breakdown(rows, rounds, k, d, "stratum"),
        curve=curve_of(rows, k, d, rounds),
        strata={stratum: sum(row.values()) for stratum, row in table.items()},
        outcomes={label: sum(row[label] for row in table.values()) for label in table[NO_LABEL]},
        outcomes_by_stratum=table,
        trajectories=tally.trajectories,
        deliberations=tally.deliberations,
        judging=tally.judging,
        usage=tally.usage,
        statuses=tally.statuses,
        thoughts=tally.thoughts,
        same_texts=tally.same_texts,
        readers=dict(tally.readers),
        prompts=sorted(tally.prompts),
        verifiers=sorted(tally.verifiers),
    )


def _outcomes_by_stratum(rows: Iterable[Row]) -> dict[str, dict[str, int]]:
    """Every stratum by every outcome, zeros included, so that all runs have the same keys."""
    table = {stratum: dict.fromkeys((*OUTCOMES, NO_LABEL), 0) for stratum in (*STRATA, NO_LABEL)}
    for row in rows:
        table[row.stratum or NO_LABEL][row.outcome or NO_LABEL] += 1
    return table


def _round_metrics(rows: Sequence[Row], round: int, d: int) -> RoundMetrics:
    told = [row.round(round) for row in rows]
    return RoundMetrics(
        round,
        bootstrap_mean([each.mean for each in told]),
        bootstrap_mean([each.pass_at(d) for each in told]),
    )


def _most_common(sizes: Iterable[int]) -> int:
    """The most common size that is not 0, of equally common ones the largest; 0 if all are 0."""
    counts = Counter(size for size in sizes if size)
    return max(counts, key=lambda size: (counts[size], size), default=0)

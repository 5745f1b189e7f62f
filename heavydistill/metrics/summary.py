"""The summary of a run: metrics with intervals, labels, failures, tokens and cost.

Metrics are over all problems of the run; see ``estimators`` for their values and ``curve`` for
tokens. Groups (the problems of one verifier, procedural family or stratum) have the same metrics.
Rates are shares of the problems that have an outcome, i.e. that have deliberations.
``dataclasses.asdict`` of a summary is JSON.

Not covered: prices, which the run adds; differences between groups, whose problems are not paired;
the influence of the order of attempts (see ``controls``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, get_args

from heavydistill.errors import RunError
from heavydistill.metrics.claims import claim_metrics
from heavydistill.metrics.counts import GenerationCounts, Judging, Usage
from heavydistill.metrics.curve import Curve, curve_of
from heavydistill.metrics.intervals import Interval, bootstrap_difference, bootstrap_mean, wilson
from heavydistill.metrics.problem_figures import ProblemFigures, Round, RunTally, most_common
from heavydistill.metrics.steps import StepRow, StepVote, step_table, vote_over_steps
from heavydistill.schema import Outcome, Stratum, Trace

STRATA: tuple[str, ...] = get_args(Stratum)
OUTCOMES: tuple[str, ...] = get_args(Outcome)
NO_LABEL = "none"
"""Key in counts if the stratum or outcome is null."""

HEAVY = ("heavy_mean_at_d", "heavy_pass_at_d", "heavy_minus_vote")
"""Metrics of deliberation."""
NAMES = ("mean_at_k", "vote_at_k", "pass_at_k", *HEAVY)
"""All metrics in display order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Metrics of a group of problems; those of deliberation are None if nothing was deliberated."""

    problems: int
    mean_at_k: Interval  # M@K
    vote_at_k: Interval  # V@K; for more than K trajectories, the expected value over K of them
    pass_at_k: Interval  # P@K; for more than K trajectories, as V@K
    heavy_mean_at_d: Interval | None  # HM@D of the last round
    heavy_pass_at_d: Interval | None  # HP@D of the last round; treated like P@K
    heavy_minus_vote: Interval | None  # HM@D - V@K, paired by problem


def values_of(row: ProblemFigures, rounds: int, k: int, d: int) -> dict[str, float]:
    """A problem's metrics at this K and D, or over all its samples if there are fewer.

    If ``rounds`` is 0, metrics of deliberation are left out.
    """
    vote = row.vote_at(k)
    values = {"mean_at_k": row.mean, "vote_at_k": vote, "pass_at_k": row.pass_at(k)}
    if rounds:
        last = row.round(rounds)
        values |= {
            "heavy_mean_at_d": last.mean,
            "heavy_pass_at_d": last.pass_at(d),
            "heavy_minus_vote": last.mean - vote,
        }
    return values


def measure(rows: Sequence[ProblemFigures], rounds: int, k: int, d: int) -> dict[str, Any]:
    """Compute the fields of ``Metrics`` from the rows of at least one problem."""
    values = [values_of(row, rounds, k, d) for row in rows]
    metrics = {name: bootstrap_mean([each[name] for each in values]) for name in values[0]}
    return {"problems": len(rows), **dict.fromkeys(NAMES), **metrics}


def grouped(rows: Sequence[ProblemFigures], by: str) -> dict[str, list[ProblemFigures]]:
    """Group rows by "verifier", "family" or "stratum", sorted; omits rows without a group.

    No groups if all rows are of one family: it is all problems.
    """
    groups: dict[str, list[ProblemFigures]] = {}
    for row in rows:
        if name := getattr(row, by):
            groups.setdefault(name, []).append(row)
    if by == "family" and len(groups) == 1:
        return {}
    order = STRATA.index if by == "stratum" else None
    return {name: groups[name] for name in sorted(groups, key=order)}


def breakdown(
    rows: Sequence[ProblemFigures], rounds: int, k: int, d: int, by: str
) -> dict[str, Metrics]:
    """Compute the metrics of each group of ``by``; see ``grouped``."""
    return {name: Metrics(**measure(of, rounds, k, d)) for name, of in grouped(rows, by).items()}


@dataclass(frozen=True, slots=True)
class Rate:
    """A share of problems, with its interval."""

    count: int  # problems to which it applies
    of: int  # problems to which it could apply
    share: float | None  # ``count / of``; None if ``of`` is 0
    interval: Interval | None  # the share with Wilson's interval; None if ``of`` is 0


@dataclass(frozen=True, slots=True)
class CachePlace:
    """One position in the caches of a round."""

    place: int  # position of the attempt, from 1
    problems: int  # problems whose cache has this position, and attempts that disagree
    agrees: Interval  # share of deliberations with the answer of that attempt
    over_expected: Interval  # ``agrees`` minus the mean over all positions of the cache, paired


def rates(rows: Sequence[ProblemFigures]) -> dict[str, Any]:
    """Compute ``rescue``, ``regress`` and ``emergent`` of a ``Summary``."""
    all_wrong = [row for row in rows if row.stratum == "all-wrong"]
    return {
        "rescue": _rate(rows, ["rescued", "emergent"], ["rescued", "emergent", "lost"]),
        "regress": _rate(rows, ["overturned"], ["kept", "overturned"]),
        "emergent": _rate(all_wrong, ["emergent"], OUTCOMES),
    }


def mean_vote_copies(rounds: Iterable[Round]) -> Interval | None:
    """Mean of a round's ``copies`` over problems; None if no problem has a value."""
    copies = [of_round.copies for of_round in rounds if of_round.copies is not None]
    return bootstrap_mean(copies) if copies else None


def places_of(rounds: Iterable[Round]) -> list[CachePlace]:
    """Agreement with each position in the caches of a round, which shows first-position bias.

    Attempts are in random order, so a deliberator without a preference repeats the answer of each
    position equally often. Only caches whose attempts disagree are counted.
    """
    caches = [of_round.places for of_round in rounds if of_round.places]
    places = []
    for place in range(max(map(len, caches), default=0)):
        having = [cache for cache in caches if len(cache) > place]
        agrees = [cache[place] for cache in having]
        over_expected = bootstrap_difference(agrees, list(map(fmean, having)))
        places.append(CachePlace(place + 1, len(having), bootstrap_mean(agrees), over_expected))
    return places


def _rate(rows: Iterable[ProblemFigures], hits: Sequence[str], among: Sequence[str]) -> Rate:
    holds = [row.outcome in hits for row in rows if row.outcome in among]
    count, of = sum(holds), len(holds)
    return Rate(count, of, count / of if of else None, wilson(count, of) if of else None)


@dataclass(frozen=True, slots=True)
class RoundMetrics:
    """HM@D and HP@D of one round; rounds count from 1."""

    round: int
    heavy_mean: Interval
    heavy_pass: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary(Metrics):
    """Metrics, rates, groups, failures and costs of a run."""

    k: int  # most common number of trajectories per problem
    d: int  # most common number of deliberations in the last round; 0 if there are none
    rounds: int  # number of deliberation rounds
    heavy_minus_mean: Interval | None  # HM@D - M@K, paired by problem
    per_round: list[RoundMetrics]
    rescue: Rate  # deliberation is right, but the vote is wrong or tied
    regress: Rate  # deliberation is wrong, but the vote is right
    emergent: Rate  # deliberation is right, but no trajectory is
    vote_copy_rate: Interval | None  # share of the last round with the vote's answer
    places: list[CachePlace]  # positions in the caches of the last round
    claim_coverage: Interval | None = None  # of the last round, as all below; see ``claims``
    claim_balanced_accuracy: Interval | None = None
    self_contradiction_share: Interval | None = None
    claim_vote_accuracy: Interval | None = None
    claim_accuracy_when_wrong: Interval | None = None
    leak_in_answer: Interval | None = None
    leak_in_thinking: Interval | None = None
    steps: dict[str, StepRow] = field(default_factory=dict)  # see ``steps``
    step_vote: StepVote | None = None  # None if attempts are no chains of steps
    by_verifier: dict[str, Metrics]
    by_family: dict[str, Metrics]  # groups by source, if there are several; see ``family_of``
    by_stratum: dict[str, Metrics]
    curve: Curve | None  # accuracy over tokens; None if there are no trajectories
    strata: dict[str, int]  # number of problems by stratum
    outcomes: dict[str, int]  # number of problems by outcome
    outcomes_by_stratum: dict[str, dict[str, int]]  # number of problems by stratum, then outcome
    trajectories: GenerationCounts
    deliberations: GenerationCounts  # counts of all rounds
    judging: Judging = field(default_factory=Judging)
    usage: dict[str, Usage]
    """By stage: ``thinking`` (0 if another run paid for the trajectories), ``deliberating`` (all
    rounds) and, if a judge was asked, ``judging``."""
    statuses: dict[str, int]  # number of traces by status, most common first
    thoughts: int = 0  # number of trajectories with thinking
    same_texts: int = 0  # problems whose trajectories are all the same text
    readers: dict[str, int] = field(default_factory=dict)  # caches by token counter
    prompts: list[str]  # names and hashes of the prompt templates
    verifiers: list[str]  # names and versions of the verifiers and judges

    @property
    def samples(self) -> dict[str, GenerationCounts]:
        """Counts of the samples of each stage, by its name in tables."""
        return {"trajectories": self.trajectories, "deliberations": self.deliberations}

    @property
    def is_unread(self) -> bool:
        """Whether responses finished, and none of them has a final answer that was decided on."""
        stages = [each for each in self.samples.values() if each.finished]
        return bool(stages) and all(each.decided == 0 for each in stages)


def summarize(traces: Iterable[Trace], voted: Collection[str] | None = None) -> Summary:
    """Summarize all traces of a run, which are read once and not kept.

    Args:
        traces: All traces of the run, in any order.
        voted: For a run that reads the trajectories of another run: ids of those that were sent to
            a judge in that run. None if the run generated its trajectories.

    Raises:
        RunError: There are no traces.
    """
    return summary_of(RunTally(traces, voted))


def summary_of(tally: RunTally) -> Summary:
    """The summary of a tally; raises RunError if there were no traces."""
    rows, rounds = tally.rows, tally.rounds
    if not rows:
        raise RunError(
            "There are no traces to summarize", "Check that the run had problems and has finished."
        )
    last_round = [row.round(rounds) for row in rows]
    k = most_common(row.k for row in rows)
    d = most_common(of_round.d for of_round in last_round)
    means, heavy_means = [row.mean for row in rows], [of_round.mean for of_round in last_round]
    # Zeros are included, so that all runs have the same keys.
    table = {stratum: dict.fromkeys((*OUTCOMES, NO_LABEL), 0) for stratum in (*STRATA, NO_LABEL)}
    for row in rows:
        table[row.stratum or NO_LABEL][row.outcome or NO_LABEL] += 1
    per_round = []
    for number in range(1, rounds + 1):
        each = [row.round(number) for row in rows]
        passes = bootstrap_mean([of_round.pass_at(d) for of_round in each])
        per_round.append(RoundMetrics(number, bootstrap_mean([r.mean for r in each]), passes))
    return Summary(
        **measure(rows, rounds, k, d),
        k=k,
        d=d,
        rounds=rounds,
        heavy_minus_mean=bootstrap_difference(heavy_means, means) if rounds else None,
        per_round=per_round,
        **rates(rows),
        vote_copy_rate=mean_vote_copies(last_round),
        places=places_of(last_round),
        **claim_metrics(of_round.claims for of_round in last_round),
        steps=step_table([of_round.steps for of_round in last_round]),
        step_vote=vote_over_steps((of_round.steps, of_round.mean) for of_round in last_round),
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

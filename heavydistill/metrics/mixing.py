"""What each model contributes to pools of several models, and what mixing them gains.

Mixing is compared with each model alone at the same number of trajectories, k: the number that the
model with the fewest has on most problems. V@k and P@k are expected values over all choices of k
trajectories, of one model or of the whole pool, on the problems on which each model has k or more.
A choice from the whole pool has the models in their shares only on average; a run with K = k and
the same shares has them exactly. The best model alone is chosen anew in each resample, so that its
choice is part of the interval. A vote of two is worth one of them, so below k = 3 there is no gain
in votes.

Not covered: deliberations, which read the whole pool (compare runs with one thinker each); prices,
which the run adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heavydistill.metrics.counts import Usage
from heavydistill.metrics.intervals import Interval, bootstrap_mean, bootstrap_statistic
from heavydistill.metrics.problem_figures import (
    PoolFigures,
    ProblemFigures,
    RunTally,
    most_common,
)
from heavydistill.schema import UNKNOWN_MODEL

_FEWEST_VOTES = 3
_Pool = ProblemFigures | PoolFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """The trajectories of one of the models."""

    name: str
    mean_at_k: Interval  # M@K over all problems that it attempted
    vote_at_k: Interval | None  # V@k over the compared problems, if there are any
    pass_at_k: Interval | None  # P@k over the compared problems, if there are any
    only: int  # compared problems that it has right in some trajectory, and no other model
    usage: Usage  # of its trajectories, including those that another run paid for


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixing:
    """The models of pools, and the gain of mixing them over the best of them alone."""

    k: int  # number of trajectories that are compared; 0 if no problem has some of each model
    problems: int  # compared problems
    left_out: int  # problems on which some model has fewer than k trajectories
    unnamed: int  # trajectories without a model's name; if there are any, nothing is compared
    models: list[Alone]
    mean_at_k: Interval  # M@K of the mixed pools over all problems
    vote_at_k: Interval | None  # V@k of the mixed pools over the compared problems, if any
    pass_at_k: Interval | None  # P@k of the mixed pools over the compared problems, if any
    vote_gain: Interval | None  # V@k of the mixed pools minus that of the best model
    pass_gain: Interval | None  # the same of P@k


def mixing_of(tally: RunTally) -> Mixing | None:
    """The models of the pools of a run; None if all trajectories are of one model."""
    usage = tally.usage_by_model
    if len(usage) < 2:
        return None
    unnamed = sum(used.requests for name, used in usage.items() if name in ("", UNKNOWN_MODEL))
    names = [] if unnamed else list(usage)
    k, compared = _compared(tally, names)
    # For each problem, the mixed pool and then each model alone.
    votes = [[each.vote_at(k) for each in pools] for pools in compared]
    passes = [[each.pass_at(k) for each in pools] for pools in compared]
    right = [[n for n, alone in enumerate(pools[1:]) if alone.mean] for pools in compared]
    models = [
        Alone(
            name=name,
            mean_at_k=bootstrap_mean([of[name].mean for of in tally.by_model if name in of]),
            vote_at_k=_mean(votes, place + 1),
            pass_at_k=_mean(passes, place + 1),
            only=right.count([place]),
            usage=usage[name],
        )
        for place, name in enumerate(names)
    ]
    return Mixing(
        k=k,
        problems=len(compared),
        left_out=len(tally.rows) - len(compared),
        unnamed=unnamed,
        models=models,
        mean_at_k=bootstrap_mean([row.mean for row in tally.rows]),
        vote_at_k=_mean(votes, 0),
        pass_at_k=_mean(passes, 0),
        vote_gain=_gain(votes) if k >= _FEWEST_VOTES else None,
        pass_gain=_gain(passes) if k > 1 else None,
    )


def _compared(tally: RunTally, names: Sequence[str]) -> tuple[int, list[list[_Pool]]]:
    """k, and for each problem with k trajectories of each model the mixed pool and these."""
    pairs = list(zip(tally.rows, tally.by_model, strict=True))
    fewest = [
        min((of[name].k if name in of else 0 for name in names), default=0) for _, of in pairs
    ]
    k = most_common(fewest)
    return k, [
        [row, *(of[name] for name in names)]
        for (row, of), count in zip(pairs, fewest, strict=True)
        if k and count >= k
    ]


def _mean(values: Sequence[Sequence[float]], column: int) -> Interval | None:
    return bootstrap_mean([row[column] for row in values]) if values else None


def _gain(values: Sequence[Sequence[float]]) -> Interval | None:
    """First column minus the column with the highest mean among the others."""
    return bootstrap_statistic(values, lambda means: means[..., 0] - means[..., 1:].max(axis=-1))

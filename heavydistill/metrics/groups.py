"""The metrics of a group of problems, such as all of a run, of one kind or of one stratum.

A group is measured as a run is: over all its problems, whatever became of them. Problems of one
verifier are a kind, and procedural ones have a family beside it.

Not covered: how sure one may be that two groups differ, for their problems are not paired.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from heavydistill.metrics.intervals import Interval, bootstrap_mean
from heavydistill.metrics.row import Row
from heavydistill.schema import Stratum

STRATA: tuple[str, ...] = get_args(Stratum)

NAMES = (
    "mean_at_k",
    "vote_at_k",
    "pass_at_k",
    "heavy_mean_at_d",
    "heavy_pass_at_d",
    "heavy_minus_vote",
)
"""The metrics, in the order in which they are shown."""

Grouping = Callable[[Row], str]
GROUPINGS: dict[str, Grouping] = {
    "verifier": lambda row: row.verifier,
    "family": lambda row: row.family,
    "stratum": lambda row: row.stratum or "",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """Of a group.

    Attributes:
        problems: In it.
        mean_at_k: M@K.
        vote_at_k: V@K; of a pool that is larger, the expected value of K of it.
        pass_at_k: P@K, likewise.
        heavy_mean_at_d: HM@D of the last round of the run; None if that was never deliberated.
        heavy_pass_at_d: HP@D of the last round; None likewise. Of more deliberations, the expected
            value of D of them.
        heavy_minus_vote: HM@D - V@K, paired by problem; None likewise.
    """

    problems: int
    mean_at_k: Interval
    vote_at_k: Interval
    pass_at_k: Interval
    heavy_mean_at_d: Interval | None
    heavy_pass_at_d: Interval | None
    heavy_minus_vote: Interval | None


def values_of(row: Row, rounds: int, k: int, d: int) -> dict[str, float]:
    """What a problem counts for in each metric; in those of deliberation only if there was any.

    Args:
        row: Of the problem.
        rounds: Of deliberation in the run; 0 if there are none.
        k: Trajectories of a vote. A pool that has fewer votes with all that it has.
        d: Deliberations of which any may be right; likewise.
    """
    vote, any_right = row.vote, row.any_right
    if row.k > k:
        vote, any_right = row.votes[k - 1], row.passes[k - 1]
    values = {"mean_at_k": row.mean, "vote_at_k": vote, "pass_at_k": any_right}
    if rounds:
        last = row.round(rounds)
        values |= {
            "heavy_mean_at_d": last.mean,
            "heavy_pass_at_d": last.pass_at(d),
            "heavy_minus_vote": last.mean - vote,
        }
    return values


def measure(rows: Sequence[Row], rounds: int, k: int, d: int) -> dict[str, Any]:
    """The fields of the ``Metrics`` of these problems, of which there is at least one.

    Arguments are as of ``values_of``, with the rows of all of them.
    """
    values = [values_of(row, rounds, k, d) for row in rows]
    metrics = {name: bootstrap_mean([each[name] for each in values]) for name in values[0]}
    return {"problems": len(rows), **dict.fromkeys(NAMES), **metrics}


def grouped(rows: Sequence[Row], by: str) -> dict[str, list[Row]]:
    """The problems of each group, in the order of its name; those that belong to none left out.

    Args:
        rows: Of the problems.
        by: One of ``GROUPINGS``.
    """
    name_of = GROUPINGS[by]
    names = sorted({name_of(row) for row in rows} - {""})
    if by == "stratum":
        names.sort(key=STRATA.index)
    return {name: [row for row in rows if name_of(row) == name] for name in names}


def breakdown(rows: Sequence[Row], rounds: int, k: int, d: int, by: str) -> dict[str, Metrics]:
    """The metrics of each group; arguments as of ``measure`` and ``grouped``."""
    return {name: Metrics(**measure(of, rounds, k, d)) for name, of in grouped(rows, by).items()}

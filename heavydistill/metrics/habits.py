"""What deliberators are known to do: rescue, regress, repeat the vote, believe what stands first.

Rates are over the problems that have an outcome, so over those that were deliberated, and follow
its reading of right and wrong (``heavy.voting.outcome``).

Attempts stand in a cache in an order that is drawn at random, so a deliberator that does not mind
the order gives the answer of each place equally often. What it gives more often than the mean over
all places of the same cache, it prefers for the place. Only caches whose attempts disagree tell
that.

Not covered: whether the same cache in another order gives another answer, for which a deliberator
must be asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, get_args

from heavydistill.metrics.intervals import (
    Interval,
    bootstrap_difference,
    bootstrap_mean,
    wilson,
)
from heavydistill.metrics.row import Round, Row
from heavydistill.schema import Outcome

OUTCOMES: tuple[str, ...] = get_args(Outcome)


@dataclass(frozen=True, slots=True)
class Rate:
    """How many of how many.

    Attributes:
        count: Problems for which it holds.
        of: Problems for which it could hold.
        share: ``count / of``; None if ``of`` is 0.
        interval: Of the share, Wilson's, over those problems; None likewise.
    """

    count: int
    of: int
    share: float | None
    interval: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One place in the caches of a round.

    Attributes:
        place: From 1, in the order in which attempts stand.
        problems: Those whose cache has such a place, and attempts that disagree.
        agrees: Share of deliberations with the answer that stands there.
        over_expected: That, minus the mean over all places of the same cache; paired by problem.
    """

    place: int
    problems: int
    agrees: Interval
    over_expected: Interval


def rates(rows: Sequence[Row]) -> dict[str, Any]:
    """``rescue``, ``regress`` and ``emergent`` of a run, as of ``summary``."""
    all_wrong = [row for row in rows if row.stratum == "all-wrong"]
    return {
        "rescue": _rate(rows, ["rescued", "emergent"], ["rescued", "emergent", "lost"]),
        "regress": _rate(rows, ["overturned"], ["kept", "overturned"]),
        "emergent": _rate(all_wrong, ["emergent"], OUTCOMES),
    }


def vote_copy_rate(rounds: Iterable[Round]) -> Interval | None:
    """The mean of a round's ``copies`` over problems; None if there was nothing to copy."""
    copies = [told.copies for told in rounds if told.copies is not None]
    return bootstrap_mean(copies) if copies else None


def places_of(rounds: Iterable[Round]) -> list[Place]:
    """What one round gives of each place in its caches; the first tells of first-position bias."""
    caches = [told.places for told in rounds if told.places]
    return [_place(place, caches) for place in range(max(map(len, caches), default=0))]


def _rate(rows: Iterable[Row], hits: Sequence[str], among: Sequence[str]) -> Rate:
    holds = [row.outcome in hits for row in rows if row.outcome in among]
    count, of = sum(holds), len(holds)
    return Rate(count, of, count / of if of else None, wilson(count, of) if of else None)


def _place(place: int, caches: Sequence[tuple[float, ...]]) -> Place:
    having = [places for places in caches if len(places) > place]
    agrees = [places[place] for places in having]
    return Place(
        place=place + 1,
        problems=len(having),
        agrees=bootstrap_mean(agrees),
        over_expected=bootstrap_difference(agrees, [fmean(places) for places in having]),
    )

"""Compares deliberations on the same attempts under two wordings, paired by problem.

What a model loses without the instructions that it is asked with says how far it deliberates by
itself. A point estimate of the loss can be small by chance, so its one-sided upper bound is given.

Not covered: claims on problems without a complete deliberation under either wording.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heavydistill.metrics.claims import ClaimFigures, claim_differences, claim_metrics
from heavydistill.metrics.intervals import (
    Interval,
    bootstrap_difference,
    bootstrap_mean,
    upper_bound,
)

_CLAIMS = "claim_balanced_accuracy"


@dataclass(frozen=True, slots=True)
class WordingValues:
    """What is measured of one problem under one wording."""

    right: float  # share of right deliberations; 0 without any
    claims: ClaimFigures | None  # None without a complete deliberation


@dataclass(frozen=True, slots=True, kw_only=True)
class WordingLoss:
    """Deliberations under one wording, and what they lose against another one."""

    problems: int
    minus_vote: Interval  # HM@D - V@K
    claims: Interval | None  # balanced accuracy of the claims; None without claims of both kinds
    loss: Interval  # HM@D under the other wording minus HM@D under this one
    loss_at_most: float  # one-sided 95 % upper bound of the loss
    claims_loss: Interval | None  # the same difference of the claims' accuracy


def wording_loss(
    votes: Sequence[float], other: Sequence[WordingValues], this: Sequence[WordingValues]
) -> WordingLoss:
    """Compare ``this`` wording with the ``other`` one; index i is the same problem everywhere."""
    pairs = [*zip(other, this, strict=True)]
    losses = [before.right - after.right for before, after in pairs]
    claims = [(before.claims, after.claims) for before, after in pairs]
    both = [(one, two) for one, two in claims if one and two]
    return WordingLoss(
        problems=len(pairs),
        minus_vote=bootstrap_difference([each.right for each in this], votes),
        claims=claim_metrics(each.claims for each in this)[_CLAIMS],
        loss=bootstrap_mean(losses),
        loss_at_most=upper_bound(losses, worst=1.0),
        claims_loss=claim_differences(*zip(*both, strict=True))[_CLAIMS] if both else None,
    )

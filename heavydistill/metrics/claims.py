"""Metrics of claims: how many attempts a deliberation judges, and whether that is true.

    claim_coverage             share of the attempts shown on which a deliberation makes a claim
    claim_balanced_accuracy    mean of two shares of claims: of those on right attempts that say
                               right, and of those on wrong attempts that say wrong
    self_contradiction_share   share of deliberations that contradict their own answer

``text.checked_claims`` says when a claim is true and what a contradiction is. Coverage and
contradictions are means over problems. The accuracy is over all claims, because a problem often has
only right or only wrong attempts; its interval resamples problems. Guessing, and the same word on
all attempts, have an accuracy of 50 %.

Only complete deliberations count, since the others make no claims. Not covered: claims on undecided
attempts in the accuracy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from heavydistill.metrics.estimators import deliberations_of
from heavydistill.metrics.intervals import (
    Interval,
    bootstrap_difference,
    bootstrap_mean,
    bootstrap_statistic,
)
from heavydistill.schema import Trace
from heavydistill.text.checked_claims import attempts_by_cache, checked_claims

NAMES = ("claim_coverage", "claim_balanced_accuracy", "self_contradiction_share")


@dataclass(frozen=True, slots=True)
class ClaimFigures:
    """The claims of the deliberations of one round on one problem."""

    coverage: float  # share of the attempts shown on which there is a claim
    contradictions: float  # share of the deliberations that contradict themselves
    counts: tuple[int, int, int, int]
    """Number of claims on right attempts that say right, of all claims on right attempts, of claims
    on wrong attempts that say wrong, and of all claims on wrong attempts."""

    @classmethod
    def of(cls, trace: Trace, round: int) -> ClaimFigures | None:
        """The figures of a round, from 1; None if no complete deliberation was shown attempts."""
        shown = attempts_by_cache(trace)
        read = [
            (checked_claims(each, shown[each.cache]), len(shown[each.cache]))
            for each in deliberations_of(trace, round)
            if not each.unusable_because and shown.get(each.cache)
        ]
        if not read:
            return None
        claims = [claim for checked, _ in read for claim in checked]
        rights, wrongs = (
            [each.is_true for each in claims if each.attempt.right is right]
            for right in (True, False)
        )
        return cls(
            coverage=fmean(len(checked) / attempts for checked, attempts in read),
            contradictions=fmean(any(c.is_contradiction for c in checked) for checked, _ in read),
            counts=(rights.count(True), len(rights), wrongs.count(True), len(wrongs)),
        )


def claim_metrics(problems: Iterable[ClaimFigures | None]) -> dict[str, Any]:
    """The metrics in ``NAMES`` over problems; None if no problem has a value.

    Without any claim, only the coverage has a value.
    """
    with_claims = [each for each in problems if each]
    coverage = [each.coverage for each in with_claims]
    values = [
        bootstrap_mean(coverage) if with_claims else None,
        bootstrap_statistic([each.counts for each in with_claims], _balanced_accuracy),
        bootstrap_mean([each.contradictions for each in with_claims]) if any(coverage) else None,
    ]
    return dict(zip(NAMES, values, strict=True))


def claim_differences(
    a: Sequence[ClaimFigures], b: Sequence[ClaimFigures]
) -> dict[str, Interval | None]:
    """The metrics of ``a`` minus those of ``b``, paired: index i in both is the same problem."""
    pairs = [(*one.counts, *other.counts) for one, other in zip(a, b, strict=True)]
    ways = ([each.coverage for each in run] for run in (a, b))
    contradictions = ([each.contradictions for each in run] for run in (a, b))
    values = [
        bootstrap_difference(*ways) if a else None,
        bootstrap_statistic(
            pairs,
            lambda sums: _balanced_accuracy(sums[..., :4]) - _balanced_accuracy(sums[..., 4:]),
        ),
        bootstrap_difference(*contradictions) if a else None,
    ]
    return dict(zip(NAMES, values, strict=True))


def _balanced_accuracy(sums: Any) -> Any:
    """Balanced accuracy from an array of ``ClaimFigures.counts``, summed over problems."""
    return (sums[..., 0] / sums[..., 1] + sums[..., 2] / sums[..., 3]) / 2

"""Metrics of what deliberations say of attempts: claims, whether they are true, and leaks.

    claim_coverage             share of the attempts shown on which a deliberation makes a claim
    claim_balanced_accuracy    mean of two shares of claims: of those on right attempts that say
                               right, and of those on wrong attempts that say wrong
    self_contradiction_share   share of deliberations that contradict their own answer
    claim_vote_accuracy        the balanced accuracy of a vote over the attempts shown, which calls
                               those with the commonest answer right and all others wrong, on the
                               attempts on which there is a claim
    claim_accuracy_when_wrong  the balanced accuracy of deliberations whose own answer is wrong
    leak_in_answer             share of deliberations whose visible answer speaks of attempts, which
                               a user never sees
    leak_in_thinking           share of deliberations whose thinking does, where it is meant to

A claim is often the deliberation's own answer compared with that of the attempt, and then it is
true where the answer is right: the last two tell whether there is more in it.

``text.checked_claims`` says when a claim is true and what a contradiction is, and ``text.mentions``
when a text speaks of attempts. Coverage, contradictions and leaks are means over problems. The
accuracy is over all claims, because a problem often has only right or only wrong attempts; its
interval resamples problems. Guessing, and the same word on all attempts, have an accuracy of 50 %.

Only complete deliberations count, since the others make no claims. Not covered: claims on undecided
attempts in the accuracy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
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
from heavydistill.schema import Generation, Trace
from heavydistill.text.checked_claims import CheckedClaim, attempts_by_cache, checked_claims
from heavydistill.text.mentions import speaks_of_attempts

_MEANS = {
    "claim_coverage": "coverage",
    "self_contradiction_share": "contradictions",
    "leak_in_answer": "in_answer",
    "leak_in_thinking": "in_thinking",
}
_ACCURACIES = {
    "claim_balanced_accuracy": "counts",
    "claim_vote_accuracy": "voted",
    "claim_accuracy_when_wrong": "when_wrong",
}
NAMES = (*_MEANS, *_ACCURACIES)
_Counts = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class ClaimFigures:
    """The claims of the deliberations of one round on one problem."""

    coverage: float  # share of the attempts shown on which there is a claim
    contradictions: float  # share of the deliberations that contradict themselves
    counts: _Counts
    """Number of claims on right attempts that say right, of all claims on right attempts, of claims
    on wrong attempts that say wrong, and of all claims on wrong attempts."""
    voted: _Counts  # the same of a vote, in place of these claims
    when_wrong: _Counts  # the same of deliberations with a wrong answer
    in_answer: float = 0.0  # share of the deliberations whose answer speaks of attempts
    in_thinking: float = 0.0  # share of those whose thinking does

    @classmethod
    def of(cls, trace: Trace, round: int) -> ClaimFigures | None:
        """The figures of a round, from 1; None if no complete deliberation was shown attempts."""
        shown, asked = attempts_by_cache(trace), trace.problem.transcript
        read = [
            (each, checked_claims(each, shown[each.cache]), shown[each.cache])
            for each in deliberations_of(trace, round)
            if not each.unusable_because and shown.get(each.cache)
        ]
        if not read:
            return None
        return cls(
            coverage=fmean(len(checked) / len(attempts) for _, checked, attempts in read),
            contradictions=fmean(any(c.is_contradiction for c in said) for _, said, _ in read),
            counts=_counts(c for _, checked, _ in read for c in _judged(checked)),
            voted=_counts(v for _, said, attempts in read for v in _votes(attempts, said)),
            when_wrong=_counts(
                c for each, checked, _ in read if each.right is False for c in _judged(checked)
            ),
            in_answer=fmean(speaks_of_attempts(each.answer_text, asked) for each, *_ in read),
            in_thinking=fmean(speaks_of_attempts(each.reasoning, asked) for each, *_ in read),
        )


def _judged(claims: Iterable[CheckedClaim]) -> Iterator[tuple[bool | None, float]]:
    """Yield (whether the attempt is right, whether the claim is true) of each claim."""
    return ((claim.attempt.right, float(bool(claim.is_true))) for claim in claims)


def _votes(
    attempts: Sequence[Generation], claims: Iterable[CheckedClaim]
) -> Iterator[tuple[bool | None, float]]:
    """Yield the same of what a vote over the attempts says in place of each claim, expected over
    ties."""
    counts = Counter(each.extracted for each in attempts if each.extracted)
    most = max(counts.values(), default=0)
    tied = sum(count == most for count in counts.values())
    for each in (claim.attempt for claim in claims):
        says_right = (counts[each.extracted or ""] == most) / tied if tied else 0.0
        yield each.right, says_right if each.right else 1 - says_right


def _counts(claims: Iterable[tuple[bool | None, float]]) -> _Counts:
    known = list(claims)
    rights, wrongs = ([true for right, true in known if right is which] for which in (True, False))
    return sum(rights), len(rights), sum(wrongs), len(wrongs)


def claim_metrics(problems: Iterable[ClaimFigures | None]) -> dict[str, Any]:
    """The metrics in ``NAMES`` over problems; None if no problem has a value.

    Without any claim, only the coverage and the leaks have a value.
    """
    figures = [each for each in problems if each]
    values: dict[str, Interval | None] = dict.fromkeys(NAMES)
    for name, field in _MEANS.items():
        if figures and (field != "contradictions" or any(each.coverage for each in figures)):
            values[name] = bootstrap_mean([getattr(each, field) for each in figures])
    for name, field in _ACCURACIES.items():
        counts = [getattr(each, field) for each in figures]
        values[name] = bootstrap_statistic(counts, _balanced_accuracy)
    return values


def claim_differences(
    a: Sequence[ClaimFigures], b: Sequence[ClaimFigures]
) -> dict[str, Interval | None]:
    """The metrics of ``a`` minus those of ``b``, paired: index i in both is the same problem."""
    values: dict[str, Interval | None] = dict.fromkeys(NAMES)
    for name, field in _MEANS.items() if a else ():
        values[name] = bootstrap_difference(
            *([getattr(each, field) for each in run] for run in (a, b))
        )
    for name, field in _ACCURACIES.items():
        pairs = [
            (*getattr(one, field), *getattr(other, field)) for one, other in zip(a, b, strict=True)
        ]
        values[name] = bootstrap_statistic(
            pairs,
            lambda sums: _balanced_accuracy(sums[..., :4]) - _balanced_accuracy(sums[..., 4:]),
        )
    return values


def _balanced_accuracy(sums: Any) -> Any:
    """Balanced accuracy from an array of ``ClaimFigures.counts``, summed over problems."""
    return (sums[..., 0] / sums[..., 1] + sums[..., 2] / sums[..., 3]) / 2

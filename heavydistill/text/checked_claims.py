"""Checks what a deliberation says of the attempts in its cache.

A claim is true or false by the verdict of its attempt; if the attempt is undecided, the claim is
neither. A claim contradicts the deliberation if it calls right an attempt with another final
answer, or wrong an attempt with the same one. Two answers are the same if their extracted texts are
equal, as in ``voting``, or if the verifier accepts both. Texts of several lines, such as programs,
may differ and mean the same, so they are different answers only if the verifier accepts one and
rejects the other.

Not covered: reading claims (``claims``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from heavydistill.schema import Claim, Deliberation, Generation, Trace
from heavydistill.text.claims import read_claims


@dataclass(frozen=True, slots=True)
class CheckedClaim:
    """A claim, its attempt, and whether it is true."""

    claim: Claim
    attempt: Generation
    is_true: bool | None  # None if the attempt was not judged, or is undecided
    is_contradiction: bool  # whether it contradicts the deliberation's own answer

    @property
    def is_false(self) -> bool:
        """Whether it is untrue, or contradicts the deliberation's own answer."""
        return self.is_true is False or self.is_contradiction


def with_claims(trace: Trace) -> list[Deliberation]:
    """Return the deliberations of a trace with their claims; it has the attempts of all caches."""
    shown = attempts_by_cache(trace)
    return [
        replace(each, claims=claims_of(each, shown[each.cache])) for each in trace.deliberations
    ]


def attempts_by_cache(trace: Trace) -> dict[str, list[Generation]]:
    """Return the attempts of the caches of a trace, in their order, by the id of the cache.

    A cache whose attempts are not all in the trace is left out: a trace that failed in a step may
    have one.
    """
    generations: dict[str, Generation] = {
        each.id: each for each in (*trace.pool, *trace.deliberations)
    }
    return {
        cache.id: [generations[item.generation] for item in cache.items]
        for cache in trace.caches
        if all(item.generation in generations for item in cache.items)
    }


def claims_of(deliberation: Deliberation, shown: Sequence[Generation]) -> list[Claim]:
    """Return the claims of a deliberation on the attempts in its cache.

    They are read from its texts if it has none yet. A deliberation that failed or was cut off makes
    none.
    """
    if deliberation.claims is not None:
        return deliberation.claims
    if deliberation.unusable_because:
        return []
    answers = [attempt.extracted or "" for attempt in shown]
    return read_claims(deliberation.reasoning, deliberation.answer_text, answers)


def checked_claims(deliberation: Deliberation, shown: Sequence[Generation]) -> list[CheckedClaim]:
    """Check the claims of a deliberation; ``shown`` are the attempts in the order of its cache."""
    checked = []
    for claim in claims_of(deliberation, shown):
        attempt, is_right = shown[claim.attempt - 1], claim.says == "right"
        is_same = is_same_answer(deliberation, attempt)
        is_true = None if attempt.right is None else attempt.right == is_right
        is_contradiction = is_same is not None and is_same != is_right
        checked.append(CheckedClaim(claim, attempt, is_true, is_contradiction))
    return checked


def is_same_answer(one: Generation, other: Generation) -> bool | None:
    """Whether two responses give the same final answer; None if that is not known."""
    rights, answers = (one.right, other.right), (one.extracted, other.extracted)
    if None in answers:
        return None
    if answers[0] == answers[1] or all(rights):
        return True
    is_text = any("\n" in answer for answer in answers if answer)
    return None if is_text and set(rights) != {True, False} else False

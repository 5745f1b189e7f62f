"""How often a cache is deliberated rightly, and whether that makes it a prompt of RL.

A prompt teaches where some deliberations are right and some are not: where all get the same reward,
nothing tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from heavydistill.schema import Deliberation
from heavydistill.store.sets.rows import USED

UNMEASURED, ALWAYS_RIGHT, NEVER_RIGHT = "unmeasured", "always_right", "never_right"
FEWEST_JUDGED = 2


@dataclass(frozen=True, slots=True)
class Success:
    """Of one cache.

    Attributes:
        share: Of its judged deliberations, those that are right; None if none was judged.
        judged: Deliberations with a verdict that is not undecided.
        label: ``USED`` if it is a prompt of RL, else why it is none.
    """

    share: float | None
    judged: int
    label: str


def success_of(deliberations: Iterable[bool | None]) -> Success:
    """The success of one cache.

    Args:
        deliberations: Of each whether it is right, as of ``is_right``.
    """
    judged = [one for one in deliberations if one is not None]
    right = sum(judged)
    share = right / len(judged) if judged else None
    if len(judged) < FEWEST_JUDGED:
        return Success(share, len(judged), UNMEASURED)
    label = USED if 0 < right < len(judged) else ALWAYS_RIGHT if right else NEVER_RIGHT
    return Success(share, len(judged), label)


def is_right(deliberation: Deliberation) -> bool | None:
    """By its verdict; None if it failed, was cut off or is undecided, which tells nothing."""
    verdict = deliberation.verdict
    return None if verdict is None or verdict.label == "undecided" else verdict.is_correct

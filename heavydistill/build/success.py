"""How often a cache is deliberated rightly, and whether that makes it a prompt of RL.

A prompt teaches where some deliberations are right and some are not: where all get the same reward,
nothing tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from heavydistill.schema import Deliberation
from heavydistill.sets.rows import USED

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


def success_of(deliberations: Iterable[Deliberation]) -> Success:
    """The success of one cache; failed, cut off and undecided deliberations tell nothing."""
    verdicts = [one.verdict for one in deliberations if one.verdict]
    judged = [verdict for verdict in verdicts if verdict.label != "undecided"]
    right = sum(verdict.is_correct for verdict in judged)
    share = right / len(judged) if judged else None
    if len(judged) < FEWEST_JUDGED:
        return Success(share, len(judged), UNMEASURED)
    label = USED if 0 < right < len(judged) else ALWAYS_RIGHT if right else NEVER_RIGHT
    return Success(share, len(judged), label)

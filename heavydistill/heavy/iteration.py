"""What a round reads: the trajectories, and what the round before made of them.

The paper (arXiv 2605.02396, section 2.1) appends the deliberations of round t - 1 to the cache of
round t. They stand there as further attempts, and the trajectories are selected anew.

Not covered: deliberations of rounds before the last one, which are not shown again.
"""

from __future__ import annotations

from collections.abc import Sequence

from heavydistill.schema import Deliberation


def carried(deliberations: Sequence[Deliberation], round: int) -> list[Deliberation]:
    """The deliberations that round ``round`` (from 1) reads: those of the round before.

    Unusable ones are among them: ``build_cache`` leaves those out and lists why.
    """
    return [deliberation for deliberation in deliberations if deliberation.round == round - 1]

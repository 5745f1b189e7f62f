"""What became of the groups of a batch: which teach nothing, because all answers are alike.

A group is the answers to one prompt, whose rewards are compared with each other. ``group_shares``
is called where the verdicts are, by the reward, on the answers of all processes: a group may lie in
two of them. TRL's ``frac_reward_zero_std`` does not tell the groups that are solved from those that
are hopeless, and counts a difference in format as one.
"""

from __future__ import annotations

from collections.abc import Sequence

ALL_RIGHT, ALL_WRONG = "groups/all_right", "groups/all_wrong"
UNCOMPARED = "groups/uncompared"


def group_shares(right: Sequence[bool | None], size: int) -> dict[str, float]:
    """The shares of the groups that teach nothing, by the reason, as logged metrics.

    Args:
        right: Of each answer of the batch, of all processes and group after group, whether it is
            right in full; None if that could not be decided.
        size: Answers of a group, ``num_generations``.

    Returns:
        ``groups/all_right``: of all groups, those with right answers and no wrong one;
        ``groups/all_wrong``: those with wrong answers and no right one; ``groups/uncompared``:
        those in which fewer than two answers were decided, whichever way, so that there is nothing
        to compare. An undecided answer, which one that was cut off is too, gets no reward, so it is
        passed over.

    Raises:
        ValueError: There is no group, or the last one is not whole.
    """
    if size < 1 or not right or len(right) % size:
        raise ValueError(f"{len(right)} answers are no groups of {size}")
    decided = [
        [one for one in right[start : start + size] if one is not None]
        for start in range(0, len(right), size)
    ]
    return {
        ALL_RIGHT: sum(set(found) == {True} for found in decided) / len(decided),
        ALL_WRONG: sum(set(found) == {False} for found in decided) / len(decided),
        UNCOMPARED: sum(len(found) < 2 for found in decided) / len(decided),
    }

"""Which generation of an episode is the answer: a deliberation, or what takes its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from heavydistill.schema import SERVED, Generation, Trace, Trajectory

Path = Literal["deliberated", "voted", "single"]
PATHS: tuple[Path, ...] = ("deliberated", "voted", "single")
"""What an answer can be; the worst one last."""


def is_answer(generation: Generation) -> bool:
    """Whether a client can read it as an answer, whole or cut off, or run its tool calls."""
    is_empty = not (generation.answer_text or generation.turns[-1].calls)
    return not is_empty and generation.finish_reason != "error"


def usable(pool: Sequence[Trajectory]) -> list[Trajectory]:
    """The attempts that may vote."""
    return [each for each in pool if each.unusable_because is None]


def vote_in(pool: Sequence[Trajectory]) -> tuple[str, int]:
    """(most frequent answer, number of attempts with it); of equal ones the first attempt's."""
    counts = Counter(each.extracted for each in usable(pool) if each.extracted is not None)
    return counts.most_common(1)[0] if counts else ("", 0)


def fallback_in(pool: Sequence[Trajectory]) -> tuple[Trajectory | None, Path]:
    """The first attempt with the most frequent answer, or the first one if no two agree."""
    answer, votes = vote_in(pool)
    same = (each for each in usable(pool) if votes < 2 or each.extracted == answer)
    return next(same, None), "voted" if votes > 1 else "single"


def answer_in(trace: Trace, number: int, rounds: int) -> Generation | None:
    """The generation that was the choice ``number`` of an answer; None if there is none.

    Without a deliberation, all choices of ``heavy`` were the same; their number is not in the row.
    """
    last: Sequence[Generation] = [each for each in trace.deliberations if each.round == rounds]
    if not last and len(trace.pool) == 1:
        last = trace.pool
    is_for_all = not last and trace.problem.origin == f"{SERVED}:heavy"
    if number >= max(1, len(last)) and not is_for_all:
        return None
    mine = last[number] if last else None
    return mine if mine and is_answer(mine) else fallback_in(trace.pool)[0]

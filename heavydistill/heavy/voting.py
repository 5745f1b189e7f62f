"""Baselines of deliberation (majority vote, choice of an attempt), and labels of problems.

A trajectory votes if it is usable, judged and has an extracted answer. Votes are compared by the
extracted string. An answer is right if the verdicts of its trajectories are ``correct``, so that
the same verifier labels votes and deliberations.

A chooser (Best-of-N with a model as judge) reads the same cache as a deliberator and replies with
the number of an attempt; the answer of that attempt becomes the chooser's answer. A reply without a
valid number has no answer.

Not covered: weighted votes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from heavydistill.schema import Deliberation, Generation, Outcome, Stratum, Trajectory

_NUMBER = re.compile(
    r"\\boxed\{\s*(?:\\text\{)?\s*(?:attempt|尝试)?\s*(\d{1,4})\s*\}", re.IGNORECASE
)


def vote_value(pool: Sequence[Generation]) -> float:
    """Expected accuracy in [0, 1] of taking the most frequent answer.

    Ties are broken at random with equal probability. An answer whose trajectories have different
    verdicts counts as the share of correct ones. The value is 0 if no trajectory votes.
    """
    labels: dict[str, list[bool]] = defaultdict(list)
    for trajectory in pool:
        if trajectory.unusable_because is None and trajectory.extracted is not None:
            labels[trajectory.extracted].append(trajectory.is_correct)
    most = max(map(len, labels.values()), default=0)
    return fmean(fmean(of) for of in labels.values() if len(of) == most) if labels else 0.0


def stratum(pool: Sequence[Generation]) -> Stratum:
    """The stratum of a pool: how many trajectories are right, and whether the vote is right.

    Failed trajectories count as not right, so a pool with a failure is never all-right. An empty
    pool is all-wrong.
    """
    right = sum(trajectory.is_correct for trajectory in pool)
    if right == 0:
        return "all-wrong"
    if right == len(pool):
        return "all-right"
    value = vote_value(pool)
    if 0 < value < 1:
        return "tie"
    return "majority-right" if value == 1 else "minority-right"


def outcome(pool: Sequence[Trajectory], deliberations: Sequence[Deliberation]) -> Outcome | None:
    """Compare the deliberations with the vote; None if there are no deliberations.

    The deliberations of the last round are right if strictly more than half of them are correct,
    and the vote is right if its value is above one half; a tie counts as not right. The outcome is
    ``kept`` if both are right, ``overturned`` if only the vote is right, and ``lost`` if neither is
    right. If only the deliberations are right, it is ``rescued`` if some trajectory is right, else
    ``emergent``.
    """
    if not deliberations:
        return None
    last = max(deliberation.round for deliberation in deliberations)
    right = fmean(d.is_correct for d in deliberations if d.round == last) > 0.5
    if vote_value(pool) > 0.5:
        return "kept" if right else "overturned"
    if not right:
        return "lost"
    return "rescued" if any(trajectory.is_correct for trajectory in pool) else "emergent"


def chosen(reply: str, attempts: int) -> int | None:
    """The number in the last box of a reply, from 1 to ``attempts``; None if there is none."""
    numbers = _NUMBER.findall(reply)
    number = int(numbers[-1]) if numbers else 0
    return number if 1 <= number <= attempts else None


def answered_by_choice(fields: dict[str, Any], answers: Sequence[str]) -> dict[str, object]:
    """Return the fields of a chooser's generation with the answer of the attempt that it chose.

    ``answers`` are the answers of the attempts in the order of the cache. ``answer_text`` becomes
    the chosen answer, or empty, and the reply is appended to ``reasoning``. A generation that
    failed or was cut off is returned unchanged.
    """
    if fields["finish_reason"] != "stop":
        return fields
    number = chosen(fields["answer_text"], len(answers))
    reasoning = "\n\n".join(filter(None, (fields["reasoning"], fields["answer_text"])))
    answer = answers[number - 1] if number else ""
    return {**fields, "reasoning": reasoning, "answer_text": answer}

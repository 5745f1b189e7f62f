"""The baselines that deliberation must beat, the vote over a pool and a choice among it; labels.

A trajectory votes if it is usable, judged and has an extracted answer; answers are compared by
that string. Unparsed ones form no block of their own. Whether an answer is right is said by the
verdicts of those that gave it, so one verifier labels both stages.

A chooser (Best-of-N with a judge) reads the same cache as a deliberator and answers with the
number of an attempt, whose answer counts. A reply that names none that is there has no answer.

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

    Answers tied for most frequent are drawn with equal chance. One answer whose trajectories
    carry different verdicts is worth the share of correct ones. 0 if nobody votes.
    """
    labels: dict[str, list[bool]] = defaultdict(list)
    for trajectory in pool:
        if trajectory.unusable_because is None and trajectory.extracted is not None:
            labels[trajectory.extracted].append(trajectory.is_correct)
    most = max(map(len, labels.values()), default=0)
    return fmean(fmean(of) for of in labels.values() if len(of) == most) if labels else 0.0


def stratum(pool: Sequence[Generation]) -> Stratum:
    """How many of the pool are right, and what the vote says where it is mixed.

    All of the pool counts: one that failed is not right, so a pool with a failure is never
    all-right. An empty pool is all-wrong.
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
    """What deliberation made of the vote; None without deliberations.

    The deliberations of the last round are right if strictly more than half of them are correct,
    and the vote is right if its value is above one half: a tie is not right on either side. Both
    right is ``kept``, the vote alone ``overturned``, neither ``lost``; the deliberations alone
    ``rescued`` if some trajectory was right, else ``emergent``.
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


def answered_by_choice(fields: dict[str, Any], answers: Sequence[str]) -> dict[str, Any]:
    """The fields of a chooser's generation with the answer of the attempt that it named.

    ``answers`` are those of the attempts, in the order of the cache. ``answer_text`` becomes the
    answer chosen, or empty, and ``reasoning`` ends with the reply; one that failed or was cut off
    stays.
    """
    if fields["finish_reason"] != "stop":
        return fields
    number = chosen(fields["answer_text"], len(answers))
    reasoning = "\n\n".join(filter(None, (fields["reasoning"], fields["answer_text"])))
    answer = answers[number - 1] if number else ""
    return {**fields, "reasoning": reasoning, "answer_text": answer}

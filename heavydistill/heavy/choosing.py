"""Which attempt a chooser named: Best-of-N with a judge, as a baseline for deliberation.

A chooser reads the same cache as a deliberator and answers with the number of an attempt. What
counts is that attempt's answer, so that it is judged as any other. A reply that names none, or one
that is not there, has no answer.

Not covered: what the attempts are cut to, which is the cache's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_NUMBER = re.compile(
    r"\\boxed\{\s*(?:\\text\{)?\s*(?:attempt|尝试)?\s*(\d{1,4})\s*\}", re.IGNORECASE
)


def chosen(reply: str, attempts: int) -> int | None:
    """The number in the last box of a reply, from 1 to ``attempts``; None if there is none."""
    numbers = _NUMBER.findall(reply)
    number = int(numbers[-1]) if numbers else 0
    return number if 1 <= number <= attempts else None


def answered_by_choice(fields: dict[str, Any], answers: Sequence[str]) -> dict[str, Any]:
    """The fields of a chooser's generation with the answer of the attempt that it named.

    Args:
        fields: Of a ``schema.Generation``, whose ``answer_text`` is the reply.
        answers: Of the attempts, in the order of the cache.

    Returns:
        Fields whose ``answer_text`` is the answer chosen, or empty, and whose ``reasoning`` ends
        with the reply. A reply that failed or was cut off stays as it is.
    """
    if fields["finish_reason"] != "stop":
        return fields
    number = chosen(fields["answer_text"], len(answers))
    reasoning = "\n\n".join(filter(None, (fields["reasoning"], fields["answer_text"])))
    answer = answers[number - 1] if number else ""
    return {**fields, "reasoning": reasoning, "answer_text": answer}

"""Counts what shows whether deliberation helps: conversations asked again, and leaks.

People repeat a request whose answer did not help them. So the share of answers that were asked
again, by the model that answered, shows whether deliberation saves retries. Equal conversations of
different people count too, and so does one that follows the other after weeks.

A client sees the answer, not the attempts, so a deliberation whose answer speaks of them is a leak.
In the thinking they are meant to be spoken of, so it is counted apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

from heavydistill.schema import Generation, Problem
from heavydistill.text.mentions import speaks_of_attempts

Part = Literal["answer", "thinking"]
"""Part of a deliberation that speaks of attempts."""
_MOST = 100_000  # conversations that are remembered


class Retries:
    """Counts of answers, each by the model that was asked."""

    def __init__(self) -> None:
        self.answered: Counter[str] = Counter()  # answers
        self.asked_again: Counter[str] = Counter()  # of these, the conversation was asked again
        self._last: dict[str, str] = {}  # the model that answered a conversation last

    def note(self, model: str, conversation: str) -> str | None:
        """Count an answer to a conversation, given by its id.

        Returns the model that answered the same conversation before; None if none is remembered.
        """
        before = self._last.pop(conversation, None)
        if before:
            self.asked_again[before] += 1
        self._last[conversation] = model
        self.answered[model] += 1
        if len(self._last) > _MOST:
            del self._last[next(iter(self._last))]
        return before

    def lines(self) -> Iterator[str]:
        """Yield a line for each model."""
        for model, answered in self.answered.items():
            yield f"{model}: {answered:,} answered, {self.asked_again[model]:,} asked again"


class Leaks:
    """Counts since the start of the service."""

    def __init__(self) -> None:
        self._deliberations = 0
        self._spoke: Counter[Part] = Counter()

    def note(self, deliberations: int, spoke: Counter[Part]) -> None:
        """Count the deliberations of an answer, and how many of them speak of attempts."""
        self._deliberations += deliberations
        self._spoke.update(spoke)

    def lines(self) -> Iterator[str]:
        """Yield a line, if there was any deliberation."""
        if self._deliberations:
            yield (
                f"Of {self._deliberations:,} deliberations, {self._spoke['answer']:,} speak of "
                f"attempts in their answer, {self._spoke['thinking']:,} in their thinking"
            )


def leaks_in(problem: Problem, deliberations: Sequence[Generation]) -> Counter[Part]:
    """How many deliberations speak of attempts, in each part of their texts."""
    asked = problem.transcript
    return Counter(
        {
            "answer": sum(speaks_of_attempts(each.answer_text, asked) for each in deliberations),
            "thinking": sum(speaks_of_attempts(each.reasoning, asked) for each in deliberations),
        }
    )

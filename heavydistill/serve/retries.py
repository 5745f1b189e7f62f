"""Counts how often a conversation is asked again, by the model that answered it.

People repeat a request whose answer did not help them. So the share of answers that were asked
again shows whether deliberation saves retries. Equal conversations of different people count too,
and so does one that follows the other after weeks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

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

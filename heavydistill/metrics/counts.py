"""What became of the samples of a stage: how many failed, were cut off, or could not be judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from heavydistill.metrics.usage import Usage, UsageTally
from heavydistill.schema import Generation


@dataclass(frozen=True, slots=True)
class GenerationCounts:
    """What became of the samples of one stage; one sample can count in several.

    Attributes:
        total: Samples.
        failed: The request failed; there is no text.
        failures: Those of each kind (``schema.Failure``), most common first.
        truncated: Cut off at the most tokens.
        empty: Finished without an answer text.
        undecided: The verifier could not tell.
        unjudged: There is text, but no verdict.
        undecided_because: Undecided ones of each reason, most common first.
    """

    total: int
    failed: int
    failures: dict[str, int]
    truncated: int
    empty: int
    undecided: int
    unjudged: int
    undecided_because: dict[str, int]


class GenerationTally:
    """What became of the samples of a stage, and what they took."""

    def __init__(self) -> None:
        self._total = self._unjudged = 0
        self._undecided: Counter[str] = Counter()
        self._why: Counter[str | None] = Counter()
        self._failures: Counter[str] = Counter()
        self._usage = UsageTally()

    def add(self, generations: Sequence[Generation]) -> None:
        for generation in generations:
            self._total += 1
            self._why[generation.unusable_because] += 1
            if generation.finish_reason == "error":
                self._failures[generation.failure or "unknown"] += 1
            if generation.verdict:
                if generation.verdict.label == "undecided":
                    self._undecided[generation.verdict.reason] += 1
            elif generation.finish_reason != "error":
                self._unjudged += 1
            self._usage.add(generation)

    @property
    def counts(self) -> GenerationCounts:
        return GenerationCounts(
            total=self._total,
            failed=self._why["error"],
            failures=dict(self._failures.most_common()),
            truncated=self._why["truncated"],
            empty=self._why["empty"],
            undecided=self._undecided.total(),
            unjudged=self._unjudged,
            undecided_because=dict(self._undecided.most_common()),
        )

    @property
    def usage(self) -> Usage:
        return self._usage.usage

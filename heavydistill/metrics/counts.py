"""What became of the samples of a stage: how many failed, were cut off, gave no final answer, or
could not be judged.

An unanswered sample ended by itself and holds no final answer for a verifier to judge. Whatever its
verdict says (``incorrect`` of ``math``, ``undecided`` of ``choice`` and ``code``), it is not wrong
in the way in which an answer is, and metrics count it as not correct.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from heavydistill.heavy.ballot import ballot_of
from heavydistill.metrics.usage import Usage, UsageTally
from heavydistill.schema import Generation

NO_FINAL_ANSWER = frozenset(
    {"empty", "open_thinking", "no_answer", "unclosed_box", "in_code", "no_code"}
)
"""Reasons of verdicts, of all verifiers, on a response without a final answer."""
MANY_UNANSWERED = 0.3
"""Share of the finished samples of a stage above which a user is warned."""

COLUMNS = ("failed", "truncated", "unanswered", "undecided", "unjudged")
"""What tables show of ``GenerationCounts``, beside all samples."""
_FORMS = {
    **dict.fromkeys(("math", "exact", "procedural"), r"no \boxed{}"),
    "choice": "no letter of an option",
    "code": "no code block",
}


def unanswered_because(generation: Generation) -> str | None:
    """Why a response that ended by itself holds no final answer, as a reason of a verdict.

    None if it holds one, was not judged, failed or was cut off; None too where a judge found the
    answer that the rules had not.
    """
    if unusable := generation.unusable_because:
        return unusable if unusable == "empty" else None
    verdict = generation.verdict
    if verdict is None:
        return None
    ballot = ballot_of(verdict) if verdict.label == "undecided" else None
    reason = ballot.rule_reason if ballot else verdict.reason
    return reason if reason in NO_FINAL_ANSWER else None


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
        unanswered: Finished without a final answer, empty ones included; None in figures of a
            version that did not count them.
        unanswered_because: Unanswered ones of each reason, most common first.
    """

    total: int
    failed: int
    failures: dict[str, int]
    truncated: int
    empty: int
    undecided: int
    unjudged: int
    undecided_because: dict[str, int]
    unanswered: int | None = None
    unanswered_because: dict[str, int] = field(default_factory=dict)

    @property
    def cells(self) -> list[str]:
        """All samples, and those of each of ``COLUMNS``; ``-`` where that was not counted."""
        values = (getattr(self, column) for column in ("total", *COLUMNS))
        return ["-" if value is None else f"{value:,}" for value in values]

    @property
    def finished(self) -> int:
        """Samples that neither failed nor were cut off."""
        return self.total - self.failed - self.truncated

    @property
    def unanswered_share(self) -> float:
        """Share of the finished ones; 0 where there are none, or they were not counted."""
        return (self.unanswered or 0) / self.finished if self.finished else 0.0

    @property
    def has_many_unanswered(self) -> bool:
        """Whether that is a share that a user is warned of."""
        return self.unanswered_share > MANY_UNANSWERED


def unanswered_facts(
    samples: Mapping[str, GenerationCounts], verifiers: Collection[str]
) -> Iterator[str]:
    """A sentence for each stage with many unanswered samples.

    Args:
        samples: Counts of each stage, by its name in the sentence.
        verifiers: Names of those that judged them, which show what a final answer looks like.
    """
    forms = " and ".join(dict.fromkeys(_FORMS[name] for name in verifiers if name in _FORMS))
    lacks = f" ({forms})" if forms else ""
    for name, counts in samples.items():
        if counts.has_many_unanswered:
            share = f"{100 * counts.unanswered_share:.1f}%"
            yield f"{share} of the finished {name} hold no final answer{lacks}."


class GenerationTally:
    """What became of the samples of a stage, and what they took."""

    def __init__(self) -> None:
        self._total = self._unjudged = 0
        self._undecided: Counter[str] = Counter()
        self._unanswered: Counter[str] = Counter()
        self._why: Counter[str | None] = Counter()
        self._failures: Counter[str] = Counter()
        self._usage = UsageTally()

    def add(self, generations: Sequence[Generation]) -> None:
        for generation in generations:
            self._total += 1
            self._why[generation.unusable_because] += 1
            if reason := unanswered_because(generation):
                self._unanswered[reason] += 1
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
            unanswered=self._unanswered.total(),
            unanswered_because=dict(self._unanswered.most_common()),
        )

    @property
    def usage(self) -> Usage:
        return self._usage.usage

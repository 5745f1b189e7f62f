"""What a judge made of the verdicts that rules had left undecided.

A vote is counted once: answers of a problem that were the same to the judge share their votes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from heavydistill.heavy.ballot import FAILED, ballot_of
from heavydistill.metrics.usage import Usage, UsageTally
from heavydistill.schema import Generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """Verdicts that a judge was asked about, and its votes.

    Attributes:
        asked: Verdicts; the next three are parts of them.
        correct: Decided so by the judge.
        incorrect: Likewise.
        undecided: Still so.
        failed: Of those, the ones where too many requests failed; the same command asks again.
        judges: Verdicts of each judge, ``MODEL@HASH`` with the hash of its wording.
        votes: Votes that were asked for.
        invalid_votes: Replies that are no verdict, or were cut off.
        failed_votes: Requests that failed.
    """

    asked: int = 0
    correct: int = 0
    incorrect: int = 0
    undecided: int = 0
    failed: int = 0
    judges: dict[str, int] = field(default_factory=dict)
    votes: int = 0
    invalid_votes: int = 0
    failed_votes: int = 0


class JudgingTally:
    """Adds up the verdicts of judges."""

    def __init__(self) -> None:
        self._labels: Counter[str] = Counter()
        self._judges: Counter[str] = Counter()
        self._said: Counter[str] = Counter()
        self._failed = 0
        self._usage = UsageTally()

    def add(self, generations: Iterable[Generation], paid: Collection[str] = ()) -> None:
        """``paid``: Ids of those whose votes another run asked for, which are in no usage."""
        for generation in generations:
            verdict = generation.verdict
            ballot = ballot_of(verdict) if verdict else None
            if not verdict or not ballot:
                continue
            self._labels[verdict.label] += 1
            self._judges[ballot.name] += 1
            self._failed += verdict.reason == FAILED
            if ballot.same_as:
                continue
            for vote in ballot.votes:
                self._said[vote.said] += 1
                if generation.id not in paid:
                    self._usage.add(vote)

    @property
    def counts(self) -> Judging:
        return Judging(
            asked=self._labels.total(),
            correct=self._labels["correct"],
            incorrect=self._labels["incorrect"],
            undecided=self._labels["undecided"],
            failed=self._failed,
            judges=dict(self._judges.most_common()),
            votes=self._said.total(),
            invalid_votes=self._said["invalid"] + self._said["truncated"],
            failed_votes=self._said["failed"],
        )

    @property
    def usage(self) -> dict[str, Usage]:
        """By the name of the stage; empty if this run asked no judge."""
        usage = self._usage.usage
        return {"judging": usage} if usage.requests else {}

"""What became of the samples of a stage, what they took, and what a judge decided.

An unanswered sample ended by itself and holds no final answer for a verifier to judge. Whatever its
verdict says (``incorrect`` of ``math``, ``undecided`` of ``choice`` and ``code``), it is not wrong
in the way in which an answer is, and metrics count it as not correct. A vote of a judge is counted
once: answers of a problem that were the same to the judge share it.

Not covered: prices, which the run knows and fills in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from heavydistill.heavy.judge_votes import FAILED, Vote, ballot_of
from heavydistill.schema import Generation


@dataclass(frozen=True, slots=True)
class Usage:
    """Requests and known tokens of one stage, whichever run paid for them."""

    requests: int  # samples that were requested
    prompt: int  # known prompt tokens
    cached: int  # prompt tokens that the server reported as in its prefix cache
    completion: int  # known completion tokens
    unknown_prompt: int  # samples whose prompt tokens are unknown
    unknown_cached: int  # samples for which the server did not report cached tokens
    unknown_completion: int  # samples whose completion tokens are unknown
    cost_usd: float | None = None  # cost of the known tokens, cached ones at the full price


_TOKENS = ("prompt", "cached", "completion")


class UsageTally:
    """Adds up what samples took; a count of -1 is unknown."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(("requests", *_TOKENS, *(f"unknown_{t}" for t in _TOKENS)), 0)

    def add(self, sample: Generation | Vote) -> None:
        self._counts["requests"] += 1
        for name in _TOKENS:
            tokens = getattr(sample, f"{name}_tokens")
            self._counts[name] += max(0, tokens)
            self._counts[f"unknown_{name}"] += tokens < 0

    @property
    def usage(self) -> Usage:
        return Usage(**self._counts)


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
    """What became of the samples of one stage; one sample can count in several fields."""

    total: int
    failed: int  # the request failed; there is no text
    failures: dict[str, int]  # failed requests by `schema.Failure`, most common first
    truncated: int  # cut off at the token limit
    empty: int  # finished without an answer text
    undecided: int  # the verifier could not decide
    unjudged: int  # there is text, but no verdict
    undecided_because: dict[str, int]  # undecided samples by reason, most common first
    unanswered: int | None = None
    """Finished without a final answer, empty ones included; None in files of versions that did not
    count them."""
    unanswered_because: dict[str, int] = field(default_factory=dict)  # by reason, likewise sorted

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
        """Whether a user should be warned."""
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
        self._unusable: Counter[str | None] = Counter()  # all samples, by what is wrong with them
        self._unjudged = 0
        self._reasons = {kind: Counter[str]() for kind in ("failures", "unanswered", "undecided")}
        self._usage = UsageTally()

    def add(self, generations: Sequence[Generation]) -> None:
        for sample in generations:
            verdict, has_failed = sample.verdict, sample.finish_reason == "error"
            is_undecided = verdict is not None and verdict.label == "undecided"
            reasons = {
                "failures": (sample.failure or "unknown") if has_failed else None,
                "unanswered": unanswered_because(sample),
                "undecided": verdict.reason if verdict and is_undecided else None,
            }
            for kind, reason in reasons.items():
                if reason is not None:
                    self._reasons[kind][reason] += 1
            self._unusable[sample.unusable_because] += 1
            self._unjudged += verdict is None and not has_failed
            self._usage.add(sample)

    @property
    def counts(self) -> GenerationCounts:
        by_reason = {kind: dict(found.most_common()) for kind, found in self._reasons.items()}
        return GenerationCounts(
            total=self._unusable.total(),
            failed=self._unusable["error"],
            failures=by_reason["failures"],
            truncated=self._unusable["truncated"],
            empty=self._unusable["empty"],
            undecided=self._reasons["undecided"].total(),
            unjudged=self._unjudged,
            undecided_because=by_reason["undecided"],
            unanswered=self._reasons["unanswered"].total(),
            unanswered_because=by_reason["unanswered"],
        )

    @property
    def usage(self) -> Usage:
        return self._usage.usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """Verdicts that a judge was asked about, and its votes."""

    asked: int = 0  # verdicts: the sum of the next three
    correct: int = 0  # decided by the judge
    incorrect: int = 0  # decided by the judge
    undecided: int = 0  # undecided still
    failed: int = 0  # undecided because too many requests failed; the same command asks again
    judges: dict[str, int] = field(default_factory=dict)  # verdicts by judge, as MODEL@HASH
    votes: int = 0  # votes that were requested
    invalid_votes: int = 0  # replies without a verdict, or cut off
    failed_votes: int = 0  # requests that failed


class JudgingTally:
    """Adds up the verdicts of judges."""

    def __init__(self) -> None:
        self._labels: Counter[str] = Counter()
        self._judges: Counter[str] = Counter()
        self._votes: Counter[str] = Counter()
        self._failed = 0
        self._usage = UsageTally()

    def add(self, generations: Iterable[Generation], paid: Collection[str] = ()) -> None:
        """Count verdicts; votes on the generations ``paid`` (ids) are in no usage of this run."""
        for generation in generations:
            verdict = generation.verdict
            ballot = ballot_of(verdict) if verdict else None
            if not verdict or not ballot:
                continue
            self._labels[verdict.label] += 1
            self._judges[ballot.name] += 1
            self._failed += verdict.reason == FAILED
            for vote in () if ballot.same_as else ballot.votes:
                self._votes[vote.said] += 1
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
            votes=self._votes.total(),
            invalid_votes=self._votes["invalid"] + self._votes["truncated"],
            failed_votes=self._votes["failed"],
        )

    @property
    def usage(self) -> dict[str, Usage]:
        """By the name of the stage; empty if this run asked no judge."""
        usage = self._usage.usage
        return {"judging": usage} if usage.requests else {}

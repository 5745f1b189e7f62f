"""Counts the samples of a stage by outcome, their tokens, and a judge's decisions.

An unanswered sample ended normally but has no final answer. Verifiers call it ``incorrect``
(``math``) or ``undecided`` (``choice``, ``code``); it is counted separately because it is not a
wrong answer. Metrics count it as not correct. A judge's vote is counted once, even if several equal
answers to a problem share it.

Not covered: prices, which the run adds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from heavydistill import schema
from heavydistill.heavy.judge_votes import FAILED, Vote, ballot_of
from heavydistill.schema import Generation, Verdict


@dataclass(slots=True)
class Usage:
    """Requests and known tokens of one stage, including those that another run paid for."""

    requests: int  # number of requested samples
    prompt: int  # known prompt tokens
    cached: int  # prompt tokens from the server's prefix cache, as the server reported
    completion: int  # known completion tokens
    unknown_prompt: int  # samples whose prompt tokens are unknown
    unknown_cached: int  # samples for which the server did not report cached tokens
    unknown_completion: int  # samples whose completion tokens are unknown
    cost_usd: float | None = None  # cost of the known tokens; null if the price is unknown
    has_cached_price: bool = False
    """Whether the price of cached tokens is known; they cost the full price otherwise."""

    def add(self, sample: Generation | Vote) -> None:
        """Add the tokens of a sample; a count of -1 means unknown."""
        self.requests += 1
        for name in ("prompt", "cached", "completion"):
            tokens = getattr(sample, f"{name}_tokens")
            counter, more = (name, tokens) if tokens >= 0 else (f"unknown_{name}", 1)
            setattr(self, counter, getattr(self, counter) + more)


def no_usage() -> Usage:
    """An empty ``Usage``, to which samples are added."""
    return Usage(0, 0, 0, 0, 0, 0, 0)


NO_FINAL_ANSWER = frozenset(
    {"empty", "open_thinking", "no_answer", "unclosed_box", "in_code", "no_code"}
)
"""Reason codes of verdicts, of all verifiers, for a response without a final answer."""
MANY_UNANSWERED = 0.3
"""Share of unanswered samples among a stage's finished ones above which a warning is shown."""

COLUMNS = ("failed", "truncated", "unanswered", "undecided", "unjudged")
"""Fields of ``GenerationCounts`` that tables show, besides the number of samples."""
_MOST_NAMED = 16  # number of hosts that are counted by name
_FORMS = {
    **dict.fromkeys(("math", "exact", "judged", "procedural"), r"no \boxed{}"),
    "choice": "no letter of an option",
    "code": "no code block",
}


def unanswered_because(generation: Generation) -> str | None:
    """Reason code of the verdict if a response ended normally but has no final answer.

    None if the response has a final answer, was not judged, failed or was cut off, or if a judge
    found an answer that the rules did not find.
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
    """Numbers of samples of one stage by outcome; a sample can count in several fields."""

    total: int
    failed: int  # the request failed, so there is no text
    failures: dict[str, int]  # failed requests by `schema.Failure`, most common first
    truncated: int  # samples cut off at the token limit
    empty: int  # samples that finished without an answer text
    undecided: int  # samples that the verifier could not decide
    unjudged: int  # samples that have text but no verdict
    undecided_because: dict[str, int]  # undecided samples by reason, most common first
    unanswered: int = 0  # samples that finished without a final answer, including empty ones
    unanswered_because: dict[str, int] = field(default_factory=dict)  # by reason, most common first
    answered_by: dict[str, int] = field(default_factory=dict)
    """Responses by the host, model and configuration that the reply names, most common first."""
    unknown_finish_reasons: dict[str, int] = field(default_factory=dict)
    """Responses that are used although the server's finish reason is not known, by reason."""
    decided: int = field(kw_only=True)  # samples with a final answer that is correct or incorrect

    @property
    def cells(self) -> list[str]:
        """Number of samples, then the count of each field in ``COLUMNS``."""
        return [f"{getattr(self, column):,}" for column in ("total", *COLUMNS)]

    @property
    def finished(self) -> int:
        """Number of samples that neither failed nor were cut off."""
        return self.total - self.failed - self.truncated

    @property
    def unanswered_share(self) -> float:
        """Share of unanswered samples among the finished ones."""
        return self.unanswered / self.finished if self.finished else 0.0

    @property
    def has_many_unanswered(self) -> bool:
        """Whether there are so many unanswered samples that a warning is needed."""
        return self.unanswered_share > MANY_UNANSWERED


def unanswered_facts(
    samples: Mapping[str, GenerationCounts], verifiers: Collection[str]
) -> Iterator[str]:
    """Yield a sentence for each stage with many unanswered samples.

    Args:
        samples: Counts of each stage, by its name in the sentence.
        verifiers: Names of the verifiers, which determine the form of a final answer.
    """
    forms = " and ".join(dict.fromkeys(_FORMS[name] for name in verifiers if name in _FORMS))
    lacks = f" ({forms})" if forms else ""
    for name, counts in samples.items():
        if counts.has_many_unanswered:
            share = f"{100 * counts.unanswered_share:.1f}%"
            yield f"{share} of the finished {name} hold no final answer{lacks}."


def answerer_facts(samples: Mapping[str, GenerationCounts]) -> Iterator[str]:
    """Yield a sentence for each stage that several hosts, models or configurations answered."""
    for name, counts in samples.items():
        if len(counts.answered_by) > 1:
            total = sum(counts.answered_by.values())
            shares = (f"{who} {100 * n / total:.1f}%" for who, n in counts.answered_by.items())
            yield f"The {name} come from several hosts or configurations: {', '.join(shares)}."


def statuses_alone(statuses: Mapping[str, int]) -> dict[str, int]:
    """Number of traces by status, most common first; error messages, which hold paths, are cut."""
    counts: Counter[str] = Counter()
    for status, count in statuses.items():
        counts["failed" if status.startswith(schema.FAILED) else status] += count
    return dict(counts.most_common())


class GenerationTally:
    """Counts the samples of a stage and their tokens."""

    def __init__(self) -> None:
        self.usage = no_usage()
        self._unusable: Counter[str | None] = Counter()  # all samples by ``unusable_because``
        self._unjudged = 0
        self._decided = 0
        self._failures: Counter[str] = Counter()
        self._unanswered: Counter[str] = Counter()
        self._undecided: Counter[str] = Counter()
        self._answered_by: Counter[str] = Counter()
        self._unknown_ends: Counter[str] = Counter()

    def add(self, generations: Sequence[Generation]) -> None:
        for sample in generations:
            self.usage.add(sample)
            self._unusable[sample.unusable_because] += 1
            if sample.finish_reason == "error":
                self._failures[sample.failure or "unknown"] += 1
            else:
                self._unjudged += sample.verdict is None
                names = sample.host, sample.served_model, sample.system_fingerprint
                if who := " ".join(filter(None, names)):
                    self._answered_by[who] += 1
                if sample.unknown_finish_reason:
                    self._unknown_ends[sample.unknown_finish_reason] += 1
            reason = unanswered_because(sample)
            if reason:
                self._unanswered[reason] += 1
            if sample.verdict and sample.verdict.label == "undecided":
                self._undecided[sample.verdict.reason] += 1
            elif sample.verdict and not reason:
                self._decided += 1

    @property
    def counts(self) -> GenerationCounts:
        return GenerationCounts(
            total=self._unusable.total(),
            failed=self._unusable["error"],
            failures=dict(self._failures.most_common()),
            truncated=self._unusable["truncated"],
            empty=self._unusable["empty"],
            undecided=self._undecided.total(),
            unjudged=self._unjudged,
            undecided_because=dict(self._undecided.most_common()),
            unanswered=self._unanswered.total(),
            unanswered_because=dict(self._unanswered.most_common()),
            answered_by=_named(self._answered_by),
            unknown_finish_reasons=_named(self._unknown_ends),
            decided=self._decided,
        )


def _named(counts: Counter[str]) -> dict[str, int]:
    """Counts by name, most common first; those after the first are one."""
    named = dict(counts.most_common(_MOST_NAMED))
    others = counts.total() - sum(named.values())
    return named | ({"others": others} if others else {})


@dataclass(slots=True, kw_only=True)
class Judging:
    """Numbers of verdicts that a judge was asked to decide, and of the judge's votes."""

    asked: int = 0  # number of verdicts: the sum of the next three
    correct: int = 0  # decided by the judge
    incorrect: int = 0  # decided by the judge
    undecided: int = 0  # still undecided
    failed: int = 0  # undecided because too many requests failed; the same command repeats them
    judges: dict[str, int] = field(default_factory=dict)  # verdicts by judge, as MODEL@HASH
    votes: int = 0  # number of requested votes
    invalid_votes: int = 0  # replies without a verdict, or cut off
    failed_votes: int = 0  # requests that failed

    def add(self, verdict: Verdict | None) -> Sequence[Vote]:
        """Count a verdict if a judge was asked about it; returns the votes cast for it."""
        ballot = ballot_of(verdict) if verdict else None
        if not verdict or not ballot:
            return ()
        self.asked += 1
        setattr(self, verdict.label, getattr(self, verdict.label) + 1)
        self.failed += verdict.reason == FAILED
        self.judges[ballot.name] = self.judges.get(ballot.name, 0) + 1
        votes = () if ballot.same_as else ballot.votes
        said = [vote.said for vote in votes]
        self.votes += len(said)
        self.invalid_votes += said.count("invalid") + said.count("truncated")
        self.failed_votes += said.count("failed")
        return votes

"""Counts the votes of a judge on one answer, and stores them in the verdict.

A reply is a valid vote if it is a verdict in the form of ``config.models.Judge.replies``,
optionally with emphasis and a full stop:

    verdict           CORRECT, INCORRECT or CANNOT TELL, also in a box or brackets, or after "The
                      verdict:"; xVerify (arXiv 2504.10481) replies in this form. Anything else in
                      the reply, such as arguments, makes it invalid
    compass_verifier  A (correct), B (incorrect) or C (no answer to compare, which counts as
                      ``cannot_tell``), alone or after "Final Judgment:" in the last line, as
                      ``\boxed{A} - CORRECT`` (arXiv 2508.03686)
    general_verifier  "Final Decision: Yes" or "Final Decision: No" at the end, after an analysis
                      (TIGER-Lab/general-verifier)

    correct, incorrect   strictly more than half of all votes say so (``judged``)
    undecided            ``judge_failed`` or ``judge_invalid``: at most half of the votes are valid,
                         because requests failed or (more often) replies were invalid;
                         ``judge_cannot_tell``: more than half say so; ``judge_split``: the rest

The ballot is stored as JSON in ``Verdict.evidence`` together with the verifier's original verdict,
so that a judge's verdict is never mistaken for a verifier's. Not covered: which answers are sent to
a judge (``verifiers.judge``).
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from heavydistill.config.models import Replies
from heavydistill.schema import Failure, FinishReason, Label, Verdict

Said = Literal["correct", "incorrect", "cannot_tell", "invalid", "truncated", "failed"]

JUDGED = "judged"
FAILED = "judge_failed"
_MARK, _AFTER = "judge:", " after "
_FEEDBACK = "feedback"
# Neighbouring character classes do not overlap, so matching takes linear time.
_WORD = "(correct|incorrect|cannot tell)"
_LABEL = r"(?:(?:the )?(?:final )?(?:verdict|judge?ment)(?: is)?:?[*_`\"'\s]+)?"
_BOX = rf"\\boxed\{{(?:{_WORD}|\\text\{{{_WORD}\}})\}}"
_COMPASS = (
    r"(?:final judge?ment:[*\s]*)?(?:\\boxed\{([abc])\}|([abc]))"
    r"(?:\s*-\s*(correct|incorrect|invalid|incomplete|repetitive|refusal))?"
)
_FORMS: dict[Replies, str] = {
    "verdict": rf"{_LABEL}(?:{_WORD}|\[{_WORD}\]|{_BOX})",
    "compass_verifier": f"(?:{_COMPASS}|(correct|incorrect|invalid))",
    "general_verifier": r"(?:.*[\s*])?final decision:[*\s]*(yes|no)",
}
_REPLY = {
    form: re.compile(rf"[*_`\"'$]*{pattern}[*_`\"'$.\s]*", re.IGNORECASE | re.ASCII)
    for form, pattern in _FORMS.items()
}
_SAID: dict[str, Said] = {
    **{"correct": "correct", "a": "correct", "yes": "correct"},
    **{"incorrect": "incorrect", "b": "incorrect", "no": "incorrect"},
    **dict.fromkeys(("cannot tell", "c", "invalid"), "cannot_tell"),
    **dict.fromkeys(("incomplete", "repetitive", "refusal"), "cannot_tell"),
}
_LONGEST_END = 300  # characters of the end of a reply that follows an analysis
_VALID: tuple[Said, ...] = ("correct", "incorrect", "cannot_tell")
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One reply of a judge; tokens are counted as in ``schema.Generation``."""

    said: Said  # Verdict in the reply, or why there is none
    failure: Failure | None = None  # Kind of failure of the request; null if it succeeded
    reply: str = ""  # Beginning of an invalid reply; else empty
    prompt_tokens: int = -1
    cached_tokens: int = -1
    completion_tokens: int = -1

    @property
    def is_valid(self) -> bool:
        return self.said in _VALID


@dataclass(frozen=True, slots=True, kw_only=True)
class Ballot:
    """All votes on one answer, with the judge and the question."""

    by: str  # Verifier that could not decide the answer, as ``name@version``
    rule_reason: str
    rule_evidence: str
    model: str  # Model of the judge
    prompt: str  # Name and hash of the judge's prompt template
    asked: str  # Hash of the question, unique among the questions about the problem
    same_as: str
    """Id of another generation with the same answer, for which the votes were cast; empty if they
    were cast for this generation."""
    votes: list[Vote]  # Votes in order of their index

    @property
    def name(self) -> str:
        """Name of the judge, with the hash of its prompt template."""
        return judge_name(self.model, self.prompt)


def judge_name(model: str, prompt: str) -> str:
    """Name of a judge; ``prompt`` is the version of its prompt."""
    return f"{model}@{prompt.rpartition('@')[2]}"


def said_in(reply: str, finish_reason: FinishReason, form: Replies = "verdict") -> Said:
    """The verdict in a reply, or why there is none; ``reply`` is the text after the thinking."""
    if finish_reason == "error":
        return "failed"
    if finish_reason == "length":
        return "truncated"
    text = reply.strip()
    if form != "verdict":
        text = text[-_LONGEST_END:].rpartition("\n")[2]
    verdict = _REPLY[form].fullmatch(text)
    # A letter and the word after it must agree.
    labels = {_SAID[word.lower()] for word in verdict.groups() if word} if verdict else set()
    return labels.pop() if len(labels) == 1 else "invalid"


def shown(reply: str) -> str:
    """The beginning of an invalid reply for the record, cut at a character boundary."""
    return reply.strip()[:_SHOWN_CHARACTERS].encode(errors="replace").decode()


def decision(votes: Sequence[Vote]) -> tuple[Label, str]:
    """Determine (label, reason) from all votes."""
    count = Counter(vote.said for vote in votes)
    for label in ("correct", "incorrect"):
        if 2 * count[label] > len(votes):
            return label, JUDGED
    if 2 * count["cannot_tell"] > len(votes):
        return "undecided", "judge_cannot_tell"
    if 2 * sum(vote.is_valid for vote in votes) > len(votes):
        return "undecided", "judge_split"
    no_verdicts = count["invalid"] + count["truncated"]
    return "undecided", FAILED if count["failed"] >= no_verdicts else "judge_invalid"


def verdict_of(rule: Verdict, ballot: Ballot) -> Verdict:
    """The verdict of the votes, which replaces the undecided verdict ``rule``."""
    label, reason = decision(ballot.votes)
    return dataclasses.replace(
        rule,
        label=label,
        reason=reason,
        verifier=f"{_MARK}{ballot.name}{_AFTER}{ballot.by}",
        evidence=json.dumps(dataclasses.asdict(ballot), ensure_ascii=False),
    )


def decided_by_user(rule: Verdict, label: Label, score: float | None = None) -> Verdict:
    """The verdict of a user of a service, which replaces the verdict ``rule`` or that of a user."""
    by = f"{_FEEDBACK}{_AFTER}{rule_of(rule.verifier)}"
    return dataclasses.replace(rule, label=label, reason="user_feedback", verifier=by, score=score)


def is_by_user(verifier: str) -> bool:
    """Whether ``Verdict.verifier`` says that a user of a service decided."""
    return verifier.startswith(_FEEDBACK + _AFTER)


def rule_of(verifier: str) -> str:
    """``name@version`` of the verifier in ``Verdict.verifier``, which may name who decided too."""
    is_after = verifier.startswith(_MARK) or is_by_user(verifier)
    return verifier.rpartition(_AFTER)[2] if is_after else verifier


def ballot_of(verdict: Verdict) -> Ballot | None:
    """Read the ballot stored in a verdict; None if no judge was asked."""
    if not verdict.verifier.startswith(_MARK):
        return None
    kept = json.loads(verdict.evidence)
    return Ballot(**{**kept, "votes": [Vote(**vote) for vote in kept["votes"]]})

"""What a judge said about one answer: its votes, how they are counted, and how they are kept.

A reply is a vote if it is one of the three verdicts that the wording names and nothing else but
emphasis and a full stop. Anything more makes it invalid: a model that argues was not asked to.

    correct, incorrect   that verdict, from strictly more than half of all votes (``judged``)
    undecided            ``judge_failed`` or ``judge_invalid``: no more than half of the votes are
                         valid, because requests failed or (more often) replies were no verdict;
                         ``judge_cannot_tell``: more than half say so; ``judge_split``: the rest

A ballot stands as JSON in ``Verdict.evidence``, with what the rules had said, so a verdict of a
judge is never taken for one of a rule. Not covered: what is put to the vote (``verifiers.judge``).
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from heavydistill.schema import Failure, FinishReason, Label, Verdict

Said = Literal["correct", "incorrect", "cannot_tell", "invalid", "truncated", "failed"]

JUDGED = "judged"
FAILED = "judge_failed"
_MARK, _AFTER = "judge:", " after "
# A run of these is followed by none of them, so the time is linear.
_REPLY = re.compile(
    r"[*_`\"']*(correct|incorrect|cannot tell)[*_`\"'.\s]*", re.IGNORECASE | re.ASCII
)
_VALID: tuple[Said, ...] = ("correct", "incorrect", "cannot_tell")
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One reply; its tokens are counted as those of a ``schema.Generation``."""

    said: Said  # the verdict, or why there is none
    failure: Failure | None = None  # how the request failed; null if it did not
    reply: str = ""  # how an invalid reply begins; else empty
    prompt_tokens: int = -1
    cached_tokens: int = -1
    completion_tokens: int = -1

    @property
    def is_valid(self) -> bool:
        """Whether it says one of the verdicts."""
        return self.said in _VALID


@dataclass(frozen=True, slots=True, kw_only=True)
class Ballot:
    """The votes on one answer."""

    by: str  # verifier that left it undecided, ``name@version``
    rule_reason: str
    rule_evidence: str
    model: str  # the judge
    prompt: str  # name and hash of its wording
    asked: str  # hash of the question, which differs from all others about the problem
    same_as: str
    """Id of the generation with the same answer to the same problem whose votes these are; empty
    if they were cast for this one."""
    votes: list[Vote]  # by index

    @property
    def name(self) -> str:
        """The judge and its wording."""
        return f"{self.model}@{self.prompt.rpartition('@')[2]}"


def said_in(reply: str, finish_reason: FinishReason) -> Said:
    """What a reply says; ``reply`` is what follows the thinking."""
    if finish_reason == "error":
        return "failed"
    if finish_reason == "length":
        return "truncated"
    verdict = _REPLY.fullmatch(reply.strip())
    if not verdict:
        return "invalid"
    words: dict[str, Said] = {name.replace("_", " "): name for name in _VALID}
    return words[verdict[1].lower()]


def shown(reply: str) -> str:
    """How an invalid reply begins, for the record; never half a character."""
    return reply.strip()[:_SHOWN_CHARACTERS].encode(errors="replace").decode()


def decision(votes: Sequence[Vote]) -> tuple[Label, str]:
    """(Label, reason) of the votes together."""
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
    """What becomes of an undecided verdict."""
    label, reason = decision(ballot.votes)
    return dataclasses.replace(
        rule,
        label=label,
        reason=reason,
        verifier=f"{_MARK}{ballot.name}{_AFTER}{ballot.by}",
        evidence=json.dumps(dataclasses.asdict(ballot), ensure_ascii=False),
    )


def rule_of(verifier: str) -> str:
    """``name@version`` of the rules behind ``Verdict.verifier``, which may name a judge as well."""
    return verifier.rpartition(_AFTER)[2] if verifier.startswith(_MARK) else verifier


def ballot_of(verdict: Verdict) -> Ballot | None:
    """The votes behind a verdict; None if no judge was asked."""
    if not verdict.verifier.startswith(_MARK):
        return None
    kept = json.loads(verdict.evidence)
    return Ballot(**{**kept, "votes": [Vote(**vote) for vote in kept["votes"]]})

"""Turns a response into a verdict: checks before the verifier, ``extract``, and ``decide``.

``screen`` is cheap and runs in any process. ``decide`` calls the verifier and turns an exception
into a verdict.

Verdicts of this module, all undecided: ``error`` and ``truncated`` (failed or cut-off generations),
``empty``, ``not_text`` (lone surrogates, which cannot be encoded), ``open_thinking`` (the thinking
has no end), ``unknown_verifier``, ``verifier_error:TYPE``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from heavydistill.errors import ProblemsError
from heavydistill.models.thinking import COMMON_TAGS
from heavydistill.schema import Generation, Problem, Verdict
from heavydistill.verifiers import registry
from heavydistill.verifiers.base import (
    Decision,
    Verifier,
    error_evidence,
    error_reason,
    stamped,
    undecided,
)

_THINKING_BEGINS, THINKING_ENDS = COMMON_TAGS
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Candidate:
    """An extracted answer that the verifier still has to decide on."""

    verifier: Verifier
    problem: Problem
    answer: str  # Result of ``Verifier.extract``


def screen_generation(problem: Problem, generation: Generation) -> Verdict | Candidate:
    """Check a generation as ``screen`` does; one that failed or was cut off is undecided."""
    unusable = generation.unusable_because
    if unusable in ("error", "truncated"):
        return _undecided(problem, unusable)
    return screen(problem, generation.answer_text)


def screen(problem: Problem, text: str) -> Verdict | Candidate:
    """Return the verdict on a response, or a candidate if the verifier must decide.

    The response may include its thinking. Never raises, not even for an unknown verifier.
    """
    if not isinstance(text, str) or _HALF_CHARACTER.search(text):
        return _undecided(problem, "not_text")
    _, _, spoken = text.rpartition(THINKING_ENDS)
    if _THINKING_BEGINS in spoken:
        return _undecided(problem, "open_thinking")
    if not spoken.strip():
        return _undecided(problem, "empty")
    try:
        verifier = registry.get(problem.verifier)
    except ProblemsError:
        return _undecided(problem, "unknown_verifier")
    try:
        answer = verifier.extract(problem, spoken)
        if isinstance(answer, Decision):
            return stamped(verifier, answer)
        if not isinstance(answer, str):
            raise TypeError("extract returned neither a text nor a decision")
    except Exception as error:
        return undecided(verifier, error_reason(error), error_evidence(error, verifier))
    return Candidate(verifier, problem, answer)


def decide(candidate: Candidate) -> Verdict:
    """Let the verifier decide in this process. Never raises; exceptions become reasons."""
    verifier = candidate.verifier
    try:
        return stamped(verifier, verifier.decide(candidate.problem, candidate.answer))
    except Exception as error:
        return undecided(verifier, error_reason(error), error_evidence(error, verifier))


def _undecided(problem: Problem, reason: str) -> Verdict:
    try:
        return undecided(registry.get(problem.verifier), reason)
    except ProblemsError:
        name = f"{problem.verifier}@unknown"
        return Verdict(label="undecided", reason=reason, extracted=None, verifier=name)

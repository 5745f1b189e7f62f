"""What every verifier offers, and how a verdict is stamped with its name.

Not covered: responses that failed or were cut off; ``registry.verdict_of`` judges those alike
for all verifiers.
"""

from __future__ import annotations

from typing import Protocol

from heavydistill.schema import Label, Problem, Verdict


class Verifier(Protocol):
    """One kind of check. Verifiers hold no state of a run and may be called from threads."""

    @property
    def name(self) -> str:
        """The word in ``Problem.verifier``."""

    @property
    def version(self) -> str:
        """Changes whenever the same response could get another verdict."""

    def judge(self, problem: Problem, answer_text: str) -> Verdict:
        """The verdict on a finished response.

        Whatever ``answer_text`` holds is judged. A problem that ``check_reference`` refuses may
        raise.
        """

    def check_reference(self, problem: Problem) -> str | None:
        """What makes the problem unfit for this verifier, and what to do; None if it is fit."""


def stamped(verifier: Verifier, label: Label, reason: str, extracted: str | None) -> Verdict:
    """A verdict with the verifier's name."""
    return Verdict(
        label=label,
        reason=reason,
        extracted=extracted,
        verifier=f"{verifier.name}@{verifier.version}",
    )


def error_reason(error: Exception) -> str:
    """The reason of a verdict that could not be reached because of ``error``."""
    return f"verifier_error:{type(error).__name__}"

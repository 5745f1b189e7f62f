"""What every verifier offers, and what it says.

A verifier reads a response in two steps. ``extract`` finds what there is to decide on; it is
called where the run is, so it costs microseconds and never more than the length of the text.
``decide`` may take long, break or run model-written text through a library; unless the verifier
``runs_in`` the run's own process, it is called in a worker that can be killed (``pool``).

Not covered: responses that failed, were cut off or hold no text (``screening``).
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from heavydistill.config.run import Domain, Verifying
from heavydistill.schema import Label, Problem, Verdict

Place = Literal["here", "worker"]
MOST_CHARACTERS = 1_000_000
"""Limit of each text field of a verdict."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a verifier found out about one response."""

    label: Label
    """``undecided`` where the verifier cannot tell; never a guess."""
    reason: str
    """Short code of why, e.g. ``equal`` or ``too_complex``."""
    extracted: str | None = None
    """The answer in a form in which equal answers are equal texts; None if none was found."""
    score: float | None = None
    """Share of the parts (tests, instructions) that hold, 0 to 1; None where there are none."""
    evidence: str = ""
    """JSON object with what a reader needs to check the decision; empty if the rest says it all.
    The same for the same response: no times, no addresses."""


class Verifier(abc.ABC):
    """One kind of check. It holds no state of a run and may be called from several threads."""

    name: ClassVar[str]
    """The word in ``Problem.verifier``."""
    runs_in: ClassVar[Place] = "worker"
    """Where ``decide`` is called: in a killable worker, or ``here``, which only a check that costs
    microseconds whatever it reads may ask for."""
    argument_columns: ClassVar[tuple[str, ...]] = ()
    """Columns of a dataset that are its arguments where ``verifier_args`` does not name them."""
    needs_reference: ClassVar[bool] = True
    """Whether ``Problem.reference`` must hold something."""
    accepts_others: ClassVar[bool] = False
    """Whether answers can be right that do not say what the reference says. No judge is asked about
    them: it is shown the reference alone."""
    domain: ClassVar[Domain | Literal[""]] = ""
    """Wording of the prompts for its problems where the row names none; empty for the run's."""

    @property
    @abc.abstractmethod
    def version(self) -> str:
        """Changes whenever the same response could get another verdict."""

    @abc.abstractmethod
    def extract(self, problem: Problem, text: str) -> str | Decision:
        """What there is to decide on, or the decision where the text alone tells.

        ``text`` is what follows the thinking: valid Unicode, not blank, of any length. A problem
        that ``check_reference`` does not let pass may raise.
        """

    @abc.abstractmethod
    def decide(self, problem: Problem, candidate: str) -> Decision:
        """The decision on what ``extract`` found. The same arguments give the same decision."""

    def check_reference(self, problem: Problem) -> str | None:
        """What makes the problem unfit for this verifier, and what to do; None if it is fit."""
        return None

    def is_plain(self, problem: Problem) -> bool:
        """Whether the reference is such that ``check_reference`` costs microseconds anywhere.

        Then no worker is started for it, as one is for those that may take long. Must not raise.
        """
        return False

    def prepare(self, config: Verifying) -> None:
        """Slow imports: called once in every process before its first ``decide``, untimed."""
        return None

    def limit_s(self, problem: Problem, config: Verifying) -> float:
        """Most seconds that one ``decide`` may take."""
        return config.timeout_s

    def unavailable(self, config: Verifying) -> str | None:
        """Why this machine cannot judge, and what to install; None if it can."""
        return None


def stamped(verifier: Verifier, decision: Decision) -> Verdict:
    """The verdict of a decision: with the verifier's name and version.

    Raises:
        TypeError, ValueError: The decision does not hold what it should, or what can be stored.
    """
    extracted, score = decision.extracted, decision.score
    texts = (decision.label, decision.reason, decision.evidence, extracted or "")
    known = decision.label in get_args(Label)
    if not known or any(type(text) is not str for text in texts):
        raise TypeError("a verifier gave something else than a label and texts")
    if any(len(text) > MOST_CHARACTERS for text in texts):
        raise ValueError(f"a verifier gave more than {MOST_CHARACTERS} characters")
    "".join(texts).encode()
    if score is not None and not 0 <= score <= 1:
        raise ValueError("a verifier gave a score that is not between 0 and 1")
    return Verdict(
        label=decision.label,
        reason=decision.reason,
        extracted=extracted,
        verifier=f"{verifier.name}@{verifier.version}",
        score=None if score is None else float(score),
        evidence=decision.evidence,
    )


def undecided(verifier: Verifier, reason: str) -> Verdict:
    return stamped(verifier, Decision("undecided", reason))


def error_reason(error: BaseException) -> str:
    """The reason of a verdict that could not be reached because of ``error``."""
    return f"verifier_error:{type(error).__name__}"

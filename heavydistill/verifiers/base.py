"""The interface of verifiers.

A verifier reads a response in two steps. ``extract`` finds the text to decide on; it is called in
the main process, so it must take microseconds, and at most time linear in the length of the text.
``decide`` may take long, crash or pass model-written text to a library; it is called in a worker
process that can be killed (``pool``), unless ``runs_in`` is ``here``.

Not covered: responses that failed, were cut off or hold no text (``screening``).
"""

from __future__ import annotations

import abc
import json
import re
import traceback
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from heavydistill.config.run import Verifying
from heavydistill.schema import Label, Problem, Verdict

Place = Literal["here", "worker"]
MOST_CHARACTERS = 1_000_000
"""Maximum number of characters of each text field of a verdict."""
_MOST_OF_A_MESSAGE = 300  # characters of an exception's message in the evidence
# Addresses in memory and folders, which differ between processes and machines.
_OF_THIS_MACHINE = re.compile(r"(?<![\w/])/(?:[^/\s'\"]+/)+| at 0x[0-9a-fA-F]+")


@dataclass(frozen=True, slots=True)
class Decision:
    """Result of a verifier for one response."""

    label: Label
    """Label of the verdict; ``undecided`` if the verifier cannot decide, never a guess."""
    reason: str
    """Short code of the reason, e.g. ``equal`` or ``too_complex``."""
    extracted: str | None = None
    """Normal form of the answer: equal answers have equal texts; None if no answer was found."""
    score: float | None = None
    """Share of the parts (tests, instructions) that pass, 0 to 1; None if there are no parts."""
    evidence: str = ""
    """JSON object with facts by which a reader can check the decision; may be empty. The same
    response always gives the same evidence, so it holds no times and no addresses."""


class Verifier(abc.ABC):
    """Base class of verifiers. Instances have no state and must be thread-safe."""

    plugin_kind: ClassVar = "verifier"  # by which ``plugins`` recognises a subclass
    name: ClassVar[str]
    """Name of the verifier, as used in ``Problem.verifier``."""
    version: str
    """Version of the rules; change it whenever the same response could get another verdict."""
    runs_in: ClassVar[Place] = "worker"
    """Where ``decide`` runs: in a ``worker`` process that can be killed, or ``here``, in the main
    process, for a check that takes microseconds for any text."""
    argument_columns: ClassVar[tuple[str, ...]] = ()
    """Dataset columns whose values are used for the arguments that ``verifier_args`` lacks."""
    needs_reference: ClassVar[bool] = True
    """Whether the verifier needs a non-empty ``Problem.reference``."""
    accepts_others: ClassVar[bool] = False
    """Whether answers that do not agree with the reference can be correct. If so, a judge is not
    asked, because it only compares with the reference."""
    needs_judge: ClassVar[bool] = False
    """Whether the verifier leaves most answers to a judge, so that a run needs one."""
    example: ClassVar[tuple[Problem, str] | None] = None
    """Problem and a right response to it, with which ``contracts`` tests a plug-in."""
    domain: ClassVar[str] = ""
    """Domain of rows that set no domain, for the choice of prompts; empty for the run's domain."""

    @abc.abstractmethod
    def extract(self, problem: Problem, text: str) -> str | Decision:
        """Return the text to decide on, or the decision if the text alone is enough to decide.

        ``text`` is the response after its thinking: valid Unicode, not blank, of any length. May
        raise if ``check_reference`` rejects the problem.
        """

    @abc.abstractmethod
    def decide(self, problem: Problem, candidate: str) -> Decision:
        """Decide on the result of ``extract``. The same arguments always give the same decision."""

    def check_reference(self, problem: Problem) -> str | None:
        """Return why this verifier cannot judge the problem, and the fix; None if it can."""
        return None

    def is_plain(self, problem: Problem) -> bool:
        """Whether ``check_reference`` takes microseconds, so that no worker is needed; never
        raises."""
        return False

    def prepare(self, config: Verifying) -> None:
        """Import slow modules; called once per process, before the first ``decide``."""
        return None

    def limit_s(self, problem: Problem, config: Verifying) -> float:
        """Time limit of one call of ``decide``, in seconds."""
        return config.timeout_s

    def unavailable(self, config: Verifying) -> str | None:
        """Return why this machine cannot run the verifier, and what to install; None if it can."""
        return None


def stamped(verifier: Verifier, decision: Decision) -> Verdict:
    """Convert a decision to a verdict, which adds the verifier's name and version.

    Raises:
        TypeError, ValueError: A field of the decision has a wrong type or cannot be stored.
    """
    extracted, score = decision.extracted, decision.score
    texts = (decision.label, decision.reason, decision.evidence, extracted or "")
    known = decision.label in get_args(Label)
    if not known or any(type(text) is not str for text in texts):
        raise TypeError(
            "a decision needs a known label, and texts as reason, evidence and extracted"
        )
    if any(len(text) > MOST_CHARACTERS for text in texts):
        raise ValueError(f"a decision has a text of more than {MOST_CHARACTERS} characters")
    "".join(texts).encode()
    if score is not None and not 0 <= score <= 1:
        raise ValueError("a decision has a score that is not between 0 and 1")
    return Verdict(
        label=decision.label,
        reason=decision.reason,
        extracted=extracted,
        verifier=f"{verifier.name}@{verifier.version}",
        score=None if score is None else float(score),
        evidence=decision.evidence,
    )


def undecided(verifier: Verifier, reason: str, evidence: str = "") -> Verdict:
    return stamped(verifier, Decision("undecided", reason, evidence=evidence))


def error_reason(error: BaseException) -> str:
    """Reason code of the verdict if the verifier raised ``error``."""
    return f"verifier_error:{type(error).__name__}"


def error_evidence(error: BaseException, verifier: Verifier | None = None) -> str:
    """Evidence of the verdict if the verifier raised ``error``: JSON with ``error`` and ``at``.

    ``at`` is the file and line: the last one in the verifier's own file, or else the last one.
    Empty for a lack of memory.
    """
    if isinstance(error, MemoryError):  # nothing is left to describe it with
        return ""
    try:
        message = str(error)[:_MOST_OF_A_MESSAGE]
    except Exception:  # an exception of a user's may do anything
        message = ""
    message = _OF_THIS_MACHINE.sub("", message).encode("utf-8", "replace").decode()
    evidence = {"error": f"{type(error).__name__}: {message}".rstrip(": ")}
    frames = [(f.f_code.co_filename, line) for f, line in traceback.walk_tb(error.__traceback__)]
    own = type(verifier).decide.__code__.co_filename if verifier else None
    for file, line in ([frame for frame in frames if frame[0] == own] or frames)[-1:]:
        evidence["at"] = f"{file.rpartition('/')[2]}:{line}"
    return json.dumps(evidence, ensure_ascii=False)


def raised_in(evidence: str) -> str:
    """What ``error_evidence`` tells, in words: ``ValueError: no number at parity.py:9``."""
    parsed = json.loads(evidence)
    return f"{parsed['error']} at {parsed['at']}" if "at" in parsed else str(parsed["error"])

"""The verifiers there are, by name, and the verdict on a generation of any outcome.

To add one: write the class in a file of its own and add an instance to ``_VERIFIERS``.
"""

from __future__ import annotations

from heavydistill.errors import ProblemsError
from heavydistill.schema import Generation, Problem, Verdict
from heavydistill.verifiers.base import Verifier, error_reason, stamped
from heavydistill.verifiers.exact import Exact
from heavydistill.verifiers.procedural import Procedural

_VERIFIERS: dict[str, Verifier] = {
    verifier.name: verifier
    for verifier in (
        Exact(),
        Procedural(),
    )
}


def names() -> list[str]:
    """The names that ``Problem.verifier`` may hold, sorted."""
    return sorted(_VERIFIERS)


def get(name: str) -> Verifier:
    """The verifier of that name.

    Raises:
        ProblemsError: There is none; the message lists those there are.
    """
    if name not in _VERIFIERS:
        raise ProblemsError(f"There is no verifier {name!r}", f"Name one of: {', '.join(names())}.")
    return _VERIFIERS[name]


def verdict_of(problem: Problem, generation: Generation) -> Verdict:
    """The verdict on one generation, whatever became of it.

    A generation that failed (``error``) or was cut off (``truncated``) is undecided, one without
    answer text is incorrect (``no_answer``). Never raises: what a verifier raises makes the
    verdict undecided (``verifier_error:TYPE``), and so does a verifier that does not exist
    (``unknown_verifier``).
    """
    verifier = _VERIFIERS.get(problem.verifier)
    if verifier is None:
        return Verdict(
            label="undecided",
            reason="unknown_verifier",
            extracted=None,
            verifier=f"{problem.verifier}@unknown",
        )
    unusable = generation.unusable_because
    if unusable in ("error", "truncated"):
        return stamped(verifier, "undecided", unusable, None)
    if unusable is not None:
        return stamped(verifier, "incorrect", "no_answer", None)
    try:
        return verifier.judge(problem, generation.answer_text)
    except Exception as error:
        return stamped(verifier, "undecided", error_reason(error), None)

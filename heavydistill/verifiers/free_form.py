r"""The verifier ``judged``: answers in words, which a judge compares with the reference.

For references that no rule can compare: sentences, names, chemistry, law. An answer that equals the
reference is correct; everything else is undecided, so that the run's judge decides it (``judge``).
A run with such problems needs a judge.

The answer is found as by the verifier ``exact``: the content of the last box, or the text after the
marker in ``verifier_args``. Without either, the judge reads the whole text after the thinking. The
reference may have several lines; the judge reads all of it.

Verdicts, by reason:

    correct    equal       the same number, or the same text apart from typography (case counts)
    undecided  unequal     anything else
    undecided  no_answer   neither a box nor a marker, or an empty one
"""

from __future__ import annotations

from typing import ClassVar

from heavydistill.schema import Problem
from heavydistill.text.extraction import final_answer, marker_of
from heavydistill.verifiers.base import Decision, Place, Verifier
from heavydistill.verifiers.normal import normal_form

# Longer texts are compared without their normal form, which takes too long.
MOST_CHARACTERS = 1000


class FreeForm(Verifier):
    """The verifier ``judged``, described in this module's docstring."""

    name = "judged"
    version = "1"
    runs_in: ClassVar[Place] = "here"
    needs_judge: ClassVar[bool] = True

    def extract(self, problem: Problem, text: str) -> str | Decision:
        answer = final_answer(text, marker_of(problem))
        return answer if answer and _normal(answer) else Decision("undecided", "no_answer")

    def decide(self, problem: Problem, candidate: str) -> Decision:
        given, wanted = _normal(candidate), _normal(_reference(problem))
        if given == wanted:
            return Decision("correct", "equal", given)
        return Decision("undecided", "unequal", given)

    def check_reference(self, problem: Problem) -> str | None:
        try:
            reference = _reference(problem)
        except ValueError as error:
            return str(error)
        return None if _normal(reference) else "the reference holds no answer; write one"

    def is_plain(self, problem: Problem) -> bool:
        return True


def _reference(problem: Problem) -> str:
    return final_answer(problem.reference, marker_of(problem)) or problem.reference


def _normal(text: str) -> str:
    plain = " ".join(text.split())
    return normal_form(plain).text if len(plain) <= MOST_CHARACTERS else plain

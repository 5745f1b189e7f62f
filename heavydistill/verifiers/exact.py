r"""The verifier ``exact``: the final answer is the reference, as text or as a plain number.

The final answer is the last balanced ``\boxed{...}`` of the answer text. If there is no box and the
problem sets ``verifier_args`` to ``{"marker": "####"}``, it is the text after the last marker, up
to the end of its line. The reference is read in the same way, so a worked solution that ends in
``#### 18`` is a valid reference. There is no fallback to the last number in the text.

Verdicts, by reason:

    correct    equal           the same number, or the same text apart from typography
    incorrect  different       different numbers, or different words (case counts)
    incorrect  no_answer       neither a box nor a marker, or an empty one
    undecided  needs_units     one is a number with a unit, a currency or percent
    undecided  needs_symbolic  one is a formula, a list or similar, and the texts differ
    undecided  too_complex     more than ``MOST_CHARACTERS`` in the answer or the reference

Not covered: symbolic equality (``2\sqrt{2}`` is not ``\sqrt{8}`` here), order in sets, intervals,
units, percent and currencies. Such answers are undecided, never incorrect.
"""

from __future__ import annotations

from typing import ClassVar

from heavydistill.schema import Label, Problem
from heavydistill.text.extraction import final_answer, marker_of, reference_answer
from heavydistill.verifiers.base import Decision, Place, Verifier
from heavydistill.verifiers.normal import NormalForm, normal_form

MOST_CHARACTERS = 1000


class Exact(Verifier):
    """The verifier ``exact``, described in this module's docstring."""

    name = "exact"
    version = "2"
    runs_in: ClassVar[Place] = "here"

    def extract(self, problem: Problem, text: str) -> str | Decision:
        answer = final_answer(text, marker_of(problem))
        if not answer:
            return Decision("incorrect", "no_answer")
        return answer

    def decide(self, problem: Problem, candidate: str) -> Decision:
        reference = reference_answer(problem.reference, marker_of(problem))
        if max(len(candidate), len(reference)) > MOST_CHARACTERS:
            return Decision("undecided", "too_complex", candidate[:MOST_CHARACTERS])
        given, wanted = normal_form(candidate), normal_form(reference)
        if not given.text:
            return Decision("incorrect", "no_answer")
        return Decision(*_compare(given, wanted), given.text)

    def check_reference(self, problem: Problem) -> str | None:
        try:
            reference = reference_answer(problem.reference, marker_of(problem))
        except ValueError as error:
            return str(error)
        if len(reference) > MOST_CHARACTERS:
            return f"the reference has more than {MOST_CHARACTERS} characters; shorten it"
        if not normal_form(reference).text:
            return "the reference holds no answer; write one"
        return None


def _compare(given: NormalForm, wanted: NormalForm) -> tuple[Label, str]:
    if given == wanted:
        return "correct", "equal"
    measures = (given.is_measure, wanted.is_measure)
    numbers = (given.value is not None, wanted.value is not None)
    if any(measures) and all(a or b for a, b in zip(measures, numbers, strict=True)):
        return "undecided", "needs_units"
    if given.has_structure or wanted.has_structure:
        return "undecided", "needs_symbolic"
    return "incorrect", "different"

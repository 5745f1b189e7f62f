r"""The verifier ``math``: the final answer is worth what the reference is worth.

The final answer is the last ``\boxed{...}`` (with those joined to it), or where there is no box
what follows the problem's marker. It is compared with the reference by what it is: numbers exactly,
formulas at many digits, lists, tuples, sets, intervals, equations, matrices,
ratios, units and words by rules of their own.

``verifier_args`` may hold ``marker``, text such as ``####``, ``A:`` or ``答案``: where there is no
box, what follows the last one on its line is the answer, in responses and references.

What may take long is left to ``decide``, which a worker's limits bound.

Verdicts, by reason (those of parts stand in ``mathematics.compare``, ``.equality``, ``.shape``):

    correct    equal           the same value, whatever its spelling
    incorrect  different       another value
    incorrect  no_answer       no box and no marker, or nothing in it
    incorrect  hedged          several values for a reference of one
    undecided  outside_box     what stands beside the box changes it: ``-\boxed{5}``
    undecided  retracted       what follows takes the answer back
    undecided  several_boxes   one value in the last box, several in the reference, others before;
                               or right above it a box with something else
    undecided  echoed          the right value, but only as it stands in the problem
    undecided  unclosed_box, in_code   the last box was not closed, or the only one is in code
    undecided  too_complex     too long, too deep, too large, or a sum, integral or limit
    undecided  not_understood, two_readings, two_numbers, ellipsis, set_builder, ...   not read

Not covered: whether an answer that is equal has the form that the problem asks for (simplified,
factored, rounded), and answers in sentences.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

from heavydistill.config.run import Verifying
from heavydistill.schema import Problem
from heavydistill.verifiers.base import Decision, Place, Verifier
from heavydistill.verifiers.extraction import marker_of, reference_answer
from heavydistill.verifiers.mathematics.find import Found, find
from heavydistill.verifiers.mathematics.shape import Many, shape_of
from heavydistill.verifiers.mathematics.surroundings import echoes
from heavydistill.verifiers.mathematics.tokens import deepest
from heavydistill.verifiers.normal import NormalForm, compare_numbers, normal_form, plain

MOST_CHARACTERS = 1000
MOST_DEPTH = 25


class Math(Verifier):
    """See the module."""

    name = "math"
    version = "6"
    runs_in: ClassVar[Place] = "worker"

    def extract(self, problem: Problem, text: str) -> str | Decision:
        """The final answer, and on further lines what earlier boxes hold if they may matter."""
        found = find(text, marker_of(problem), problem.text)
        if found is None:
            return Decision("incorrect", "no_answer")
        if found.doubt:
            shown = normal_form(found.answer[:MOST_CHARACTERS]).text or None
            return Decision("undecided", found.doubt, shown)
        if _is_too_large(found.answer):
            return Decision("undecided", "too_complex", found.answer[:MOST_CHARACTERS])
        return _spelled(found.answer, problem) or _candidate(found, _reference(problem)[0])

    def decide(self, problem: Problem, candidate: str) -> Decision:
        # SymPy takes most of a second to import; a run's own process never needs it.
        from heavydistill.verifiers.mathematics.compare import AnswerComparison, canonical

        answer, _, earlier = candidate.partition("\n")
        reference, _ = _reference(problem)
        given, wanted = shape_of(answer), shape_of(reference)
        label, reason = AnswerComparison(problem.text).outcome(given, wanted)
        if label == "incorrect" and earlier and isinstance(wanted, Many):
            label, reason = "undecided", "several_boxes"
        if label == "correct" and echoes(answer, reference, problem.text):
            label, reason = "undecided", "echoed"
        return Decision(label, reason, canonical(given, normal_form(answer).text) or None)

    def check_reference(self, problem: Problem) -> str | None:
        try:
            reference, form = _reference(problem)
        except ValueError as error:
            return str(error)
        if _is_too_large(reference):
            return (
                f"the reference has more than {MOST_CHARACTERS} characters or more than "
                f"{MOST_DEPTH} brackets inside each other; shorten it"
            )
        if not form.text:
            return "the reference holds no answer; write one"
        if form.value is not None:
            return None
        from heavydistill.verifiers.mathematics.compare import fault

        return fault(shape_of(reference))

    def is_plain(self, problem: Problem) -> bool:
        try:
            reference, form = _reference(problem)
        except ValueError:
            return False
        return len(reference) <= MOST_CHARACTERS and form.value is not None

    def prepare(self, config: Verifying) -> None:
        # The first formula that SymPy compares costs it further imports.
        self.decide(Problem(id="", text="", reference="x^2+2x+1", verifier="math"), "(x+1)^2")


def _is_too_large(answer: str) -> bool:
    return len(answer) > MOST_CHARACTERS or deepest(answer) > MOST_DEPTH


def _spelled(answer: str, problem: Problem) -> Decision | None:
    """The decision where the spelling alone tells."""
    given, (reference, wanted) = normal_form(answer), _reference(problem)
    if not given.text:
        return Decision("incorrect", "no_answer")
    if given.value is not None and wanted.value is not None:
        label, reason = compare_numbers(answer, reference, (given.value, wanted.value))
        may_echo = label == "correct" and plain(answer) != plain(reference)
        if may_echo and echoes(answer, reference, problem.text):
            label, reason = "undecided", "echoed"
        return Decision(label, reason, given.text)
    return Decision("correct", "equal", given.text) if given == wanted else None


def _candidate(found: Found, reference: str) -> str:
    # Only a reference of several values can be spread over several boxes.
    several = any(mark in reference for mark in (",", ";", "or", "and", r"\pm", "±"))
    earlier = [text[:MOST_CHARACTERS] for text in found.earlier] if several else []
    return "\n".join((" ".join(found.answer.split()), *earlier))


def _reference(problem: Problem) -> tuple[str, NormalForm]:
    return _answer_in(problem.reference, marker_of(problem))


@lru_cache(maxsize=1024)
def _answer_in(reference: str, marker: str | None) -> tuple[str, NormalForm]:
    answer = " ".join(reference_answer(reference, marker).split())
    return answer, normal_form(answer)

r"""The verifier ``math``: whether the final answer has the value of the reference.

The final answer is the last ``\boxed{...}`` (with the boxes joined to it) or, if there is no box,
the text after the problem's marker. The comparison depends on the kind of the answer: numbers are
compared exactly, formulas at many digits, and lists, tuples, sets, intervals, equations, matrices,
ratios, units and words by their own rules.

``verifier_args`` may contain ``marker``, a text such as ``####``, ``A:`` or ``答案``. If there is
no box, the answer is the text after the last marker, up to the end of its line. This applies to
responses and references. A reference that is a worked solution is read as a response is; one whose
boxes contradict each other, or whose text changes the value of its box, is unfit.

Slow work happens in ``decide``, which runs in a worker with limits.

Verdicts, by reason (``shape_comparison``, ``formula_equality`` and ``shape`` list further ones):

    correct    equal           the same value in any spelling
    incorrect  different       another value
    incorrect  no_answer       neither a box nor a marker, or an empty one
    incorrect  hedged          several values for a reference with one
    undecided  outside_box     text next to the box changes the value: ``-\boxed{5}``
    undecided  retracted       later text retracts the answer
    undecided  several_boxes   one value in the last box, several in the reference, others before;
                               or a box directly above it with other content
    undecided  echoed          the right value, but only as written in the problem
    undecided  unclosed_box, in_code   the last box is not closed, or the only one is in code
    undecided  too_complex     too long, too deep, too large, or a sum, integral or limit
    undecided  not_understood, two_readings, two_numbers, ellipsis, set_builder, ...   not read

Not covered: whether an equal answer has the form that the problem asks for (simplified, factored,
rounded), and answers in whole sentences.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar

from heavydistill.config.run import Verifying
from heavydistill.schema import Problem
from heavydistill.text.extraction import marker_of, reference_answer
from heavydistill.verifiers.base import Decision, Place, Verifier
from heavydistill.verifiers.mathematics import units
from heavydistill.verifiers.mathematics.context import echoes
from heavydistill.verifiers.mathematics.find import Found, find
from heavydistill.verifiers.mathematics.shape import ValueSet, shape_of
from heavydistill.verifiers.mathematics.tokens import deepest
from heavydistill.verifiers.normal import EQUAL, NormalForm, compare_numbers, normal_form, plain

MOST_CHARACTERS = 1000
MOST_DEPTH = 25


class Math(Verifier):
    """The verifier ``math``, described in this module's docstring."""

    name = "math"
    version = "7"
    runs_in: ClassVar[Place] = "worker"

    def extract(self, problem: Problem, text: str) -> str | Decision:
        """Return the final answer and, on further lines, earlier boxes that may matter."""
        answer = find(text, marker_of(problem), problem.text)
        reference, _ = _reference(problem)
        if answer is None:
            return Decision("incorrect", "no_answer")
        if answer.doubt == "several_boxes" and answer.earlier and _has_several(reference):
            # Parts (a), (b), ... may be the values of the reference.
            return _candidate(answer, reference)
        if answer.doubt:
            shown = normal_form(answer.answer[:MOST_CHARACTERS]).text or None
            return Decision("undecided", answer.doubt, shown)
        if _is_too_large(answer.answer):
            return Decision("undecided", "too_complex", answer.answer[:MOST_CHARACTERS])
        return _spelled(answer.answer, problem) or _candidate(answer, reference)

    def decide(self, problem: Problem, candidate: str) -> Decision:
        # Importing SymPy takes most of a second, and the main process never needs it.
        from heavydistill.verifiers.mathematics.shape_comparison import AnswerComparison, canonical

        answer, _, earlier = candidate.partition("\n")
        reference, _ = _reference(problem)
        given, wanted = shape_of(answer), shape_of(reference)
        label, reason = AnswerComparison(problem.text).outcome(given, wanted)
        if (
            label == "incorrect"
            and earlier
            and (isinstance(wanted, ValueSet) or isinstance(given, ValueSet))
        ):
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
        if self.is_plain(problem):
            return None
        from heavydistill.verifiers.mathematics.references import fault
        from heavydistill.verifiers.mathematics.shape_comparison import AnswerComparison

        shape, compare = shape_of(reference), AnswerComparison(problem.text).outcome
        for box in _earlier(problem):
            if _is_too_large(box) or compare(shape_of(box), shape) != EQUAL:
                return (
                    f"the reference has boxes with different contents, {box!r} and {reference!r}; "
                    "put the whole answer into one box"
                )
        return fault(shape, problem.text)

    def is_plain(self, problem: Problem) -> bool:
        try:
            reference, form = _reference(problem)
        except ValueError:
            return False
        is_short = len(reference) <= MOST_CHARACTERS
        return is_short and form.value is not None and not _earlier(problem)

    def prepare(self, config: Verifying) -> None:
        # The first comparison of formulas makes SymPy import further modules, and the first unit
        # makes pint read its definitions: on a busy machine more time than a verdict may take.
        self.decide(Problem(id="", text="", reference="x^2+2x+1", verifier="math"), "(x+1)^2")
        units.known("m")


def _is_too_large(answer: str) -> bool:
    return len(answer) > MOST_CHARACTERS or deepest(answer) > MOST_DEPTH


def _spelled(answer: str, problem: Problem) -> Decision | None:
    """The decision if the text of the answer is enough to decide; otherwise None."""
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


def _has_several(reference: str) -> bool:
    return any(mark in reference for mark in (",", ";", "or", "and", r"\pm", "±"))


def _candidate(found: Found, reference: str) -> str:
    # The values of a reference can be spread over several boxes only if there are several.
    earlier = [text[:MOST_CHARACTERS] for text in found.earlier] if _has_several(reference) else []
    return "\n".join((" ".join(found.answer.split()), *earlier))


def _reference(problem: Problem) -> tuple[str, NormalForm]:
    return _answer_in(problem.reference, marker_of(problem), problem.text)[:2]


def _earlier(problem: Problem) -> tuple[str, ...]:
    return _answer_in(problem.reference, marker_of(problem), problem.text)[2]


@lru_cache(maxsize=1024)
def _answer_in(
    reference: str, marker: str | None, text: str
) -> tuple[str, NormalForm, tuple[str, ...]]:
    """The answer in a reference, its normal form, and the contents of boxes before it.

    Raises:
        ValueError: No answer is marked, or the text around the box makes it ambiguous.
    """
    in_box = find(reference, marker, text)
    if in_box is not None and in_box.doubt:
        raise ValueError(
            f"the reference would be undecided as a response ({in_box.doubt}); give only the answer"
        )
    answer = reference_answer(reference, marker) if in_box is None else in_box.answer
    answer = " ".join(answer.split())
    return answer, normal_form(answer), in_box.earlier if in_box else ()

r"""The verifier ``math``: the final answer is worth what the reference is worth.

The final answer is the last ``\boxed{...}`` (with those joined to it), or where there is no box
what follows the problem's marker. It is compared with the reference by what it is: numbers exactly,
formulas at many digits, lists, tuples, sets, intervals, equations, matrices,
ratios, units and words by rules of their own. ``verifier_args`` is described in
``mathematics.arguments``.

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
from heavydistill.verifiers.extraction import reference_answer
from heavydistill.verifiers.mathematics import arguments
from heavydistill.verifiers.mathematics.find import Found, find
from heavydistill.verifiers.mathematics.numbers import Outcome, compare_numbers
from heavydistill.verifiers.mathematics.shape import Many, shape_of
from heavydistill.verifiers.mathematics.surroundings import echoes
from heavydistill.verifiers.mathematics.tokens import deepest
from heavydistill.verifiers.normal import NormalForm, normal_form, plain

MOST_CHARACTERS = 1000
MOST_DEPTH = 25
ECHOED: Outcome = ("undecided", "echoed")


class Math(Verifier):
    """See the module."""

    name = "math"
    version = "4"
    runs_in: ClassVar[Place] = "worker"

    def extract(self, problem: Problem, text: str) -> str | Decision:
        """The final answer, and on further lines what earlier boxes hold if they may matter."""
        args = arguments.read(problem.verifier_args)
        found = find(text, args.marker, problem.text)
        if found is None:
            return Decision("incorrect", "no_answer")
        if found.doubt:
            return Decision("undecided", found.doubt, _shown(found.answer))
        if len(found.answer) > MOST_CHARACTERS or deepest(found.answer) > MOST_DEPTH:
            return Decision("undecided", "too_complex", found.answer[:MOST_CHARACTERS])
        reference = _reference(problem.reference, args.marker)
        return _settled(found.answer, reference, problem) or _candidate(found, reference)

    def decide(self, problem: Problem, candidate: str) -> Decision:
        # SymPy takes most of a second to import; a run's own process never needs it.
        from heavydistill.verifiers.mathematics.compare import AnswerComparison, canonical

        args = arguments.read(problem.verifier_args)
        answer, _, earlier = candidate.partition("\n")
        given = shape_of(answer)
        comparison = AnswerComparison(args, problem.text)
        wanted = shape_of(_reference(problem.reference, args.marker))
        label, reason = comparison.outcome(given, wanted)
        if label == "incorrect" and earlier and isinstance(wanted, Many):
            label, reason = "undecided", "several_boxes"
        if label == "correct" and echoes(
            answer, _reference(problem.reference, args.marker), problem.text
        ):
            label, reason = ECHOED
        return Decision(label, reason, canonical(given, normal_form(answer).text) or None)

    def check_reference(self, problem: Problem) -> str | None:
        try:
            args = arguments.read(problem.verifier_args)
            reference = _reference(problem.reference, args.marker)
        except ValueError as error:
            return str(error)
        if len(reference) > MOST_CHARACTERS or deepest(reference) > MOST_DEPTH:
            return (
                f"the reference has more than {MOST_CHARACTERS} characters or more than "
                f"{MOST_DEPTH} brackets inside each other; shorten it"
            )
        if not _normal_reference(reference).text:
            return "the reference holds no answer; write one"
        if _normal_reference(reference).value is not None:
            return None
        from heavydistill.verifiers.mathematics.compare import fault

        return fault(shape_of(reference))

    def is_plain(self, problem: Problem) -> bool:
        try:
            args = arguments.read(problem.verifier_args)
            reference = _reference(problem.reference, args.marker)
        except ValueError:
            return False
        return len(reference) <= MOST_CHARACTERS and _normal_reference(reference).value is not None

    def prepare(self, config: Verifying) -> None:
        from heavydistill.verifiers.mathematics.compare import AnswerComparison

        # The first formula that SymPy compares costs it further imports.
        AnswerComparison(arguments.Arguments(), "").outcome(
            shape_of("(x+1)^2"), shape_of("x^2+2x+1")
        )


def _settled(answer: str, reference: str, problem: Problem) -> Decision | None:
    """The decision where the spelling alone tells."""
    given, wanted = normal_form(answer), _normal_reference(reference)
    if not given.text:
        return Decision("incorrect", "no_answer")
    if given.value is not None and wanted.value is not None:
        outcome = compare_numbers(answer, reference, (given.value, wanted.value))
        may_echo = outcome[0] == "correct" and plain(answer) != plain(reference)
        if may_echo and echoes(answer, reference, problem.text):
            return Decision(*ECHOED, given.text)
        return Decision(*outcome, given.text)
    return Decision("correct", "equal", given.text) if given == wanted else None


def _candidate(found: Found, reference: str) -> str:
    answer = " ".join(found.answer.split())
    # Only a reference of several values can be spread over several boxes.
    several = any(mark in reference for mark in (",", ";", "or", "and", r"\pm", "±"))
    earlier = found.earlier if several else ()
    return "\n".join((answer, *(text[:MOST_CHARACTERS] for text in earlier)))


def _shown(answer: str) -> str | None:
    return normal_form(answer[:MOST_CHARACTERS]).text or None


@lru_cache(maxsize=1024)
def _normal_reference(reference: str) -> NormalForm:
    return normal_form(reference)


@lru_cache(maxsize=1024)
def _reference(reference: str, marker: str | None) -> str:
    return " ".join(reference_answer(reference, marker).split())

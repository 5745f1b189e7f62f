"""Counts the different final answers of a response, in the form that its verifier reads.

    math        boxes outside code; boxes joined by a comma, "and" or "or" are one answer. Without
                a box, the text after the problem's marker
    exact, judged  boxes; if there is none, the text after the marker
    procedural  boxes
    choice      the options that the response claims, retracted ones included
    code        programs: blocks fenced as Python, else blocks without a language, that define what
                the tests call (or read input, if the tests call nothing); a text without blocks
                that the verifier accepts as a program is one

Equal answers count once: the same number, or the same text apart from typography and blanks; for
``math`` also apart from a name before it (``x = 5``) and a unit after it. Empty boxes do not count.
Other verifiers (``instructions``, a user's own) define no form of a final answer.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

from heavydistill.schema import Problem
from heavydistill.text.extraction import boxes, marker_of, outermost, without_code
from heavydistill.verifiers import registry
from heavydistill.verifiers.base import Decision
from heavydistill.verifiers.choice.claims import claims_in
from heavydistill.verifiers.choice.reading import options_of
from heavydistill.verifiers.code.answer import programs_in
from heavydistill.verifiers.code.formats import task_of
from heavydistill.verifiers.mathematics.find import find
from heavydistill.verifiers.normal import normal_form
from heavydistill.verifiers.screening import THINKING_ENDS

MOST_CHARACTERS = 1000
"""Maximum number of characters of a normalised answer; longer answers are compared literally."""
_NAME = re.compile(r"\s*[A-Za-z](?:_\{?\w{1,3}\}?)?\s*=(?![^=]*=)")
_UNIT = re.compile(
    r"(?<=[\d}])(?:\\[,;:! ]|[\s~]){0,4}(?:\\?%|\^?\{?\\circ\}?"
    r"|\\(?:text|textrm|mathrm|mbox|operatorname)\s*\{[^{}]*\}(?:\^\{?[23]\}?)?)\s*\Z"
)


def final_answers(problem: Problem, answer_text: str) -> int | None:
    """Count the different final answers in a text: 0, 1, or 2 for any higher number.

    None if the problem's verifier defines no form of a final answer.

    Args:
        problem: A problem that its verifier accepts.
        answer_text: Answer text of a response whose verdict is correct.
    """
    text = answer_text.rpartition(THINKING_ENDS)[2]
    if problem.verifier == "math":
        return _mathematical(problem, text)
    if problem.verifier in ("exact", "judged", "procedural"):
        marker = None if problem.verifier == "procedural" else marker_of(problem)
        contents = [box.content(text) for box in outermost(boxes(text)) if box.closes is not None]
        return _different(_marked(text, marker) if marker and not contents else contents)
    if problem.verifier == "choice":
        claims = claims_in(text, options_of(problem.verifier_args))
        return min(2, len({letters for letters in claims.made if letters}))
    if problem.verifier == "code":
        programs = programs_in(text, task_of(problem).names)
        if programs:
            return min(2, len({textwrap.dedent(program).strip() for program in programs} - {""}))
        return int(not isinstance(registry.get("code").extract(problem, text), Decision))
    return None


def _mathematical(problem: Problem, text: str) -> int:
    marker = marker_of(problem)
    answer = find(text, marker, problem.text)
    if answer is None or answer.doubt in ("unclosed_box", "in_code"):
        return 0
    if answer.doubt == "several_boxes":
        return 2
    spoken = without_code(text)
    if marker and not boxes(spoken):
        return _different(_marked(spoken, marker)) or 1
    return _different(map(_bare, [answer.answer, *answer.earlier])) if answer.earlier else 1


def _bare(answer: str) -> str:
    """An answer without the name before it and the unit after it."""
    is_long = len(answer) >= MOST_CHARACTERS
    return answer if is_long else _UNIT.sub("", _NAME.sub("", answer, count=1))


def _marked(text: str, marker: str) -> list[str]:
    return [rest.partition("\n")[0].strip("*_:： ") for rest in text.split(marker)[1:]]


def _different(answers: Iterable[str]) -> int:
    different: set[str] = set()
    for answer in dict.fromkeys(answers):
        is_long = len(answer) > MOST_CHARACTERS
        different.add(answer.strip() if is_long else normal_form(answer).text)
        if len(different - {""}) > 1:
            return 2
    return len(different - {""})

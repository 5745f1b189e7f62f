"""The verifier ``regex``: whether the answer is what a regular expression describes.

The reference is a pattern of Python's ``re`` that must match the whole answer: the content of the
last box, or the whole response if there is none. ``(?i)`` at its beginning ignores case. A pattern
that takes too long on an answer ends the worker, and the verdict is ``undecided timeout``.

    correct    matches
    incorrect  does_not_match
"""

import re

from heavydistill.schema import Problem
from heavydistill.text.extraction import boxed
from heavydistill.verifiers.base import Decision, Verifier


class Regex(Verifier):
    """The verifier ``regex``, described in this module's docstring."""

    name = "regex"
    version = "1"
    # Other answers than the reference are right, so no judge may compare them with it.
    accepts_others = True

    def check_reference(self, problem: Problem) -> str | None:
        try:
            pattern = re.compile(problem.reference)
        except (re.error, RecursionError, OverflowError) as error:
            return f"the reference is no regular expression: {error}; correct it"
        if pattern.fullmatch(""):
            return "the reference matches the empty text; write what an answer must contain"
        return None

    def extract(self, problem: Problem, text: str) -> str | Decision:
        found = boxed(text)
        return (text if found is None else found).strip()

    def decide(self, problem: Problem, candidate: str) -> Decision:
        if re.fullmatch(problem.reference, candidate):
            return Decision("correct", "matches", candidate)
        return Decision("incorrect", "does_not_match", candidate)

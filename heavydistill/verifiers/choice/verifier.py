"""The verifier ``choice``: the response names the letter of the right option, and no other.

An option is named by its letter or by its whole text. The module ``claims`` finds claims in boxes,
in ``<answer>`` tags and after words such as "the answer is" or 答案. If there is no claim, the
whole response counts if it is a letter or the text of an option. There is no fallback to the last
line or the last letter of the text, because a guess would count as an answer.

Verdicts, by reason:

    correct    equal         the response claims the right option
    incorrect  different     it claims another option
    incorrect  hedged        it claims several options at once
    undecided  conflict      its claims differ, or it says that another option may be right too
    undecided  retracted     it retracts its last claim
    undecided  unclear       its last claim has two readings, e.g. the letter of one option with the
                             text of another, or several letters that one option may refer to
    undecided  no_option     its last claim is neither the letter nor the text of an option
    undecided  no_answer     it claims nothing
    undecided  too_complex   more than ``claims.MOST_CLAIMS`` claims, or more than
                             ``MOST_CHARACTERS`` in all

The arguments are ``{"options": [...]}``: the texts in the order shown, or the number of options if
only the problem's text has them. ``problems.options`` writes them, together with the order of the
dataset. The reference is the letter of the right option.

Not covered: questions with several right options; options described in other words; phrases of
claims in languages other than English and Chinese.
"""

from __future__ import annotations

import json
from typing import ClassVar

from heavydistill.schema import Problem
from heavydistill.verifiers.base import Decision, Place, Verifier
from heavydistill.verifiers.choice.claims import claims_in
from heavydistill.verifiers.choice.reading import SPEAKS_OF_OTHERS, options_of

MOST_CLAIMS_SHOWN = 10
# Reading takes linear time, but runs in the main process.
MOST_CHARACTERS = 300_000


class Choice(Verifier):
    """The verifier ``choice``, described in this module's docstring."""

    name = "choice"
    version = "7"
    runs_in: ClassVar[Place] = "here"
    argument_columns: ClassVar[tuple[str, ...]] = ("options",)

    def extract(self, problem: Problem, text: str) -> str | Decision:
        if len(text) > MOST_CHARACTERS:
            return Decision("undecided", "too_complex")
        options = options_of(problem.verifier_args)
        claims = claims_in(text, options)
        doubt = claims.doubt
        if len(claims.letters) == 1:
            if claims.letters[0] in options.letters:
                return claims.letters[0]
            # The text of an option may itself be a letter: the force F, the symbol K.
            doubt = "no_option"
        elif claims.letters:
            text_of_options = "" if options.texts else problem.text
            if not options.speak_of_others and not SPEAKS_OF_OTHERS.search(text_of_options):
                return Decision("incorrect", "hedged", ",".join(claims.letters))
            doubt = "unclear"
        shown = ["".join(letters) or "?" for letters in claims.made[-MOST_CLAIMS_SHOWN:]]
        evidence = json.dumps({"claims": shown}) if shown else ""
        return Decision("undecided", doubt, evidence=evidence)

    def decide(self, problem: Problem, candidate: str) -> Decision:
        if candidate == problem.reference.strip():
            return Decision("correct", "equal", candidate)
        return Decision("incorrect", "different", candidate)

    def check_reference(self, problem: Problem) -> str | None:
        try:
            options = options_of(problem.verifier_args)
        except ValueError as error:
            return str(error)
        reference = problem.reference.strip()
        if len(reference) != 1 or reference not in options.letters:
            return (
                f"the reference {problem.reference[:40]!r} is not a letter from A to "
                f"{options.letters[-1]}; write the letter of the right option"
            )
        return None

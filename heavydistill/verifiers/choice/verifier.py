r"""The verifier ``choice``: the response names the letter of the right option, and no other.

An option is named by its letter or by its whole text. What a response claims is found in boxes and
``<answer>`` tags and behind words such as "the answer is" or 答案 (``claims``); where there is none
of these, a response that is a letter or a text and nothing more. There is no fallback to a last
line or to the last letter in the text: a guess would count as an answer.

Verdicts, by reason:

    correct    equal         it claims the right option
    incorrect  different     it claims another option
    incorrect  hedged        it claims several options at once
    undecided  conflict      it claims different options, or says that another may be right too
    undecided  retracted     it takes its last claim back
    undecided  unclear       its last claim can be read in two ways, e.g. one option's letter with
                             another one's text, or several letters where an option may mean them
    undecided  no_option     its last claim is neither an option's letter nor its text
    undecided  no_answer     it claims nothing
    undecided  too_complex   more than ``claims.MOST_CLAIMS`` claims, or more than
                             ``MOST_CHARACTERS`` in all

The arguments are ``{"options": [...]}``: their texts in the order shown, or their number where they
stand in the problem alone. ``problems.options`` writes them, and the order of the dataset beside
them. The reference is the letter of the right option.

Not covered: questions with several right options; an option that is described in other words;
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
# Reading is linear, but it is done in the run's own process.
MOST_CHARACTERS = 300_000


class Choice(Verifier):
    """See the module."""

    name = "choice"
    version = "6"
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
            # It may be meant as what an option says: the force F, the symbol K.
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
                f"the reference {problem.reference[:40]!r} is no letter from A to "
                f"{options.letters[-1]}; write the letter of the right option"
            )
        return None

"""The verifier ``instructions``: whether a response follows every instruction of its problem.

``verifier_args`` name the instructions (``demands``); the score is the share of them that are
followed, and the evidence says of each whether it is (null: cannot be told). A problem may set
``"mode": "loose"``: an instruction is then followed too if it is by the response without its
first line, its last line or both, or by one of these without asterisks, so that "Sure, here it
is:" and bold type do no harm. The prompt itself is not read, and there is no reference.

Verdicts, by reason:

    correct    followed      every instruction
    incorrect  not_followed  at least one is not
    undecided  cannot_tell   of at least one the rules cannot tell, and the rest is followed
    undecided  too_long      more than ``MOST_CHARACTERS``

Not covered: whether the response answers the prompt; instructions outside the 25.
"""

from __future__ import annotations

import json
from functools import cached_property
from importlib import metadata

from heavydistill.config.run import Verifying
from heavydistill.schema import Problem
from heavydistill.verifiers.base import Decision, Verifier
from heavydistill.verifiers.instructions import language
from heavydistill.verifiers.instructions.demands import COLUMNS, Demand, from_args

MOST_CHARACTERS = 200_000


class Instructions(Verifier):
    """See the module."""

    name = "instructions"
    argument_columns = COLUMNS
    needs_reference = False
    # Nothing else may ask for a box, which the instructions may forbid.
    domain = "general"

    @cached_property
    def version(self) -> str:
        return f"2-langdetect-{metadata.version('langdetect')}"

    def extract(self, problem: Problem, text: str) -> str | Decision:
        if len(text) > MOST_CHARACTERS:
            return Decision("undecided", "too_long")
        return text.replace("\r\n", "\n").strip()

    def decide(self, problem: Problem, candidate: str) -> Decision:
        demands = from_args(problem.verifier_args)
        texts = variants(candidate) if demands.is_loose else [candidate]
        met = {demand.name: _is_met_by_any(demand, texts) for demand in demands.all}
        evidence = json.dumps(met)
        score = sum(map(bool, met.values())) / len(met)
        if all(met.values()):
            return Decision("correct", "followed", score=score, evidence=evidence)
        if False in met.values():
            return Decision("incorrect", "not_followed", score=score, evidence=evidence)
        return Decision("undecided", "cannot_tell", score=score, evidence=evidence)

    def prepare(self, config: Verifying) -> None:
        language.factory()

    def check_reference(self, problem: Problem) -> str | None:
        try:
            from_args(problem.verifier_args)
        except ValueError as error:
            return str(error)
        return None


def variants(text: str) -> list[str]:
    """The texts of which one has to follow an instruction in loose mode, ``text`` first.

    Up to eight: with or without the first line, the last line and asterisks; none is blank.
    """
    lines = text.split("\n")
    cut = [text, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    plain = [part.replace("*", "") for part in cut]
    return [part for part in dict.fromkeys(cut + plain) if part.strip()]


def _is_met_by_any(demand: Demand, texts: list[str]) -> bool | None:
    unsure = False
    for text in texts:
        met = demand.is_met(text)
        if met:
            return True
        unsure = unsure or met is None
    return None if unsure else False

"""Math-Verify as it comes, as a verifier of one's own; see ``verdicts.py``.

Nothing stands before it: no rules for what may be compared and no bound on how long that takes.
Its own alarm clocks are off by default, because they need the main thread and a signal handler.
"""

from __future__ import annotations

import logging

from math_verify import parse, verify

from heavydistill.config.run import Verifying
from heavydistill.schema import Problem
from heavydistill.verifiers.base import Decision, Verifier

logging.getLogger("math_verify").setLevel(logging.ERROR)  # that its alarm clocks are off


def is_right(reference: str, response: str, timeout_s: int | None = None) -> bool:
    """What Math-Verify says, reading both texts with its default settings."""
    gold, given = (parse(text, parsing_timeout=timeout_s) for text in (reference, response))
    return bool(verify(gold, given, timeout_seconds=timeout_s))


class BareMathVerify(Verifier):
    name = "bare_math_verify"
    version = "1"

    def extract(self, problem: Problem, text: str) -> str | Decision:
        return text

    def decide(self, problem: Problem, candidate: str) -> Decision:
        right = is_right(problem.reference, candidate)
        return Decision("correct" if right else "incorrect", "told")

    def prepare(self, config: Verifying) -> None:
        is_right("$x+1$", "$1+x$")

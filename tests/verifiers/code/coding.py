"""Judging answers that hold programs, with little time so that loops end soon."""

import json
from typing import Any

from heavydistill.config.run import Sandboxing, Verifying
from heavydistill.schema import Problem
from heavydistill.verifiers.base import Decision
from heavydistill.verifiers.code import Code

LITTLE: dict[str, Any] = {"test_s": 0.5, "total_s": 5.0, "memory_mb": 192}
SQUARES = ["assert f(2) == 4", "assert f(3) == 9"]


def problem(text: str = "Write it.", **args: Any) -> Problem:
    """A problem with these ``verifier_args``."""
    return Problem(id="p", text=text, reference="", verifier="code", verifier_args=json.dumps(args))


def fenced(program: str) -> str:
    return f"Here it is:\n```python\n{program}\n```\n"


def decision(asked: Problem, text: str, **sandboxing: Any) -> Decision:
    """What the verifier says of an answer, in this process."""
    code = Code()
    code.prepare(Verifying(sandbox=Sandboxing(**{**LITTLE, **sandboxing})))
    found = code.extract(asked, text)
    return found if isinstance(found, Decision) else code.decide(asked, found)


def said(program: str, **args: Any) -> tuple[str, str]:
    """Label and reason of a program, in a fence; of the squares where no tests are given."""
    found = decision(problem(**(args or {"asserts": SQUARES})), fenced(program))
    return found.label, found.reason

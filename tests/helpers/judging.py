"""The verdict on a text in this process, without workers."""

from __future__ import annotations

from heavydistill.schema import Problem, Verdict
from heavydistill.verifiers.settle import Open, decided, settle


def judged(problem: Problem, text: str) -> Verdict:
    """What a run would say of a finished response, but for time and memory limits."""
    found = settle(problem, text)
    return decided(found) if isinstance(found, Open) else found

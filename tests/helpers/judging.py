"""The verdict on a text in this process, without workers."""

from heavydistill.schema import Problem, Verdict
from heavydistill.verifiers.screening import Candidate, decide, screen


def judged(problem: Problem, text: str) -> Verdict:
    """What a run would say of a finished response, but for time and memory limits."""
    screened = screen(problem, text)
    return decide(screened) if isinstance(screened, Candidate) else screened

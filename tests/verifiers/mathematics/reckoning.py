"""Problems of the math verifier as tests pose them, and what it says of a response."""

import json

from judging import judged

from heavydistill.schema import Problem


def problem(reference: str, text: str = "?", **args: object) -> Problem:
    return Problem(
        id="p", text=text, reference=reference, verifier="math", verifier_args=json.dumps(args)
    )


def outcome(reference: str, response: str, text: str = "?", **args: object) -> tuple[str, str]:
    verdict = judged(problem(reference, text, **args), response)
    return verdict.label, verdict.reason


def boxed(answer: str) -> str:
    return rf"So the answer is $\boxed{{{answer}}}$."

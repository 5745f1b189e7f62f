"""Problems of the math verifier as tests pose them, and what it says of a response.

Tables hold many short texts: ``¦`` parts them, ``‖`` the two of a pair, ``□`` is a box of 5 and
``⏎`` a new line.
"""

from __future__ import annotations

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


def texts(table: str) -> list[str]:
    cells = (cell.strip() for line in table.strip().splitlines() for cell in line.split("¦"))
    return [cell.replace("□", r"\boxed{5}").replace("⏎", "\n") for cell in cells]


def pairs(table: str) -> list[tuple[str, str]]:
    found = (text.split("‖") for text in texts(table))
    return [(reference.strip(" "), answer.strip(" ")) for reference, answer in found]

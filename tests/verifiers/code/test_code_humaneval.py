"""The 20 recorded HumanEval tasks, their reference solutions and 20 completions of each."""

from typing import Any

import pytest
from coding import decision, fenced, problem
from recorded_rows import rows

from heavydistill.config.run import Sandboxing
from heavydistill.sandbox import Limits, open_sandbox
from heavydistill.verifiers.base import Decision

NUMBERS = range(20)
pytestmark = pytest.mark.usefixtures("works", "nothing_left")


def task(number: int) -> dict[str, Any]:
    return rows("humaneval_20.jsonl")[number]


def judged(row: dict[str, Any], answer: str) -> Decision:
    asked = problem(row["prompt"], test=row["test"], entry_point=row["entry_point"])
    return decision(asked, answer, test_s=2.0, memory_mb=256)


def passes(row: dict[str, Any], completion: str) -> bool:
    """Whether the tests' own ``check`` accepts it: all in one program, which is trusted here."""
    parts = [row["prompt"] + completion, row["test"], f"check({row['entry_point']})"]
    program = "\n".join([*parts, "print('every assertion held')"])
    limits = Limits(cpu_s=4, wall_s=120, memory_mb=256, output_bytes=1 << 20)
    ran = open_sandbox(Sandboxing()).run({"main.py": program}, limits)
    assert ran.ended != "unavailable", ran.stderr
    return ran.ended == "exit" and ran.stdout.endswith(b"every assertion held\n")


@pytest.mark.parametrize("number", NUMBERS)
def test_a_reference_solution_is_correct(number):
    row = task(number)
    whole = row["prompt"] + row["canonical_solution"]
    for answer in (row["canonical_solution"], fenced(whole), whole):
        found = judged(row, answer)
        assert (found.label, found.score) == ("correct", 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("number", NUMBERS)
def test_recorded_completions_get_the_verdict_of_the_benchmark(number):
    row = task(number)
    samples = {found["task_id"]: found for found in rows("humaneval_20_samples_k20.jsonl")}
    for completion in samples[row["task_id"]]["samples"]:
        found = judged(row, completion)
        right = passes(row, completion)
        if found.label == "undecided":
            assert found.reason in ("missing_module", "no_code") and not right
        else:
            assert (found.label == "correct") is right, completion

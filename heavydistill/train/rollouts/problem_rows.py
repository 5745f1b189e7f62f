"""The rows of a training or an evaluation that have a prompt and the problem to judge it by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heavydistill.models.request import conversation
from heavydistill.schema import Problem, Turn, turns_as_json

PROBLEM_COLUMNS = ("problem", "text", "reference", "verifier", "verifier_args")
"""Columns of a row with the fields of its problem; the first column is the problem's id."""


def problem_row(problem: Problem, prompt: str) -> dict[str, object]:
    """Return a row with a problem and its prompt, for training or evaluation."""
    values = (problem.id, problem.text, problem.reference, problem.verifier, problem.verifier_args)
    columns = dict(zip(PROBLEM_COLUMNS, values, strict=True))
    return {"prompt": conversation(prompt, problem.history), **columns}


def problem_of(row: Mapping[str, Any]) -> Problem:
    """Return the problem of a row that ``problem_row`` made, with the turns before its prompt."""
    fields = {name: row[name] for name in PROBLEM_COLUMNS[1:]}
    before = [Turn(role=turn["role"], text=turn["content"]) for turn in row["prompt"][:-1]]
    history = turns_as_json(before) if before else ""
    return Problem(
        id=row["problem"], domain=row.get("domain") or "", history_json=history, **fields
    )

"""Rows of public benchmarks whose columns are not our fields one by one, put into such columns.

    gpqa           the question, and the right answer and three wrong ones each in a column of its
                   own. The right one is put in a place among the options that is drawn from the
                   question: options that must keep the order of the dataset would else all be led
                   by the right one
    livecodebench  the starter code, which belongs to the text, and the function's name, which
                   stands in the JSON text of ``metadata``. The columns with tests stay as they are;
                   the verifier ``code`` reads them

Columns that a shape does not speak of are left as they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from heavydistill.config.run import Shape
from heavydistill.errors import ProblemsError
from heavydistill.problems.tables import TableRow, choices

_RIGHT = "Correct Answer"
_WRONG = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
_READS_STDIN = "Write a program that reads standard input and writes standard output."
_COMPLETES = "The program completes this code:"


def shaped(row: TableRow, shape: Shape) -> TableRow:
    """The row with columns that can be mapped.

    Raises:
        ProblemsError: It is not of that shape.
    """
    return replace(row, values={**row.values, **_SHAPES[shape](row)})


def _gpqa(row: TableRow) -> dict[str, Any]:
    question = _text(row, "Question", "gpqa")
    options = [_text(row, column, "gpqa") for column in _WRONG]
    place = hashlib.sha256(question.encode("utf-8", "replace")).digest()[0] % (len(_WRONG) + 1)
    options.insert(place, _text(row, _RIGHT, "gpqa"))
    return {"text": question, "options": options, "reference": place}


def _livecodebench(row: TableRow) -> dict[str, Any]:
    question, starter = (
        _text(row, column, "livecodebench") for column in ("question_content", "starter_code")
    )
    try:
        metadata = json.loads(_text(row, "metadata", "livecodebench") or "{}")
        name = metadata.get("func_name")
    except (ValueError, AttributeError, RecursionError) as error:
        raise ProblemsError(
            f"{row.where}: metadata is not the JSON text of an object", "Correct the row."
        ) from error
    if not starter.strip():
        return {"text": f"{question.rstrip()}\n\n{_READS_STDIN}"}
    told = f"{question.rstrip()}\n\n{_COMPLETES}\n\n```python\n{starter.strip()}\n```"
    in_class = "Solution." if "class Solution" in starter else ""
    return {"text": told, "entry_point": name and f"{in_class}{name}"}


def _text(row: TableRow, column: str, shape: Shape) -> str:
    """The text in a column; a number is its text."""
    if column not in row.values:
        raise ProblemsError(
            f"{row.where}: there is no column {column!r}, which rows of the shape {shape} have",
            choices(column, row.values, "Columns of this row"),
        )
    value = row.values[column]
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise ProblemsError(
        f"{row.where}: column {column!r} holds {type(value).__name__}, not text",
        "Write it as a string.",
    )


_SHAPES: dict[Shape, Callable[[TableRow], dict[str, Any]]] = {
    "gpqa": _gpqa,
    "livecodebench": _livecodebench,
}

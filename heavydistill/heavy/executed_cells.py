"""The code that an attempt ran, and its outputs, as a cache shows them: in fenced blocks."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from heavydistill.errors import encodable
from heavydistill.schema import Generation, ToolCall

PYTHON = "python"  # name of the tool


@dataclass(frozen=True, slots=True)
class ExecutedCell:
    """Code that was executed, and what it printed."""

    code: str
    output: str


def code_of(call: ToolCall) -> tuple[str, str]:
    """(code, error) of a call, one of which is empty."""
    if call.name != PYTHON:
        return "", "unknown_tool"
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = None
    code = arguments.get("code") if isinstance(arguments, dict) else None
    if not isinstance(code, str) or not code.strip():
        return "", "bad_arguments"
    return encodable(code), ""


def cells_of(generation: Generation) -> list[ExecutedCell]:
    """The cells that a generation ran, in order; calls that could not be run are none."""
    turns = generation.turns
    results = iter([turn for turn in turns if turn.role == "tool"])
    calls = [call for turn in turns for call in turn.calls]
    pairs = ((code_of(call)[0], result.text) for call, result in zip(calls, results, strict=False))
    return [ExecutedCell(code, output) for code, output in pairs if code]


def shown(cells: Sequence[ExecutedCell]) -> str:
    """The blocks of all cells."""
    return "\n".join(
        f"{fenced_block('python', cell.code)}\n{fenced_block('output', cell.output)}"
        for cell in cells
    )


def fenced_block(name: str, text: str) -> str:
    """A block fenced by more backticks than its text holds."""
    ticks = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{ticks}{name}\n{text}\n{ticks}"

"""Finds out how a served model can call a tool; see ``heavy.tools``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from heavydistill.config.run import PythonTool
from heavydistill.doctor import Finding
from heavydistill.heavy.executed_cells import PYTHON, code_of
from heavydistill.heavy.prompts import load, on_tools, thinker_prompt
from heavydistill.heavy.tools import STOP, fenced, parameters_of
from heavydistill.models.request import Message, Response, user_turn
from heavydistill.schema import Turn

Way = Literal["server", "fence", "none"]
Ask = Callable[[list[Message], dict[str, Any]], Response | str]
"""Sends messages with parameters; returns the response, or why it was refused."""

_SUM = f"Compute 7919 * 7907 with the tool {PYTHON}: call it at once, and do not guess."
_CHECK = "tool calls"
_FIX = (
    "Start vLLM with --enable-auto-tool-choice and the --tool-call-parser of the model, use "
    "another model, or leave out --tools."
)


def way_of_calls(ask: Ask) -> tuple[Way, Finding]:
    """Ask for a call in each form until one works."""
    why = _not_by_server(ask)
    if not why:
        return "server", Finding(_CHECK, "ok", "by the server's tool calls, which the run uses")
    prompt = on_tools(load("thinker", "general", "en"), "fence")
    more = parameters_of(PythonTool(calls="fence"))
    answer = ask(user_turn(thinker_prompt(_SUM, prompt)), more)
    text = answer if isinstance(answer, str) else answer.answer_text
    if isinstance(answer, str) or not fenced(text, "call")[1]:
        beside = f"refused: {text}" if isinstance(answer, str) else "it wrote no block to execute"
        return "none", Finding(_CHECK, "failure", f"none: {why}; {beside}", _FIX)
    found = f"by blocks in the text, which the run uses, because {why}"
    if STOP not in text:
        return "fence", Finding(_CHECK, "ok", found)
    fix = "What it invents after a block is dropped, and billed. Use a server that obeys stop."
    return "fence", Finding(_CHECK, "warning", f"{found}; the server ignores stop", fix)


def _not_by_server(ask: Ask) -> str:
    """Why the server's tool calls do not work; empty if they do."""
    more = parameters_of(PythonTool(calls="server"))
    answer = ask(user_turn(_SUM), more)
    if isinstance(answer, str):
        return f"the server refuses tools: {answer}"
    if not answer.calls or not code_of(answer.calls[0])[0]:
        return "the server returned no tool call"
    asked = Turn(role="assistant", text=answer.answer_text, calls=[*answer.calls])
    results = [Turn(role="tool", text="62615533", result_of=call.id) for call in answer.calls]
    messages = [*user_turn(_SUM), *(turn.message for turn in (asked, *results))]
    again = ask(messages, more)
    return f"the server refuses the result of a call: {again}" if isinstance(again, str) else ""

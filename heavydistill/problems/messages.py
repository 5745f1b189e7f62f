"""Reads a conversation so far from a column of messages; its last turn is the problem's text.

A message has the form of OpenAI's: ``role``, ``content`` (text), and where they apply
``reasoning_content``, ``tool_calls`` and ``tool_call_id``.

Not covered: contents that are not text, such as images.
"""

from __future__ import annotations

import json
from typing import Any, get_args

from heavydistill.config.files import json_of
from heavydistill.errors import ProblemsError
from heavydistill.schema import Role, ToolCall, Turn, turns_as_json

# Key of a message, and the field of a turn.
_KEYS = {
    **{"role": "role", "content": "text", "reasoning_content": "thinking"},
    **{"tool_calls": "calls", "tool_call_id": "result_of"},
}
_FORM = 'Write a list of messages, e.g. [{"role": "user", "content": "6 + 1?"}].'
# Fix for a conversation that does not end with a turn of the user, by the role of its last turn.
_ENDS = {
    "assistant": "Leave the last answer out, because the models answer the turn before it.",
    "tool": "Leave the tool's result and its call out, or add the turn of the user that follows.",
    "system": "Add the turn of the user.",
    "user": "Fill it in.",
}


def read_messages(value: object, column: str) -> tuple[str, str]:
    """Return the fields ``text`` and ``history_json`` of a problem.

    Raises ProblemsError, without the place of the row.
    """
    try:
        messages = json_of(value) if isinstance(value, str) else value
    except ValueError:
        messages = None
    if not isinstance(messages, list) or not messages:
        raise ProblemsError(f"column {column!r} holds no list of messages", _FORM)
    turns: list[Turn] = []
    waiting: set[str] = set()  # ids of the calls without a result
    for number, message in enumerate(messages, 1):
        turn = _turn(message, where := f"message {number} of column {column!r}")
        if turn.role == "system" and turns:
            raise ProblemsError(f"{where} has the role system", "Make it the first message.")
        is_result = turn.role == "tool" and turn.result_of in waiting
        if is_result != bool(waiting) or is_result != (turn.role == "tool"):
            fix = "Let the messages after tool calls be their results, with their tool_call_id."
            raise ProblemsError(f"{where} is out of order with the tool calls", fix)
        waiting = waiting - {turn.result_of} | {call.id for call in turn.calls}
        turns.append(turn)
    *history, last = turns
    if last.role != "user" or not last.text.strip():
        end = "its last one is empty" if last.role == "user" else f"ends with role {last.role}"
        what = f"column {column!r} must end with a text of the user, and {end}"
        raise ProblemsError(what, _ENDS[last.role])
    if any("\ud800" <= sign <= "\udfff" for sign in turns_as_json(turns)):
        what = f"column {column!r} holds half a character (a lone surrogate)"
        raise ProblemsError(what, "Save the text as valid Unicode.")
    return last.text, turns_as_json(history)


def _turn(message: object, where: str) -> Turn:
    """Read a message; ``where`` names it in a ProblemsError."""
    given = {k: v for k, v in message.items() if v is not None} if isinstance(message, dict) else {}
    given.setdefault("content", "")  # a message with tool calls needs none
    if given.get("role") not in get_args(Role):
        raise ProblemsError(f"{where} has no role of {', '.join(get_args(Role))}", _FORM)
    if strange := given.keys() - _KEYS:
        what = f"{where} has {', '.join(sorted(map(str, strange)))}, which is not sent"
        raise ProblemsError(what, "Leave it out.")
    try:
        calls = [
            ToolCall(id=call["id"], name=call["function"]["name"], arguments=_arguments(call))
            for call in given.pop("tool_calls", [])
        ]
        texts = [*given.values(), *(text for call in calls for text in (call.id, call.name))]
    except (KeyError, TypeError):
        texts = [None]
    if not all(isinstance(text, str) for text in texts):
        fix = "Write contents and ids as text, and tool calls as in OpenAI's API."
        raise ProblemsError(f"{where} has a value of another form", fix)
    return Turn(calls=calls, **{_KEYS[key]: text for key, text in given.items()})


def _arguments(call: Any) -> str:
    given = call["function"]["arguments"]
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)

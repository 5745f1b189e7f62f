"""Assembles the tool calls of a reply, which come whole or in pieces.

The pieces of a call share an index. Servers that leave it out, or send several calls under one
index, begin a call with its name or another id. A call without an id gets one, because the next
request names it.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import Any

from heavydistill.errors import encodable
from heavydistill.schema import ToolCall


@dataclass(slots=True)
class _Call:
    """The received part of a call."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


class CallPieces:
    """The received part of the tool calls of one choice."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._last: dict[int | None, _Call] = {}  # call that a piece with this index belongs to
        self.texts: list[str] = []  # names and arguments, as they came
        self.is_broken = False  # whether something came that is no part of a call

    def whole(self) -> tuple[ToolCall, ...]:
        """The calls, in order, once all has arrived."""
        return tuple(
            ToolCall(
                id=encodable(call.id) or f"call_{uuid.uuid4().hex}",
                name=encodable(call.name),
                arguments=encodable("".join(call.arguments)) or "{}",
            )
            for call in self._calls
        )

    def add(self, pieces: object) -> int:
        """Add the ``tool_calls`` of a message, or of a piece of one; returns their characters."""
        before = len(self.texts)
        for piece in pieces if isinstance(pieces, list) else [pieces]:
            self.is_broken |= not self._add(piece)
        return sum(map(len, self.texts[before:]))

    def _add(self, piece: Any) -> bool:
        """Add a piece of one call; whether it is one."""
        function = piece.get("function") if isinstance(piece, dict) else None
        if not isinstance(function, dict):
            return False
        index, id, name = piece.get("index"), piece.get("id") or "", function.get("name") or ""
        arguments = function.get("arguments") or ""
        if isinstance(arguments, dict):  # which should be a text
            arguments = json.dumps(arguments, ensure_ascii=False)
        is_text = all(isinstance(each, str) for each in (id, name, arguments))
        if not is_text or not isinstance(index, int | None):
            return False
        call = self._last.get(index)
        if call is None or (id and call.id and id != call.id) or (index is None and name):
            call = self._last[index] = _Call()
            self._calls.append(call)
        call.id, call.name = call.id or id, call.name or name
        call.arguments.append(arguments)
        self.texts += [name, arguments]
        return bool(call.name)

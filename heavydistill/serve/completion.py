"""Writes an answer as a chat completion.

A stream begins with the role. Reasoning is sent under the two names that clients read, tool calls
whole, and the usage in a last chunk without choices.
"""

from __future__ import annotations

import json
import time
import uuid
from typing import Any

from heavydistill.serve.episode import ServedAnswer, ServedChoice
from heavydistill.serve.replies import Texts
from heavydistill.serve.request import ApiError, Asked

_DONE = b"data: [DONE]\n\n"


class CompletionForm:
    """The form of ``/v1/chat/completions``, for one request."""

    def __init__(self, asked: Asked) -> None:
        self.id = f"chatcmpl-{uuid.uuid4().hex}"
        self._wants_usage = asked.wants_usage
        self._about = {"id": self.id, "created": int(time.time()), "model": asked.model}

    def whole(self, answer: ServedAnswer, texts: Texts) -> dict[str, object]:
        choices = [
            {
                "index": number,
                "finish_reason": choice.finish_reason,
                "message": {
                    "role": "assistant",
                    "content": "",
                    **_message(*texts[number]),
                    **_calls(choice),
                },
            }
            for number, choice in enumerate(answer.choices)
        ]
        more = {"choices": choices, "usage": answer.usage, "heavy": answer.heavy}
        return {**self._about, "object": "chat.completion", **more}

    def begin(self, choices: int) -> bytes:
        return self._chunk({n: {"role": "assistant", "content": ""} for n in range(choices)})

    def news(self, texts: Texts) -> bytes:
        return self._chunk({number: _message(*each) for number, each in texts.items()})

    def end(self, answer: ServedAnswer) -> bytes:
        ends = {number: each.finish_reason for number, each in enumerate(answer.choices)}
        calls = {n: _calls(each, True) for n, each in enumerate(answer.choices) if each.calls}
        end = self._chunk(calls) if calls else b""
        end += self._chunk({number: {} for number in ends}, ends, heavy=answer.heavy)
        if self._wants_usage:
            end += self._chunk({}, usage=answer.usage)
        return end + _DONE

    def failure(self, error: ApiError) -> bytes:
        return _event(error.body) + _DONE

    def _chunk(
        self, deltas: dict[int, Any], ends: dict[int, Any] | None = None, **more: object
    ) -> bytes:
        choices = [
            {"index": number, "delta": delta, "finish_reason": (ends or {}).get(number)}
            for number, delta in deltas.items()
        ]
        kind = {"object": "chat.completion.chunk"}
        return _event({**self._about, **kind, "choices": choices, **more})


def _message(reasoning: str, content: str) -> dict[str, str]:
    """The texts of a message or delta that are not empty."""
    names = {"reasoning": reasoning, "reasoning_content": reasoning, "content": content}
    return {name: text for name, text in names.items() if text}


def _calls(choice: ServedChoice, is_delta: bool = False) -> dict[str, object]:
    """The tool calls as a part of a message, or of a delta; empty if there are none."""
    calls = [
        {**({"index": index} if is_delta else {}), **call.message}
        for index, call in enumerate(choice.calls)
    ]
    return {"tool_calls": calls} if calls else {}


def _event(body: dict[str, object]) -> bytes:
    return f"data: {json.dumps(body)}\n\n".encode()

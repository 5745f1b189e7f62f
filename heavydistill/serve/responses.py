"""The Responses API: its requests as chat completions, and answers in its form.

Progress and thinking are the summary of a reasoning item, the answer is a message, and tool calls
are items of their own. Earlier responses are not kept, so a request brings its whole conversation.

Not covered: several choices; items other than messages, reasoning, and calls of functions with
their results; tools other than functions. They are refused by name.
"""

from __future__ import annotations

import json
import time
import uuid
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from heavydistill.schema import ToolCall
from heavydistill.serve.episode import ServedAnswer
from heavydistill.serve.replies import Texts
from heavydistill.serve.request import (
    NEUTRAL,
    ApiError,
    Asked,
    Body,
    ChatBody,
    HeavyOptions,
    joined,
    parsed,
)

_SAME = (
    *("model", "stream", "temperature", "top_p", "heavy"),
    *("metadata", "user", "safety_identifier", "prompt_cache_key", "parallel_tool_calls"),
)
_TEXTS = ("input_text", "output_text", "text")
# Of each kind of item: prefix of its id, name of its parts, kind of a part, and what events of a
# part and of its text begin with.
_ITEMS = {
    "reasoning": ("rs", "summary", "summary_text", "reasoning_summary_part", "reasoning_summary"),
    "message": ("msg", "content", "output_text", "content_part", "output"),
}


class _Tool(Body):
    type: Literal["function"]
    name: str = Field(min_length=1)
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _Text(Body):
    format: dict[str, Any] | None = None


def _as_items(value: object) -> object:
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


class _ResponseBody(Body):
    neutral: ClassVar = {
        **{name: NEUTRAL[name] for name in ("tools", "tool_choice", "service_tier", "store")},
        **{"top_logprobs": NEUTRAL["top_logprobs"]},
        **{"include": ([],), "truncation": ("disabled",), "background": (False,)},
        "reasoning": ({}, *({"summary": length} for length in ("auto", "concise", "detailed"))),
        "text": ({}, {"format": {"type": "text"}}),
        "stream_options": ({}, {"include_obfuscation": False}),
    }
    model: str
    input: Annotated[list[dict[str, Any]], Field(min_length=1), BeforeValidator(_as_items)]
    instructions: str = ""
    stream: bool = False
    max_output_tokens: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    tools: list[_Tool] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    text: _Text | None = None
    heavy: HeavyOptions = Field(default_factory=HeavyOptions)
    metadata: dict[str, Any] = Field(default_factory=dict)
    user: str = ""
    safety_identifier: str = ""
    prompt_cache_key: str = ""


def read_response_request(data: bytes) -> ChatBody:
    """Read a body as that of a chat completion. Raises ApiError for what is not supported."""
    body = parsed(data, _ResponseBody)
    if (body.heavy.d or 1) > 1:
        message = "The parameter heavy.d is wrong: a response has one choice. Ask chat completions."
        raise ApiError(400, message, "heavy.d")
    given = {name: getattr(body, name) for name in _SAME if name in body.model_fields_set}
    more: dict[str, Any] = {"messages": _messages(body)}
    more["max_completion_tokens"] = body.max_output_tokens
    if body.tools:
        more["tools"] = [_nested(tool.model_dump(exclude_unset=True)) for tool in body.tools]
    if choice := body.tool_choice:
        more["tool_choice"] = _nested(choice) if isinstance(choice, dict) else choice
    if body.text and (form := body.text.format):
        is_schema = form.get("type") == "json_schema"
        more["response_format"] = _nested(form, "json_schema") if is_schema else form
    return ChatBody.model_validate({**given, **more})


def _nested(tool: dict[str, Any], name: str = "function") -> dict[str, Any]:
    """A tool, the choice of one, or a format, as in chat completions."""
    return {"type": tool.get("type"), name: {k: v for k, v in tool.items() if k != "type"}}


def _flat(tool: Any) -> Any:
    """The same as in the Responses API."""
    return {"type": tool["type"], **tool["function"]} if isinstance(tool, dict) else tool


def _messages(body: _ResponseBody) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = (
        [{"role": "system", "content": body.instructions}] if body.instructions else []
    )
    for number, item in enumerate(body.input):
        where, kind = f"input.{number}", item.get("type", "message")
        if kind == "function_call":
            calls = {"tool_calls": [_call(item)]}
            if messages and messages[-1]["role"] == "assistant":  # calls after a text, or others
                calls["tool_calls"] = messages[-1].get("tool_calls", []) + calls["tool_calls"]
                messages[-1] |= calls
            else:
                messages.append({"role": "assistant", "content": "", **calls})
        elif kind == "function_call_output":
            content = _content(item.get("output"), f"{where}.output")
            id = {"tool_call_id": item.get("call_id")}
            messages.append({"role": "tool", "content": content, **id})
        elif kind == "message":
            content = _content(item.get("content"), f"{where}.content")
            messages.append({"role": item.get("role"), "content": content})
        elif kind != "reasoning":  # of an earlier answer; see ``request``
            message = f"The item {kind!r} of {where} is not supported. Leave it out."
            raise ApiError(400, message, where, "unsupported_parameter")
    if not messages:
        raise ApiError(400, "The parameter input is wrong: it has no message.", "input")
    return messages


def _call(item: dict[str, Any]) -> dict[str, Any]:
    function = {name: item.get(name) for name in ("name", "arguments")}
    return {"id": item.get("call_id"), "type": "function", "function": function}


def _content(content: object, where: str) -> object:
    return joined(content, where, _TEXTS) if isinstance(content, list) else content


def as_of_responses(error: ApiError) -> ApiError:
    """The error of a chat completion, with the names of this API."""
    for name, own in (("messages", "input"), ("response_format", "text.format")):
        if error.param and error.param.startswith(name):
            message = str(error).replace(f"parameter {name}", f"parameter {own}")
            param = error.param.replace(name, own, 1)
            return ApiError(error.status, message, param, error.code, error.heavy)
    return error


class ResponseForm:
    """The form of ``/v1/responses``, for one request."""

    def __init__(self, asked: Asked) -> None:
        self.id = f"resp_{uuid.uuid4().hex}"
        self._model, self._created = asked.model, int(time.time())
        tools = list(map(_flat, asked.more.get("tools", ())))
        self._tools = {
            "parallel_tool_calls": asked.more.get("parallel_tool_calls", bool(tools)),
            "tool_choice": _flat(asked.more.get("tool_choice", "auto" if tools else "none")),
            "tools": tools,
        }
        self._events = 0  # that were sent
        self._output: list[dict[str, Any]] = []  # items that were sent, the last one maybe in part
        self._is_open = False  # whether the last one is

    def whole(self, answer: ServedAnswer, texts: Texts) -> dict[str, object]:
        reasoning, content = texts[0]
        self._output = [_item("reasoning", reasoning)] if reasoning else []
        response = self._answered(answer)
        if content or not answer.choices[0].calls:
            message = _item("message", content, str(response["status"]))
            self._output.append(message)
        self._output += map(_call_item, answer.choices[0].calls)
        return response

    def begin(self, choices: int) -> bytes:
        begun = self._response("in_progress")
        return self._event("created", response=begun) + self._event("in_progress", response=begun)

    def news(self, texts: Texts) -> bytes:
        reasoning, content = texts[0]
        return self._more("reasoning", reasoning) + self._more("message", content)

    def end(self, answer: ServedAnswer) -> bytes:
        response = self._answered(answer)
        status = str(response["status"])
        events = self._closed(status)
        for call in answer.choices[0].calls:
            events += self._called(_call_item(call))
        return events + self._event(status, response=response)

    def failure(self, error: ApiError) -> bytes:
        fault = {"code": error.code or "server_error", "message": str(error)}
        failed = self._response("failed", error=fault, heavy=error.heavy)
        return self._closed("incomplete") + self._event("failed", response=failed)

    def _more(self, kind: str, text: str) -> bytes:
        """The events for text of an item of this kind, which is begun if need be."""
        if not text:
            return b""
        events = b""
        if not (self._is_open and self._output[-1]["type"] == kind):
            events = self._closed() + self._opened(kind)
        _, parts, _, _, begins = _ITEMS[kind]
        self._output[-1][parts][0]["text"] += text
        logprobs: dict[str, Any] = {"logprobs": []} if kind == "message" else {}
        return events + self._event(f"{begins}_text.delta", **self._place(), delta=text, **logprobs)

    def _called(self, item: dict[str, Any]) -> bytes:
        """The events of a tool call."""
        self._output.append(item)
        at = {"output_index": len(self._output) - 1}
        place, arguments = {**at, "item_id": item["id"]}, item["arguments"]
        begun = {**item, "arguments": "", "status": "in_progress"}
        events = self._event("output_item.added", **at, item=begun)
        events += self._event("function_call_arguments.delta", **place, delta=arguments)
        done = {"name": item["name"], "arguments": arguments}
        events += self._event("function_call_arguments.done", **place, **done)
        return events + self._event("output_item.done", **at, item=item)

    def _opened(self, kind: str) -> bytes:
        item, (_, parts, _, part, _) = _item(kind, "", "in_progress"), _ITEMS[kind]
        self._output.append(item)
        self._is_open = True
        place = self._place()
        at = {"output_index": place["output_index"]}
        added = self._event("output_item.added", **at, item={**item, parts: []})
        return added + self._event(f"{part}.added", **place, part=item[parts][0])

    def _closed(self, status: str = "completed") -> bytes:
        """The events that end the last item, if it is open."""
        if not self._is_open:
            return b""
        self._is_open = False
        item, place = self._output[-1], self._place()
        _, parts, _, part, begins = _ITEMS[item["type"]]
        if "status" in item:
            item["status"] = status
        (whole,) = item[parts]
        logprobs: dict[str, Any] = {"logprobs": []} if item["type"] == "message" else {}
        events = self._event(f"{begins}_text.done", **place, text=whole["text"], **logprobs)
        events += self._event(f"{part}.done", **place, part=whole)
        at = {"output_index": place["output_index"]}
        return events + self._event("output_item.done", **at, item=item)

    def _place(self) -> dict[str, Any]:
        """Where the text of the last item is."""
        item = self._output[-1]
        part = f"{_ITEMS[item['type']][1]}_index"
        return {"item_id": item["id"], "output_index": len(self._output) - 1, part: 0}

    def _answered(self, answer: ServedAnswer) -> dict[str, object]:
        is_cut = answer.choices[0].finish_reason == "length"
        usage, details = answer.usage, answer.usage["prompt_tokens_details"]
        tokens = {  # the form requires two counts that are not kept; they are 0
            "input_tokens": usage["prompt_tokens"],
            "input_tokens_details": {**details, "cache_write_tokens": 0},
            "output_tokens": usage["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage["total_tokens"],
            "heavy": usage["heavy"],
        }
        return self._response(
            "incomplete" if is_cut else "completed",
            incomplete_details={"reason": "max_output_tokens"} if is_cut else None,
            usage=tokens,
            heavy=answer.heavy,
        )

    def _response(self, status: str, **more: object) -> dict[str, object]:
        about = {"id": self.id, "object": "response", "created_at": self._created}
        about |= {"status": status, "model": self._model, "output": self._output}
        rest: dict[str, object] = {
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
        }
        return {**about, **rest, **self._tools, **more}

    def _event(self, name: str, /, **more: object) -> bytes:
        kind = f"response.{name}"
        body = {"type": kind, "sequence_number": self._events, **more}
        self._events += 1
        return f"event: {kind}\ndata: {json.dumps(body)}\n\n".encode()


def _item(kind: str, text: str, status: str = "completed") -> dict[str, Any]:
    prefix, parts, part, _, _ = _ITEMS[kind]
    own = {"role": "assistant", "status": status} if kind == "message" else {}
    annotations: dict[str, Any] = {"annotations": []} if kind == "message" else {}
    content = [{"type": part, "text": text, **annotations}]
    return {"id": f"{prefix}_{uuid.uuid4().hex}", "type": kind, **own, parts: content}


def _call_item(call: ToolCall) -> dict[str, Any]:
    about = {"id": f"fc_{uuid.uuid4().hex}", "type": "function_call", "status": "completed"}
    return {**about, "call_id": call.id, "name": call.name, "arguments": call.arguments}

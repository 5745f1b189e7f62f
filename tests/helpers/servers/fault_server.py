"""An OpenAI-compatible server that fails on purpose: real HTTP on the loopback, real streams.

A plan says for each request and attempt what goes wrong. What is answered in full is on the bill
with the tokens that the server reports, and so is nothing else.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from loopback import Handler, listening

Body = dict[str, Any]
# What goes wrong with a request; None is nothing.
Plan = Callable[[Body, int], str | None]

ERRORS = {
    "busy": (429, {}, "Rate limit reached"),
    "busy for": (429, {}, "Rate limit reached"),
    "busy, wait": (429, {"Retry-After": "1"}, "Rate limit reached"),
    "starting": (503, {}, "The model is loading"),
    "broken": (500, {}, "Internal error"),
    "gateway": (502, {}, "Bad gateway"),
    "wrong key": (401, {}, "Incorrect API key"),
    "forbidden": (403, {}, "This key may not"),
    "unknown": (404, {}, "No such model"),
    "too long": (400, {}, "This model's maximum context length is 9 tokens, your prompt has 10"),
    "no room": (400, {}, "maximum context length is 9 tokens, you asked for 8 in the completion"),
    "refused": (400, {}, "Unknown parameter"),
    "bad key": (401, {}, "Incorrect API key provided"),
    "no money": (402, {}, "Insufficient Balance"),
}
REASONING = {
    "reasoning_content": lambda thought: {"reasoning_content": thought},
    "reasoning": lambda thought: {"reasoning": thought},
    "both": lambda thought: {"reasoning_content": thought, "reasoning": thought},
    "details": lambda thought: {"reasoning_details": [{"type": "reasoning.text", "text": thought}]},
    "blocks": lambda thought: {"content": [{"type": "thinking", "thinking": thought}]},
    "nested blocks": lambda thought: {
        "content": [{"type": "thinking", "thinking": [{"type": "text", "text": thought}]}]
    },
    "tags": lambda thought: {"content": f"<think>{thought}</think>"},
    "none": lambda thought: {},
}


@dataclass
class FaultServer:
    """What a test sees of it, and sets before it asks."""

    plan: Plan = lambda body, attempt: None
    reasoning: str = "reasoning_content"  # where the thinking is, a key of ``REASONING``
    honours_n: int = 1  # most samples that one request brings
    copies: bool = False  # whether the seed alone decides the text, so that all these are the same
    streams: bool = True  # when it is asked to
    reports_usage: bool = True
    seconds: float = 0.0  # how long a response takes
    retry_after: str = ""  # how long it wants to be left alone when it is ``busy for``
    base_url: str = ""
    requests: list[tuple[float, Body]] = field(default_factory=list)  # in order, and when
    bill: list[tuple[int, int]] = field(default_factory=list)  # tokens read and written, if sent
    most_in_flight: int = 0
    _attempts: Counter[str] = field(default_factory=Counter)
    _in_flight: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def taking(self, body: Body) -> Iterator[str | None]:
        """The fault that this request meets."""
        key = json.dumps([body["messages"], body.get("seed")])
        with self._lock:
            attempt = self._attempts[key]
            self._attempts[key] += 1
            self.requests.append((time.monotonic(), body))
            self._in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self._in_flight)
        try:
            yield self.plan(body, attempt)
        finally:
            with self._lock:
                self._in_flight -= 1

    def text_of(self, body: Body, index: int) -> tuple[str, str]:
        """(thought, answer) of a choice."""
        return text_of(body, 0 if self.copies else index)

    @property
    def tokens(self) -> int:
        return sum(prompt + completion for prompt, completion in self.bill)


def text_of(body: Body, index: int) -> tuple[str, str]:
    """(thought, answer) to a request, which depend on it alone."""
    draw = random.Random(json.dumps([body["messages"], body.get("seed"), index]))
    return f"so {draw.random()} so", f"It is \\boxed{{{draw.randrange(4)}}}."


def message_of(reasoning: str, thought: str, answer: str) -> Body:
    """A message with its thinking where ``reasoning`` says, a key of ``REASONING``."""
    message = REASONING[reasoning](thought)
    content = message.pop("content", "")
    text = [{"type": "text", "text": answer}] if isinstance(content, list) else answer
    return {"role": "assistant", **message, "content": content + text}


def tokens_of(thought: str, answer: str) -> int:
    return len(thought) // 4 + len(answer) // 4


@contextlib.contextmanager
def faulty(**settings: Any) -> Iterator[FaultServer]:
    """Serve until the block ends."""
    server = FaultServer(**settings)

    class _OfThis(_Handler):
        fault_server = server

    with listening(_OfThis) as server.base_url:
        yield server


class _Handler(Handler):
    fault_server: FaultServer

    def do_GET(self) -> None:
        self.send_json(200, {"object": "list", "data": [{"id": "served", "object": "model"}]})

    def do_POST(self) -> None:
        body = self.body()
        with contextlib.suppress(ConnectionError), self.fault_server.taking(body) as fault:
            time.sleep(self.fault_server.seconds)
            self._answer(body, fault)

    def _answer(self, body: Body, fault: str | None) -> None:
        if fault in ERRORS:
            status, headers, message = ERRORS[fault]
            if fault == "busy for":
                headers = {"Retry-After": self.fault_server.retry_after}
            return self.send_json(status, {"error": {"message": message}}, headers)
        if fault == "hang":
            return time.sleep(30)
        if fault == "hang up":
            return self.close_connection_now()
        if fault == "no json":
            return self.send(200, b'{"id": "r", "choices": [{"ind', "application/json")
        choices = [] if fault == "no choices" else self._choices(body)
        if body.get("stream") and self.fault_server.streams:
            return self._stream(body, choices, fault)
        whole = {"id": "r", "object": "chat.completion", "choices": choices}
        self.send_json(200, whole | self._usage(body, choices, True))

    def _choices(self, body: Body) -> list[Body]:
        choices = []
        for index in range(min(body.get("n") or 1, self.fault_server.honours_n)):
            message = message_of(
                self.fault_server.reasoning, *self.fault_server.text_of(body, index)
            )
            choices.append({"index": index, "finish_reason": "stop", "message": message})
        return choices

    def _usage(self, body: Body, choices: list[Body], whole: bool) -> Body:
        """The tokens; on the bill if the response is sent in full."""
        prompt = len(body["messages"][0]["content"]) // 4
        text_of = self.fault_server.text_of
        written = [tokens_of(*text_of(body, choice["index"])) for choice in choices]
        if whole and choices:
            self.fault_server.bill.append((prompt, sum(written)))
        if not self.fault_server.reports_usage:
            return {}
        details = {"cached_tokens": prompt // 2}
        return {
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": sum(written),
                "prompt_tokens_details": details,
            }
        }

    def _stream(self, body: Body, choices: list[Body], fault: str | None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self._event(": keep-alive")
        events = list(pieces(choices))
        sent = dict.fromkeys(("cut", "stall", "fault in the stream"), len(events) // 2)
        sent |= {"fault at the last end": len(events) - 1, "fault after the ends": len(events)}
        if fault in sent:
            for event in events[: sent[fault]]:
                self._event(f"data: {json.dumps(event)}")
            if fault == "stall":
                time.sleep(30)
            if fault.startswith("fault"):
                self._event(f"data: {json.dumps({'error': {'message': 'engine died'}})}")
            return
        endless = [index for index in range(9) if fault in ("no end", f"no end of {index}")]
        events = [e for e in events if not (_ends(e) and e["choices"][0]["index"] in endless)]
        for event in events:
            self._event(f"data: {json.dumps(event)}")
            time.sleep(2.5 / len(events) if fault == "slow stream" else 0)
        usage = self._usage(body, choices, whole=True)
        if usage and (body.get("stream_options") or {}).get("include_usage"):
            self._event(f"data: {json.dumps({'id': 'r', 'choices': [], **usage})}")
        self._event("data: [DONE]")

    def _event(self, line: str) -> None:
        self.wfile.write(f"{line}\n\n".encode())
        self.wfile.flush()

    def close_connection_now(self) -> None:
        self.connection.close()


def pieces(choices: list[Body]) -> Iterator[Body]:
    """Each message in pieces of a few characters, the choices interleaved; then their ends."""
    streams = [list(_deltas(choice["message"])) for choice in choices]
    for step in range(max(map(len, streams), default=0)):
        for choice, stream in zip(choices, streams, strict=True):
            if step < len(stream):
                yield _piece(choice["index"], stream[step], None)
    for choice in choices:
        yield _piece(choice["index"], {}, choice["finish_reason"])


def _piece(index: int, delta: Body, finish_reason: str | None) -> Body:
    choice = {"index": index, "delta": delta, "finish_reason": finish_reason}
    return {"id": "r", "object": "chat.completion.chunk", "choices": [choice]}


def _ends(event: Body) -> bool:
    return bool(event["choices"][0]["finish_reason"])


def _deltas(message: Body) -> Iterator[Body]:
    yield {"role": "assistant", "content": ""}
    for name in ("reasoning_content", "reasoning"):
        for part in _cut(message.get(name, "")):
            yield {k: part for k in ("reasoning_content", "reasoning") if k in message}
        if name in message:
            break
    for detail in message.get("reasoning_details", ()):
        for part in _cut(detail["text"]):
            yield {"reasoning_details": [{**detail, "text": part}]}
    content = message["content"]
    for block in content if isinstance(content, list) else [content]:
        if isinstance(block, str):
            yield from ({"content": part} for part in _cut(block))
        else:
            yield {"content": [block]}


def _cut(text: str) -> list[str]:
    return [text[start : start + 7] for start in range(0, len(text), 7)]

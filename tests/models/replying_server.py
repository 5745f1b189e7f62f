"""A server that says exactly what a test tells it to, and how the client asks it."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from loopback import Handler, listening

from heavydistill.config.models import Endpoint, Sampling
from heavydistill.models.http.engine import OpenAIEngine
from heavydistill.models.request import Request, Response, user_turn

Body = dict[str, Any]
TAGS = ("<think>", "</think>")
UNSET = Sampling(top_k=0)


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server sends back: a body, as JSON unless it is bytes."""

    body: Any
    status: int = 200
    content_type: str = "application/json"


@dataclass
class FakeServer:
    """Answers chat completions with ``answer`` and remembers what it was asked."""

    answer: Callable[[Body], Reply]
    url: str = ""
    asked: list[Body] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def reply(self, path: str, body: Body, authorization: str | None) -> Reply:
        assert path == "/v1/chat/completions"
        with self.lock:
            self.asked.append(body)
            self.authorizations.append(authorization)
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return self.answer(body)
        finally:
            with self.lock:
                self.in_flight -= 1


def completion(content: str | None = "7", *, finish_reason: Any = "stop", **message: Any) -> Body:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "served",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish_reason,
                "message": {"role": "assistant", "content": content, **message},
            }
        ],
        "usage": {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16},
    }


@contextlib.contextmanager
def replying(answer: Callable[[Body], Reply]) -> Iterator[FakeServer]:
    """Serve until the block ends."""
    fake = FakeServer(answer)

    class _Handler(Handler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            reply = fake.reply(self.path, self.body(), self.headers["authorization"])
            raw = isinstance(reply.body, bytes)
            content = reply.body if raw else json.dumps(reply.body).encode()
            self.send(reply.status, content, reply.content_type, {"retry-after-ms": "1"})

    with listening(_Handler) as fake.url:
        yield fake


def ask(server: FakeServer, requests: list[Request], **endpoint: Any) -> list[Response]:
    settings = Endpoint(base_url=server.url, tokenizer="unused", **endpoint)
    engine = OpenAIEngine("served", settings, TAGS)
    try:
        return engine.generate(requests)
    finally:
        engine.close()


def ask_one(server: FakeServer, **endpoint: Any) -> Response:
    (response,) = ask(server, [request()], **endpoint)
    return response


def request(seed: int = 0, sampling: Sampling = UNSET) -> Request:
    return Request(user_turn("3+4?"), sampling, seed)


def answering(body: Any, **reply: Any) -> Callable[[Body], Reply]:
    return lambda _: Reply(body, **reply)


def is_error(response: Response) -> bool:
    """An error with a reason, and no text."""
    texts = (response.reasoning, response.answer_text)
    failed = response.finish_reason == "error" and response.failure is not None
    return failed and bool(response.error) and texts == ("", "")

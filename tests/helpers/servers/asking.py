"""Clients of a server of tests, and a server that says exactly what a test tells it to."""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fault_server import FaultServer, text_of
from loopback import Handler, listening

from heavydistill.config.models import Endpoint, Sampling
from heavydistill.models.http.engine import OpenAIEngine
from heavydistill.models.ledger import Ledger
from heavydistill.models.registry import profile_at
from heavydistill.models.request import Request, Response, user_turn

Body = dict[str, Any]
SAMPLING = Sampling(top_k=0, max_tokens=64)


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server sends back: a body, as JSON unless it is bytes."""

    body: Any
    status: int = 200
    content_type: str = "application/json"


@dataclass
class Replying:
    """Answers chat completions with ``answer`` and remembers what it was asked."""

    answer: Callable[[Body], Reply]
    base_url: str = ""
    asked: list[Body] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)
    headers: list[Any] = field(default_factory=list)


@contextlib.contextmanager
def replying(answer: Callable[[Body], Reply]) -> Iterator[Replying]:
    """Serve until the block ends."""
    server = Replying(answer)

    class _Handler(Handler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            assert self.path == "/v1/chat/completions"
            server.asked.append(body := self.body())
            server.authorizations.append(self.headers["authorization"])
            server.headers.append(self.headers)
            reply = server.answer(body)
            raw = isinstance(reply.body, bytes)
            content = reply.body if raw else json.dumps(reply.body).encode()
            self.send(reply.status, content, reply.content_type, {"retry-after-ms": "1"})

    with listening(_Handler) as server.base_url:
        yield server


def completion(content: Any = "7", *, finish_reason: Any = "stop", **message: Any) -> Body:
    message = {"role": "assistant", "content": content, **message}
    choice = {"index": 0, "finish_reason": finish_reason, "message": message}
    usage = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
    return {"id": "r", "object": "chat.completion", "choices": [choice], "usage": usage}


def answering(body: Any, **reply: Any) -> Callable[[Body], Reply]:
    return lambda _: Reply(body, **reply)


def request(seed: int = 0, sampling: Sampling = SAMPLING, prompt: str = "3+4?") -> Request:
    return Request(user_turn(prompt), sampling, seed, seed)


def requests(count: int, prompt: str = "3+4?") -> list[Request]:
    return [request(seed, prompt=prompt) for seed in range(count)]


@contextlib.contextmanager
def asking(
    server: FaultServer | Replying | str,
    ledger: Ledger | None = None,
    thinks: bool = False,
    extra_body: Any = None,
    **endpoint: Any,
) -> Iterator[OpenAIEngine]:
    """An engine that asks a server, closed when the block ends."""
    url = server if isinstance(server, str) else server.base_url
    at = Endpoint(base_url=url, **endpoint)
    profile = profile_at("served", at)
    profile = dataclasses.replace(profile, thinks=thinks, extra_body=extra_body or {})
    engine = OpenAIEngine(profile, at, ledger)
    with contextlib.closing(engine):
        yield engine


def ask(
    server: FaultServer | Replying | str, wanted: list[Request], **settings: Any
) -> list[Response]:
    with asking(server, **settings) as engine:
        return engine.generate(wanted)


def ask_one(server: FaultServer | Replying | str, **settings: Any) -> Response:
    (response,) = ask(server, [request()], **settings)
    return response


def is_right(response: Response, server: FaultServer) -> bool:
    """Whether it is what the server wrote for the first request."""
    thought, answer = text_of(server.requests[0][1], 0)
    return (response.reasoning, response.answer_text) == (thought, answer)


def is_error(response: Response) -> bool:
    """An error with a reason, and no text."""
    texts = (response.reasoning, response.answer_text)
    failed = response.finish_reason == "error" and response.failure is not None
    return failed and bool(response.error) and texts == ("", "")


def first_attempt(fault: str) -> Any:
    return lambda body, attempt: fault if attempt == 0 else None


def always(fault: str) -> Any:
    return lambda body, attempt: fault

"""A client that asks a server of tests, over HTTP."""

from __future__ import annotations

from typing import Any

from fault_server import FaultServer, text_of

from heavydistill.config.models import Endpoint, Sampling
from heavydistill.models.http.engine import OpenAIEngine
from heavydistill.models.request import Request, Response, user_turn

TAGS = ("<think>", "</think>")
SAMPLING = Sampling(top_k=0, max_tokens=64)


def requests(count: int, prompt: str = "3+4?") -> list[Request]:
    return [Request(user_turn(prompt), SAMPLING, seed, seed) for seed in range(count)]


def ask(
    server: FaultServer | str, wanted: list[Request], thinks: bool = False, **endpoint: Any
) -> list[Response]:
    url = server if isinstance(server, str) else server.base_url
    engine = OpenAIEngine("served", Endpoint(base_url=url, **endpoint), TAGS, thinks=thinks)
    try:
        return engine.generate(wanted)
    finally:
        engine.close()


def is_right(response: Response, server: FaultServer) -> bool:
    """Whether it is what the server wrote for the first request."""
    thought, answer = text_of(server.requests[0][1], 0)
    return (response.reasoning, response.answer_text) == (thought, answer)


def first_attempt(fault: str) -> Any:
    return lambda body, attempt: fault if attempt == 0 else None

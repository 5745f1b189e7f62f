"""Of several samples of a long prompt, the first goes ahead, so that the others are cached."""

import contextlib
import json
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from asking import ask, asking, requests
from fault_server import faulty
from loopback import Handler, listening
from marked import eventually

from heavydistill.config.models import Capabilities
from heavydistill.models.http import engine as engine_module
from heavydistill.models.request import Request

LONG = "Consider the following attempts at the problem. " * 100


@dataclass
class Caching:
    """A provider that has a prompt in its cache as soon as a response to it has begun."""

    base_url: str = ""
    begun: set[str] = field(default_factory=set)
    hits: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    goes_on: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextlib.contextmanager
def caching() -> Iterator[Caching]:
    server = Caching()

    class _Handler(Handler):
        def do_POST(self) -> None:
            body: dict[str, Any] = self.body()
            prompt = body["messages"][0]["content"]
            with server.lock:
                is_cached = prompt in server.begun
                server.asked[prompt] += 1
                server.hits[prompt] += is_cached
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            with server.lock:
                server.begun.add(prompt)
            tokens = len(prompt) // 4
            self.event(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}}])
            # The first response lasts until all others have been asked for.
            server.goes_on.wait(60)
            text = f"It is {body['seed']}."
            end = {"index": 0, "delta": {"content": text}, "finish_reason": "stop"}
            details = {"cached_tokens": tokens if is_cached else 0}
            usage = {"prompt_tokens": tokens, "completion_tokens": 4}
            self.event(choices=[end])
            self.event(choices=[], usage=usage | {"prompt_tokens_details": details})
            self.wfile.write(b"data: [DONE]\n\n")

        def event(self, **fields: Any) -> None:
            self.wfile.write(f"data: {json.dumps({'id': 'r', **fields})}\n\n".encode())
            self.wfile.flush()

    with listening(_Handler) as server.base_url:
        yield server


def deliberations(caches: int, d: int) -> list[Request]:
    each = (requests(d, f"{LONG}{number}") for number in range(caches))
    return [request for of_one in each for request in of_one]


def test_all_samples_of_a_long_prompt_but_the_first_hit_the_providers_cache():
    caches, d = 3, 4
    with caching() as server, asking(server.base_url) as engine:

        def release() -> None:
            eventually(lambda: server.asked.total() == caches * d, 60)
            server.goes_on.set()

        threading.Thread(target=release, daemon=True).start()
        responses = engine.generate(deliberations(caches, d))
    assert all(response.failure is None for response in responses)
    assert set(server.hits.values()) == {d - 1} and len(server.hits) == caches
    assert sum(response.cached_tokens > 0 for response in responses) == caches * (d - 1)


def test_samples_of_a_short_prompt_are_sent_at_once():
    together = threading.Barrier(4)
    with faulty(plan=lambda body, attempt: together.wait(60) and None) as server:
        assert all(r.failure is None for r in ask(server, requests(4), retries=0))


@pytest.mark.parametrize("fault", ["refused", "no choices"])
def test_where_the_first_brings_nothing_the_others_follow(fault):
    with faulty(plan=lambda body, attempt: fault if body["seed"] == 0 else None) as server:
        responses = ask(server, requests(4, LONG), retries=0)
    assert [response.failure is None for response in responses] == [False, True, True, True]


def test_nobody_waits_long_for_a_first_one_that_brings_nothing(monkeypatch):
    monkeypatch.setattr(engine_module, "_LEAD_S", 0.1)
    together = threading.Barrier(4)
    with faulty(plan=lambda body, attempt: together.wait(60) and None) as server:
        assert all(r.failure is None for r in ask(server, requests(4, LONG), retries=0))


def test_samples_that_travel_together_and_come_singly_do_not_wait_for_each_other(monkeypatch):
    monkeypatch.setattr(engine_module, "_LEAD_S", 10**6)
    with faulty(honours_n=2) as server:
        responses = ask(server, requests(4, LONG), capabilities=Capabilities(n=4))
        assert all(response.failure is None for response in responses)


def test_a_run_that_is_drained_waits_for_no_first_one():
    is_over = threading.Event()
    waiting = faulty(plan=lambda body, attempt: is_over.wait(60) and None)
    with waiting as server, asking(server) as engine:

        def drain() -> None:
            eventually(lambda: len(server.requests) == 1, 60)
            engine.drain()
            is_over.set()

        threading.Thread(target=drain, daemon=True).start()
        responses = engine.generate(requests(3, LONG))
    assert [response.failure for response in responses] == [None, "interrupted", "interrupted"]

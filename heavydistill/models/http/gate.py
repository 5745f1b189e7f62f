"""What all engines of this process that ask one endpoint share: its slots, its limits a minute.

So a stage that asks alone has the whole of both, and stages that ask at once are admitted in the
order in which they asked. All endpoints are asked from one event loop, in a thread of its own.

Not covered: other processes that ask the same endpoint (see ``run.shards``).
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from heavydistill.config.models import Endpoint
from heavydistill.models.http.servers import Rates, Server, Servers
from heavydistill.models.http.transport import Transport
from heavydistill.models.shared import SharedResources

_Result = TypeVar("_Result")


_starting = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}


def loop() -> asyncio.AbstractEventLoop:
    """The event loop of all requests of this process; a process that was forked has its own."""
    with _starting:
        if os.getpid() not in _loops:
            made = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=made.run_forever, daemon=True, name="requests").start()
        return _loops[os.getpid()]


os.register_at_fork(
    before=_starting.acquire, after_in_parent=_starting.release, after_in_child=_starting.release
)


def submit(work: Coroutine[Any, Any, _Result]) -> Future[_Result]:
    """Have the loop do it."""
    return asyncio.run_coroutine_threadsafe(work, loop())


class Gate:
    """The way to an endpoint, to be used in ``loop``.

    Attributes:
        servers: Its addresses with their slots.
        rates: Its limits of requests and tokens a minute.
        wire: Its connections.
    """

    def __init__(self, endpoint: Endpoint, key: str) -> None:
        servers = [Server(url, endpoint.concurrency) for url in endpoint.urls]
        self.servers = Servers(servers, endpoint.timeout_s)
        self.rates = Rates(endpoint.requests_per_minute, endpoint.tokens_per_minute)
        self.wire = submit(_connected(key, endpoint.timeout_s)).result()

    def close(self) -> None:
        """End the connections."""
        submit(self.wire.close()).result()


_gates = SharedResources(Gate.close)


def enter(endpoint: Endpoint, key: str) -> Gate:
    """The gate of an endpoint with that key; ``leave`` it in the end."""
    limits = endpoint.concurrency, endpoint.requests_per_minute, endpoint.tokens_per_minute
    same = endpoint.base_url, key, endpoint.timeout_s, *limits
    return _gates.borrow(same, lambda: Gate(endpoint, key))


def leave(gate: Gate) -> None:
    """End a use of a gate."""
    _gates.give_back(gate)


async def _connected(key: str, patience_s: float) -> Transport:
    return Transport(key, patience_s)

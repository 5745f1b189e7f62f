"""Clocks on which a busy machine is no silent server and no program without end.

Limits are as long as ever where the machine is idle. Where this process gets no processor for a
while, or is stopped, its time all but stands still.
"""

import contextlib
import select
import selectors
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any
from unittest import mock

_TURN_S = 0.05  # the most that passes between two looks at the clock


def fair_time(turn_s: float = _TURN_S) -> Callable[[], float]:
    lock = threading.Lock()
    now = seen = time.monotonic()

    def read() -> float:
        nonlocal now, seen
        with lock:
            before, seen = seen, time.monotonic()
            now += min(seen - before, turn_s)
            return now

    return read


def brief(timeout: float | None, turn_s: float = _TURN_S) -> float:
    """Half a turn at most; whoever waits looks at the clock then, and waits again."""
    return min(1.0 if timeout is None else timeout, turn_s / 2)


@contextlib.contextmanager
def fair_requests() -> Iterator[None]:
    """The client's event loop has such a clock while the block runs."""
    from heavydistill.models.http import transport

    loop: Any = transport.loop()
    select = loop._selector.select
    loop.time, loop._selector.select = fair_time(), lambda timeout=None: select(brief(timeout))
    try:
        yield
    finally:
        del loop.time, loop._selector.select


@contextlib.contextmanager
def fair_verdicts() -> Iterator[None]:
    """Whoever waits for a worker's verdict has such a clock while the block runs."""
    poll = Connection.poll

    def polled(connection: Connection, timeout: float | None = 0.0) -> bool:
        if timeout is None:
            return poll(connection, None)
        turns, rest = divmod(timeout, _TURN_S)
        return any(poll(connection, _TURN_S) for _ in range(int(turns))) or poll(connection, rest)

    with mock.patch.object(Connection, "poll", polled):
        yield


@contextlib.contextmanager
def fair_sandbox() -> Iterator[None]:
    """The sandbox of this process has such a clock while the block runs."""
    from heavydistill.sandbox import bubblewrap, session

    class _Poll:
        def __init__(self) -> None:
            poll = select.poll()
            self.register, self.unregister = poll.register, poll.unregister
            self.poll = lambda timeout_ms: poll.poll(1000 * brief(timeout_ms / 1000))

    class _Selector(selectors.DefaultSelector):
        def select(self, timeout: float | None = None) -> list[Any]:
            return super().select(brief(timeout))

    patched = SimpleNamespace(DefaultSelector=_Selector, EVENT_READ=selectors.EVENT_READ)
    clock = SimpleNamespace(monotonic=fair_time(), sleep=time.sleep)
    with (
        mock.patch.object(bubblewrap, "time", clock),
        mock.patch.object(bubblewrap, "selectors", patched),
        mock.patch.object(session, "time", clock),
        mock.patch.object(session, "select", SimpleNamespace(poll=_Poll, POLLIN=select.POLLIN)),
    ):
        yield

"""Clocks that do not wait: where nobody works, they jump to what the event loop waits for.

``on_a_fake_clock`` is for coroutines alone. With ``fake_clock`` the client's own loop asks real
servers over real sockets; only a server that ``rest``s lets the time pass. Whoever works, the
client or a server, works in time that is fair, see ``fair_clock``.
"""

import asyncio
import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Coroutine, Iterator
from typing import Any
from unittest import mock

from fair_clock import brief, fair_time

_TURN_S = 0.005  # as nobody waits for this clock, a busy machine may have many turns


class _Jump(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        self.now += timeout or 0.0
        return super().select(0)


def on_a_fake_clock(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that waits for nothing but time; its clock begins at 0."""
    selector = _Jump()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


class _Clock:
    """That of the client's event loop; all but ``rest`` and ``time`` is done in its thread."""

    def __init__(self, loop: Any) -> None:
        self._loop, self._select = loop, loop._selector.select
        self._fair, self._jumped = fair_time(_TURN_S), 0.0
        self.asked = 0
        self._resting: dict[threading.Event, socket.socket] = {}

    def time(self) -> float:
        return self._fair() + self._jumped

    def select(self, timeout: float | None = None) -> list[Any]:
        # Looked up first: what a server sends before it rests is here when it does.
        waits = timeout if timeout and self.asked == self._heeded() else 0.0
        ready = self._select(0 if waits else brief(timeout, _TURN_S))
        self._jumped += 0.0 if ready else waits
        return ready

    def _heeded(self) -> int:
        """How many servers rest while a client waits for them; others were given up."""
        return sum(map(_is_open, self._resting.values()))

    def rest(self, connection: socket.socket, seconds: float) -> None:
        over = threading.Event()

        def begin() -> None:
            self._resting[over] = connection
            self._loop.call_later(seconds, wake)

        def wake() -> None:
            if self._resting.pop(over, None):
                over.set()

        self._loop.call_soon_threadsafe(begin)
        over.wait()

    def wake_all(self) -> None:
        while self._resting:
            self._resting.popitem()[0].set()


_clock: _Clock | None = None


@contextlib.contextmanager
def fake_clock() -> Iterator[None]:
    """The client's event loop has such a clock while the block runs."""
    global _clock
    from aiohttp import ClientSession

    from heavydistill.models.http import transport

    loop: Any = transport.loop()
    clock = _clock = _Clock(loop)
    leave = ClientSession.__aexit__

    def counted(name: str) -> Any:
        ask = getattr(transport.Transport, name)

        async def asked(*request: Any) -> Any:
            clock.asked += 1
            try:
                return await ask(*request)
            finally:
                clock.asked -= 1

        return mock.patch.object(transport.Transport, name, asked)

    async def entered(session: ClientSession) -> ClientSession:
        clock.asked += 1
        return session

    async def left(session: ClientSession, *error: Any) -> None:
        try:
            await leave(session, *error)
        finally:
            clock.asked -= 1

    with (
        counted("ask"),
        counted("fetch"),
        # Whoever asks a server once has a session for it.
        mock.patch.object(ClientSession, "__aenter__", entered),
        mock.patch.object(ClientSession, "__aexit__", left),
    ):
        loop.time, loop._selector.select = clock.time, clock.select
        try:
            yield
        finally:
            _clock = None
            loop.call_soon_threadsafe(clock.wake_all)
            del loop.time, loop._selector.select


def now() -> float:
    """Seconds on the client's clock."""
    return _clock.time() if _clock else time.monotonic()


def rest(connection: socket.socket, seconds: float) -> None:
    """Of a server's thread: do nothing for so long, or until the client has gone."""
    if not seconds:
        return
    if _clock:
        _clock.rest(connection, seconds)
        return
    latest = time.monotonic() + seconds
    while (left := latest - time.monotonic()) > 0 and _is_open(connection):
        time.sleep(min(left, 0.02))


def _is_open(connection: socket.socket) -> bool:
    try:
        return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False

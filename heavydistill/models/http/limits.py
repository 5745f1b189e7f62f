"""Limits of an endpoint: slots per server, pauses, requests and tokens per minute.

All engines of this process that use the same endpoint share its limits; requests are served in
order. Each server has a number of slots, i.e. of requests in flight. An overloaded server loses
half of its slots and is paused, for as long as it asks for or for growing times; each response adds
a fraction of a slot again. A server that fails several times in a row is paused, and single
requests test whether it works again. All code runs in the event loop of ``transport`` and needs no
lock.

Not covered: other processes that use the same endpoint (see ``run.shards``).
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections import deque
from dataclasses import dataclass, field

from heavydistill.models.http.failures import OUTAGES
from heavydistill.models.request import Response

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 60.0
_FAULTS_IN_A_ROW = 3
_WORDS = 160  # maximum characters of an error in a log line
_CLOCK_S = 0.001  # a timer may fire early by this much
_MINUTE_S = 60.0
_log = logging.getLogger("heavydistill.models")


@dataclass(slots=True, eq=False)
class Server:
    """State of one server address."""

    url: str  # Base URL
    most: int  # Maximum and initial number of slots
    slots: float = field(init=False)  # Current limit of requests in flight
    in_flight: int = 0  # Number of requests in flight
    troubles: int = 0  # Number of overloads or outages since the last response
    paused_until: float = 0.0  # Event loop time before which the server gets no request

    def __post_init__(self) -> None:
        self.slots = self.most


class Servers:
    """Assigns the slots of an endpoint's servers to requests, in order of arrival.

    ``patience_s`` is the maximum pause, unless a server asks for a longer one.
    """

    def __init__(self, servers: list[Server], patience_s: float) -> None:
        self._servers = servers
        self._longest_s = min(_LONGEST_PAUSE_S, patience_s)
        self._waiting: deque[asyncio.Future[Server]] = deque()

    async def lease(self, is_urgent: bool = False) -> Server:
        """Wait for a slot of the server with most free slots; ``release`` or ``give_back`` it."""
        waiter = asyncio.get_running_loop().create_future()
        (self._waiting.appendleft if is_urgent else self._waiting.append)(waiter)
        self._hand_out()
        try:
            server: Server = await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release(waiter.result())
            raise
        return server

    def is_paused(self, server: Server) -> bool:
        """Whether the server must not get a request, so that its slot should be released."""
        return server.paused_until > asyncio.get_running_loop().time() + _CLOCK_S

    def release(self, server: Server) -> None:
        """Return a slot that was not used."""
        server.in_flight -= 1
        self._hand_out()

    def pause_s(self) -> float:
        """Seconds until some server may get a request; 0 if one may get it now."""
        soonest = min(server.paused_until for server in self._servers)
        return max(0.0, soonest - asyncio.get_running_loop().time())

    def give_back(self, server: Server, response: Response, wait_s: float | None = None) -> None:
        """Return a slot after a request; ``wait_s`` is the pause that the server asks for."""
        # Requests sent before a pause give no new information about the server.
        is_paused = asyncio.get_running_loop().time() < server.paused_until
        if response.failure == "overloaded":
            if not is_paused:
                server.troubles += 1
                server.slots = max(1.0, server.slots / 2)
                wait_s = self._back_off(server.troubles) if wait_s is None else wait_s
            if wait_s is not None:
                what = f"is overloaded and gets at most {int(server.slots)} requests at once"
                self._pause(server, wait_s, what, response)
        elif response.failure not in OUTAGES:
            server.troubles = 0
            server.slots = min(server.most, server.slots + 1 / server.slots)
        elif not is_paused:
            server.troubles += 1
            if server.troubles >= _FAULTS_IN_A_ROW:
                server.slots = 1.0
                what = f"does not work ({response.failure}, {server.troubles} times in a row)"
                wait_s = self._back_off(server.troubles - _FAULTS_IN_A_ROW + 1)
                self._pause(server, wait_s, what, response)
        self.release(server)

    def _pause(self, server: Server, seconds: float, what: str, response: Response) -> None:
        loop = asyncio.get_running_loop()
        server.paused_until = max(server.paused_until, loop.time() + seconds)
        loop.call_at(server.paused_until, self._hand_out)
        said = " ".join((response.error or "").split())[:_WORDS]
        pause_s = server.paused_until - loop.time()
        _log.warning("%s %s: retry in %.1f s (%s)", server.url, what, pause_s, said)

    def _back_off(self, times: int) -> float:
        """Pause in seconds, doubled with each trouble and varied randomly by up to a quarter."""
        seconds = _FIRST_PAUSE_S * 2.0 ** min(times - 1, 16)
        return min(self._longest_s, seconds) * random.uniform(0.75, 1.25)

    def _hand_out(self) -> None:
        while self._waiting:
            free = [
                server
                for server in self._servers
                if server.in_flight < int(server.slots) and not self.is_paused(server)
            ]
            if not free:
                return
            waiter = self._waiting.popleft()
            if waiter.done():  # the waiting request was cancelled
                continue
            server = min(free, key=lambda s: (s.troubles, s.in_flight / s.slots))
            server.in_flight += 1
            waiter.set_result(server)


class Allowance:
    """A token bucket that fills evenly, holds one second's allowance, and may be overdrawn.

    A request for more than the bucket holds waits until the bucket is full, and later requests wait
    until the deficit is refilled. So the use in one minute exceeds the limit only by the part of
    the last request beyond one second's allowance, and by corrections.
    """

    def __init__(self, per_minute: int) -> None:
        # A smaller bucket could never hold one unit.
        self._most = max(1.0, per_minute / _MINUTE_S)
        # A bucket that is full at the start of a minute adds to the refill during that minute.
        self._rate = (per_minute - self._most + 1) / _MINUTE_S
        self._empty_at = -math.inf  # event loop time at which the bucket was empty
        self._turn = asyncio.Lock()

    async def take(self, units: float) -> None:
        """Wait until the bucket holds ``units``, or is full, then take them."""
        async with self._turn:
            loop, needed_s = asyncio.get_running_loop(), min(units, self._most) / self._rate
            while (missing_s := self._empty_at + needed_s - loop.time()) > 0:
                # Rounding may leave a remaining time below the resolution of the clock.
                await asyncio.sleep(max(missing_s, _CLOCK_S))
            self.correct(units)

    def correct(self, units: float) -> None:
        """Take ``units`` without waiting; negative units are returned to the bucket."""
        full = asyncio.get_running_loop().time() - self._most / self._rate
        self._empty_at = max(self._empty_at, full) + units / self._rate


class Rates:
    """Limits of requests and tokens per minute of an endpoint; None means no limit."""

    def __init__(self, requests_per_minute: int | None, tokens_per_minute: int | None) -> None:
        self._requests = Allowance(requests_per_minute) if requests_per_minute else None
        self._tokens = Allowance(tokens_per_minute) if tokens_per_minute else None
        self._spent, self._ended = 0.0, 0

    async def admit(self, most_tokens: int) -> float:
        """Wait until a request may be sent; returns the number of tokens charged for it."""
        if self._requests:
            await self._requests.take(1)
        if not self._tokens:
            return 0.0
        charged = min(most_tokens, self._spent / self._ended) if self._ended else most_tokens
        await self._tokens.take(charged)
        return float(charged)

    def settle(self, charged: float, tokens: int) -> None:
        """Replace the tokens charged for a request by the actual number."""
        if tokens:
            self._spent += tokens
            self._ended += 1
        if self._tokens:
            self._tokens.correct(tokens - charged)

"""The limits of an endpoint: its slots, the pauses it asks for, its requests and tokens a minute.

All engines of this process that ask one endpoint share them, in the order in which they ask. Each
server has so many slots. One that is overloaded loses half of them and is left alone for as long as
it asks for, or ever longer; each response gives back a part of a slot. One that fails several times
in a row is taken out, and one request now and then looks whether it is back. All of it is for the
one event loop of ``transport`` and needs no lock.

Not covered: other processes that ask the same endpoint (see ``run.shards``).
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
_WORDS = 160  # characters of an error that a line of the log holds
_CLOCK_S = 0.001  # a timer may go off early by this
_MINUTE_S = 60.0
_log = logging.getLogger("heavydistill.models")


@dataclass(slots=True, eq=False)
class Server:
    """One address."""

    url: str  # Base URL
    most: int  # Slots at first, and at most
    slots: float = field(init=False)  # Requests that it may have in flight now
    in_flight: int = 0  # Requests that it has
    troubles: int = 0  # Overloads, or outages, since its last response
    paused_until: float = 0.0  # Time of the loop before which it gets no request

    def __post_init__(self) -> None:
        self.slots = self.most


class Servers:
    """Hands out slots in the order in which they were asked for.

    No pause that a server did not ask for is longer than ``patience_s``.
    """

    def __init__(self, servers: list[Server], patience_s: float) -> None:
        self._servers = servers
        self._longest_s = min(_LONGEST_PAUSE_S, patience_s)
        self._waiting: deque[asyncio.Future[Server]] = deque()

    async def lease(self, is_urgent: bool = False) -> Server:
        """A slot of the server that has the most room; it must be given back."""
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
        """Whether it is to be left alone, and its slot to be released for another."""
        return server.paused_until > asyncio.get_running_loop().time() + _CLOCK_S

    def release(self, server: Server) -> None:
        """Give a slot back that was not used."""
        server.in_flight -= 1
        self._hand_out()

    def pause_s(self) -> float:
        """Seconds until any server may be sent a request; 0 if one may be now."""
        soonest = min(server.paused_until for server in self._servers)
        return max(0.0, soonest - asyncio.get_running_loop().time())

    def give_back(self, server: Server, response: Response, wait_s: float | None = None) -> None:
        """Give a slot back after a request; the server asks to be left alone for ``wait_s``."""
        # What was sent before a pause tells nothing new of the server.
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
        _log.warning("%s %s: asked again in %.1f s (%s)", server.url, what, pause_s, said)

    def _back_off(self, times: int) -> float:
        """Seconds after so many troubles: twice as many each time, give or take a quarter."""
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
            if waiter.done():  # whoever waited has gone
                continue
            server = min(free, key=lambda s: (s.troubles, s.in_flight / s.slots))
            server.in_flight += 1
            waiter.set_result(server)


class Allowance:
    """Fills evenly, holds a second's worth at most, and may be overdrawn.

    Whoever takes more than it holds waits until it is full, and those after him until that is made
    up for. So no minute has more than the limit, but for what the last one took beyond a second's
    worth and what turned out to be more than was taken.
    """

    def __init__(self, per_minute: int) -> None:
        # Less than one unit would never be enough for one.
        self._most = max(1.0, per_minute / _MINUTE_S)
        # What is saved at the start of a minute comes on top of what it fills by.
        self._rate = (per_minute - self._most + 1) / _MINUTE_S
        self._empty_at = -math.inf  # time of the loop at which it holds nothing; it fills since
        self._turn = asyncio.Lock()

    async def take(self, units: float) -> None:
        """Wait until so much is there, or as much as there can be."""
        async with self._turn:
            loop, needed_s = asyncio.get_running_loop(), min(units, self._most) / self._rate
            while (missing_s := self._empty_at + needed_s - loop.time()) > 0:
                # Rounding may leave less missing than a clock can tell.
                await asyncio.sleep(max(missing_s, _CLOCK_S))
            self.correct(units)

    def correct(self, units: float) -> None:
        """Take so much more without waiting, or give so much back if negative."""
        full = asyncio.get_running_loop().time() - self._most / self._rate
        self._empty_at = max(self._empty_at, full) + units / self._rate


class Rates:
    """Requests and tokens a minute of an endpoint; None sets no limit."""

    def __init__(self, requests_per_minute: int | None, tokens_per_minute: int | None) -> None:
        self._requests = Allowance(requests_per_minute) if requests_per_minute else None
        self._tokens = Allowance(tokens_per_minute) if tokens_per_minute else None
        self._spent, self._ended = 0.0, 0

    async def admit(self, most_tokens: int) -> float:
        """Wait for a request's turn; returns the tokens that it was charged."""
        if self._requests:
            await self._requests.take(1)
        if not self._tokens:
            return 0.0
        charged = min(most_tokens, self._spent / self._ended) if self._ended else most_tokens
        await self._tokens.take(charged)
        return float(charged)

    def settle(self, charged: float, tokens: int) -> None:
        """Charge what a request really took."""
        if tokens:
            self._spent += tokens
            self._ended += 1
        if self._tokens:
            self._tokens.correct(tokens - charged)

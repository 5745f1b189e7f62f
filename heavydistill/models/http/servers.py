"""The servers of one model: who takes the next request, and who is left alone for a while.

Each server has so many slots. One that is overloaded loses half of them and is left alone for as
long as it asks for, or ever longer while it goes on; each response gives back a part of a slot.
One that fails several times in a row is taken out, and one request now and then looks whether it
is back. All of it is for one event loop and needs no lock.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from dataclasses import dataclass, field

from heavydistill.models.http.reply import OUTAGES
from heavydistill.models.request import Response

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 60.0
_FAULTS_IN_A_ROW = 3
_WORDS = 160  # characters of an error that a line of the log holds
_CLOCK_S = 0.001  # a timer may go off early by this
_log = logging.getLogger("heavydistill.models")
_MINUTE_S = 60.0
_MOST_SAVED_S = 1.0
_TICK_S = 0.001


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

    def is_free(self, now: float) -> bool:
        return self.in_flight < int(self.slots) and self.paused_until <= now


class Servers:
    """Hands out slots in the order in which they were asked for.

    Args:
        servers: At least one.
        patience_s: How long a run waits for an answer; no pause that is not asked for is longer.
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
        """Give a slot back after a request.

        Args:
            server: Server that gave it.
            response: Response of the request.
            wait_s: How long the server asks to be left alone.
        """
        server.in_flight -= 1
        if response.failure == "overloaded":
            self._slow_down(server, response, wait_s)
        elif response.failure in OUTAGES:
            self._note_fault(server, response)
        else:
            server.troubles = 0
            server.slots = min(server.most, server.slots + 1 / server.slots)
        self._hand_out()

    def _slow_down(self, server: Server, response: Response, wait_s: float | None) -> None:
        now = asyncio.get_running_loop().time()
        if now >= server.paused_until:  # else it was sent before, and is the same overload
            server.troubles += 1
            server.slots = max(1.0, server.slots / 2)
            wait_s = self._back_off(server.troubles) if wait_s is None else wait_s
        if wait_s is None:
            return
        self._pause(server, wait_s)
        _log.warning(
            "%s is overloaded: nothing for %.1f s, then at most %d requests at once (%s)",
            server.url,
            server.paused_until - now,
            server.slots,
            _first_words(response),
        )

    def _note_fault(self, server: Server, response: Response) -> None:
        now = asyncio.get_running_loop().time()
        if now < server.paused_until:
            return
        server.troubles += 1
        if server.troubles < _FAULTS_IN_A_ROW:
            return
        server.slots = 1.0
        self._pause(server, self._back_off(server.troubles - _FAULTS_IN_A_ROW + 1))
        _log.warning(
            "%s does not work (%s, %d times in a row): asked again in %.1f s (%s)",
            server.url,
            response.failure,
            server.troubles,
            server.paused_until - now,
            _first_words(response),
        )

    def _pause(self, server: Server, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        server.paused_until = max(server.paused_until, loop.time() + seconds)
        loop.call_at(server.paused_until, self._hand_out)

    def _back_off(self, times: int) -> float:
        """Seconds after so many troubles: twice as many each time, give or take a quarter."""
        seconds = _FIRST_PAUSE_S * 2.0 ** min(times - 1, 16)
        return min(self._longest_s, seconds) * random.uniform(0.75, 1.25)

    def _hand_out(self) -> None:
        now = asyncio.get_running_loop().time() + _CLOCK_S
        while self._waiting:
            free = [s for s in self._servers if s.is_free(now)]
            if not free:
                return
            waiter = self._waiting.popleft()
            if waiter.done():  # whoever waited has gone
                continue
            server = min(free, key=lambda s: (s.troubles, s.in_flight / s.slots))
            server.in_flight += 1
            waiter.set_result(server)


def _first_words(response: Response) -> str:
    """The beginning of what a server said, on one line."""
    return " ".join((response.error or "").split())[:_WORDS]


class Allowance:
    """Fills evenly, holds a second's worth at most, and may be overdrawn.

    Whoever takes more than it holds waits until it is full, and those after him until that is made
    up for. So no minute has more than the limit, but for what the last one took beyond a second's
    worth and what turned out to be more than was taken.
    """

    def __init__(self, per_minute: int) -> None:
        # Less than one unit would never be enough for one.
        self._most = max(1.0, per_minute / _MINUTE_S * _MOST_SAVED_S)
        # What is saved at the start of a minute comes on top of what it fills by.
        self._rate = (per_minute - self._most + 1) / _MINUTE_S
        self._left = self._most
        self._at: float | None = None
        self._turn = asyncio.Lock()

    async def take(self, units: float) -> None:
        """Wait until so much is there, or as much as there can be."""
        async with self._turn:
            wanted = min(units, self._most)
            while (missing := wanted - self._filled()) > 0:
                # Rounding may leave less missing than a clock can tell.
                await asyncio.sleep(max(missing / self._rate, _TICK_S))
            self._left -= units

    def correct(self, units: float) -> None:
        """Take so much more without waiting, or give so much back if negative."""
        self._left = min(self._most, self._filled() - units)

    def _filled(self) -> float:
        now = asyncio.get_running_loop().time()
        since = now - (now if self._at is None else self._at)
        self._at = now
        self._left = min(self._most, self._left + since * self._rate)
        return self._left


class Rates:
    """Both limits of an endpoint."""

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

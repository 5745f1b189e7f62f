"""Limits of an endpoint: slots per server, pauses, requests and tokens per minute.

All engines of this process that use the same endpoint share its limits; requests are served in
order. Each server has a number of slots, i.e. of requests in flight. A provider refuses a few
requests (HTTP 429) whatever a client does, and more if the client sends too many, so the slots
follow the share of refusals among the latest requests: above a tenth they shrink by half that
share, and each response adds a part of a slot again. A server that refuses most of them, or asks
for a long pause, is paused. A server that fails several times in a row is paused too, and single
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
_LATEST = 32  # number of requests among which refusals are counted
_FEWEST_REFUSALS = 3  # since the last change of the slots
_TOLERATED_SHARE, _PAUSED_SHARE = 0.1, 0.5  # shares of refused requests
_GROWTH = 0.1  # added share of slots when each slot has brought a response; a slot if more
_BRIEF_S = 5.0  # a pause up to this length concerns the refused request only
_WARN_EVERY_S = 30.0
_WORDS = 160  # maximum characters of an error in a log line
_CLOCK_S = 0.001  # a timer may fire early by this much
_MINUTE_S = 60.0
_log = logging.getLogger("heavydistill.models")


def back_off(times: int, longest_s: float) -> float:
    """Pause in seconds after ``times`` failures: doubled each time, varied by up to a quarter."""
    seconds = _FIRST_PAUSE_S * 2.0 ** min(times - 1, 16)
    return min(longest_s, seconds) * random.uniform(0.75, 1.25)


def refusal_wait(times: int, asked_s: float | None, longest_s: float) -> float:
    """Seconds until a request that was refused ``times`` times is sent again.

    At least the ``asked_s`` seconds that the server asks for; a long pause is the server's own.
    """
    brief_s = asked_s if asked_s and asked_s <= _BRIEF_S else 0.0
    return max(brief_s, back_off(times, longest_s))


@dataclass(slots=True, eq=False)
class Server:
    """State of one server address."""

    url: str  # Base URL
    most: int  # Maximum and initial number of slots
    slots: float = field(init=False)  # Current limit of requests in flight
    in_flight: int = 0  # Number of requests in flight
    has_answered: bool = False
    faults: int = 0  # Number of outages since the last response
    pauses: int = 0  # Number of pauses for refusals since the last response
    refused: int = 0  # Number of refusals since the last change of ``slots``
    unreported: int = 0  # Number of refusals since the last warning
    paused_until: float = 0.0  # Event loop time before which the server gets no request
    warned_at: dict[str, float] = field(default_factory=dict)  # Event loop time by kind of warning
    latest: deque[bool] = field(default_factory=lambda: deque(maxlen=_LATEST))
    """Whether each of the latest requests was refused."""

    def __post_init__(self) -> None:
        self.slots = self.most

    @property
    def most_in_flight(self) -> int:
        """Current maximum number of requests in flight; 1 while it is tested after faults."""
        return 1 if self.faults >= _FAULTS_IN_A_ROW else int(self.slots)

    @property
    def works(self) -> bool:
        """Whether it has answered, and has not failed several times in a row since."""
        return self.has_answered and self.faults < _FAULTS_IN_A_ROW

    @property
    def refused_share(self) -> float:
        """Share of refusals among the latest requests, of which there must be one."""
        return sum(self.latest) / len(self.latest)


class Servers:
    """Assigns the slots of an endpoint's servers to requests, in order of arrival.

    ``patience_s`` is the maximum pause, unless a server asks for a longer one, and the time without
    an answer after which the run stops.
    """

    def __init__(self, servers: list[Server], patience_s: float) -> None:
        self._servers = servers
        self._longest_s = min(_LONGEST_PAUSE_S, patience_s)
        self._patience_s = patience_s
        self.end_run = True  # whether a run ends if they do not answer, or a service goes on
        self._waiting: deque[asyncio.Future[Server]] = deque()

    async def lease(self, is_urgent: bool = False, at: Server | None = None) -> Server:
        """Wait for a slot of the server with most free slots; ``release`` or ``give_back`` it.

        A request to a certain server, ``at``, does not wait: it may exceed the server's slots.
        """
        if at:
            at.in_flight += 1
            return at
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
        """Return a slot that says nothing about the server."""
        server.in_flight -= 1
        self._hand_out()

    def pause_s(self) -> float:
        """Seconds until some server may get a request; 0 if one may get it now."""
        soonest = min(server.paused_until for server in self._servers)
        return max(0.0, soonest - asyncio.get_running_loop().time())

    def give_back(
        self,
        server: Server,
        response: Response,
        wait_s: float | None = None,
        is_excused: bool = False,
    ) -> None:
        """Return a slot after a request.

        Args:
            server: Server of the slot.
            response: What came of the request.
            wait_s: Pause in seconds that the server asks for, if any.
            is_excused: Whether a failure is due to the prompt if this server works.
        """
        # Requests sent before a pause give no new information about the server.
        is_paused = asyncio.get_running_loop().time() < server.paused_until
        if response.failure == "overloaded":
            self._note_refusal(server, wait_s or 0.0, is_paused)
            self._warn_of_refusals(server, response)
        elif response.failure not in OUTAGES:
            server.latest.append(False)
            server.faults = server.pauses = 0
            server.has_answered = True
            growth = _GROWTH if any(server.latest) else max(_GROWTH, 1 / server.slots)
            server.slots = min(server.most, server.slots + growth)
        elif not (is_paused or (is_excused and server.works)):
            server.faults += 1
            if server.faults >= _FAULTS_IN_A_ROW:
                times = server.faults - _FAULTS_IN_A_ROW + 1
                self._pause(server, back_off(times, self._longest_s))
                if self._is_due(server, "faults"):
                    what = f"does not work ({response.failure}, {server.faults} times in a row)"
                    self._warn(server, what, response)
        self.release(server)

    def _note_refusal(self, server: Server, wait_s: float, is_paused: bool) -> None:
        if not is_paused:
            server.latest.append(True)
            server.refused += 1
            share = server.refused_share
            if server.refused >= _FEWEST_REFUSALS and share >= _TOLERATED_SHARE:
                server.slots = max(1.0, server.slots * (1 - share / 2))
                server.refused = 0
                if share >= _PAUSED_SHARE:
                    server.pauses += 1
                    self._pause(server, max(wait_s, back_off(server.pauses, self._longest_s)))
        if wait_s > _BRIEF_S:
            self._pause(server, wait_s)

    def _pause(self, server: Server, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        server.paused_until = max(server.paused_until, loop.time() + seconds)
        loop.call_at(server.paused_until, self._hand_out)

    def _warn_of_refusals(self, server: Server, response: Response) -> None:
        server.unreported += 1
        stops = f"; the run stops after {self._patience_s:g} s without an answer"
        is_first = self.end_run and "refusals" not in server.warned_at
        if self._is_due(server, "refusals"):
            counts = f"refusals since the last warning: {server.unreported:,}"
            most = f"requests in flight: at most {server.most_in_flight}"
            server.unreported = 0
            what = f"is overloaded; {counts}; {most}{stops if is_first else ''}"
            self._warn(server, what, response)

    def _is_due(self, server: Server, kind: str) -> bool:
        """Whether to print a warning of this kind; at most one per half minute."""
        now = asyncio.get_running_loop().time()
        is_due = now - server.warned_at.get(kind, -math.inf) >= _WARN_EVERY_S
        if is_due:
            server.warned_at[kind] = now
        return is_due

    def _warn(self, server: Server, what: str, response: Response) -> None:
        pause_s = server.paused_until - asyncio.get_running_loop().time()
        retry = f"; retry in {pause_s:.1f} s" if pause_s > 0 else ""
        message = " ".join((response.error or "").split())[:_WORDS]
        _log.warning("%s %s%s (%s)", server.url, what, retry, message)

    def _hand_out(self) -> None:
        while self._waiting:
            free = [
                server
                for server in self._servers
                if server.in_flight < server.most_in_flight and not self.is_paused(server)
            ]
            if not free:
                return
            waiter = self._waiting.popleft()
            if waiter.done():  # the waiting request was cancelled
                continue
            server = min(free, key=lambda s: (s.faults + s.pauses, s.in_flight / s.slots))
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

"""So many requests and tokens a minute, spread evenly over it.

What a request will take is not known before it ends: it is charged what the earlier ones took on
average, and the difference when it ends, which the later ones wait for.
"""

from __future__ import annotations

import asyncio

_MINUTE_S = 60.0
_MOST_SAVED_S = 1.0
_TICK_S = 0.001


class Allowance:
    """Fills evenly, holds a second's worth at most, and may be overdrawn.

    Whoever takes more than it holds waits until it is full, and those after him until that is made
    up for. So no minute has more than the limit, but for what the last one took beyond a second's
    worth and what turned out to be more than was taken.

    Args:
        per_minute: Most units in a minute.
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
    """Both limits of an endpoint.

    Args:
        requests_per_minute: None sets no limit.
        tokens_per_minute: None sets no limit.
    """

    def __init__(self, requests_per_minute: int | None, tokens_per_minute: int | None) -> None:
        self._requests = Allowance(requests_per_minute) if requests_per_minute else None
        self._tokens = Allowance(tokens_per_minute) if tokens_per_minute else None
        self._spent, self._ended = 0.0, 0

    async def admit(self, most_tokens: int) -> float:
        """Wait for a request's turn; returns the tokens that it was charged.

        Args:
            most_tokens: That it can take.
        """
        if self._requests:
            await self._requests.take(1)
        if not self._tokens:
            return 0.0
        charged = min(most_tokens, self._spent / self._ended) if self._ended else most_tokens
        await self._tokens.take(charged)
        return float(charged)

    def settle(self, charged: float, tokens: int) -> None:
        """Charge what a request really took.

        Args:
            charged: What ``admit`` returned.
            tokens: Prompt and response.
        """
        if tokens:
            self._spent += tokens
            self._ended += 1
        if self._tokens:
            self._tokens.correct(tokens - charged)

"""The limits a minute, on a clock of their own."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heavydistill.models.http.limits import Allowance, Rates


class _Jump(selectors.DefaultSelector):
    """Never waits: the clock jumps to where the loop would have waited to."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        self.now += timeout or 0.0
        return super().select(0)


def on_a_jumping_clock(work: Coroutine[Any, Any, Any]) -> Any:
    selector = _Jump()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now  # type: ignore[method-assign]
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


async def times(rates: Rates, tokens: list[int]) -> list[float]:
    """When each request was admitted; each ends as soon as it is."""
    loop, admitted = asyncio.get_running_loop(), []

    async def one(taken: int) -> None:
        charged = await rates.admit(1000)
        admitted.append(loop.time())
        rates.settle(charged, taken)

    await asyncio.gather(*map(one, tokens))
    return admitted


def busiest_minute(events: list[tuple[float, float]]) -> float:
    return max(
        # Less what a sum of so many waits is rounded by.
        sum(amount for at, amount in events if start <= at < start + 60 - 1e-6)
        for start, _ in events
    )


@settings(max_examples=30, deadline=None)
@given(limit=st.integers(1, 50), count=st.integers(1, 200))
def test_no_minute_has_more_requests_than_its_limit(limit, count):
    admitted = on_a_jumping_clock(times(Rates(limit, None), [10] * count))
    assert busiest_minute([(at, 1) for at in admitted]) <= limit
    # And no slower than it must be.
    assert max(admitted) == pytest.approx((count - 1) * 60 / limit, rel=0.001, abs=0.1)


@settings(max_examples=30, deadline=None)
@given(limit=st.integers(61, 400), idle_s=st.floats(0, 300))
def test_no_minute_after_a_pause_has_more_either(limit, idle_s):
    async def work() -> list[float]:
        rates, loop = Rates(limit, None), asyncio.get_running_loop()
        admitted = []
        for number in range(2 * limit):
            if number == limit // 2:
                await asyncio.sleep(idle_s)
            await rates.admit(1)
            admitted.append(loop.time())
        return admitted

    admitted = on_a_jumping_clock(work())
    assert busiest_minute([(at, 1) for at in admitted]) <= limit
    assert max(admitted) <= 2 * 60 * 1.02 + idle_s + 0.1


@settings(max_examples=30, deadline=None)
@given(tokens=st.lists(st.integers(1, 900), min_size=1, max_size=60), limit=st.integers(100, 5000))
def test_tokens_are_within_the_limit_on_the_whole(tokens, limit):
    admitted = on_a_jumping_clock(times(Rates(None, limit), tokens))
    most = limit + max(tokens) + 1000  # what the last one takes, and what the first is charged
    assert busiest_minute(list(zip(admitted, tokens, strict=True))) <= most
    assert max(admitted) >= (sum(tokens[:-1]) - limit / 60 - 1000) / limit * 60 - 0.1


def test_without_limits_nobody_waits():
    assert on_a_jumping_clock(times(Rates(None, None), [10**6] * 50)) == [0.0] * 50


def test_the_first_requests_are_charged_what_they_can_take_and_later_ones_the_mean():
    async def charges() -> list[float]:
        rates = Rates(None, 10**6)
        first = await rates.admit(1000)
        rates.settle(first, 100)
        second = await rates.admit(1000)
        rates.settle(second, 300)
        return [first, second, await rates.admit(1000), await rates.admit(50)]

    assert on_a_jumping_clock(charges()) == [1000, 100, 200, 50]


def test_a_request_larger_than_a_minute_is_made_up_for_by_those_after_it():
    async def when() -> list[float]:
        allowance, loop, at = Allowance(60), asyncio.get_running_loop(), []
        for units in (100, 1):
            await allowance.take(units)
            at.append(loop.time())
        return at

    assert on_a_jumping_clock(when()) == pytest.approx([0, 100], abs=0.1)

"""Slots and limits a minute, on a clock of their own."""

import asyncio
import random
from collections.abc import Callable

import pytest
from fake_clock import on_a_fake_clock
from hypothesis import given, settings
from hypothesis import strategies as st

from heavydistill.models.http.completion import failed
from heavydistill.models.http.limits import Allowance, Rates, Server, Servers, refusal_wait
from heavydistill.models.request import Response


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
    admitted = on_a_fake_clock(times(Rates(limit, None), [10] * count))
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

    admitted = on_a_fake_clock(work())
    assert busiest_minute([(at, 1) for at in admitted]) <= limit
    assert max(admitted) <= 2 * 60 * 1.02 + idle_s + 0.1


@settings(max_examples=30, deadline=None)
@given(tokens=st.lists(st.integers(1, 900), min_size=1, max_size=60), limit=st.integers(100, 5000))
def test_tokens_are_within_the_limit_on_the_whole(tokens, limit):
    admitted = on_a_fake_clock(times(Rates(None, limit), tokens))
    most = limit + max(tokens) + 1000  # what the last one takes, and what the first is charged
    assert busiest_minute(list(zip(admitted, tokens, strict=True))) <= most
    assert max(admitted) >= (sum(tokens[:-1]) - limit / 60 - 1000) / limit * 60 - 0.1


def test_without_limits_nobody_waits():
    assert on_a_fake_clock(times(Rates(None, None), [10**6] * 50)) == [0.0] * 50


def test_the_first_requests_are_charged_what_they_can_take_and_later_ones_the_mean():
    async def charges() -> list[float]:
        rates = Rates(None, 10**6)
        first = await rates.admit(1000)
        rates.settle(first, 100)
        second = await rates.admit(1000)
        rates.settle(second, 300)
        return [first, second, await rates.admit(1000), await rates.admit(50)]

    assert on_a_fake_clock(charges()) == [1000, 100, 200, 50]


def test_a_request_larger_than_a_minute_is_made_up_for_by_those_after_it():
    async def when() -> list[float]:
        allowance, loop, at = Allowance(60), asyncio.get_running_loop(), []
        for units in (100, 1):
            await allowance.take(units)
            at.append(loop.time())
        return at

    assert on_a_fake_clock(when()) == pytest.approx([0, 100], abs=0.1)


SLOTS, LATENCY_S = 64, 1.0
ANSWERED = Response(finish_reason="stop")


async def course(refuses: Callable[[int, float], bool], asked_s: float | None) -> dict[str, float]:
    """1,500 requests to a server that refuses by the requests it works on, and the time."""
    loop, server = asyncio.get_running_loop(), Server("http://host/v1", SLOTS)
    servers, working, refusals = Servers([server], 600.0), 0, 0

    async def one() -> None:
        nonlocal working, refusals
        for times in range(1, 100):
            leased = await servers.lease()
            if refuses(working, loop.time()):
                refusals += 1
                await asyncio.sleep(0.01)
                servers.give_back(leased, failed("overloaded", "HTTP 429", 0.01), asked_s)
                await asyncio.sleep(refusal_wait(times, asked_s, 30.0))
                continue
            working += 1
            await asyncio.sleep(LATENCY_S)
            working -= 1
            servers.give_back(leased, ANSWERED)
            return
        raise AssertionError("refused for ever")

    await asyncio.gather(*(one() for _ in range(1500)))
    return {"a second": 1500 / loop.time(), "refused": refusals / (1500 + refusals)}


@pytest.mark.parametrize("asked_s", [1.0, 0.0, None])
@pytest.mark.parametrize("share", [0.01, 0.05])
def test_refusals_that_do_not_depend_on_the_load_hardly_slow_a_run(share, asked_s):
    draw = random.Random(7)
    found = on_a_fake_clock(course(lambda working, now: draw.random() < share, asked_s))
    whole = on_a_fake_clock(course(lambda working, now: False, None))
    assert found["a second"] >= 0.8 * whole["a second"]


def at_most_at_once(most: int) -> Callable[[int, float], bool]:
    return lambda working, now: working >= most


def at_most_a_second(most: int) -> Callable[[int, float], bool]:
    left, at = float(most), 0.0

    def refuses(working: int, now: float) -> bool:
        nonlocal left, at
        left, at = min(most, left + (now - at) * most), now
        left -= (is_taken := left >= 1)
        return not is_taken

    return refuses


@pytest.mark.parametrize("asked_s", [1.0, 0.0, None])
@pytest.mark.parametrize(("limit", "most"), [(at_most_at_once, 20), (at_most_a_second, 20)])
def test_refusals_that_depend_on_the_load_find_the_limit(limit, most, asked_s):
    found = on_a_fake_clock(course(limit(most), asked_s))
    assert found["a second"] >= 0.8 * most / LATENCY_S
    assert found["refused"] <= 0.25


def test_a_server_that_refuses_everything_is_paused_ever_longer_whatever_it_asks_for(caplog):
    async def work() -> list[float]:
        server, loop, at = Server("http://host/v1", SLOTS), asyncio.get_running_loop(), []
        servers = Servers([server], 600.0)
        for _ in range(30):
            leased = await servers.lease()
            at.append(loop.time())
            servers.give_back(leased, failed("overloaded", "HTTP 429: slow down", 0.0), 0.0)
        return at

    at = on_a_fake_clock(work())
    assert at[3] >= 0.3 and at[-1] >= 100
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) <= 2 + at[-1] / 30
    assert "refusals since the last warning: 1;" in warnings[0]
    stops = ["the run stops after 600 s without an answer" in warning for warning in warnings]
    assert stops == [True] + [False] * (len(warnings) - 1)
    assert "in flight: at most 1 (HTTP 429: slow down)" in warnings[-1]


@pytest.mark.parametrize(("asked_s", "paused_s"), [(5.0, 0.0), (6.0, 6.0)])
def test_a_pause_of_more_than_five_seconds_is_the_servers_and_a_shorter_one_the_requests(
    asked_s, paused_s
):
    async def work() -> float:
        servers = Servers([Server("http://host/v1", SLOTS)], 600.0)
        refused = failed("overloaded", "HTTP 429: slow down", 0.0)
        servers.give_back(await servers.lease(), refused, asked_s)
        return servers.pause_s()

    assert on_a_fake_clock(work()) == paused_s


def test_a_prompt_at_fault_pauses_no_server_that_answers_others():
    broken = failed("server", "HTTP 500", 0.0)

    async def work(is_answered: bool) -> float:
        server = Server("http://host/v1", SLOTS)
        servers = Servers([server], 600.0)
        if is_answered:
            servers.give_back(await servers.lease(), ANSWERED)
        else:  # one of several that answers nothing
            servers.give_back(await servers.lease(), broken)
        for _ in range(9):
            servers.give_back(await servers.lease(), broken, is_excused=True)
        return servers.pause_s()

    assert on_a_fake_clock(work(is_answered=True)) == 0
    assert on_a_fake_clock(work(is_answered=False)) > 1

"""The client against servers that fail on purpose, over real HTTP.

How long a run waits for those that bring nothing, and how it tells that from a bad prompt.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any
from unittest import mock

import messages
import pytest
from asking import always, ask, asking, first_attempt, is_right, requests
from fake_clock import now, on_a_fake_clock
from fault_server import ERRORS, REASONING, faulty
from marked import eventually

from heavydistill.config.models import Capabilities
from heavydistill.errors import StoppedError, TeacherError
from heavydistill.models.http import transport
from heavydistill.models.http.circuit_breaker import CircuitBreaker
from heavydistill.models.http.completion import failed
from heavydistill.models.http.failures import RefusedError
from heavydistill.models.http.limits import Servers
from heavydistill.models.request import Request, Response

PLAIN = "What is 1 + 1?"


def is_of(request: Request, body: Any) -> bool:
    return (body["seed"], body["messages"]) == (request.seed, request.messages)


@pytest.mark.parametrize("place", [place for place in REASONING if place != "none"])
@pytest.mark.parametrize("stream", ["pieces", "whole"])
def test_the_thinking_is_read_wherever_it_is(place, stream):
    with faulty(reasoning=place, stream=stream) as server:
        (response,) = ask(server, requests(1))
        assert is_right(response, server)
        assert (response.prompt_tokens, response.cached_tokens) == (4, 2)
        assert response.completion_tokens == server.bill[0][1]


@pytest.mark.parametrize("fault", ["busy", "busy, wait", "starting"])
def test_an_overload_is_asked_again(fault):
    with faulty(plan=first_attempt(fault)) as server:
        (response,) = ask(server, requests(1), timeout_s=2)
        assert is_right(response, server) and len(server.requests) == 2


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("broken", "server"),
        ("hang", "timeout"),
        ("stall", "timeout"),
        ("hang up", "cut_off"),
        ("no json", "malformed"),
        ("no choices", "malformed"),
        ("cut", "cut_off"),
        ("no end", "cut_off"),
        ("fault in the stream", "cut_off"),
    ],
)
def test_what_breaks_once_is_mended_and_what_stays_broken_is_a_failure(fault, kind):
    with faulty(plan=first_attempt(fault)) as server:
        (response,) = ask(server, requests(1), timeout_s=2)
        assert is_right(response, server) and len(server.requests) == 2
    with faulty() as server:
        # Somebody else is answered meanwhile, so the server is there.
        first = requests(1)[0]
        server.plan = lambda body, attempt: fault if is_of(first, body) else None
        response, *others = ask(server, requests(8), timeout_s=1, retries=1, concurrency=1)
        assert response.failure == kind and response.error
        assert (response.reasoning, response.answer_text) == ("", "")
        assert all(other.finish_reason == "stop" for other in others)
        assert sum(is_of(first, body) for _, body in server.requests) == 2


def test_a_text_that_takes_longer_than_the_patience_is_no_time_out_as_long_as_pieces_come():
    with faulty(plan=always("slow stream")) as server:
        assert ask(server, requests(1), timeout_s=0.9, retries=0)[0].finish_reason == "stop"


def test_a_server_that_is_busy_is_asked_less_and_all_are_answered():
    in_flight: list[int] = []  # when each came
    volleys = {16: threading.Barrier(16), 24: threading.Barrier(8)}

    def plan(body: Any, attempt: int) -> str | None:
        with server.lock:
            in_flight.append(server.in_flight)
            last = next((last for last in volleys if len(in_flight) <= last), None)
        if last:  # breaks unless so many are sent at once
            volleys[last].wait(60)
        return "busy" if last else None

    with faulty() as server:
        server.plan = plan
        responses = ask(server, requests(40), concurrency=16, retries=1)
        assert all(response.finish_reason == "stop" for response in responses)
        assert len(server.requests) == 16 + 8 + 40
        # All slots at first, then half of them each time, ever more seldom. Three refusals decide,
        # so two requests may still follow the first two.
        assert (max(in_flight[18:24]), max(in_flight[26:30])) <= (8, 4)
        sent = [at for at, _ in server.requests]
        second, first = sorted(after - at for at, after in itertools.pairwise(sent))[-2:]
        assert min(first, second) > 0.3 and max(first, second) > 0.7


def test_a_server_that_wants_to_be_left_alone_for_a_day_stops_the_run_and_it_goes_on_later():
    kept: list[int] = []
    with faulty(retry_after="86400") as server:
        server.plan = lambda body, attempt: "busy for" if body["seed"] == 3 else None
        with asking(server, concurrency=1) as engine, pytest.raises(StoppedError) as caught:
            engine.generate(requests(8), lambda samples: kept.extend(r.seed for r, _ in samples))
        assert kept == [0, 1, 2] and len(server.requests) == 4
        assert "a pause of 86,400 s" in caught.value.what
        assert "endpoint.timeout_s (600 s)" in caught.value.what
        assert "HTTP 429: Rate limit reached" in caught.value.what
        assert "same command" in caught.value.fix
        server.plan = lambda body, attempt: None
        assert all(r.failure is None for r in ask(server, requests(8)[3:], concurrency=1))


def test_a_server_that_wants_to_be_left_alone_for_a_day_leaves_its_requests_to_another():
    with faulty(plan=always("busy for"), retry_after="86400") as busy, faulty() as other:
        responses = ask(f"{busy.base_url},{other.base_url}", requests(20), concurrency=2)
        assert all(response.failure is None for response in responses)
        assert len(busy.requests) <= 2


def test_several_servers_share_the_load():
    together = threading.Barrier(8)

    def plan(body: Any, attempt: int) -> None:
        together.wait(60)  # breaks, and fails the requests, unless all slots are used

    with faulty(plan=plan) as one, faulty(plan=plan) as two:
        responses = ask(f"{one.base_url},{two.base_url}", requests(40), concurrency=4, retries=0)
        assert all(response.finish_reason == "stop" for response in responses)
        assert [len(server.requests) for server in (one, two)] == [20, 20]
        assert (one.most_in_flight, two.most_in_flight) == (4, 4)


@pytest.mark.parametrize("fault", ["hang up", "broken", "hang"])
def test_a_dead_server_is_taken_out_and_its_requests_go_to_the_others(fault):
    with faulty(plan=always(fault)) as dead, faulty(seconds=0.05) as alive:
        responses = ask(f"{dead.base_url},{alive.base_url}", requests(60), timeout_s=3)
        assert all(response.finish_reason == "stop" for response in responses)
        assert len(alive.requests) - asked_plainly(alive) == 60
        # Those that were sent to it at once, and a few that looked whether it is back.
        assert len(dead.requests) <= 32 + 5


def test_a_server_that_comes_back_is_asked_again():
    with faulty(seconds=0.1) as other, faulty() as flaky:
        # Three in a row, and one that looks whether it is back.
        flaky.plan = lambda body, attempt: "hang up" if len(flaky.requests) <= 4 else None
        ask(f"{flaky.base_url},{other.base_url}", requests(120), concurrency=2)
        assert len(flaky.requests) > 4


def prompts(count: int, samples: int = 1) -> list[Request]:
    """So many samples of each of so many prompts."""
    each = (requests(samples, f"{number}+1?") for number in range(count))
    return [request for of_one in each for request in of_one]


@pytest.mark.parametrize("fault", ["starting", "broken", "gateway", "hang"])
def test_a_run_stops_when_every_server_is_silent_or_broken(fault):
    with faulty(plan=always(fault)) as server, messages.raises("no_server_answered"):
        ask(server, prompts(6), timeout_s=2, retries=1)


@pytest.mark.parametrize("fault", ["starting", "gateway"])
def test_a_slow_start_and_a_broken_server_are_waited_for(fault):
    ready = now() + 3.0
    with faulty(plan=lambda body, attempt: fault if now() < ready else None) as server:
        responses = ask(server, prompts(4), timeout_s=30, retries=1)
        assert all(response.finish_reason == "stop" for response in responses)


@pytest.mark.parametrize("fault", ["broken", "hang"])
def test_a_prompt_that_breaks_the_server_does_not_stop_the_run(fault):
    with faulty() as server:
        server.plan = lambda body, attempt: fault if "bad" in str(body["messages"]) else None
        # It is the last one, so nobody else is answered any more.
        wanted = requests(2) + requests(3, "bad")
        responses = ask(server, wanted, timeout_s=0.6, retries=1)
        assert asked_plainly(server) >= 1
        kind = {"broken": "server", "hang": "timeout"}[fault]
        assert [r.failure for r in responses] == [None] * 2 + [kind] * 3


@pytest.mark.parametrize("fault", ["broken", "no choices", "no end", "hang"])
def test_prompts_that_always_fail_cost_their_samples_alone(fault):
    bad = {f"{number}+1?" for number in range(4)}
    settings = {"timeout_s": 0.5, "retries": 2, "concurrency": 4}
    pausing = mock.patch.object(Servers, "_pause", autospec=True, side_effect=Servers._pause)
    with faulty() as server, pausing as pauses:
        server.plan = lambda body, attempt: fault if body["messages"][0]["content"] in bad else None
        # The bad ones come last, so nobody else is answered any more.
        responses = ask(server, requests(2) + prompts(4, samples=2), **settings)
        assert [r.failure is None for r in responses] == [True] * 2 + [False] * 8
        # Each is repeated twice; some attempts do not count as long as a question is under way.
        sent = [body["messages"][0]["content"] for _, body in server.requests]
        assert 8 * 3 <= sum(text in bad for text in sent) <= 8 * 3 + 2 * 4
        assert 1 <= sent.count(PLAIN) <= 3
        # No pause once it is known whose fault it is.
        assert pauses.call_count <= 4
        # The resumption, which asks for nothing else, ends as well.
        again = ask(server, prompts(4, samples=2), **settings)
        assert all(response.failure for response in again)


def test_a_server_that_refuses_the_test_question_but_answered_others_does_not_stop_the_run():
    faults = {PLAIN: "refused", **{f"{number}+1?": "broken" for number in range(4)}}
    with faulty(plan=lambda body, attempt: faults.get(body["messages"][0]["content"])) as server:
        responses = ask(server, requests(2) + prompts(4), timeout_s=0.5, retries=2)
        assert asked_plainly(server) >= 1
    assert [r.failure for r in responses] == [None] * 2 + ["server"] * 4


def test_an_outage_after_prompts_that_always_fail_is_one():
    is_dead = threading.Event()
    with faulty() as server:

        def plan(body: Any, attempt: int) -> str | None:
            return "broken" if is_dead.is_set() or "bad" in str(body["messages"]) else None

        server.plan = plan
        with asking(server, timeout_s=0.5, retries=2) as engine:
            assert {r.failure for r in engine.generate(requests(4, "bad"))} == {"server"}
            is_dead.set()
            with messages.raises("no_server_answered"):
                engine.generate(requests(2, "bad") + requests(2))


def test_several_samples_that_cannot_travel_together_are_asked_singly_before_a_run_stops(caplog):
    with faulty(honours_n=4) as server:
        server.plan = lambda body, attempt: "no choices" if body.get("n") else None
        settings = {"capabilities": Capabilities(n=4), "timeout_s": 0.5, "retries": 4}
        responses = ask(server, prompts(6, samples=4), **settings)
        assert all(response.finish_reason == "stop" for response in responses)
        assert "does not honour n" in caplog.text


def test_a_stream_that_flows_is_a_sign_of_life():
    with faulty() as server:
        started = now()
        early = {0: "slow stream"}
        server.plan = lambda body, attempt: (
            early.get(body["seed"], "busy") if now() < started + 3 else None
        )
        responses = ask(server, requests(4), timeout_s=1.5)
        assert all(response.finish_reason == "stop" for response in responses)


@pytest.mark.parametrize("fault", ["refused", "forbidden", "unknown"])
def test_an_endpoint_that_refuses_everything_stops_the_run(fault):
    with faulty(plan=always(fault)) as server:
        refused = pytest.raises(TeacherError, match="refuses every request")
        with asking(server) as engine, refused as caught:
            for problem in range(50):
                engine.generate(requests(4, f"{problem}+1?"))
        assert ERRORS[fault][2] in caught.value.what and "doctor" in caught.value.fix
        assert len(server.requests) == 3 * 4 + 1


def test_prompts_that_are_refused_do_not_stop_the_run():
    kept: list[Any] = []
    with faulty() as server:
        server.plan = lambda body, attempt: "refused" if "+1?" in str(body["messages"]) else None
        with asking(server, concurrency=1) as engine:
            responses = engine.generate(prompts(6, samples=2), kept.extend)
        assert [response.failure for response in responses] == ["rejected"] * 12
        # A plain question has told, once, and is no part of the run.
        plain = [body for _, body in server.requests if "+1?" not in str(body["messages"])]
        assert len(plain) == 1 and len(kept) == 12


@pytest.mark.parametrize(
    ("fault", "error", "said"),
    [("bad key", TeacherError, "refuses the key"), ("no money", StoppedError, "no credit left")],
)
def test_a_run_that_must_stop_keeps_what_is_in_flight(fault, error, said):
    kept: list[int] = []
    with faulty() as server, asking(server, concurrency=8) as engine:

        def plan(body: Any, attempt: int) -> str | None:
            if body["seed"] == 3:
                return fault
            assert eventually(lambda: engine.is_drained, 60)
            return None

        server.plan = plan
        with pytest.raises(error, match=said):
            engine.generate(requests(50), lambda samples: kept.extend(r.seed for r, _ in samples))
        assert sorted(body["seed"] for _, body in server.requests) == list(range(8))
        assert set(kept) - {3} == set(range(8)) - {3}


def test_requests_that_are_cancelled_are_no_failures_of_the_server(caplog):
    is_over = threading.Event()
    with faulty(plan=lambda body, attempt: is_over.wait(60) and None) as server:
        with ThreadPoolExecutor() as caller:
            with asking(server, concurrency=8) as engine:
                call = caller.submit(engine.generate, requests(8))
                assert eventually(lambda: len(server.requests) == 8, 60)
            with pytest.raises(CancelledError):
                call.result()
        is_over.set()
        assert len(server.requests) == 8 and not caplog.records


def test_a_teacher_that_lost_its_thinking_stops_after_three():
    with faulty(reasoning="none") as server:
        with messages.raises("lost_thinking"):
            ask(server, requests(20), thinks=True, concurrency=1)
        assert len(server.requests) == 3
        responses = ask(server, requests(5), thinks=True, reasoning="optional")
        assert all(response.finish_reason == "stop" for response in responses)


def test_a_teacher_that_has_thought_once_may_answer_without():
    with faulty() as server:
        server.seconds = 0.01

        def plan(body: Any, attempt: int) -> None:
            server.reasoning = "reasoning" if body["seed"] == 1 else "none"

        server.plan = plan
        responses = ask(server, requests(9), thinks=True, concurrency=1)
        # The first might have lost it: that is asked again by the next run.
        assert [r.failure for r in responses] == ["no_reasoning", *[None] * 8]


@pytest.mark.parametrize("place", ["none", "reasoning"])
def test_answers_without_thinking_stop_nothing_while_a_stream_shows_thinking(place):
    breaker = CircuitBreaker("m", "http://host/v1", 60.0, must_think=True)
    quick = [Response(answer_text="4", finish_reason="stop")] * 3
    with breaker.listening(mock.Mock(place=place)):
        if place == "none":
            with messages.raises("lost_thinking"):
                breaker.require_thinking(quick)
        else:
            assert breaker.require_thinking(quick) == quick


async def fail(breaker: CircuitBreaker, sent: float) -> None:
    """A request that was sent then is refused a second later."""
    await asyncio.sleep(sent + 1 - asyncio.get_running_loop().time())
    breaker.is_outage(requests(1)[0], failed("unreachable", "refused", 1.0), sent)


def test_time_in_which_nothing_is_asked_is_no_silence():
    breaker = CircuitBreaker("m", "http://host/v1", 300.0, must_think=False)

    async def work() -> None:
        for sent in (0, 3700, 3800, 3900):  # with `retries: 0` the first one is given up
            await fail(breaker, sent)
        with messages.raises("no_answer_of_m", seconds=301):
            await fail(breaker, 4000)

    on_a_fake_clock(work())


@pytest.mark.parametrize("url", ["http://localhost:1/v1", "http://gpu.example:1/v1"])
def test_a_server_of_this_machine_that_has_ended_is_named_once_after_a_minute(url, caplog):
    breaker = CircuitBreaker("m", url, 600.0, must_think=False)

    async def work() -> None:
        for sent, named in ((0, 0), (50, 0), (70, 1), (130, 1)):
            await fail(breaker, sent)
            assert caplog.text.count("has ended") == (named if "localhost" in url else 0)

    on_a_fake_clock(work())
    if "localhost" in url:
        assert "Nothing listens at http://localhost:1/v1 any more (71 s)" in caplog.text


def test_what_waits_for_its_turn_is_sent_neither_in_a_pause_nor_all_at_once_after_it():
    clock, send = transport.loop(), transport.Transport.ask
    sent: list[float] = []
    refused: list[float] = []

    async def noted(*request: Any) -> None:
        sent.append(clock.time())
        try:
            await send(*request)
        except RefusedError:
            refused.append(clock.time())
            raise

    with faulty() as server, mock.patch.object(transport.Transport, "ask", noted):
        server.plan = lambda body, attempt: (
            "busy, wait" if body["seed"] < 10 and attempt == 0 else None
        )
        # Ten a second, of which ten are sent at once, and all of those refused.
        responses = ask(server, requests(30), requests_per_minute=600, concurrency=32)
        assert all(response.finish_reason == "stop" for response in responses)
    # It is left alone for as long as it asks, but for those that were on their way.
    pause = sorted(refused)[2]
    assert not [at for at in sent if pause + 0.3 < at < pause + 0.95]
    assert max(sum(start <= at < start + 0.5 for at in sent) for start in sent) <= 20


def asked_plainly(server: Any) -> int:
    return sum(body["messages"][0]["content"] == PLAIN for _, body in server.requests)


@pytest.mark.parametrize(
    ("fault", "count", "settings"),
    [
        *(("broken", 1, {}), ("broken", 2, {}), ("hang", 1, {}), ("no json", 1, {})),
        *(("cut", 2, {}), ("cut", 9, {}), ("broken", 9, {"retries": 0, "concurrency": 1})),
    ],
)
def test_a_run_stops_when_the_server_brings_nothing_else(fault, count, settings):
    why = {"why": f"HTTP 500: {ERRORS['broken'][2]}"} if fault == "broken" else {}
    with faulty(plan=always(fault)) as server, messages.raises("no_server_answered", **why):
        ask(server, prompts(count, samples=4), **{"timeout_s": 0.5, "retries": 4, **settings})
    assert asked_plainly(server) == 1


def test_what_a_broken_server_says_is_shown_from_its_third_fault_on(caplog):
    caplog.set_level(logging.WARNING, "heavydistill.models")
    with faulty(plan=lambda body, attempt: "broken") as server, pytest.raises(StoppedError):
        ask(server, requests(4), timeout_s=0.5, retries=4)
    shown = [record.getMessage() for record in caplog.records]
    first = next(line for line in shown if "does not work" in line)
    assert "3 times in a row" in first and "HTTP 500: Internal error" in first

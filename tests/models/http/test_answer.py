"""Single requests of a service: live text, and an engine that no failure ends."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from asking import Body, Reply, always, asking, completion, first_attempt, request
from fault_server import faulty, text_of

from heavydistill.models.http.engine import OpenAIEngine
from heavydistill.models.http.transport import submit
from heavydistill.models.request import DEPTH_HEADER, Response


def answer(
    engine: OpenAIEngine, seed: int = 0, listen: Callable[[str, str], None] | None = None
) -> Response:
    return submit(engine.answer(request(seed), listen)).result(60)


def events(*deltas: Body) -> bytes:
    """A stream with these deltas."""
    pieces = [{"id": "r", "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    pieces.append({"id": "r", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    lines = [*map(json.dumps, pieces), "[DONE]"]
    return "".join(f"data: {line}\n\n" for line in lines).encode()


@pytest.mark.parametrize("place", ["reasoning_content", "reasoning", "tags", "blocks", "none"])
def test_the_text_is_passed_on_as_the_response_has_it(place):
    passed: list[tuple[str, str]] = []
    with faulty(reasoning=place) as server, asking(server) as engine:
        response = answer(engine, listen=lambda *new: passed.append(new))
        assert (response.reasoning, response.answer_text) == (
            "".join(thinking for thinking, _ in passed).strip(),
            "".join(text for _, text in passed),
        )
        thought, written = text_of(server.asked[0], 0)
        assert response.answer_text == written
        assert response.reasoning == (thought if place != "none" else "")


def test_texts_without_tags_are_live_once_the_model_is_known_to_write_answers(serve):
    stream = events({"content": "It "}, {"content": "is "}, {"content": "7."})
    server = serve(lambda body: Reply(stream, content_type="text/event-stream"))
    with asking(server) as engine:
        for _ in range(2):
            passed: list[str] = []
            answer(engine, listen=lambda _, text, passed=passed: passed.append(text))
            assert "".join(passed) == "It is 7."
            assert engine._is_plain


@pytest.mark.parametrize(
    "fault", ["starting", "broken", "refused", "bad key", "no money", "hang up"]
)
def test_the_next_request_works_after_any_failure(fault):
    faults = {"now": fault}
    plan = lambda body, attempt: faults["now"]  # noqa: E731
    with faulty(plan=plan) as server, asking(server, retries=1, timeout_s=2) as engine:
        failed = [answer(engine, seed) for seed in range(4)]
        assert all(each.failure and each.error for each in failed)
        assert not engine.is_drained
        faults["now"] = ""
        assert answer(engine, 9).failure is None


def test_an_outage_of_twice_the_time_out_ends_nothing():
    faults: dict[str, Any] = {"now": "starting"}
    plan = lambda body, attempt: faults["now"]  # noqa: E731
    with faulty(plan=plan) as server, asking(server, retries=0, timeout_s=3) as engine:
        begun = engine._loop.time()
        while engine._loop.time() - begun < 6:
            assert answer(engine).failure == "overloaded"
        faults["now"] = None
        assert answer(engine).failure is None


def test_during_a_long_pause_that_a_server_asks_for_requests_fail_at_once(caplog):
    settings = {"retry_after": "3600", "plan": always("busy for")}
    with faulty(**settings) as server, asking(server, retries=0) as engine:

        async def both() -> list[Response]:  # the clock of the tests jumps when nobody asks
            return [await engine.answer(request(seed)) for seed in (0, 1)]

        first, second = submit(both()).result(60)
    assert (first.failure, second.failure, len(server.asked)) == ("overloaded", "overloaded", 1)
    assert "pause of another 3," in str(second.error)
    assert "retry in 3" in caplog.text and "the run stops" not in caplog.text


def test_a_failure_that_may_pass_is_tried_again():
    with faulty(plan=first_attempt("broken")) as server, asking(server) as engine:
        assert answer(engine).failure is None
        assert len(server.asked) == 2


def test_nothing_is_tried_again_once_text_was_passed_on():
    passed: list[tuple[str, str]] = []
    with faulty(plan=always("cut")) as server, asking(server, retries=2) as engine:
        assert answer(engine, listen=lambda *new: passed.append(new)).failure == "cut_off"
        assert passed and len(server.asked) == 1
        assert answer(engine, 1).failure == "cut_off"  # nobody heard it
        assert len(server.asked) == 4


def test_a_cancelled_request_leaves_the_server_and_its_slot():
    with faulty(plan=lambda body, attempt: "hang" if body["seed"] == 0 else None) as server:
        with asking(server, concurrency=1) as engine:

            async def cancelled() -> None:
                task = asyncio.ensure_future(engine.answer(request(0)))
                while not server.in_flight:
                    await asyncio.sleep(0.01)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

            submit(cancelled()).result(60)
            assert answer(engine, 1).failure is None
        latest = time.monotonic() + 30
        while server.in_flight and time.monotonic() < latest:
            time.sleep(0.01)
        assert not server.in_flight


def test_requests_of_a_service_say_so(serve):
    server = serve(lambda body: Reply(completion()))
    with asking(server) as engine:
        engine.generate([request()])
        answer(engine)
    assert [headers[DEPTH_HEADER] for headers in server.headers] == [None, "1"]

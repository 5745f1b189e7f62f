"""A model in this process as a service asks it: one request at a time, in batches all the same."""

import asyncio
import contextlib
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from command_line import MICRO

from heavydistill.config.models import Sampling
from heavydistill.models.local.engine import LocalEngine
from heavydistill.models.local.queue import LocalQueue
from heavydistill.models.request import Request, Response, user_turn

PROMPT = "State the final answer to the following arithmetic problem: 12 + 34 - 5 ="


@pytest.fixture(scope="module")
def engine() -> LocalEngine:
    return LocalEngine(MICRO)


@contextlib.contextmanager
def queue_of(engine: LocalEngine, monkeypatch: Any) -> Iterator[LocalQueue]:
    monkeypatch.setattr(engine, "close", lambda: None)  # the tests share it
    queue = LocalQueue(engine)
    try:
        yield queue
    finally:
        queue.close()
        engine.is_drained = False


def request(seed: int, most: int = 96) -> Request:
    return Request(user_turn(PROMPT), Sampling(top_k=10, max_tokens=most), seed)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def test_requests_of_one_moment_are_one_batch_with_the_same_texts(engine, monkeypatch):
    alone = [engine.generate([request(seed)])[0].answer_text for seed in range(3)]
    batches: list[int] = []
    generate = engine.generate

    def noting(asked: list[Request], *more: Any) -> Any:
        batches.append(len(asked))
        return generate(asked, *more)

    monkeypatch.setattr(engine, "generate", noting)
    passed: list[tuple[str, str]] = []
    with queue_of(engine, monkeypatch) as queue:

        async def ask() -> list[Response]:
            heard = queue.answer(request(0), lambda *new: passed.append(new))
            return await asyncio.gather(heard, *(queue.answer(request(n)) for n in (1, 2)))

        responses = run(ask())
    assert batches == [3]
    assert [each.answer_text for each in responses] == alone
    assert "".join(text for _, text in passed) == alone[0]
    assert "".join(thinking for thinking, _ in passed) == responses[0].reasoning
    assert len(passed) > 2  # not in one piece


def test_a_request_that_is_cancelled_is_dropped_from_its_batch(engine, monkeypatch):
    written: list[tuple[int, int]] = []
    generate = engine.generate

    def noting(asked: list[Request], keep: Any, listen: Any) -> Any:
        def heard(index: int, text: str) -> bool:
            written.append((index, len(text)))
            return bool(listen(index, text))

        return generate(asked, keep, heard)

    monkeypatch.setattr(engine, "generate", noting)
    with queue_of(engine, monkeypatch) as queue:

        async def ask() -> Response:
            gone = asyncio.ensure_future(queue.answer(request(1)))
            stays = asyncio.ensure_future(queue.answer(request(2)))
            while not written:
                await asyncio.sleep(0.001)
            gone.cancel()
            return await stays

        response = run(ask())
    assert response.answer_text == generate([request(2)])[0].answer_text
    assert sum(index == 0 for index, _ in written) < sum(index == 1 for index, _ in written)


def test_a_model_that_fails_says_so_and_answers_the_next_request(engine, monkeypatch):
    generate = engine.generate

    def broken(*asked: Any) -> Any:
        monkeypatch.setattr(engine, "generate", generate)
        raise MemoryError("no room")

    monkeypatch.setattr(engine, "generate", broken)
    with queue_of(engine, monkeypatch) as queue:

        async def ask() -> list[Response]:
            return [await queue.answer(request(0)), await queue.answer(request(0))]

        first, second = run(ask())
    assert (first.failure, first.error) == ("server", "MemoryError: no room")
    assert second.failure is None


def test_what_does_not_fit_the_context_is_a_failure(engine, monkeypatch):
    with queue_of(engine, monkeypatch) as queue:
        assert run(queue.answer(request(0, most=5000))).failure == "too_long"

"""The server that the tests of the client start as often as they need it, and their clock."""

import contextlib
from collections.abc import Callable, Iterator

import pytest
from asking import Body, Reply, Replying, replying
from fake_clock import fake_clock


@pytest.fixture(autouse=True)
def no_test_waits_for_the_clients_clock() -> Iterator[None]:
    with fake_clock():
        yield


@pytest.fixture
def serve(monkeypatch) -> Iterator[Callable[[Callable[[Body], Reply]], Replying]]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with contextlib.ExitStack() as started:
        yield lambda answer: started.enter_context(replying(answer))

"""The server that the tests of the client start as often as they need it, and their clock."""

import contextlib
from collections.abc import Callable, Iterator

import pytest
from asking import Body, Reply, Replying, replying
from fair_clock import fair_requests


@pytest.fixture(autouse=True)
def a_busy_machine_is_no_silent_server() -> Iterator[None]:
    with fair_requests():
        yield


@pytest.fixture
def serve(monkeypatch) -> Iterator[Callable[[Callable[[Body], Reply]], Replying]]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with contextlib.ExitStack() as started:
        yield lambda answer: started.enter_context(replying(answer))

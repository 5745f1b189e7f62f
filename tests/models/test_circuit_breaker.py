"""How long a run waits for servers that bring nothing, and how it tells that from a bad prompt."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from asking import ask, requests
from fault_server import ERRORS, faulty

from heavydistill.errors import StoppedError

PLAIN = "What is 1 + 1?"


def asked_plainly(server: Any) -> int:
    return sum(body["messages"][0]["content"] == PLAIN for _, body in server.requests)


@pytest.mark.parametrize(
    ("fault", "prompts"), [("broken", 1), ("broken", 2), ("hang", 1), ("no json", 1), ("cut", 2)]
)
def test_a_run_of_few_prompts_stops_when_the_server_brings_nothing_else(fault, prompts):
    wanted = [one for number in range(prompts) for one in requests(4, f"{number}+1?")]
    with faulty(plan=lambda body, attempt: fault) as server, pytest.raises(StoppedError) as caught:
        ask(server, wanted, timeout_s=0.5, retries=4)
    # Nothing but what was sent already comes before the plain question.
    assert [body["messages"][0]["content"] for _, body in server.requests][-1] == PLAIN
    assert asked_plainly(server) == 1
    assert "No server of served has answered for " in caught.value.what
    assert "same command" in caught.value.fix
    if fault == "broken":
        assert "HTTP 500: " + ERRORS["broken"][2] in caught.value.what


def test_a_run_of_many_prompts_stops_when_every_stream_breaks_off():
    wanted = [one for number in range(5) for one in requests(2, f"{number}+1?")]
    with faulty(plan=lambda body, attempt: "cut") as server, pytest.raises(StoppedError):
        ask(server, wanted, timeout_s=0.5, retries=4)


def test_a_run_that_repeats_nothing_stops_too():
    wanted = [one for number in range(9) for one in requests(1, f"{number}+1?")]
    with faulty(plan=lambda body, attempt: "broken") as server, pytest.raises(StoppedError):
        ask(server, wanted, timeout_s=0.5, retries=0, concurrency=1)
    assert not asked_plainly(server)


def test_one_prompt_that_breaks_the_server_for_longer_than_the_patience_is_a_failure():
    with faulty() as server:
        server.plan = lambda body, attempt: "broken" if "bad" in str(body["messages"]) else None
        responses = ask(server, requests(4, "bad"), timeout_s=0.5, retries=2, concurrency=2)
    assert {response.failure for response in responses} == {"server"}
    assert asked_plainly(server) >= 1


def test_what_a_broken_server_says_is_shown_from_its_third_fault_on(caplog):
    caplog.set_level(logging.WARNING, "heavydistill.models")
    with faulty(plan=lambda body, attempt: "broken") as server, pytest.raises(StoppedError):
        ask(server, requests(4), timeout_s=0.5, retries=4)
    shown = [record.getMessage() for record in caplog.records]
    first = next(line for line in shown if "does not work" in line)
    assert "3 times in a row" in first and "HTTP 500: Internal error" in first

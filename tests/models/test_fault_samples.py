"""Several samples of a prompt in one request, where the server does not do as it says."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from asking import TAGS, ask, first_attempt, is_right, requests
from fault_server import faulty
from replying_server import Reply, replying, request

from heavydistill.config.models import Capabilities, Endpoint
from heavydistill.models.http.engine import OpenAIEngine


def test_where_n_is_honoured_the_samples_of_a_prompt_travel_together():
    able = Capabilities(n=8)
    with faulty(honours_n=8) as server:
        both = requests(12, "1+1?") + requests(4, "2+2?")
        responses = ask(server, both, capabilities=able)
        assert sorted(body["n"] for _, body in server.requests) == [4, 4, 8]
        assert len({response.answer_text + response.reasoning for response in responses}) == 16
        # The prompt was read once for each request, and the bill adds up.
        paid = sum(r.prompt_tokens + r.completion_tokens for r in responses)
        assert paid == server.tokens
        assert all(response.completion_tokens > 0 for response in responses)


@pytest.mark.parametrize("brought", [1, 3])
def test_samples_that_n_did_not_bring_are_asked_singly(brought):
    with faulty(honours_n=brought) as server:
        wanted = requests(8)
        responses = ask(server, wanted, capabilities=Capabilities(n=8))
        assert len(responses) == 8 and all(r.finish_reason == "stop" for r in responses)
        assert len(server.requests) == 1 + 8 - brought
        singly = [body["seed"] for _, body in server.requests][1:]
        assert sorted(singly) == list(range(brought, 8))


@pytest.mark.parametrize(
    ("fault", "broken"), [*((f"no end of {i}", i) for i in range(4)), ("fault at the last end", 3)]
)
def test_a_sample_that_n_brought_in_part_is_asked_singly(fault, broken):
    with faulty(honours_n=4) as server:
        server.plan = lambda body, attempt: fault if body.get("n") else None
        responses = ask(server, requests(4), capabilities=Capabilities(n=4))
        assert all(response.finish_reason == "stop" for response in responses)
        asked = [(body["seed"], body.get("n")) for _, body in server.requests]
        assert asked == [(0, 4), (broken, None)]


def test_a_response_that_has_ended_is_kept_though_the_stream_breaks_after_it():
    with faulty(plan=first_attempt("fault after the ends")) as server:
        (response,) = ask(server, requests(1))
        assert is_right(response, server) and response.completion_tokens == -1
        assert len(server.requests) == 1


def test_a_server_that_copies_one_sample_is_asked_for_each_singly(caplog):
    able = Capabilities(n=4)
    with faulty(honours_n=4, copies=True) as server:
        responses = ask(server, requests(8), capabilities=able, concurrency=1)
        assert all(response.finish_reason == "stop" for response in responses)
        assert len({response.reasoning for response in responses}) == 8
        assert "only 1 different of 4" in caplog.text
        # What was paid for the copies is on the bill as well.
        assert sum(r.prompt_tokens + r.completion_tokens for r in responses) == server.tokens


def test_a_server_that_refuses_n_after_all_is_asked_singly(caplog):
    def plan(body: Any, attempt: int) -> str | None:
        return "refused" if body.get("n") else None

    with faulty(honours_n=4, plan=plan) as server:
        settings = Endpoint(base_url=server.base_url, capabilities=Capabilities(n=4))
        engine = OpenAIEngine("served", settings, TAGS)
        responses = engine.generate(requests(8)) + engine.generate(requests(4, "1+1?"))
        engine.close()
        assert all(response.finish_reason == "stop" for response in responses)
        assert sum("n" in body for _, body in server.requests) == 2
        assert caplog.text.count("does not honour n") == 1


@pytest.mark.parametrize(
    ("fault", "retries"), [("no choices", 0), ("no choices", 1), ("no json", 0)]
)
def test_a_call_for_several_that_brings_nothing_loses_no_sample(fault, retries, caplog):
    with faulty(honours_n=8) as server:
        server.plan = lambda body, attempt: fault if body.get("n") else None
        responses = ask(server, requests(8), capabilities=Capabilities(n=8), retries=retries)
        assert all(response.finish_reason == "stop" for response in responses)
        singly = [body["seed"] for _, body in server.requests if "n" not in body]
        assert sorted(singly) == list(range(8)) and len(server.requests) == 1 + retries + 8
        assert "does not honour n" in caplog.text


def test_a_prompt_that_is_refused_says_nothing_of_n():
    def plan(body: Any, attempt: int) -> str | None:
        return "refused" if body["messages"][0]["content"] == "bad" else None

    with faulty(honours_n=4, plan=plan) as server:
        settings = Endpoint(base_url=server.base_url, capabilities=Capabilities(n=4))
        engine = OpenAIEngine("served", settings, TAGS)
        assert {r.failure for r in engine.generate(requests(4, "bad"))} == {"rejected"}
        assert len(engine.generate(requests(4))) == 4
        engine.close()
        assert server.requests[-1][1]["n"] == 4


@pytest.mark.parametrize(
    ("refused", "seeded"), [([], [True, False, False, False]), (["seed"], [False] * 4)]
)
def test_a_sample_tells_whether_its_own_seed_was_sent(refused, seeded):
    with faulty(honours_n=4) as server:
        responses = ask(server, requests(4), capabilities=Capabilities(n=4, refused=refused))
        assert [response.is_seeded for response in responses] == seeded
        singly = ask(server, requests(2), capabilities=Capabilities(refused=refused))
        assert [response.is_seeded for response in singly] == [not refused] * 2


@pytest.mark.parametrize("counted", [20, 200])
def test_a_usage_that_is_too_small_for_several_samples_is_not_believed(counted, caplog):
    def answer(body):
        choices = [
            {
                "index": i,
                "finish_reason": "stop",
                "message": {"content": f"{i} {body['seed']} " * 40},
            }
            for i in range(body.get("n", 1))
        ]
        usage = {"prompt_tokens": 11, "completion_tokens": counted}
        return Reply({"id": "c", "choices": choices, "usage": usage})

    able = Capabilities(n=2, stream=False)
    with replying(answer) as server:
        settings = Endpoint(base_url=server.url, capabilities=able)
        with contextlib.closing(OpenAIEngine("m", settings, TAGS)) as engine:
            first = engine.generate([request(seed) for seed in (101, 102)])
            second = engine.generate([request(seed) for seed in (103, 104)])
    assert all(response.failure is None for response in first + second)
    shared = [body.get("n", 1) for body in server.asked]
    tokens = [response.completion_tokens for response in first + second]
    if counted == 200:  # for 480 characters, which is what can be
        assert shared == [2, 2] and sum(tokens) == 400 and not caplog.records
    else:
        assert shared == [2, 1, 1] and tokens == [-1, -1, 20, 20]
        assert "its usage counts fewer tokens" in caplog.text

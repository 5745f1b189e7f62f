"""What the endpoint client sends, and what it makes of samples that travel together.

Two defects of an earlier reference implementation are kept out by name:

- 13: sampling parameters were named in the configuration but never sent. Every one that is set
  must be in the body of the request, and one that is not set must not.
- 14: K samples were one request with ``n=K``, which many servers ignore, and seed, usage and
  finish reason of the single samples were lost. Every sample must be a request of its own.
"""

import dataclasses
import random
import time
from typing import Any

import pytest
from asking import (
    Body,
    Reply,
    answering,
    ask,
    ask_one,
    asking,
    completion,
    first_attempt,
    is_right,
    request,
    requests,
)
from fault_server import faulty

from heavydistill.config.models import Capabilities, Sampling
from heavydistill.models.request import Response


def test_every_sampling_parameter_and_the_seed_go_out(serve):
    server = serve(answering(completion()))
    sampling = Sampling(
        temperature=0.7, top_p=0.8, top_k=20, min_p=0.05, repetition_penalty=1.1, max_tokens=99
    )
    ask(server, [request(1234, sampling)])
    assert server.asked == [
        {
            "model": "served",
            "messages": [{"role": "user", "content": "3+4?"}],
            "seed": 1234,
            **sampling.model_dump(),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ]


def test_what_is_not_set_does_not_go_out(serve):
    server = serve(answering(completion()))
    ask(server, [request(0, Sampling(temperature=0.0, top_p=1.0, top_k=0, max_tokens=9))])
    (body,) = server.asked
    # Hosted APIs refuse names that they do not know. Zeros that say something are sent.
    assert not {"top_k", "min_p", "repetition_penalty", "n"} & set(body)
    assert (body["seed"], body["temperature"], body["max_tokens"]) == (0, 0.0, 9)


def test_extra_keys_go_out_beside_the_sampling(serve):
    server = serve(answering(completion()))
    extra = {"chat_template_kwargs": {"thinking": True}, "reasoning_effort": "high"}
    ask(server, [request(1, Sampling(top_k=20)), request(2)], extra_body=extra)
    in_order = sorted(server.asked, key=lambda body: body["seed"])
    for body, top_k in zip(in_order, (20, None), strict=True):
        assert (body["chat_template_kwargs"], body["reasoning_effort"]) == tuple(extra.values())
        assert body.get("top_k") == top_k


def test_what_an_endpoint_was_seen_to_refuse_is_not_sent():
    able = Capabilities(
        stream=False, refused=["seed", "top_p"], max_tokens_name="max_completion_tokens"
    )
    with faulty() as server:
        (response,) = ask(server, requests(1), capabilities=able)
        assert is_right(response, server)
        (_, body), *_ = server.requests
        assert set(body) == {"model", "messages", "temperature", "max_completion_tokens"}


def test_each_sample_is_a_request_with_its_own_seed_and_a_response_in_its_order(serve):
    def answer(body: Body) -> Reply:
        # A server that ignores n: always one choice.
        seed = body["seed"]
        time.sleep(random.Random(seed).random() * 0.1)
        reply = completion(f"answer {seed}", finish_reason="length" if seed == 3 else "stop")
        usage = {"prompt_tokens": 11, "completion_tokens": seed, "total_tokens": 11 + seed}
        return Reply({**reply, "id": f"id-{seed}", "usage": usage})

    server = serve(answer)
    responses = ask(server, [request(seed) for seed in range(1, 17)], concurrency=8)
    assert sorted(body["seed"] for body in server.asked) == list(range(1, 17))
    assert all("n" not in body for body in server.asked)
    for seed, response in enumerate(responses, 1):
        assert response.latency_s > 0
        assert dataclasses.replace(response, latency_s=0.0) == Response(
            answer_text=f"answer {seed}",
            finish_reason="length" if seed == 3 else "stop",
            prompt_tokens=11,
            completion_tokens=seed,
            request_id=f"id-{seed}",
        )


@pytest.mark.parametrize(
    ("message", "reasoning", "answer_text"),
    [
        ({"content": " 7\n", "reasoning_content": "3+4=7"}, "3+4=7", "7"),
        ({"content": "7", "reasoning_content": None, "reasoning": "3+4=7"}, "3+4=7", "7"),
        # All tokens went into the thinking.
        ({"content": None, "reasoning_content": "3+4"}, "3+4", ""),
        ({"content": ""}, "", ""),
        # Half of a surrogate pair, as servers send it that cut between two tokens.
        ({"content": "a\ud83d", "reasoning_content": "\ude42b"}, "?b", "a?"),
    ],
)
def test_thinking_is_found_wherever_the_server_puts_it(serve, message, reasoning, answer_text):
    response = ask_one(serve(answering(completion(**message))))
    assert (response.reasoning, response.answer_text) == (reasoning, answer_text)
    assert response.error is None


def test_the_key_comes_from_the_named_environment_variable_and_may_be_missing(serve, monkeypatch):
    monkeypatch.setenv("HEAVYDISTILL_TEST_KEY", "sk-mine")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    server = serve(answering(completion()))
    ask_one(server, api_key_env="HEAVYDISTILL_TEST_KEY")
    ask_one(server)
    monkeypatch.delenv("OPENAI_API_KEY")
    assert ask_one(server).answer_text == "7"
    assert server.authorizations[:2] == ["Bearer sk-mine", "Bearer sk-other"]
    assert ask(server, []) == [] and len(server.asked) == 3


# --- Several samples of a prompt in one request, where the server does not do as it says.


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
    with faulty(honours_n=4, plan=lambda body, attempt: fault if body.get("n") else None) as server:
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
    with faulty(honours_n=4, seed="alone") as server:
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
        with asking(server, capabilities=Capabilities(n=4)) as engine:
            responses = engine.generate(requests(8)) + engine.generate(requests(4, "1+1?"))
        assert all(response.finish_reason == "stop" for response in responses)
        assert sum("n" in body for _, body in server.requests) == 2
        assert caplog.text.count("does not honour n") == 1


@pytest.mark.parametrize(
    ("fault", "retries"), [("no choices", 0), ("no choices", 1), ("no json", 0)]
)
def test_a_call_for_several_that_brings_nothing_loses_no_sample(fault, retries, caplog):
    with faulty(honours_n=8, plan=lambda body, attempt: fault if body.get("n") else None) as server:
        responses = ask(server, requests(8), capabilities=Capabilities(n=8), retries=retries)
        assert all(response.finish_reason == "stop" for response in responses)
        singly = [body["seed"] for _, body in server.requests if "n" not in body]
        assert sorted(singly) == list(range(8)) and len(server.requests) == 1 + retries + 8
        assert "does not honour n" in caplog.text


def test_several_samples_of_a_prompt_that_breaks_a_server_are_soon_asked_singly():
    def plan(body: Any, attempt: int) -> str | None:
        return "broken" if body.get("n") else None

    with faulty(honours_n=4, plan=plan) as server:
        responses = ask(server, requests(4), capabilities=Capabilities(n=4), retries=9)
        assert all(response.finish_reason == "stop" for response in responses)
        # After three failures a plain question is answered, so the prompt is at fault: nine pauses
        # would bring nothing.
        assert [body.get("n", 1) for _, body in server.requests] == [4, 4, 4] + [1] * (1 + 4)


def test_a_prompt_that_is_refused_says_nothing_of_n():
    def plan(body: Any, attempt: int) -> str | None:
        return "refused" if body["messages"][0]["content"] == "bad" else None

    with faulty(honours_n=4, plan=plan) as server:
        with asking(server, capabilities=Capabilities(n=4)) as engine:
            assert {r.failure for r in engine.generate(requests(4, "bad"))} == {"rejected"}
            assert len(engine.generate(requests(4))) == 4
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
def test_a_usage_that_is_too_small_for_several_samples_is_not_believed(serve, counted, caplog):
    def answer(body: Body) -> Reply:
        texts = [f"{i} {body['seed']} " * 40 for i in range(body.get("n", 1))]
        choices = [completion(text)["choices"][0] | {"index": i} for i, text in enumerate(texts)]
        usage = {"prompt_tokens": 11, "completion_tokens": counted}
        return Reply({"id": "c", "choices": choices, "usage": usage})

    server = serve(answer)
    with asking(server, capabilities=Capabilities(n=2, stream=False)) as engine:
        first = engine.generate([request(seed) for seed in (101, 102)])
        second = engine.generate([request(seed) for seed in (103, 104)])
    assert all(response.failure is None for response in first + second)
    shared = [body.get("n", 1) for body in server.asked]
    tokens = [response.completion_tokens for response in first + second]
    if counted == 200:  # for 480 characters, which is what can be
        assert shared == [2, 2] and sum(tokens) == 400 and not caplog.records
    else:
        # Nor is it of one sample: 240 characters are more than 20 tokens can hold.
        assert shared == [2, 1, 1] and tokens == [-1] * 4
        assert "its usage counts fewer tokens" in caplog.text

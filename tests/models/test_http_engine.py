"""The endpoint client against a real HTTP server in this process.

Two defects of an earlier reference implementation are kept out by name:

- 13: sampling parameters were named in the configuration but never sent. Every one that is set
  must be in the body of the request, and one that is not set must not.
- 14: K samples were one request with ``n=K``, which many servers ignore, and seed, usage and
  finish reason of the single samples were lost. Every sample must be a request of its own.
"""

from __future__ import annotations

import dataclasses
import random
import threading
import time

import pytest
from replying_server import TAGS, Body, Reply, answering, ask, ask_one, completion, request

from heavydistill.config.models import Endpoint, Sampling
from heavydistill.models.http.engine import OpenAIEngine
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
    settings = Endpoint(base_url=server.url, tokenizer="unused")
    extra = {"chat_template_kwargs": {"thinking": True}, "reasoning_effort": "high"}
    engine = OpenAIEngine("served", settings, TAGS, extra)
    engine.generate([request(1, Sampling(top_k=20)), request(2)])
    engine.close()
    in_order = sorted(server.asked, key=lambda body: body["seed"])
    for body, top_k in zip(in_order, (20, None), strict=True):
        assert (body["chat_template_kwargs"], body["reasoning_effort"]) == tuple(extra.values())
        assert body.get("top_k") == top_k


def test_each_sample_is_a_request_with_its_own_seed(serve):
    def answer(body: Body) -> Reply:
        # A server that ignores n: always one choice.
        seed = body["seed"]
        reply = completion(f"answer {seed}", finish_reason="length" if seed == 3 else "stop")
        usage = {"prompt_tokens": 11, "completion_tokens": seed, "total_tokens": 11 + seed}
        return Reply({**reply, "id": f"id-{seed}", "usage": usage})

    server = serve(answer)
    responses = ask(server, [request(seed) for seed in range(1, 9)])
    assert sorted(body["seed"] for body in server.asked) == list(range(1, 9))
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
        ({"content": "7", "reasoning": "3+4=7"}, "3+4=7", "7"),
        ({"content": "7", "reasoning_content": None, "reasoning": "3+4=7"}, "3+4=7", "7"),
        ({"content": "<think>3+4=7</think>7"}, "3+4=7", "7"),
        ({"content": "3+4=7</think>7"}, "3+4=7", "7"),
        ({"content": "<think>3+4=7</think>7", "reasoning_content": ""}, "3+4=7", "7"),
        ({"content": "7"}, "", "7"),
        # All tokens went into the thinking.
        ({"content": None, "reasoning_content": "3+4"}, "3+4", ""),
        ({"content": ""}, "", ""),
    ],
)
def test_thinking_is_found_wherever_the_server_puts_it(serve, message, reasoning, answer_text):
    response = ask_one(serve(answering(completion(**message))))
    assert (response.reasoning, response.answer_text) == (reasoning, answer_text)
    assert response.error is None


def test_thinking_that_was_cut_off_is_no_answer(serve):
    body = completion("<think>3+4 is", finish_reason="length")
    response = ask_one(serve(answering(body)))
    assert (response.reasoning, response.answer_text) == ("3+4 is", "")
    assert response.finish_reason == "length"


@pytest.mark.parametrize("usage", ["absent", None])
def test_tokens_that_the_server_does_not_count_are_minus_one(serve, usage):
    body = {**completion(), "usage": usage}
    if usage == "absent":
        del body["usage"]
    response = ask_one(serve(answering(body)))
    assert (response.prompt_tokens, response.completion_tokens) == (-1, -1)
    assert response.answer_text == "7"


def test_half_of_a_surrogate_pair_can_be_stored(serve):
    # json.dumps writes it as an escape, as servers do that cut between two tokens.
    response = ask_one(serve(answering(completion("a\ud83d", reasoning_content="\ude42b"))))
    assert (response.reasoning, response.answer_text) == ("?b", "a?")
    refused = ask_one(serve(answering({"error": {"message": "bad \ud83d"}}, status=400)))
    assert refused.error is not None
    refused.error.encode()


def test_as_many_requests_as_allowed_are_in_flight_and_no_more(serve):
    together = threading.Barrier(3)

    def answer(_: Body) -> Reply:
        # Breaks, and fails the requests, unless three are here at once.
        together.wait(20)
        return Reply(completion())

    server = serve(answer)
    responses = ask(server, [request(seed) for seed in range(12)], concurrency=3, retries=0)
    assert all(response.error is None for response in responses)
    assert server.most_in_flight == 3


def test_responses_come_in_the_order_of_the_requests(serve):
    def answer(body: Body) -> Reply:
        time.sleep(random.Random(body["seed"]).random() * 0.1)
        return Reply(completion(str(body["seed"])))

    responses = ask(serve(answer), [request(seed) for seed in range(16)], concurrency=8)
    assert [response.answer_text for response in responses] == [str(seed) for seed in range(16)]


def test_the_key_comes_from_the_named_environment_variable(serve, monkeypatch):
    monkeypatch.setenv("HEAVYDISTILL_TEST_KEY", "sk-mine")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    server = serve(answering(completion()))
    ask_one(server, api_key_env="HEAVYDISTILL_TEST_KEY")
    ask_one(server)
    assert server.authorizations == ["Bearer sk-mine", "Bearer sk-other"]


def test_a_server_without_keys_needs_none(serve, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert ask_one(serve(answering(completion()))).answer_text == "7"


def test_no_requests_are_no_responses(serve):
    server = serve(answering(completion()))
    assert ask(server, []) == []
    assert server.asked == []

"""What the endpoint client makes of a server that refuses, breaks or is not there."""

from __future__ import annotations

import threading

import pytest
from replying_server import Body, Reply, answering, ask, ask_one, completion, is_error, request

from heavydistill.config import Endpoint
from heavydistill.engine.failures import retry_after
from heavydistill.engine.openai_client import OpenAIEngine
from heavydistill.errors import TeacherError

TOO_LARGE_FOR_A_MINUTE = "Request too large for m on tokens per min (TPM): Limit 9, Requested 10"


def test_a_filtered_response_is_an_error_that_names_it(serve):
    response = ask_one(serve(answering(completion("par", finish_reason="content_filter"))))
    assert is_error(response)
    assert "content_filter" in response.error


@pytest.mark.parametrize("end", ["tool_calls", "eos_token", 7])
def test_an_end_that_nobody_knows_is_paid_once_and_its_text_is_kept(serve, end):
    server = serve(answering(completion("7", reasoning_content="3+4=7", finish_reason=end)))
    response = ask_one(server, retries=3)
    assert len(server.asked) == 1
    assert (response.finish_reason, response.failure) == ("error", "unknown_end")
    assert repr(end) in response.error
    assert (response.reasoning, response.answer_text) == ("3+4=7", "7")
    assert (response.prompt_tokens, response.completion_tokens) == (11, 5)


@pytest.mark.parametrize("status", [400, 403, 404, 422])
def test_a_refused_request_is_an_error_and_not_repeated(serve, status):
    server = serve(answering({"error": {"message": "no such parameter"}}, status=status))
    response = ask_one(server, retries=3)
    assert is_error(response)
    assert str(status) in response.error and "no such parameter" in response.error
    assert len(server.asked) == 1


def test_a_request_that_no_minute_has_room_for_is_not_repeated(serve):
    server = serve(answering({"error": {"message": TOO_LARGE_FOR_A_MINUTE}}, status=429))
    assert ask_one(server, retries=3).failure == "too_long"
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_overloaded_server_is_asked_again(serve, status):
    replies = iter([Reply({}, status=status), Reply(completion())])
    server = serve(lambda _: next(replies))
    assert ask_one(server, retries=1).answer_text == "7"
    assert len(server.asked) == 2
    assert server.asked[0] == server.asked[1]


@pytest.mark.parametrize("retries", [0, 2])
def test_a_server_that_stays_broken_is_an_error_after_the_repeats(serve, retries):
    server = serve(answering({"error": {"message": "out of memory"}}, status=500))
    response = ask_one(server, retries=retries)
    assert is_error(response)
    assert "500" in response.error and "out of memory" in response.error
    assert len(server.asked) == 1 + retries


@pytest.mark.parametrize(
    "reply",
    [
        Reply(b'{"id": "chatcmpl-1", "choi'),
        Reply(b""),
        Reply(b"<html>It works!</html>", content_type="text/html"),
        Reply([]),
        Reply("7"),
        Reply({}),
        Reply({**completion(), "choices": []}),
        Reply({**completion(), "choices": None}),
        Reply({**completion(), "choices": {"a": 1}}),
        Reply({**completion(), "choices": [{"index": 0, "finish_reason": "stop"}]}),
        Reply({"error": {"message": "model not loaded"}}),
    ],
    ids=lambda reply: str(reply.body)[:40],
)
def test_a_body_that_is_no_completion_is_an_error(serve, reply):
    assert is_error(ask_one(serve(lambda _: reply), retries=0))


@pytest.mark.parametrize(
    ("status", "message", "failure"),
    [
        (400, "no such parameter", "rejected"),
        (400, "This model's maximum context length is 4096 tokens", "too_long"),
        (400, "prompt (9000 tokens) is too long", "too_long"),
        (413, "", "too_long"),
        (429, "slow down", "overloaded"),
        (429, TOO_LARGE_FOR_A_MINUTE, "too_long"),
        (429, "The input or output tokens must be reduced in order to run", "too_long"),
        (503, "busy", "overloaded"),
        (500, "out of memory", "server"),
    ],
)
def test_a_failure_has_its_kind(serve, status, message, failure):
    server = serve(answering({"error": {"message": message}}, status=status))
    assert ask_one(server, retries=0).failure == failure


@pytest.mark.parametrize(
    ("body", "failure"),
    [
        (completion("par", finish_reason="content_filter"), "filtered"),
        (completion(None, refusal="I cannot help with that."), "refused"),
        ({}, "malformed"),
    ],
)
def test_a_response_without_an_answer_has_its_kind_too(serve, body, failure):
    assert ask_one(serve(answering(body)), retries=0).failure == failure


def test_a_refused_key_ends_the_run_and_is_not_repeated(serve, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-secret")
    body = {"error": {"message": "Incorrect API key provided: sk-secret"}}
    with pytest.raises(TeacherError, match="SOME_KEY") as raised:
        ask_one(serve(answering(body, status=401)), api_key_env="SOME_KEY")
    assert "sk-secret" not in str(raised.value)


def test_a_key_that_a_server_repeats_is_not_kept(serve, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-secret")
    body = {"error": {"message": "sk-secret may not use this model"}}
    response = ask_one(serve(answering(body, status=403)), api_key_env="SOME_KEY")
    assert "sk-secret" not in response.error and "may not use this model" in response.error


@pytest.mark.parametrize("id", [17, None, "\ud83d"])
def test_an_id_of_any_kind_can_be_stored(serve, id):
    assert ask_one(serve(answering({**completion(), "id": id}))).request_id in ("17", "", "?")


def test_one_bad_response_leaves_the_others_alone(serve):
    def answer(body: Body) -> Reply:
        return (
            Reply(b"<html>", content_type="text/html") if body["seed"] == 1 else Reply(completion())
        )

    first, second, third = ask(serve(answer), [request(seed) for seed in range(3)])
    assert is_error(second)
    assert first.answer_text == third.answer_text == "7"


def test_a_time_out_is_an_error(serve):
    over = threading.Event()

    def answer(_: Body) -> Reply:
        over.wait(30)
        return Reply(completion())

    try:
        response = ask_one(serve(answer), timeout_s=0.2, retries=0)
    finally:
        over.set()
    assert is_error(response)
    assert "Timeout" in response.error and response.failure == "timeout"
    assert response.latency_s >= 0.2


def test_a_server_that_is_not_there_is_an_error():
    settings = Endpoint(base_url="http://127.0.0.1:9/v1", tokenizer="unused", retries=0)
    engine = OpenAIEngine("served", settings)
    (response,) = engine.generate([request()])
    engine.close()
    assert is_error(response)
    assert "Connect call failed" in response.error and response.failure == "unreachable"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "7"}, 7),
        ({"retry-after-ms": "inf", "retry-after": "7"}, 7),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        *(
            ({"retry-after": nonsense}, None)
            for nonsense in ("inf", "-inf", "nan", "-5", "1e999", "", "soon", "7 s")
        ),
        ({"retry-after": "Wed, 21 Oct 99999999999 07:28:00 GMT"}, None),
        ({}, None),
    ],
)
def test_a_wish_to_be_left_alone_is_a_number_of_seconds_or_ignored(headers, seconds):
    assert retry_after(headers) == seconds

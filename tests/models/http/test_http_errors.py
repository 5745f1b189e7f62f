"""What the endpoint client makes of a server that refuses, breaks or is not there."""

import json
from typing import Any

import messages
import pytest
from asking import Body, Reply, answering, ask, ask_one, asking, completion, is_error, requests
from loopback import redirecting

from heavydistill.config.models import Capabilities
from heavydistill.errors import CONTROL, StoppedError, TeacherError
from heavydistill.models.http.completion import ChatCompletion
from heavydistill.models.http.replies import retry_after
from heavydistill.models.http.transport import Transport

TGI_SAYS = (
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. "
    "Given: {} `inputs` tokens and 512 `max_new_tokens`"
)
TOO_LARGE_FOR_A_MINUTE = "Request too large for m on tokens per min (TPM): Limit 9, Requested 10"


STOPS = ("eos", "eos_token", "end_turn", "stop_sequence", "STOP", "COMPLETE")
LENGTHS = ("max_tokens", "MAX_TOKENS", "model_length", "model_context_window_exceeded")


@pytest.mark.parametrize(
    ("end", "finish_reason"),
    [*((end, "stop") for end in STOPS), *((end, "length") for end in LENGTHS)],
)
def test_an_end_is_known_by_all_its_names(serve, end, finish_reason):
    server = serve(answering(completion("7", finish_reason=end)))
    response = ask_one(server)
    assert (response.finish_reason, response.failure, response.error) == (finish_reason, None, None)
    assert response.answer_text == "7" and response.unknown_finish_reason == ""


@pytest.mark.parametrize("text", ["so \\boxed{7}", "so\n```python\nprint(7)\n```\nthat is it"])
def test_a_whole_text_with_an_end_that_nobody_knows_is_a_response(serve, text):
    response = ask_one(serve(answering(completion(text, finish_reason="odd"))))
    assert (response.finish_reason, response.failure, response.error) == ("stop", None, None)
    assert response.unknown_finish_reason == "odd" and response.answer_text == text


@pytest.mark.parametrize("text", ["so \\boxed{7", "\\boxed{7} or \\boxed{", "```python\nprint(7)"])
def test_a_text_that_stops_within_its_answer_is_not_whole(serve, text):
    response = ask_one(serve(answering(completion(text, finish_reason="odd"))))
    assert response.failure == "unknown_end" and response.answer_text == text


@pytest.mark.parametrize("text", ["so", "so \\boxed{7}"])
def test_a_run_stops_after_eight_responses_with_the_same_end_that_nobody_knows(serve, text, caplog):
    ends = ["odd", "odd", "stop", *["odd"] * 50]
    server = serve(lambda _: Reply(completion(text, finish_reason=ends[len(server.asked) - 1])))
    kept: list[str | None] = []
    stopped = messages.raises("same_wrong_end", end="odd")
    with asking(server, concurrency=1) as engine, stopped:
        engine.generate(requests(20), lambda samples: kept.extend(r.failure for _, r in samples))
    # Each is paid, so it is kept; one more may have been sent before the eighth was written.
    assert len(server.asked) == len(kept) and len(kept) in (3 + 8, 3 + 9)
    assert caplog.text.count("reason 'odd'") == 2  # at the first one, and at the end


def test_a_run_obeys_what_doctor_found_of_ends(serve):
    able = Capabilities(finish_reasons={"odd": "stop", "cut": "length"})
    for end, finish_reason in able.finish_reasons.items():
        server = serve(answering(completion("so", finish_reason=end)))
        response = ask_one(server, capabilities=able)
        assert (response.finish_reason, response.unknown_finish_reason) == (finish_reason, "")


THOUGHT = "3+4 is 7. So the answer is \\boxed{7}."


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_an_answer_in_the_field_of_the_thinking_is_asked_again(serve, field, caplog):
    replies = iter([completion("", **{field: THOUGHT}), completion("It is \\boxed{7}")])
    response = ask_one(serve(lambda _: Reply(next(replies))))
    assert response.failure is None and response.answer_text == "It is \\boxed{7}"
    assert "reasoning parser" in caplog.text and "--reasoning-parser" in caplog.text
    response = ask_one(serve(answering(completion("", **{field: THOUGHT}))), retries=0)
    assert response.failure == "answer_in_thinking" and response.reasoning == THOUGHT
    assert "reasoning parser" in response.error


@pytest.mark.parametrize(
    "message",
    [
        {"content": "", "reasoning_content": "3+4 is 7."},
        {"content": "", "reasoning_content": "Maybe \\boxed{7}. " + "But is it? " * 40},
        {"content": f"<think>{THOUGHT}</think>"},  # by the model, not by a parser
        {"content": "It is 7.", "reasoning_content": THOUGHT},
    ],
)
def test_a_response_without_an_answer_is_the_models_own(serve, message):
    response = ask_one(serve(answering(completion(**message))), retries=0)
    assert response.finish_reason == "stop"


def test_thinking_in_the_tags_of_another_family_is_no_answer(serve):
    text = "<seed:think>Is it 8? No.</seed:think>It is \\boxed{7}."
    response = ask_one(serve(answering(completion(text))))
    assert (response.reasoning, response.answer_text) == ("Is it 8? No.", "It is \\boxed{7}.")


def test_a_server_that_puts_all_answers_into_the_thinking_stops_the_run(serve):
    server = serve(answering(completion("", reasoning_content=THOUGHT)))
    with pytest.raises(TeacherError, match="8 responses in a row") as raised:
        ask(server, requests(20), concurrency=1)
    assert len(server.asked) == 8 and "--reasoning-parser" in raised.value.fix


@pytest.mark.parametrize("end", ["tool_calls", 7, [1]])
def test_an_end_that_nobody_knows_is_paid_once_and_its_text_is_kept(serve, end):
    server = serve(answering(completion("7", reasoning_content="3+4=7", finish_reason=end)))
    response = ask_one(server, retries=3)
    assert len(server.asked) == 1
    assert (response.finish_reason, response.failure) == ("error", "unknown_end")
    assert repr(end) in response.error
    assert (response.reasoning, response.answer_text) == ("3+4=7", "7")
    assert (response.prompt_tokens, response.completion_tokens) == (11, 5)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(b'{"id": "chatcmpl-1", "choi'),
        Reply(b"<html>It works!</html>", content_type="text/html"),
        Reply(b'{"error":' * 50_000, status=500),
        Reply(b"data: " + b"[" * 50_000 + b"\n\n", content_type="text/event-stream"),
    ],
    ids=lambda reply: str(reply.body)[:40],
)
def test_a_body_that_is_no_completion_is_an_error(serve, reply):
    assert is_error(ask_one(serve(lambda _: reply), retries=0))


@pytest.mark.parametrize(
    ("status", "message", "failure"),
    [
        *((status, "no such parameter", "rejected") for status in (400, 403, 404, 422)),
        (400, "This model's maximum context length is 4096 tokens", "too_long"),
        (400, "prompt (9000 tokens) is too long", "too_long"),
        (400, "maximum context length is 9 tokens, 8 in the completion", "context_overflow"),
        (413, "", "too_long"),
        (429, "slow down", "overloaded"),
        (429, TOO_LARGE_FOR_A_MINUTE, "too_long"),
        (429, "The input or output tokens must be reduced in order to run", "too_long"),
        # llama.cpp speaks of the prompt alone.
        (400, "the request exceeds the available context size, try increasing it", "too_long"),
        (400, "request (9 tokens) exceeds the available context size (8 tokens)", "too_long"),
        # TGI adds up the prompt and the response, and says how long each is: a prompt that would
        # fit by itself leaves no room for the response, a longer one does not fit at all.
        (422, TGI_SAYS.format(5000), "too_long"),
        (422, TGI_SAYS.format(4096), "too_long"),
        (422, TGI_SAYS.format(4000), "context_overflow"),
        (422, "`inputs` must have less than 1024 tokens. Given: 2000", "too_long"),
        (503, "busy", "overloaded"),
        (500, "out of memory", "server"),
    ],
)
def test_a_failure_has_its_kind(serve, status, message, failure):
    server = serve(answering({"error": {"message": message}}, status=status))
    response = ask_one(server, retries=0 if failure in ("overloaded", "server") else 3)
    assert is_error(response) and response.failure == failure
    assert f"HTTP {status}: {message}" in response.error and len(server.asked) == 1


@pytest.mark.parametrize(
    ("body", "failure", "said"),
    [
        (completion("par", finish_reason="content_filter"), "filtered", "content_filter"),
        (completion(None, refusal="I cannot help with that."), "refused", "I cannot help"),
        ({"object": "error", "message": "9 tokens are too long", "code": 400}, "too_long", "9 to"),
    ],
)
def test_a_response_without_an_answer_has_its_kind_too(serve, body, failure, said):
    response = ask_one(serve(answering(body)), retries=0)
    assert is_error(response) and response.failure == failure and said in response.error


@pytest.mark.parametrize(("status", "code"), [(401, None), (200, 401)])
def test_a_refused_key_ends_the_run_and_is_not_repeated(serve, monkeypatch, status, code):
    monkeypatch.setenv("SOME_KEY", "sk-secret")
    body = {"error": {"message": "Incorrect API key provided: sk-secret", "code": code}}
    with messages.raises("key_refused", variable="SOME_KEY") as raised:
        ask_one(serve(answering(body, status=status)), api_key_env="SOME_KEY")
    assert "sk-secret" not in str(raised.value)


KEY = "sk-0123456789abcdef"
ECHO = f"Authorization: Bearer {KEY}"
ERROR = {"error": {"message": "x" * 490 + ECHO, "code": 400}}


@pytest.mark.parametrize(
    "reply",
    [
        *(Reply({"error": {"message": "x" * n + ECHO}}, 403) for n in (0, 470, 480, 490)),
        Reply(("x" * 490 + ECHO).encode(), 400, "text/plain"),
        Reply({"error": {"message": {"headers": [ECHO]}}}, 400),
        Reply(ERROR),
        Reply(f"data: {json.dumps(ERROR)}\n\n".encode(), content_type="text/event-stream"),
        Reply({**completion("7", finish_reason=f"end \x1b[31m{KEY}"), "id": KEY}),
        Reply({**completion("7", finish_reason={"why": KEY}), "id": {"key": KEY}}),
        Reply({**completion("7", finish_reason="odd"), "id": "\ud83d"}),
        Reply(completion(None, refusal=f"not for {KEY}")),
        Reply(f"data: {KEY}\n\n".encode(), content_type="text/event-stream"),
    ],
    ids=lambda reply: str(reply.body)[:30],
)
def test_no_part_of_a_key_that_a_server_repeats_is_kept(serve, monkeypatch, reply):
    monkeypatch.setenv("SOME_KEY", KEY)
    response = ask_one(serve(lambda _: reply), api_key_env="SOME_KEY", retries=0)
    assert response.failure and response.error
    assert "sk-" not in f"{response.error}{response.request_id}" and "\x1b" not in response.error
    f"{response.error}{response.request_id}".encode()  # it can be stored


@pytest.mark.parametrize(
    ("to", "is_elsewhere"),
    [("http://127.0.0.1:9/v1?key={}", False), ("http://[{}", False), ("gopher://{}", True)],
)
def test_a_redirect_costs_one_sample_or_ends_the_run_and_shows_no_key(
    monkeypatch, caplog, to, is_elsewhere
):
    monkeypatch.setenv("SOME_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with redirecting(to.format(KEY)) as url:
        if is_elsewhere:
            with messages.raises("redirected_elsewhere") as raised:
                ask_one(url, api_key_env="SOME_KEY")
            assert "sk-" not in f"{raised.value}{caplog.text}"
            return
        response = ask_one(url, api_key_env="SOME_KEY", retries=0)
    assert is_error(response) and "sk-" not in response.error


@pytest.mark.parametrize(
    ("error", "failure", "requests"),
    [
        ({"message": "slow down", "code": 429}, "overloaded", 2),
        ({"message": "slow down", "code": "rate_limit_exceeded"}, "overloaded", 2),
        ({"message": "busy", "status": 503}, "overloaded", 2),
        ({"message": "model not loaded"}, "server", 2),
        ("out of memory", "server", 2),
        ({"message": "no such parameter", "code": "400"}, "rejected", 1),
        ({"message": "9 tokens", "type": "exceed_context_size_error", "code": 400}, "too_long", 1),
    ],
)
def test_an_error_in_a_200_is_the_error_that_it_says(serve, caplog, error, failure, requests):
    replies = iter([Reply({"error": error}), Reply(completion())])
    server = serve(lambda _: next(replies))
    response = ask_one(server, retries=1)
    assert len(server.asked) == requests
    assert response.failure == (failure if requests == 1 else None)
    alone = ask_one(serve(answering({"error": error})), retries=0)
    assert alone.failure == failure
    assert (error if isinstance(error, str) else error["message"]) in alone.error
    is_slowed_down = "is overloaded; refusals" in caplog.text
    assert is_slowed_down is (failure == "overloaded")


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("also_in_body", [False, True])
@pytest.mark.parametrize(
    ("code", "failure", "sent"), [(429, "overloaded", 2), (502, "server", 2), (400, "rejected", 1)]
)
def test_an_error_in_a_choice_is_the_error_that_it_says(
    serve, caplog, streams, also_in_body, code, failure, sent
):
    error = {"message": "Provider returned error", "code": code, "metadata": {"raw": "slow down"}}
    body = completion("so", finish_reason="error")
    (choice,) = body["choices"]
    (body if also_in_body else choice)["error"] = error
    if streams:
        choice["delta"] = choice.pop("message")
        body = f"data: {json.dumps(body)}\n\n".encode()
    reply = Reply(body, content_type="text/event-stream" if streams else "application/json")
    replies = iter([reply, Reply(completion())])
    server = serve(lambda _: next(replies))
    # An overload alone is no attempt that counts, so that it costs no sample.
    response = ask_one(server, retries=1)
    assert len(server.asked) == sent and (response.failure is None) is (sent == 2)
    assert ("is overloaded" in caplog.text) is (failure == "overloaded")
    alone = ask_one(serve(lambda _: reply), retries=0)
    is_midway = streams and also_in_body and failure == "server"
    assert alone.failure == ("cut_off" if is_midway else failure)
    assert "Provider returned error: slow down" in alone.error


@pytest.mark.parametrize(
    "kind",
    [
        {"code": 402},
        {"code": "402"},
        {"code": "insufficient_quota"},
        {"status": 402},
        {"code": None, "type": "insufficient_quota"},
    ],
)
def test_no_money_in_a_200_stops_the_run(serve, kind):
    body = {"error": {"message": "Add \x1b[31mcredit\u202e", **kind}}
    with pytest.raises(StoppedError, match=r"no credit left: .*Add credit") as raised:
        ask_one(serve(answering(body)))
    assert not CONTROL.search(str(raised.value))


def test_a_server_that_is_not_there_is_an_error():
    response = ask_one("http://127.0.0.1:9/v1", retries=0)
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


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        *((RecursionError("deep"), "malformed"), (KeyError("x"), "malformed")),
        *((MemoryError(), "malformed"), (ConnectionResetError(), "cut_off")),
    ],
)
def test_whatever_goes_wrong_with_a_reply_costs_one_sample(serve, monkeypatch, error, failure):
    asking = Transport.ask

    async def ask_(
        wire: Transport, url: str, body: Body, completion: ChatCompletion, *more: Any
    ) -> None:
        if body["seed"] == 1:
            raise error
        await asking(wire, url, body, completion, *more)

    monkeypatch.setattr(Transport, "ask", ask_)
    server = serve(answering(completion()))
    first, second, third = ask(server, requests(3), retries=0)
    assert second.failure == failure and type(error).__name__ in second.error
    assert first.answer_text == third.answer_text == "7"

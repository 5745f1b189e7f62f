"""The endpoint client against a real HTTP server in this process.

Two defects of an earlier reference implementation are kept out by name:

- 13: sampling parameters were named in the configuration but never sent. Every one that is set
  must be in the body of the request, and one that is not set must not.
- 14: K samples were one request with ``n=K``, which many servers ignore, and seed, usage and
  finish reason of the single samples were lost. Every sample must be a request of its own.
"""

from __future__ import annotations

import dataclasses
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from heavydistill.config import Endpoint, Sampling
from heavydistill.engine.openai_client import OpenAIEngine
from heavydistill.engine.request import Request, Response, user_turn
from heavydistill.errors import TeacherError

Body = dict[str, Any]
TAGS = ("<think>", "</think>")
UNSET = Sampling(top_k=0)


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server sends back: a body, as JSON unless it is bytes."""

    body: Any
    status: int = 200
    content_type: str = "application/json"


@dataclass
class FakeServer:
    """Answers chat completions with ``answer`` and remembers what it was asked."""

    answer: Callable[[Body], Reply]
    url: str = ""
    asked: list[Body] = field(default_factory=list)
    authorizations: list[str | None] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def reply(self, path: str, body: Body, authorization: str | None) -> Reply:
        assert path == "/v1/chat/completions"
        with self.lock:
            self.asked.append(body)
            self.authorizations.append(authorization)
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return self.answer(body)
        finally:
            with self.lock:
                self.in_flight -= 1


def completion(content: str | None = "7", *, finish_reason: str = "stop", **message: Any) -> Body:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "served",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish_reason,
                "message": {"role": "assistant", "content": content, **message},
            }
        ],
        "usage": {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16},
    }


@pytest.fixture
def serve(monkeypatch) -> Iterator[Callable[[Callable[[Body], Reply]], FakeServer]]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    started: list[ThreadingHTTPServer] = []

    def start(answer: Callable[[Body], Reply]) -> FakeServer:
        fake = FakeServer(answer)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                reply = fake.reply(self.path, body, self.headers["authorization"])
                raw = isinstance(reply.body, bytes)
                content = reply.body if raw else json.dumps(reply.body).encode()
                self.send_response(reply.status)
                self.send_header("content-type", reply.content_type)
                self.send_header("content-length", str(len(content)))
                self.send_header("retry-after-ms", "1")
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                """Keep quiet."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        started.append(server)
        fake.url = f"http://127.0.0.1:{server.server_port}/v1"
        return fake

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


def ask(server: FakeServer, requests: list[Request], **endpoint: Any) -> list[Response]:
    settings = Endpoint(base_url=server.url, tokenizer="unused", **endpoint)
    engine = OpenAIEngine("served", settings, TAGS)
    try:
        return engine.generate(requests)
    finally:
        engine.close()


def ask_one(server: FakeServer, **endpoint: Any) -> Response:
    (response,) = ask(server, [request()], **endpoint)
    return response


def request(seed: int = 0, sampling: Sampling = UNSET) -> Request:
    return Request(user_turn("3+4?"), sampling, seed)


def answering(body: Any, **reply: Any) -> Callable[[Body], Reply]:
    return lambda _: Reply(body, **reply)


def is_error(response: Response) -> bool:
    """An error with a reason, and no text."""
    texts = (response.reasoning, response.answer_text)
    failed = response.finish_reason == "error" and response.failure is not None
    return failed and bool(response.error) and texts == ("", "")


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


@pytest.mark.parametrize("finish_reason", ["content_filter", "tool_calls"])
def test_any_other_finish_reason_is_an_error_that_names_it(serve, finish_reason):
    response = ask_one(serve(answering(completion("par", finish_reason=finish_reason))))
    assert is_error(response)
    assert finish_reason in response.error


@pytest.mark.parametrize("status", [400, 403, 404, 422])
def test_a_refused_request_is_an_error_and_not_repeated(serve, status):
    server = serve(answering({"error": {"message": "no such parameter"}}, status=status))
    response = ask_one(server, retries=3)
    assert is_error(response)
    assert str(status) in response.error and "no such parameter" in response.error
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
        (completion("par", finish_reason="tool_calls"), "malformed"),
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

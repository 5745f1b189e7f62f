"""Requests that cannot be answered as asked: refused by name, in the form of OpenAI's API."""

import contextlib
import http.client
import json
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import messages as messages_of
import openai
import pytest
from fault_server import faulty
from serving import MICRO, QUESTION, body_of, post, service_of, serving

from heavydistill.config.serve import ServeConfig
from heavydistill.config.yaml import load
from heavydistill.errors import ConfigError, TeacherError
from heavydistill.serve.app import Site
from heavydistill.serve.service import Service

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
TURN = {"role": "user", "content": QUESTION}
LONG = {"messages": [{"role": "user", "content": "7 " * 450}]}  # room for some attempts, not for 16


@pytest.fixture(scope="module")
def address(models) -> Iterator[str]:
    with serving(models.base_url, serve__max_k=16, serve__max_body_bytes=20_000) as at:
        yield at


def messages(*turns: Any) -> dict[str, Any]:
    return {"messages": list(turns)}


@pytest.mark.parametrize(
    ("more", "param", "said"),
    [
        ({"functions": [{"name": "add"}]}, "functions", "not supported"),
        (
            {"model": "vote", "response_format": {"type": "json_object"}},
            *("response_format", "model heavy"),
        ),
        ({"logprobs": True}, "logprobs", "not supported"),
        ({"stop": ["x"]}, "stop", "not supported"),
        ({"temprature": 1}, "temprature", "Did you mean temperature?"),
        ({"prediction": 1}, "prediction", "supported are model, messages"),
        ({"heavy": {"attempts": 2}}, "heavy.attempts", "heavy.k, heavy.d"),
        ({"heavy": {"k": "8"}}, "heavy.k", "a whole number"),
        ({"heavy": {"k": 17}}, "heavy.k", "at most 16"),
        ({"heavy": {"d": 9}}, "heavy.d", "at most 8"),
        ({"n": 9}, "n", "at most 8"),
        ({"heavy": {"d": 2}, "n": 3}, "n", "heavy.d"),
        ({"heavy": {"k": 3, "min_k": 4}}, "heavy.min_k", "larger than k"),
        ({"heavy": {"budget_tokens": 10**6}}, "heavy.budget_tokens", "tokens"),
        ({"heavy": {"deadline_s": 601}}, "heavy.deadline_s", "600 seconds"),
        ({"heavy": {"seed": 1}, "seed": 2}, "seed", "another"),
        ({"heavy": {"expose": "all"}}, "heavy.expose", "summary"),
        ({"temperature": 3}, "temperature", "at most 2"),
        ({"max_tokens": 0}, "max_tokens", "at least 1"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "stream"),
        ({"model": "gpt-4"}, "model", "heavy, vote, single"),
        ({"model": "vote", "temperature": 0}, "temperature", "equal"),
        ({"model": "vote", "heavy": {"d": 2}}, "heavy.d", "model heavy"),
        ({"model": "single", "heavy": {"k": 2}}, "heavy.k", "one attempt"),
        ({"model": "single", "n": 2}, "n", "model heavy"),
        ({"messages": []}, "messages", "at least 1"),
        ({"heavy": 3}, "heavy", "JSON object"),
        ({"stream_options": {"usage": True}}, "stream_options.usage", "Leave it out."),
        (messages(TURN, {"role": "assistant", "content": "7"}), "messages", "assistant"),
        (messages({"role": "user", "content": [IMAGE]}), "messages.0.content", "'image_url'"),
        (
            messages({"role": "user", "content": " "}),
            "messages",
            "its last one is empty. Fill it in",
        ),
        (messages({"role": "owner", "content": "?"}), "messages", "Message 1 of the conversation"),
        (messages({"role": "user", "content": "\ud800"}), "messages", "surrogate"),
        (messages({"role": "user", "content": "7 " * 2000}), "messages", "cache"),
        (LONG | {"heavy": {"k": 16}}, "heavy.k", "Set heavy.k to"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(address, models, more, param, said):
    del models.requests[:]
    status, reply, _ = post(address, {**body_of(), **more})
    error = reply["error"]
    assert (status, error["param"]) == (404 if param == "model" else 400, param)
    assert said in error["message"] and error["type"] == "invalid_request_error"
    assert not models.asked


def test_a_conversation_without_room_for_any_attempt_is_refused_with_what_helps(address):
    alone = messages({"role": "user", "content": "7 " * 2000})
    said = post(address, body_of() | alone)[1]["error"]["message"]
    assert said.endswith("Shorten the conversation."), "the model vote has no room for it either"


def test_the_largest_number_of_attempts_that_fits_is_named_and_fits(address):
    _, reply, _ = post(address, body_of(heavy={"k": 16}) | LONG)
    most = int(reply["error"]["message"].partition("Set heavy.k to ")[2].split()[0])
    for k, status in ((most, 200), (most + 1, 400)):
        assert post(address, body_of(heavy={"k": k}) | LONG)[0] == status


def test_values_that_change_nothing_are_accepted(address):
    neutral = {"frequency_penalty": 0, "logprobs": False, "tools": [], "stop": None, "store": False}
    more = {"response_format": {"type": "text"}, "user": "me", "metadata": {}, "n": 1}
    parts = {"role": "user", "content": [{"type": "text", "text": QUESTION}]}
    before = [{"role": "developer", "content": "Be brief."}, {**TURN, "name": None}]
    answer = {"role": "assistant", "content": "7", "reasoning_content": "3+4", "tool_calls": None}
    body = body_of(**neutral, **more) | messages(*before, answer, parts)
    assert post(address, body)[0] == 200


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"", 400, "cannot be read"),
        (b"[1]", 400, "no JSON object"),
        (b"[" * 15_000, 400, "nested too deeply"),
        (b"\xff\xfe", 400, "cannot be read"),
        (b" " * 20_001, 413, "at most 20,000 bytes (serve.max_body_bytes)"),
    ],
)
def test_bodies_that_cannot_be_read(address, body, status, said):
    answered, reply, _ = post(address, body)
    assert answered == status and said.lower() in reply["error"]["message"].lower()


def test_other_routes_have_errors_of_the_same_form(address):
    client = openai.OpenAI(base_url=address, api_key="none", max_retries=0)
    known = r"POST /v1/embeddings: Not Found\. Send POST /v1/"
    with pytest.raises(openai.NotFoundError, match=known):
        client.embeddings.create(model="heavy", input="x")
    assert _ask(address, "GET", "/v1/chat/completions")[0] == 405


def test_a_page_in_the_users_browser_cannot_ask(address):
    body = json.dumps(body_of())
    for headers, status in (
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/json", "Host": "evil.example"}, 403),
    ):
        answered, reply = _ask(address, "POST", "/v1/chat/completions", body, headers)
        assert answered == status and reply["error"]["message"]


def test_a_key_is_required_where_one_is_set_and_is_in_no_log(models, monkeypatch, caplog):
    key = "sk-of-this-test"
    monkeypatch.setenv("MY_SERVE_KEY", key)
    caplog.set_level(logging.DEBUG)
    with serving(models.base_url, serve__api_key_env="MY_SERVE_KEY") as address:
        for given in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {key}"},
                      {"Authorization": key}, {"Authorization": "Bearer"},
                      {"Authorization": "Bearer \xe9"}):  # fmt: skip
            status, reply, _ = post(address, body_of(), **given)
            assert (status, reply["error"]["code"]) == (401, "invalid_api_key")
            assert key not in json.dumps(reply)
        assert post(address, body_of(), Authorization=f"Bearer {key}")[0] == 200
        assert post(address, body_of(), Authorization=f"bearer  {key}")[0] == 200
        assert _ask(address, "GET", "/v1/models")[0] == 401
        assert _ask(address, "GET", "/health")[0] == 200
    assert key not in caplog.text and QUESTION not in caplog.text


def test_an_address_that_others_reach_needs_a_key(models, monkeypatch):
    monkeypatch.delenv("HEAVYDISTILL_SERVE_KEY", raising=False)
    asked = {"serve.host": "0.0.0.0", "serve.port": 0}
    with pytest.raises(ConfigError, match="HEAVYDISTILL_SERVE_KEY is not set"):
        Site(Service(load(ServeConfig, None, asked)))
    monkeypatch.setenv("HEAVYDISTILL_SERVE_KEY", "secret")
    with Site(Service(load(ServeConfig, None, asked))).listening() as address:
        assert _ask(address, "GET", "/health")[1]["status"] == "loading"


def test_requests_beyond_the_limit_are_told_to_wait():
    with faulty(seconds=0.5) as slow, serving(slow.base_url, serve__max_requests=2) as address:
        threads = [threading.Thread(target=post, args=(address, body_of())) for _ in range(2)]
        for thread in threads:
            thread.start()
        latest = time.monotonic() + 10
        while _ask(address, "GET", "/health")[1]["requests"] < 2 and time.monotonic() < latest:
            time.sleep(0.01)
        status, reply, headers = post(address, body_of())
        assert (status, reply["error"]["code"]) == (429, "rate_limit_exceeded")
        assert int(headers["Retry-After"]) >= 1
        for thread in threads:
            thread.join()
        assert post(address, body_of())[0] == 200


def test_before_the_models_are_loaded_the_service_says_so(models):
    service = Service(load(ServeConfig, None, {"serve.port": 0}))
    with Site(service).listening() as address:
        assert _ask(address, "GET", "/health") == (503, {"status": "loading", "requests": 0})
        status, reply, headers = post(address, body_of())
        assert (status, reply["error"]["code"]) == (503, "loading") and headers["Retry-After"]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"pools": "runs/x"}, "pools cannot be served"),
        ({"budget": "1usd"}, "budget cannot be served"),
        ({"judge.model": "micro"}, "judge cannot be served"),
        ({"think.tools.python.rounds": 5}, "think.tools cannot be served"),
        (
            {"endpoint.start_vllm": True, "serve.deliberator_endpoint": {}},
            "serve.deliberator_endpoint with start_vllm cannot be served",
        ),
        ({"deliberate.task": "choose"}, "deliberate.task"),
        ({"think.k": 33}, "serve.max_k"),
        ({"serve.api_key_env": "sk-123abc"}, "must be the name"),
    ],
)
def test_configurations_that_cannot_be_served(keys, said):
    with pytest.raises(ConfigError, match=said) as raised:
        load(ServeConfig, None, keys)
    assert "sk-123abc" not in str(raised.value)


def test_a_deliberator_elsewhere_that_does_not_answer_is_named_by_its_own_key(models):
    apart = {"base_url": "http://127.0.0.1:9/v1", "tokenizer": MICRO, "context": 4096}
    service = service_of(models.base_url, serve__deliberator_endpoint=apart)
    with contextlib.closing(service), pytest.raises(TeacherError) as raised:
        service.load()
    assert raised.value.what.startswith("serve.deliberator_endpoint: Nothing answers at http://127")
    assert "correct --set serve.deliberator_endpoint.base_url;" in raised.value.fix


def test_a_cache_without_room_for_the_attempts_is_refused_at_the_start(models):
    def open_with(k: int, **more: Any) -> None:
        keys = {"cache__budget_tokens": 900, "think__k": k, **more}
        with serving(models.base_url, **keys) as address:
            assert post(address, body_of("?"))[0] == 200

    with messages_of.raises("no_room_to_serve", k=16) as raised:
        open_with(16)
    most = int(str(raised.value).partition("Give --k ")[2].split()[0])
    open_with(most)
    for k, more in ((most + 1, {}), (16, {"cache__width": most + 1})):
        with messages_of.raises("no_room_to_serve", k=most + 1):
            open_with(k, **more)
    with messages_of.raises("no_room_to_serve", k=4) as raised:
        open_with(4, cache__budget_tokens=50)
    assert "Set cache.budget_tokens to" in str(raised.value)


@pytest.mark.parametrize(
    ("keys", "said"),
    [({"serve__verifier": "code"}, "code cannot read"),
     ({"serve__verifier": "choice"}, "options")],
)  # fmt: skip
def test_verifiers_that_read_no_answer_of_a_request(keys, said):
    with pytest.raises(ConfigError, match=said), serving(None, **keys):
        pass


def _ask(address: str, method: str, path: str, body: str = "", headers: Any = None) -> Any:
    """(status, JSON of the reply)."""
    place = urlsplit(address)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
    connection.request(method, path, body or None, headers or {})
    reply = connection.getresponse()
    answer = reply.status, json.loads(reply.read())
    connection.close()
    return answer

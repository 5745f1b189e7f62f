"""A run against an endpoint that cannot be asked ends before it begins, with what to do."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import messages
import pytest
from fake_server import Answer, completion, serving
from loopback import Handler, listening, redirecting
from messages import message

from heavydistill.config.models import Endpoint
from heavydistill.errors import TeacherError
from heavydistill.models.contact import ServerProbe
from heavydistill.models.resolve import located


def listing(*names: str, **more: Any) -> Answer:
    return 200, {"object": "list", "data": [{"id": name, **more} for name in names]}


def require(model: str, answer: Answer, most_tokens: int = 0, **endpoint: Any) -> None:
    with serving(lambda body: completion("1"), answer) as server:
        ServerProbe().require(model, Endpoint(base_url=server.base_url, **endpoint), most_tokens)
        assert not server.requests


@pytest.mark.parametrize(
    "answer",
    [
        listing("glm-4.6", "other"),
        listing(),
        listing("*"),
        (403, {}),
        (404, {}),
        (500, {}),
        (200, {"data": 7}),
        *(listing("glm-4.6", max_model_len=context) for context in (5000, None, "much")),
        # Lists of other shapes.
        *((200, body) for body in ([{"id": "glm-4.6"}], {"data": None})),
        (200, {"data": [7, None, {"id": 3}, {"id": "glm-4.6"}]}),
    ],
)
def test_a_served_model_or_a_server_that_does_not_tell_is_fine(answer):
    require("glm-4.6", answer, most_tokens=5000)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (listing("glm-4.6", "b"), message("model_not_served", url="", model="glm-46")),
        (listing("\x1b[31mother\u202e", "\x1b]0;title\x07more"), "It serves other, more"),
        (listing("glm-46", max_model_len=4096), "glm-46 with 4096 tokens.*this run needs 5000"),
    ],
)
def test_a_model_that_is_not_served_or_with_too_little_context_is_said(answer, said):
    with pytest.raises(TeacherError, match=said) as raised:
        require("glm-46", answer, most_tokens=5000)
    assert str(raised.value).isprintable()
    assert ("--set endpoint.context=4096" in raised.value.fix) is ("needs" in said)


def test_every_address_is_asked():
    answer = completion("1")
    with (
        serving(lambda body: answer, listing("m")) as one,
        serving(lambda body: answer, listing("other")) as two,
        messages.raises("model_not_served", url=f"{two.base_url} ", model="m"),
    ):
        ServerProbe().require("m", Endpoint(base_url=f"{one.base_url},{two.base_url}"))


@pytest.mark.parametrize("key", ["sk-secret", ""])
def test_a_refused_or_missing_key_names_its_variable_and_never_the_key(monkeypatch, key):
    monkeypatch.setenv("SOME_KEY", key)
    refusal = {"error": {"message": "Incorrect API key provided: sk-secret"}}
    with pytest.raises(TeacherError, match="SOME_KEY") as raised:
        require("m", (401, refusal), api_key_env="SOME_KEY")
    assert "sk-secret" not in str(raised.value)
    assert ("which is not set" in raised.value.what) is not bool(key)


def test_a_server_that_is_not_there_is_said_at_once():
    said = r"^Nothing answers at http://127\.0\.0\.1:9/v1: connection refused\."
    with pytest.raises(TeacherError, match=said):
        ServerProbe().require("m", Endpoint(base_url="http://127.0.0.1:9/v1"))


def test_a_redirect_to_nowhere_shows_no_key(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-secret")
    with redirecting("http://[sk-secret") as url, pytest.raises(TeacherError) as raised:
        ServerProbe().require("m", Endpoint(base_url=url, api_key_env="SOME_KEY"))
    assert "Nothing answers at" in raised.value.what and "sk-secret" not in raised.value.what


KEY = "sk-right"
ONE_TOKEN = completion("x", finish_reason="length")


@contextlib.contextmanager
def routed(
    gets: dict[str, Any], posts: dict[str, Any], guards: str = ""
) -> Iterator[tuple[str, list[tuple[str, str, Any]]]]:
    """A server with an answer to each path, and 404: (its root, method, path and body asked).

    ``guards`` are the methods for which the key must be right.
    """
    asked: list[tuple[str, str, Any]] = []

    class _Handler(Handler):
        def do_GET(self) -> None:
            self._answer("GET", None)

        def do_POST(self) -> None:
            self._answer("POST", self.body())

        def _answer(self, method: str, body: Any) -> None:
            asked.append((method, self.path, body))
            found = (gets if method == "GET" else posts).get(self.path)
            if method in guards.split() and self.headers["Authorization"] != f"Bearer {KEY}":
                self.send_json(401, {"error": {"message": f"bad: {self.headers['Authorization']}"}})
            elif isinstance(found, bytes):
                self.send(200, found, "text/html")
            else:
                self.send_json(*(found or (404, {"error": "no such path"})))

    with listening(_Handler) as url:
        yield url.removesuffix("/v1"), asked


def test_a_list_that_everybody_may_read_says_nothing_of_the_key_and_an_empty_request_does(
    monkeypatch,
):
    chats = {"/v1/chat/completions": (400, {"error": "messages is missing"})}
    with routed({"/v1/models": listing("m")}, chats, guards="POST") as (root, asked_for):
        endpoint = Endpoint(base_url=f"{root}/v1", api_key_env="SOME_KEY")
        monkeypatch.setenv("SOME_KEY", "sk-wrong")
        with messages.raises("key_refused", variable="SOME_KEY") as refused:
            ServerProbe().require("m", endpoint)
        assert "sk-wrong" not in str(refused.value)
        assert [body for method, _, body in asked_for if method == "POST"] == [{}]
        monkeypatch.setenv("SOME_KEY", KEY)
        asked_for.clear()
        contact = ServerProbe()
        for _ in range(2):  # the second one is remembered
            contact.require("m", endpoint)
        assert [method for method, _, _ in asked_for] == ["GET", "GET", "POST"]


def test_a_server_that_cannot_list_its_models_is_asked_for_nothing_if_there_is_a_key(monkeypatch):
    with routed({}, {"/v1/chat/completions": ONE_TOKEN}, guards="POST") as (root, asked_for):
        endpoint = Endpoint(base_url=f"{root}/v1", api_key_env="SOME_KEY")
        monkeypatch.setenv("SOME_KEY", "sk-wrong")
        with messages.raises("key_refused"):
            ServerProbe().require("m", endpoint)
        monkeypatch.delenv("SOME_KEY")
        asked_for.clear()
        ServerProbe().require("m", endpoint)
        assert [method for method, _, _ in asked_for] == ["GET"]


def test_a_list_for_the_right_key_alone_proves_the_key(monkeypatch):
    monkeypatch.setenv("SOME_KEY", KEY)
    with routed({"/v1/models": listing("m")}, {}, guards="GET") as (root, asked_for):
        ServerProbe().require("m", Endpoint(base_url=f"{root}/v1", api_key_env="SOME_KEY"))
        assert [method for method, _, _ in asked_for] == ["GET", "GET"]


@pytest.mark.parametrize("answer", [(404, {}), (429, {}), (500, {}), (200, {"usage": [1]})])
def test_what_else_an_empty_request_comes_to_refuses_nobody(monkeypatch, answer):
    monkeypatch.setenv("SOME_KEY", KEY)
    with routed({"/v1/models": listing("m")}, {"/v1/chat/completions": answer}) as (root, _):
        ServerProbe().require("m", Endpoint(base_url=f"{root}/v1", api_key_env="SOME_KEY"))


@pytest.mark.parametrize(
    ("answer", "fix"),
    [
        ((402, {"error": "no money"}), "Add credit"),
        ((403, {"error": "not for you"}), "SOME_KEY"),
        ((200, {"error": {"code": 402, "message": "no money"}}), "Add credit"),
    ],
)
def test_a_key_that_may_not_ask_is_refused_with_what_the_server_says(monkeypatch, answer, fix):
    monkeypatch.setenv("SOME_KEY", KEY)
    with routed({"/v1/models": listing("m")}, {"/v1/chat/completions": answer}) as (root, _):
        endpoint = Endpoint(base_url=f"{root}/v1", api_key_env="SOME_KEY")
        with pytest.raises(TeacherError, match=r"a request: HTTP 40[23]: no") as refused:
            ServerProbe().require("m", endpoint)
    assert fix in refused.value.fix


@pytest.mark.parametrize("page", [None, b"<html>LM Studio</html>", b'{"status": "ok"}'])
@pytest.mark.parametrize(
    ("given", "right"),
    [
        ("", "/v1"),
        ("/", "/v1"),
        ("/v1/chat/completions", "/v1"),
        ("/v1/models", "/v1"),
        ("/chat/completions", "/v1"),
        ("/api", "/api/v1"),
    ],
)
def test_the_address_that_answers_is_proposed(given, right, page):
    gets = {f"{right}/models": listing("m")}
    if page:
        gets[f"{given.rstrip('/')}/models"] = page
    with routed(gets, {f"{right}/chat/completions": ONE_TOKEN}) as (root, asked_for):
        with pytest.raises(TeacherError, match="not the base address") as refused:
            ServerProbe().require("m", Endpoint(base_url=f"{root}{given}"))
        assert refused.value.fix == f"Give --endpoint {root}{right}"
        assert all(body in (None, {}) for _, _, body in asked_for)  # nothing to bill


def test_an_address_that_can_be_asked_is_kept_though_another_one_lists_models():
    with routed({"/v1/models": listing("m")}, {"/chat/completions": (400, {})}) as (root, _):
        ServerProbe().require("m", Endpoint(base_url=root))


@pytest.mark.parametrize(
    ("entry", "context"),
    [
        ({"max_model_len": 4096}, 4096),
        ({"meta": {"n_ctx": 8192, "n_ctx_train": 32768}}, 8192),
        ({"context_length": 131_072}, 131_072),
        ({"context_window": 32_768}, 32_768),
        ({"parent": "base"}, 2048),
        ({"max_model_len": True}, None),
        ({"max_model_len": 10**30}, None),
        ({"max_model_len": "4096", "meta": [1], "parent": ["base"]}, None),
        ({}, None),
    ],
)
def test_the_context_is_read_as_each_server_says_it(entry, context):
    base = {"id": "base", "max_model_len": 2048}
    with routed({"/v1/models": (200, {"data": [base, {"id": "m", **entry}]})}, {}) as (root, _):
        assert ServerProbe().context("m", Endpoint(base_url=f"{root}/v1")) == context


def test_the_smallest_context_of_several_addresses_counts():
    saying = [{"/v1/models": listing("m", max_model_len=tokens)} for tokens in (8192, 4096)]
    with routed(saying[0], {}) as (one, _), routed(saying[1], {}) as (two, _):
        assert ServerProbe().context("m", Endpoint(base_url=f"{one}/v1,{two}/v1")) == 4096


def test_a_provider_without_a_key_is_refused_before_anything_is_sent(monkeypatch):
    monkeypatch.delenv("OPENROUTER_API_KEY", raising=False)
    monkeypatch.setattr("heavydistill.models.contact.submit", lambda work: pytest.fail("sent"))
    endpoint = located(Endpoint(base_url="openrouter"))
    with pytest.raises(TeacherError, match=r"openrouter needs a key.*OPENROUTER_API_KEY"):
        ServerProbe().context("some/model", endpoint)


def test_it_goes_through_the_proxy_of_the_environment(monkeypatch):
    gets = {"http://far.invalid/v1/models": listing("m")}
    with routed(gets, {}) as (root, asked_for):
        monkeypatch.setenv("http_proxy", root)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        ServerProbe().require("m", Endpoint(base_url="http://far.invalid/v1"))
    assert asked_for == [("GET", "http://far.invalid/v1/models", None)]


def test_it_can_be_asked_in_a_thread_that_runs_an_event_loop():
    with routed({"/v1/models": listing("m", max_model_len=4096)}, {}) as (root, _):
        endpoint = Endpoint(base_url=f"{root}/v1")

        async def ask() -> int | None:
            return ServerProbe().context("m", endpoint)

        assert asyncio.run(ask()) == 4096

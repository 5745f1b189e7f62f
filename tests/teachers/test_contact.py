"""A run against an endpoint that cannot be asked ends before it begins, with what to do."""

from typing import Any

import pytest
from fake_server import Answer, completion, serving
from loopback import Handler, listening

from heavydistill.config import Endpoint
from heavydistill.errors import TeacherError
from heavydistill.teachers.contact import Contact


def listing(*names: str) -> Answer:
    return 200, {"object": "list", "data": [{"id": name, "object": "model"} for name in names]}


def asked(model: str, answer: Answer, most_tokens: int = 0, **endpoint: Any) -> None:
    with serving(lambda body: completion("1"), answer) as server:
        where = Endpoint(base_url=server.base_url, tokenizer="unused", **endpoint)
        Contact().require(model, where, most_tokens)
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
    ],
)
def test_a_served_model_or_a_server_that_does_not_tell_is_fine(answer):
    asked("glm-4.6", answer)


def test_a_model_that_is_not_served_is_named_with_those_that_are():
    with pytest.raises(TeacherError, match=r"does not serve 'glm-46'.*Did you mean glm-4\.6\?.*b"):
        asked("glm-46", listing("glm-4.6", "b"))


def serving_with(context: object) -> Answer:
    return 200, {"data": [{"id": "m", "object": "model", "max_model_len": context}]}


def test_a_server_with_too_little_context_is_said_with_what_to_set():
    with pytest.raises(TeacherError, match=r"serves m with 4096 tokens.*but 5000") as raised:
        asked("m", serving_with(4096), most_tokens=5000)
    assert "--set endpoint.context=4096" in raised.value.fix


@pytest.mark.parametrize("context", [5000, None, "much"])
def test_a_server_with_enough_context_or_that_does_not_tell_is_fine(context):
    asked("m", serving_with(context), most_tokens=5000)


def test_every_address_is_asked():
    answer = completion("1")
    with (
        serving(lambda body: answer, listing("m")) as one,
        serving(lambda body: answer, listing("other")) as two,
        pytest.raises(TeacherError, match=rf"{two.base_url} does not serve 'm'"),
    ):
        Contact().require("m", Endpoint(base_url=f"{one.base_url},{two.base_url}"))


def test_a_refused_key_names_its_variable_and_never_the_key(monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-secret")
    with pytest.raises(TeacherError, match="SOME_KEY") as raised:
        refusal = {"error": {"message": "Incorrect API key provided: sk-secret"}}
        asked("m", (401, refusal), api_key_env="SOME_KEY")
    assert "sk-secret" not in str(raised.value)


def test_a_missing_key_is_said(monkeypatch):
    monkeypatch.delenv("SOME_KEY", raising=False)
    with pytest.raises(TeacherError, match=r"SOME_KEY.*which is not set"):
        asked("m", (401, {}), api_key_env="SOME_KEY")


def test_a_server_that_is_not_there_is_said_at_once():
    with pytest.raises(TeacherError, match=r"Nothing answers at http://127\.0\.0\.1:9/v1"):
        Contact().require("m", Endpoint(base_url="http://127.0.0.1:9/v1", tokenizer="unused"))


def test_the_names_that_a_server_lists_do_not_act_on_the_terminal():
    with pytest.raises(TeacherError, match="It serves other, more") as raised:
        asked("glm-4.6", listing("\x1b[31mother\u202e", "\x1b]0;title\x07more"))
    assert str(raised.value).isprintable()


def test_a_list_that_is_nested_too_deep_is_none():
    class _Deep(Handler):
        def do_GET(self) -> None:
            self.send(200, b'{"data":' * 50_000, "application/json")

    with listening(_Deep) as url:
        Contact().require("glm-4.6", Endpoint(base_url=url, tokenizer="unused"))

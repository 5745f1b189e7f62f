"""What doctor reads of an answer, whatever a server puts into it."""

from __future__ import annotations

from typing import Any

import pytest
from fake_server import completion, serving

from heavydistill.config.models import Endpoint
from heavydistill.doctor.questions import Answer, Asker

KEY = "sk-0123456789abcdef"


def asked(answer: tuple[int, dict[str, Any]]) -> tuple[Answer, Asker]:
    with serving(lambda body: answer) as server:
        endpoint = Endpoint(base_url=server.base_url, api_key_env="SOME_KEY", retries=0)
        with Asker("m", endpoint) as asker:
            return asker.ask("3+4?", 9, {}), asker


@pytest.mark.parametrize("end", [f"end {KEY}\x1b[31m\u202e", {"why": KEY}, [KEY]])
def test_an_end_shows_neither_the_key_nor_control_characters(monkeypatch, end):
    monkeypatch.setenv("SOME_KEY", KEY)
    status, body = completion("7")
    body["choices"][0]["finish_reason"] = end
    (shown,) = asked((status, body))[0].finishes
    assert "***" in shown and "sk-" not in shown and shown.isprintable()


@pytest.mark.parametrize("status", [200, 400])
def test_a_refusal_shows_neither_the_key_nor_control_characters(monkeypatch, status):
    monkeypatch.setenv("SOME_KEY", KEY)
    message = "\x1b]0;title\x07" + "x" * 470 + KEY
    refusal = asked((status, {"error": {"message": message}}))[0].refusal
    assert refusal and "sk-" not in refusal and refusal.isprintable()


@pytest.mark.parametrize("bad", [True, -5, 10**30, 7.5, "7", [7]])
def test_a_count_that_is_none_is_not_counted(bad):
    status, body = completion("7")
    body["usage"] = {"prompt_tokens": bad, "completion_tokens": 5}
    answer, asker = asked((status, body))
    assert answer.counts is None
    assert (asker.prompt_tokens, asker.completion_tokens) == (0, 0)

"""What a profile says reaches the server: name, sampling, and what switches thinking on."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_server import completion, serving

from heavydistill.config.models import Endpoint
from heavydistill.models.registry import find, open_engine
from heavydistill.models.request import Request, user_turn


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def test_the_thinking_switch_of_a_profile_is_in_every_request():
    with serving(lambda body: completion("7", reasoning="3+4")) as server:
        endpoint = Endpoint(base_url=server.base_url)
        profile = find("deepseek-v3.2", endpoint)
        requests = [Request(user_turn("3+4?"), profile.thinker, seed) for seed in range(3)]
        responses = open_engine(profile, endpoint).generate(requests)
    assert [response.reasoning for response in responses] == ["3+4"] * 3
    for body in server.requests:
        assert body["model"] == "deepseek-ai/DeepSeek-V3.2"
        assert body["chat_template_kwargs"] == {"thinking": True}
        assert (body["temperature"], body["top_k"], body["max_tokens"]) == (1.0, 10, 32_768)


def test_the_keys_of_a_file_of_ones_own_are_too(tmp_path: Path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: mine\ntokenizer: null\ncontext: 4096\n"
        "thinking: {tags: ['[[', ']]'], extra_body: {effort: {level: 3}, top_k: 7}}\n"
        "sampling: {maker: {temperature: 0.5, top_p: 1.0, top_k: 0, max_tokens: 9}}\n",
        encoding="utf-8",
    )
    with serving(lambda body: completion("[[3+4]]7")) as server:
        endpoint = Endpoint(base_url=server.base_url)
        profile = find(str(file), endpoint)
        (response,) = open_engine(profile, endpoint).generate(
            [Request(user_turn("3+4?"), profile.thinker, 1)]
        )
    assert (response.reasoning, response.answer_text) == ("3+4", "7")
    (body,) = server.requests
    assert (body["model"], body["effort"], body["top_k"]) == ("mine", {"level": 3}, 7)
    assert (body["temperature"], body["max_tokens"]) == (0.5, 9)

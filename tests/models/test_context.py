"""Whose word holds on how many tokens a model takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from heavydistill.config.models import Endpoint
from heavydistill.config.run import load_config
from heavydistill.errors import ConfigError
from heavydistill.models.contact import Contact
from heavydistill.models.resolve import ResolvedRun, resolve

URL = "http://localhost:1/v1"


class Saying(Contact):
    """A server that says this of the context of each model, without being asked over HTTP."""

    def __init__(self, **contexts: int) -> None:
        super().__init__()
        self._contexts = contexts

    def context(self, model: str, endpoint: Endpoint) -> int | None:
        return self._contexts.get(model)


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """A folder beside whose tokenizer lies a configuration of 16,384 positions."""
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    config = {"text_config": {"max_position_embeddings": 16_384}}  # as of a multimodal model
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def of(contact: Contact | None = None, teacher: str = "mine", **keys: Any) -> ResolvedRun:
    """Keys with two underscores for each dot."""
    dotted = {key.replace("__", "."): value for key, value in keys.items()}
    served = {"teacher": teacher, "endpoint.base_url": URL}
    return resolve(load_config(None, served | dotted), contact)


def said(found: ResolvedRun) -> list[tuple[int, str]]:
    assert all(f"{each.tokens:,}" in str(each) for each in found.contexts)
    return [(each.tokens, each.source) for each in found.contexts]


def test_what_is_set_holds_before_what_doctor_saw_before_the_server_before_the_folder(tokenizer):
    server, folder = Saying(mine=32_768), str(tokenizer)
    seen = {"context": 65_536}
    both = of(server, endpoint__context=4096, endpoint__capabilities=seen)
    assert said(both) == [(4096, "set")]
    assert said(of(server, endpoint__capabilities=seen)) == [(65_536, "doctor")]
    assert said(of(server, endpoint__tokenizer=folder)) == [(32_768, "server")]
    assert said(of(Saying(), endpoint__tokenizer=folder)) == [(16_384, "tokenizer")]
    assert said(of(endpoint__tokenizer=folder)) == [(16_384, "tokenizer")]


@pytest.mark.parametrize(
    ("server", "context"), [(None, (163_840, "profile")), (10**6, (163_840, "profile"))]
)
def test_the_profile_holds_where_the_server_takes_more(server, context):
    contact = Saying(**{"deepseek-ai/DeepSeek-R1-0528": server}) if server else None
    found = of(contact, "deepseek-r1-0528")
    assert said(found) == [context]
    assert found.config.endpoint.context is None


def test_a_server_that_takes_less_than_the_profile_says_is_obeyed():
    found = of(Saying(**{"deepseek-ai/DeepSeek-R1-0528": 20_000}), "deepseek-r1-0528")
    assert said(found) == [(20_000, "server")]
    assert found.config.endpoint.context == 20_000
    assert found.config.deliberate.sampling.max_tokens == 10_000


def test_two_models_at_one_endpoint_have_the_smaller_context():
    found = of(Saying(mine=32_768, other=4096), thinker="other")
    assert said(found) == [(4096, "server"), (4096, "shared")]
    assert found.config.endpoint.context == 4096


def test_an_unknown_context_is_assumed_small_and_said_to_be_unknown():
    found = of(Saying())
    (context,) = found.contexts
    assert (context.tokens, context.source, context.is_known) == (8192, "assumed", False)
    assert "unknown" in str(context) and "--set endpoint.context=N" in str(context)
    config = found.config
    assert config.endpoint.context == 8192
    assert (config.cache.budget_tokens or 0) + 4096 <= 8192
    # Completing it again changes nothing.
    assert resolve(config).config == config


def test_a_configuration_that_was_completed_without_a_context_still_is_the_same_run(tokenizer):
    """Runs of older versions assumed 131,072 tokens and saved what follows from them."""
    old = {
        "cache__budget_tokens": 80_000,
        "deliberate__sampling__max_tokens": 32_768,
        "think__sampling__max_tokens": 32_768,
    }
    for more in ({}, {"endpoint__tokenizer": str(tokenizer)}):
        found = of(None, **old, **more)
        assert found.contexts[0].source == "configured"
        assert found.config.cache.budget_tokens == 80_000
        assert found.config.think.sampling.max_tokens == 32_768
    with pytest.raises(ConfigError, match="the 8192 tokens of mine") as refused:
        of(Saying(mine=8192), **old)
    assert "endpoint.context" in refused.value.fix


def test_a_judge_elsewhere_has_a_context_of_its_own():
    elsewhere = {"base_url": "http://localhost:2/v1"}
    found = of(Saying(mine=32_768, judge=4096), judge__model="judge", judge__endpoint=elsewhere)
    assert said(found) == [(32_768, "server"), (4096, "server")]
    assert found.config.judge and found.config.judge.endpoint
    assert found.config.judge.endpoint.context == 4096
    assert found.config.endpoint.context == 32_768


@pytest.mark.parametrize("text", ["", "[]", '{"max_position_embeddings": "8"}', "[" * 10**5])
def test_a_configuration_beside_the_tokenizer_that_says_nothing_is_none(tmp_path, text):
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    assert said(of(endpoint__tokenizer=str(tmp_path))) == [(8192, "assumed")]

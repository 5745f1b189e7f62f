from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from heavydistill.config import Endpoint, RunConfig, Sampling, SamplingChoice, load_config
from heavydistill.engine.openai_client import OpenAIEngine
from heavydistill.errors import ConfigError, TeacherError
from heavydistill.teachers import registry

HERE = Endpoint()
SERVED = {"endpoint.base_url": "http://localhost:1/v1", "endpoint.tokenizer": "org/model"}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A folder that says how long its context is, which is all that a profile needs."""
    config = {"max_position_embeddings": 4096}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return tmp_path


def completed(**overrides: Any) -> RunConfig:
    """Keys with two underscores for each dot."""
    dotted = {key.replace("__", "."): value for key, value in overrides.items()}
    return registry.complete(load_config(overrides=dotted))


def test_the_bundled_profiles_are_found_by_name():
    assert registry.names() == ["micro", "micro-student"]
    for name in registry.names():
        profile = registry.find(name, HERE)
        assert (profile.name, profile.kind, profile.domain) == (name, "local", "brief")
        assert profile.tokenizer == profile.model
        for sampling in (profile.thinker, profile.deliberator):
            assert 0 < sampling.max_tokens < profile.context


def test_the_bundled_models_are_two():
    teacher, student = (registry.find(name, HERE).model for name in registry.names())
    assert teacher != student


def test_a_folder_is_a_local_model_with_its_own_context(checkpoint):
    profile = registry.find(str(checkpoint), HERE)
    assert (profile.kind, profile.model, profile.tokenizer) == ("local",) + (str(checkpoint),) * 2
    assert profile.context == 4096
    # Half of a small context is left to the prompt; the rest is the paper's.
    assert profile.thinker == profile.deliberator == Sampling(max_tokens=2048)


@pytest.mark.parametrize("config", [None, "{}", "[]", "no json"])
def test_a_folder_that_does_not_say_its_context_is_refused(tmp_path, config):
    if config is not None:
        (tmp_path / "config.json").write_text(config, encoding="utf-8")
    with pytest.raises(TeacherError) as caught:
        registry.find(str(tmp_path), HERE)
    assert repr(str(tmp_path)) in str(caught.value)
    assert "config.json" in caught.value.fix


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("mikro", "micro"), ("micro-studnt", "micro-student"), ("MICRO-student", "micro-student")],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(name, nearest):
    with pytest.raises(TeacherError) as caught:
        registry.find(name, HERE)
    assert f"There is no model {name!r}" in str(caught.value)
    assert f"Did you mean {nearest}?" in caught.value.fix


def test_a_name_near_to_none_lists_what_there_is():
    with pytest.raises(TeacherError) as caught:
        registry.find("zzz", HERE)
    assert "Did you mean" not in caught.value.fix
    for choice in (*registry.names(), "Hub id", "endpoint.base_url"):
        assert choice in caught.value.fix


def test_with_a_base_url_any_name_is_a_served_one():
    endpoint = Endpoint(base_url="http://localhost:1/v1", tokenizer="org/model", context=10_000)
    for name in ("glm-4.6", "micro", "org/model"):
        profile = registry.find(name, endpoint)
        assert (profile.kind, profile.model) == ("endpoint", name)
        assert (profile.tokenizer, profile.context) == ("org/model", 10_000)
        assert profile.thinker.max_tokens == 5000


def test_an_endpoint_is_sent_top_k_only_on_request():
    config = completed(**SERVED)
    assert config.think.sampling.top_k == config.deliberate.sampling.top_k == 0
    config = completed(**SERVED, **{"think.sampling.top_k": 10})
    assert (config.think.sampling.top_k, config.deliberate.sampling.top_k) == (10, 0)


def test_a_served_profile_opens_the_client_with_its_tags():
    endpoint = Endpoint(base_url="http://localhost:1/v1", tokenizer="org/model")
    engine = registry.open_engine(registry.find("glm-4.6", endpoint), endpoint)
    assert isinstance(engine, OpenAIEngine)
    assert (engine.model, engine.endpoint) == ("glm-4.6", endpoint)
    assert engine.think_tags == ("<think>", "</think>")


def test_completing_fills_in_what_the_profile_decides():
    config = completed()
    profile = registry.find("micro", HERE)
    assert (config.thinker, config.deliberator, config.domain) == ("micro", "micro", "brief")
    assert config.think.sampling == SamplingChoice(**profile.thinker.model_dump())
    assert config.deliberate.sampling == SamplingChoice(**profile.deliberator.model_dump())
    response = profile.deliberator.max_tokens
    # Some tokens are left to the chat template.
    assert 0 < config.cache.budget_tokens < profile.context - response


def test_a_long_context_gets_the_budget_of_the_paper():
    assert completed(**SERVED).cache.budget_tokens == 80_000


def test_completing_keeps_what_the_user_set():
    config = completed(
        think__sampling__temperature=0.2,
        deliberate__sampling__max_tokens=100,
        cache__budget_tokens=300,
        domain="stem",
        deliberator="micro-student",
        think__k=4,
    )
    assert (config.think.sampling.temperature, config.deliberate.sampling.max_tokens) == (0.2, 100)
    assert (config.cache.budget_tokens, config.domain, config.think.k) == (300, "stem", 4)
    assert (config.thinker, config.deliberator) == ("micro", "micro-student")
    # What was not chosen beside it still comes from the profile.
    assert config.think.sampling.top_k == registry.find("micro", HERE).thinker.top_k


def test_completing_twice_changes_nothing():
    once = completed(think__k=4)
    assert registry.complete(once) == once


def test_a_role_of_its_own_takes_its_own_profile(checkpoint):
    config = completed(deliberator=str(checkpoint))
    assert (config.thinker, config.deliberator) == ("micro", str(checkpoint))
    assert config.deliberate.sampling.max_tokens == 2048
    assert config.think.sampling.max_tokens == registry.find("micro", HERE).thinker.max_tokens
    assert config.domain == "brief"


def test_a_budget_over_the_context_is_refused_with_the_largest_that_fits(checkpoint):
    with pytest.raises(ConfigError) as caught:
        completed(teacher=str(checkpoint), cache__budget_tokens=4000)
    assert "cache.budget_tokens 4000" in str(caught.value) and "4096" in str(caught.value)
    largest = completed(teacher=str(checkpoint)).cache.budget_tokens
    assert caught.value.fix == f"Set cache.budget_tokens to {largest} or less."
    assert completed(teacher=str(checkpoint), cache__budget_tokens=largest)
    with pytest.raises(ConfigError):
        completed(teacher=str(checkpoint), cache__budget_tokens=largest + 1)


@pytest.mark.parametrize("stage", ["think", "deliberate"])
def test_a_response_that_leaves_no_room_for_a_prompt_is_refused(checkpoint, stage):
    key = f"{stage}.sampling.max_tokens"
    with pytest.raises(ConfigError) as caught:
        completed(teacher=str(checkpoint), **{key: 4096})
    assert f"{key} 4096" in str(caught.value)
    assert caught.value.fix == f"Set {key} lower."

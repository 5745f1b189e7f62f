import dataclasses
import json
from pathlib import Path
from typing import Any

import messages
import pytest
from fake_server import completion, serving

from heavydistill.config.models import Endpoint, Sampling, SamplingChoice
from heavydistill.config.run import RunConfig, load_config
from heavydistill.errors import ConfigError, TeacherError
from heavydistill.models import registry
from heavydistill.models.request import Request, user_turn
from heavydistill.models.resolve import resolve
from heavydistill.models.tokenizer import SERVER

HERE = Endpoint()
URL = "http://localhost:1/v1"
SERVED = {"teacher": "mine", "endpoint.base_url": URL, "endpoint.tokenizer": "org/model"}
MICRO = ("micro", "micro-student")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A folder that says how long its context is, which is all that a profile needs."""
    config = {"max_position_embeddings": 4096}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return tmp_path


def completed(**overrides: Any) -> RunConfig:
    """Keys with two underscores for each dot."""
    dotted = {key.replace("__", "."): value for key, value in overrides.items()}
    return resolve(load_config(overrides=dotted)).config


@pytest.mark.parametrize("name", MICRO)
def test_the_bundled_models_are_found_by_name(name):
    profile = registry.profile_at(name, HERE)
    assert (profile.name, profile.kind, profile.domain) == (name, "local", "brief")
    assert profile.tokenizer == profile.model and Path(profile.model, "config.json").is_file()
    assert (profile.context, profile.think_tags) == (2048, ("<think>", "</think>"))
    assert profile.thinker == Sampling(max_tokens=192)
    assert profile.deliberator == Sampling(max_tokens=448)
    assert f"/{'student' if name == MICRO[1] else 'teacher'}" in profile.model


def test_a_folder_is_a_local_model_called_by_its_last_name_with_its_own_context(
    checkpoint, monkeypatch
):
    monkeypatch.chdir(checkpoint.parent)
    for given in (str(checkpoint), checkpoint.name, f"./{checkpoint.name}"):
        profile = registry.profile_at(given, HERE)
        assert (profile.name, profile.kind) == (checkpoint.name, "local")
        assert (profile.model, profile.tokenizer, profile.context) == (given, given, 4096)
        # Half of a small context is left to the prompt; the rest is the paper's.
        assert profile.thinker == profile.deliberator == Sampling(max_tokens=2048)


@pytest.mark.parametrize("config", [None, "{}", "[]", "no json"])
def test_a_folder_that_does_not_say_its_context_is_refused(tmp_path, config):
    if config is not None:
        (tmp_path / "config.json").write_text(config, encoding="utf-8")
    with pytest.raises(TeacherError) as caught:
        registry.profile_at(str(tmp_path), HERE)
    assert repr(str(tmp_path)) in str(caught.value)
    assert "config.json" in caught.value.fix


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("mikro", "micro"),
        ("micro-studnt", "micro-student"),
        ("MICRO-student", "micro-student"),
        ("zzz", ""),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one_and_all(name, nearest):
    with messages.raises("no_model", model=name) as caught:
        registry.profile_at(name, HERE)
    assert (f"Did you mean {nearest}?" in caught.value.fix) is bool(nearest)
    for choice in ("`heavydistill teachers`", "Hub id", "--endpoint"):
        assert choice in caught.value.fix
    with pytest.raises(TeacherError, match=f"There is no profile '{name}'"):
        registry.profile_of(name)


def test_with_a_base_url_a_name_without_a_profile_is_a_served_one():
    endpoint = Endpoint(base_url=URL, tokenizer="org/model", context=10_000)
    for name in ("mine", "glm-9", "org/model"):
        profile = registry.profile_at(name, endpoint)
        assert (profile.kind, profile.model) == ("endpoint", name)
        assert (profile.tokenizer, profile.context) == ("org/model", 10_000)
        assert profile.thinker.max_tokens == 5000
    # Without a tokenizer its server counts.
    config = completed(teacher="mine", endpoint__base_url=URL)
    assert (
        config.endpoint.tokenizer
        == SERVER
        == registry.profile_at("mine", config.endpoint).tokenizer
    )


def test_a_served_model_without_a_profile_is_sent_top_k_only_on_request():
    for more, top_k in (({}, 0), ({"think.sampling.top_k": 10}, 10)):
        config = completed(**SERVED, **more)
        assert (config.think.sampling.top_k, config.deliberate.sampling.top_k) == (top_k, 0)


def test_a_server_of_ones_own_is_asked_as_the_profile_says():
    with serving(lambda body: completion("7", reasoning="3+4")) as server:
        endpoint = Endpoint(base_url=server.base_url)
        profile = registry.profile_at("deepseek-v3.2", endpoint)
        requests = [Request(user_turn("3+4?"), profile.thinker, seed) for seed in range(3)]
        engine = registry.open_engine(profile, endpoint)
        assert registry.revision_of(profile, endpoint) == engine.revision
        responses = engine.generate(requests)
    hub = "deepseek-ai/DeepSeek-V3.2"
    assert (profile.kind, profile.model, profile.tokenizer) == ("endpoint", hub, hub)
    assert (profile.context, profile.think_tags) == (163_840, ("<think>", "</think>"))
    assert profile.thinker == profile.deliberator == Sampling()
    assert [response.reasoning for response in responses] == ["3+4"] * 3
    for body in server.requests:
        assert (body["model"], body["chat_template_kwargs"]) == (hub, {"thinking": True})
        assert (body["temperature"], body["top_k"], body["max_tokens"]) == (1.0, 10, 32_768)


def test_the_keys_of_a_file_of_ones_own_reach_its_server(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: mine\ntokenizer: null\ncontext: 4096\n"
        "thinking: {tags: ['[[', ']]'], extra_body: {effort: {level: 3}, top_k: 7}}\n"
        "sampling: {maker: {temperature: 0.5, top_p: 1.0, top_k: 0, max_tokens: 9}}\n",
        encoding="utf-8",
    )
    with serving(lambda body: completion("[[3+4]]7")) as server:
        endpoint = Endpoint(base_url=server.base_url)
        profile = registry.profile_at(str(file), endpoint)
        request = Request(user_turn("3+4?"), profile.thinker, 1)
        (response,) = registry.open_engine(profile, endpoint).generate([request])
    assert (response.reasoning, response.answer_text) == ("3+4", "7")
    (body,) = server.requests
    assert (body["model"], body["effort"], body["top_k"]) == ("mine", {"level": 3}, 7)
    assert (body["temperature"], body["max_tokens"]) == (0.5, 9)


def test_a_known_provider_is_asked_in_its_own_way():
    openrouter = registry.profile_at("glm-4.6", Endpoint(base_url="https://openrouter.ai/api/v1"))
    assert openrouter.model == "z-ai/glm-4.6"
    assert openrouter.extra_body == {"reasoning": {"enabled": True}}
    routing = {"require_parameters": True, "enforce_distillable_text": True}
    quantizations = {"quantizations": ["fp8", "fp16", "bf16", "fp32"]}
    assert openrouter.routing == {"provider": routing | quantizations}
    assert openrouter.thinker.top_k == 10
    zai = registry.profile_at("glm-4.6", Endpoint(base_url="https://api.z.ai/api/coding/paas/v4"))
    assert (zai.model, zai.extra_body) == ("glm-4.6", {"thinking": {"type": "enabled"}})
    assert zai.thinker.top_k == 0  # not a parameter of that API


def test_the_choice_of_hosts_leaves_the_journal_of_a_hosted_teacher_valid():
    endpoint = Endpoint(base_url="https://openrouter.ai/api/v1")
    profile = registry.profile_at("glm-4.6", endpoint)
    assert registry.revision_of(profile, endpoint) == '{"reasoning": {"enabled": true}}'
    pinned = endpoint.model_copy(update={"extra_body": {"provider": {"only": ["deepinfra"]}}})
    other = registry.profile_at("glm-4.6", pinned)
    assert registry.revision_of(other, pinned) != registry.revision_of(profile, endpoint)
    assert other.added_body["provider"] == {**profile.routing["provider"], "only": ["deepinfra"]}


@pytest.mark.parametrize(
    ("teacher", "provider"),
    [
        ("some/model", {"require_parameters": True, "enforce_distillable_text": True}),
        # Its terms forbid distillation, which the user was told, and no host would be left.
        ("claude-sonnet-4.5", {"require_parameters": True}),
        # Its weights are in 4 bits.
        ("gpt-oss-120b", {"require_parameters": True, "enforce_distillable_text": True}),
    ],
)
def test_openrouter_is_asked_for_hosts_that_take_all_parameters_and_keep_the_terms(
    teacher, provider
):
    profile = registry.profile_at(teacher, Endpoint(base_url="https://openrouter.ai/api/v1"))
    assert profile.routing == {"provider": provider}
    elsewhere = registry.profile_at(teacher, Endpoint(base_url=URL))
    assert elsewhere.routing == {}


def test_the_parameters_of_an_endpoint_are_merged_over_the_profiles(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: mine\ntokenizer: null\ncontext: 4096\n"
        "thinking: {extra_body: {effort: {level: 3, budget: 9}, verbose: true, kept: 1}}\n",
        encoding="utf-8",
    )
    more = {"effort": {"level": 4}, "verbose": None, "provider": {"only": ["x"]}}
    with serving(lambda body: completion("7")) as server:
        endpoint = Endpoint(base_url=server.base_url, extra_body=more)
        profile = registry.profile_at(str(file), endpoint)
        profile = dataclasses.replace(profile, routing={"provider": {"require_parameters": True}})
        registry.open_engine(profile, endpoint).generate(
            [Request(user_turn("3+4?"), Sampling(), 1)]
        )
    (body,) = server.requests
    assert (body["effort"], body["kept"]) == ({"level": 4, "budget": 9}, 1)
    assert "verbose" not in body
    assert body["provider"] == {"only": ["x"], "require_parameters": True}


@pytest.mark.parametrize("name", ["messages", "n", "seed", "temperature", "max_tokens"])
def test_what_the_run_records_as_sent_cannot_be_set_beside_it(name):
    with pytest.raises(ConfigError, match=f"the run itself sends {name}"):
        load_config(overrides={"endpoint.base_url": URL, f"endpoint.extra_body.{name}": 3})


def test_the_endpoint_wins_over_the_profile():
    endpoint = Endpoint(base_url=URL, tokenizer="org/other", context=20_000)
    profile = registry.profile_at("glm-4.6", endpoint)
    assert (profile.tokenizer, profile.context) == ("org/other", 20_000)
    # Half of the context is left to the cache, and less than that to a problem.
    assert (profile.thinker.max_tokens, profile.deliberator.max_tokens) == (11_808, 10_000)


def test_a_run_takes_the_sampling_of_the_maker_if_told_to():
    served = {"teacher": "qwen3-8b", "endpoint__base_url": URL}
    paper, maker = completed(**served), completed(**served, sampling="maker")
    assert (paper.think.sampling.temperature, paper.think.sampling.top_k) == (1.0, 10)
    assert (maker.think.sampling.temperature, maker.think.sampling.top_k) == (0.6, 20)
    assert maker.deliberate.sampling.temperature == 0.6
    assert completed(**served, sampling="maker", think__sampling__top_k=3).think.sampling.top_k == 3


@pytest.mark.parametrize(
    ("name", "why"),
    [("glm-4.6", "too large"), ("gpt-oss-20b", "thinking"), ("gpt-5", "only its maker")],
)
def test_a_model_that_cannot_run_here_is_refused_with_what_can_be_done(name, why):
    with pytest.raises(TeacherError) as caught:
        registry.profile_at(name, HERE)
    assert f"The model {name} cannot run in this process" in str(caught.value)
    assert why in str(caught.value)
    assert "--endpoint openrouter" in caught.value.fix
    assert (f"heavydistill teachers {name}" in caught.value.fix) is (name != "gpt-5")


def test_a_small_model_with_a_profile_runs_in_this_process():
    profile = registry.profile_at("qwen3-8b", HERE)
    assert (profile.kind, profile.model, profile.context) == ("local", "Qwen/Qwen3-8B", 40_960)
    # What a problem does not need is left to the thinking.
    assert (profile.thinker.max_tokens, profile.deliberator.max_tokens) == (32_768, 20_480)


def test_a_profile_of_ones_own_is_one_file(tmp_path, monkeypatch):
    (tmp_path / "weights").mkdir()
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: mine\nfolder: weights\ntokenizer: weights\ncontext: 4096\ndomain: stem\n"
        "sampling: {maker: {temperature: 0.5, max_tokens: 100}}\n",
        encoding="utf-8",
    )
    profile = registry.profile_at(str(file), HERE)
    weights = str(tmp_path / "weights")
    assert (profile.name, profile.kind, profile.model) == ("mine", "local", weights)
    assert (profile.tokenizer, profile.context, profile.think_tags) == (weights, 4096, None)
    assert profile.thinker == profile.deliberator == Sampling(temperature=0.5, max_tokens=100)
    config = completed(teacher=str(file))
    assert (config.thinker, config.domain) == (str(file), "stem")
    assert resolve(config).config == config
    monkeypatch.chdir(tmp_path)
    assert registry.profile_at("mine.yaml", Endpoint(base_url=URL)).model == "mine"


def test_completing_fills_in_what_the_profile_of_each_role_decides(checkpoint):
    config = completed(deliberator=str(checkpoint))
    assert (config.thinker, config.deliberator) == ("micro", str(checkpoint))
    assert (config.deliberate.sampling.max_tokens, config.domain) == (2048, "brief")
    config = completed()
    profile = registry.profile_at("micro", HERE)
    assert (config.thinker, config.deliberator, config.domain) == ("micro", "micro", "brief")
    assert config.think.sampling == SamplingChoice(**profile.thinker.model_dump())
    assert config.deliberate.sampling == SamplingChoice(**profile.deliberator.model_dump())
    response = profile.deliberator.max_tokens
    # Some tokens are left to the chat template.
    assert 0 < config.cache.budget_tokens < profile.context - response
    # A long context gets the budget of the paper.
    assert completed(endpoint__context=131_072, **SERVED).cache.budget_tokens == 80_000


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
    assert resolve(config).config == config  # a saved configuration resolves to itself
    # What was not chosen beside it still comes from the profile.
    assert config.think.sampling.top_k == registry.profile_at("micro", HERE).thinker.top_k


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
    assert caught.value.fix == f"Lower it, e.g. --set {key}=2048."

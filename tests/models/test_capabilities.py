"""The capability file, that a completed configuration obeys it, and whose context holds."""

import json
from pathlib import Path
from typing import Any

import pytest

from heavydistill.config.models import Capabilities, Endpoint
from heavydistill.config.run import RunConfig, load_config
from heavydistill.errors import ConfigError
from heavydistill.models.capabilities import Source, load, path_of, save
from heavydistill.models.contact import ServerProbe
from heavydistill.models.registry import profile_at
from heavydistill.models.resolve import ResolvedRun, resolve

URL, OTHER = "http://localhost:1/v1", "http://localhost:2/v1"
R1 = "deepseek-ai/DeepSeek-R1-0528"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def completed(url: str = URL, **keys: Any) -> RunConfig:
    """Of a run with the profile of R1; keys with two underscores for each dot."""
    dotted = {key.replace("__", "."): value for key, value in keys.items()}
    served = {"teacher": "deepseek-r1-0528", "endpoint.base_url": url}
    return resolve(load_config(overrides=served | dotted)).config


def test_a_file_is_read_back_and_says_which_it_is(cache):
    seen = Capabilities(n=4, refused=["seed"], max_output=8192, checked="today")
    path = save(f"{URL}/", "org/model", seen)
    assert path == path_of(URL, "org/model") and cache in path.parents
    assert path.name.startswith("localhost-1-org-model-") and path.suffix == ".yaml"
    assert load(URL, "org/model") == seen.model_copy(update={"checked": f"today; {path}"})
    assert load(URL, "org-model") is load(OTHER, "org/model") is None
    save(URL, "org/model", Capabilities(n=1))  # a later visit replaces it
    assert load(URL, "org/model").n == 1 and list(path.parent.iterdir()) == [path]


def test_a_damaged_file_is_named_with_its_key():
    path = save(URL, R1, Capabilities())
    path.write_text(path.read_text().replace("stream:", "streem:"), encoding="utf-8")
    with pytest.raises(ConfigError, match="streem") as raised:
        completed()
    assert str(path) in str(raised.value)
    path.write_text(path.read_text().replace("streem: true", "stream: 8"), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"capabilities\.stream"):
        completed()


def test_a_folder_that_cannot_be_written_is_said(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="XDG_CACHE_HOME"):
        save(URL, "m", Capabilities())


def test_a_run_obeys_the_file_of_its_model_and_address():
    assert completed().endpoint.capabilities == Capabilities()
    save(OTHER, R1, Capabilities(n=2))
    save(URL, "another", Capabilities(n=3))
    assert completed().endpoint.capabilities == Capabilities()
    save(URL, R1, Capabilities(n=4, refused=["top_k"]))
    seen = completed().endpoint.capabilities
    assert (seen.n, seen.refused) == (4, ["top_k"])
    assert str(path_of(URL, R1)) in seen.checked
    # What is configured wins over it.
    assert completed(endpoint__capabilities={"n": 2}).endpoint.capabilities.n == 2


def test_the_largest_output_bounds_the_default_and_refuses_more():
    save(URL, R1, Capabilities(max_output=8192))
    config = completed()
    assert config.think.sampling.max_tokens == config.deliberate.sampling.max_tokens == 8192
    assert completed(think__sampling__max_tokens=4096).think.sampling.max_tokens == 4096
    for stage in ("think", "deliberate"):
        with pytest.raises(ConfigError, match=f"{stage}.sampling.max_tokens 9000") as raised:
            completed(**{f"{stage}__sampling__max_tokens": 9000})
        assert "8192 or less" in raised.value.fix and str(path_of(URL, R1)) in raised.value.what


def test_a_smaller_context_is_obeyed_everywhere():
    save(URL, R1, Capabilities(context=16_384))
    config = completed()
    assert config.endpoint.context == 16_384
    assert profile_at("deepseek-r1-0528", config.endpoint).context == 16_384
    assert config.think.sampling.max_tokens == config.deliberate.sampling.max_tokens == 8192
    assert config.cache.budget_tokens + 8192 < 16_384
    with pytest.raises(ConfigError, match=r"endpoint\.context 20000"):
        completed(endpoint__context=20_000)
    assert resolve(config).config == config  # completing it again changes nothing


def test_a_completed_configuration_reads_no_file_that_came_later():
    before = completed()
    save(URL, R1, Capabilities(refused=["seed"], max_output=1024, context=4096, reasoning="none"))
    assert resolve(before).config == before


def test_a_server_that_the_run_starts_obeys_no_file(tmp_path):
    profile = tmp_path / "mine.yaml"
    profile.write_text("name: served\ntokenizer: org/model\ncontext: 4096\n", encoding="utf-8")
    config = load_config(
        overrides={"teacher": str(profile), "endpoint.start_vllm": True, "endpoint.context": 4096}
        | {f"{stage}.sampling.max_tokens": 1024 for stage in ("think", "deliberate")}
    )
    # Its address is found out later, and may be one that doctor once saw something at.
    seen = resolve(config, starts=False).config.endpoint.capabilities
    assert seen == Capabilities()


def test_several_addresses_are_asked_what_all_of_them_honour():
    save(URL, R1, Capabilities(n=4, refused=["seed"], max_output=8192, reasoning="reasoning"))
    both = f"{URL},{OTHER}"
    seen = completed(both).endpoint.capabilities
    assert (seen.n, seen.reasoning) == (1, "unknown")  # the other was never looked at
    save(OTHER, R1, Capabilities(n=2, stream=False, refused=["top_k"], max_output=16_384))
    seen = completed(both).endpoint.capabilities
    assert (seen.n, seen.stream, seen.refused) == (2, False, ["seed", "top_k"])
    assert seen.max_output == 8192
    assert str(path_of(URL, R1)) in seen.checked and str(path_of(OTHER, R1)) in seen.checked
    save(OTHER, R1, Capabilities(max_tokens_name="max_completion_tokens"))
    with pytest.raises(ConfigError, match="different parameters for the length of a response"):
        completed(both)


def test_a_model_in_this_process_has_no_file():
    assert resolve(RunConfig()).config.endpoint == Endpoint()


# --- Whose word holds on how many tokens a model takes.


class Saying(ServerProbe):
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


def of(contact: ServerProbe | None = None, teacher: str = "mine", **keys: Any) -> ResolvedRun:
    """Keys with two underscores for each dot."""
    dotted = {key.replace("__", "."): value for key, value in keys.items()}
    served = {"teacher": teacher, "endpoint.base_url": URL}
    return resolve(load_config(None, served | dotted), contact)


def said(found: ResolvedRun) -> list[tuple[int, str]]:
    assert all(f"{each.tokens:,}" in str(each) for each in found.contexts)
    return [(each.tokens, each.source.name.lower()) for each in found.contexts]


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
    ("server", "context", "kept"),
    [
        (None, (163_840, "profile"), None),
        (10**6, (163_840, "profile"), None),
        (20_000, (20_000, "server"), 20_000),
    ],
)
def test_the_profile_holds_but_where_the_server_takes_less(server, context, kept):
    contact = Saying(**{R1: server}) if server else None
    found = of(contact, "deepseek-r1-0528")
    assert said(found) == [context] and found.config.endpoint.context == kept
    assert not kept or found.config.deliberate.sampling.max_tokens == kept // 2


def test_two_models_at_one_endpoint_have_the_smaller_context():
    found = of(Saying(mine=32_768, other=4096), thinker="other")
    assert said(found) == [(4096, "server"), (4096, "shared")]
    assert found.config.endpoint.context == 4096


def test_a_configuration_that_was_completed_without_a_context_still_is_the_same_run(tokenizer):
    """Runs of older versions assumed 131,072 tokens and saved what follows from them."""
    old = {
        "cache__budget_tokens": 80_000,
        "deliberate__sampling__max_tokens": 32_768,
        "think__sampling__max_tokens": 32_768,
    }
    for more in ({}, {"endpoint__tokenizer": str(tokenizer)}):
        found = of(None, **old, **more)
        assert found.contexts[0].source == Source.CONFIGURED
        assert found.config.cache.budget_tokens == 80_000
        assert found.config.think.sampling.max_tokens == 32_768
    with pytest.raises(ConfigError, match="the context of mine, 8192 tokens") as refused:
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
    found = of(endpoint__tokenizer=str(tmp_path))
    assert said(found) == [(8192, "assumed")] and not found.contexts[0].is_known
    assert resolve(found.config).config == found.config

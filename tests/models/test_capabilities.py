"""The capability file, and that a completed configuration obeys it."""

from __future__ import annotations

from typing import Any

import pytest

from heavydistill.config.models import Capabilities, Endpoint
from heavydistill.config.run import RunConfig, load_config
from heavydistill.errors import ConfigError, TeacherError
from heavydistill.models.capabilities import load, path_of, save
from heavydistill.models.registry import find
from heavydistill.models.resolve import resolve

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


def test_a_later_visit_replaces_the_file():
    save(URL, "m", Capabilities(n=4))
    path = save(URL, "m", Capabilities(n=1))
    assert load(URL, "m").n == 1
    assert list(path.parent.iterdir()) == [path]


def test_a_damaged_file_is_named_with_its_key():
    path = save(URL, R1, Capabilities())
    path.write_text(path.read_text().replace("stream:", "streem:"), encoding="utf-8")
    with pytest.raises(ConfigError, match="streem") as raised:
        completed()
    assert str(path) in str(raised.value)
    path.write_text(path.read_text().replace("streem: true", "n: 0"), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"capabilities\.n"):
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


def test_what_is_configured_wins_over_the_file():
    save(URL, R1, Capabilities(n=4))
    configured = {"n": 2}
    assert completed(endpoint__capabilities=configured).endpoint.capabilities.n == 2


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
    assert find("deepseek-r1-0528", config.endpoint).context == 16_384
    assert config.think.sampling.max_tokens == config.deliberate.sampling.max_tokens == 8192
    assert config.cache.budget_tokens + 8192 < 16_384
    with pytest.raises(ConfigError, match=r"endpoint\.context 20000"):
        completed(endpoint__context=20_000)


def test_completing_twice_changes_nothing():
    save(URL, R1, Capabilities(max_output=4096, context=16_384, refused=["seed"]))
    config = completed()
    assert resolve(config).config == config


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
    assert resolve(config).config.endpoint.capabilities == Capabilities()


def test_a_teacher_whose_thinking_is_hidden_is_refused_before_the_run():
    save(URL, R1, Capabilities(reasoning="none"))
    with pytest.raises(TeacherError, match="deepseek-r1-0528 thinks") as raised:
        completed()
    assert "heavydistill doctor" in raised.value.fix
    assert completed(endpoint__reasoning="optional").endpoint.capabilities.reasoning == "none"


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
    with pytest.raises(ConfigError, match="do not call the length of a response alike"):
        completed(both)


def test_a_model_in_this_process_has_no_file():
    assert resolve(RunConfig()).config.endpoint == Endpoint()

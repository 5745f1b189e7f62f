"""The file format of profiles, and that every shipped one is complete."""

from pathlib import Path

import pytest

from heavydistill.config.models import Sampling
from heavydistill.config.shipped import shipped
from heavydistill.errors import ConfigError
from heavydistill.models import registry
from heavydistill.models.profiles import (
    GPU_COUNTS,
    PROVIDERS,
    ProfileFile,
    load_profile,
    provider_at,
    serve_command,
)

FILES = shipped("configs/teachers")
WANTED = {
    *("glm-4.6", "deepseek-r1-0528", "deepseek-v3.2", "kimi-k2-thinking"),
    *("gpt-oss-20b", "gpt-oss-120b", "qwen3-8b", "qwen3-32b"),
    *("r1-distill-qwen-7b", "r1-distill-qwen-32b", "r1-distill-qwen3-8b"),
    *("gpt-5", "claude-sonnet-4.5", "gemini-3-pro", "micro", "micro-student"),
}
PAPER = Sampling(temperature=1.0, top_p=0.95, top_k=10, max_tokens=32_768)
MINIMAL = "name: mine\ntokenizer: org/model\ncontext: 4096\n"


def test_the_shipped_profiles_are_those_that_are_meant_to_be():
    assert set(FILES) == WANTED
    assert list(shipped("configs/teachers")) == sorted(WANTED)


@pytest.fixture(params=FILES, scope="module")
def profile(request: pytest.FixtureRequest) -> ProfileFile:
    profile = load_profile(FILES[request.param])
    assert profile.name == request.param  # so names are unique, too
    return profile


def test_a_shipped_profile_tells_its_terms_and_where_its_facts_stand(profile):
    assert profile.licence
    assert profile.terms.because and profile.terms.source
    assert profile.terms.distillation == (
        "allowed" if profile.hub or profile.folder else "restricted"
    )
    assert profile.sources.limits and profile.sources.sampling and profile.sources.thinking
    assert bool(profile.sources.vllm) == bool(profile.vllm) == bool(profile.hub)
    assert profile.providers.keys() <= PROVIDERS.keys()
    assert all(offer.source for offer in profile.providers.values())


def test_the_samplings_of_a_shipped_profile_are_spelled_out(profile):
    assert profile.sampling.paper == PAPER
    assert bool(profile.sampling.maker) == bool(profile.hub)
    for sampling in (profile.sampling.paper, profile.sampling.maker):
        # A key left out would silently be the paper's.
        if sampling:
            assert {"temperature", "top_p", "top_k", "max_tokens"} <= sampling.model_fields_set


def test_the_limits_of_a_shipped_profile_fit_each_other(profile):
    limits = (profile.thinker_output or 1, profile.output or profile.context, profile.context)
    assert limits == tuple(sorted(limits))


def test_a_shipped_profile_says_how_it_is_served_on_any_number_of_gpus(profile):
    if not profile.vllm:
        assert not profile.hub
        return
    assert profile.thinking.parser
    for count in GPU_COUNTS:
        setup = profile.vllm.gpus[count]
        command = serve_command(profile, count)
        assert bool(setup) == bool(command)
        if setup and command:
            assert command[:2] == ["vllm", "serve"]
            assert setup.max_model_len <= profile.context


def test_a_command_has_every_flag():
    assert serve_command(registry.profile_of("gpt-oss-120b"), 1) == [
        *("vllm", "serve", "openai/gpt-oss-120b", "--served-model-name", "openai/gpt-oss-120b"),
        *("--reasoning-parser", "openai_gptoss", "--tensor-parallel-size", "1"),
        *("--gpu-memory-utilization", "0.95", "--max-model-len", "131072"),
        *("--generation-config", "vllm", "--enable-prompt-tokens-details"),
        *("--stream-interval", "16"),
        *("--max-num-batched-tokens", "1024"),
    ]
    other = serve_command(registry.profile_of("qwen3-32b"), 1)
    assert other and other[2:5] == ["Qwen/Qwen3-32B-FP8", "--served-model-name", "Qwen/Qwen3-32B"]
    four = serve_command(registry.profile_of("r1-distill-qwen-32b"), 4)
    assert four and {"--tensor-parallel-size", "--data-parallel-size"} <= set(four)


def test_a_flag_without_a_value_stands_alone(tmp_path):
    file = tmp_path / "mine.yaml"
    gpus = "{1: {max_model_len: 4096}, 2: null, 4: null, 8: null}"
    vllm = f"vllm: {{flags: {{trust-remote-code: ''}}, gpus: {gpus}, why_null: not tried}}\n"
    file.write_text(f"{MINIMAL}hub: org/model\n{vllm}", encoding="utf-8")
    command = serve_command(load_profile(file), 1)
    assert command and command[-1] == "--trust-remote-code"
    assert serve_command(load_profile(file), 2) is None


def refusal(folder: Path, text: str) -> ConfigError:
    file = folder / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_profile(file)
    assert str(file) in caught.value.what
    return caught.value


@pytest.mark.parametrize(
    ("text", "key", "nearest"),
    [
        ("sampling: {papers: {}}\n", "sampling.papers", "sampling.paper"),
        (
            "providers: {openrouter: {modle: a}}\n",
            "providers.openrouter.modle",
            "providers.openrouter.model",
        ),
        (
            "vllm: {gpus: {1: {max_modellen: 1}}}\n",
            "vllm.gpus.1.max_modellen",
            "vllm.gpus.1.max_model_len",
        ),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(tmp_path, text, key, nearest):
    error = refusal(tmp_path, MINIMAL + text)
    assert f"unknown key {key}." in str(error)
    assert error.fix == f"Did you mean {nearest}?"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("name: mine\ncontext: 4096\n", "tokenizer is missing"),
        (MINIMAL.replace("4096", "long"), "context: "),
        (MINIMAL + "terms: {distillation: maybe}\n", "'allowed', 'restricted' or 'unknown'"),
        (MINIMAL + "providers: openrouter\n", "providers takes keys"),
        (MINIMAL + "thinking: yes\n", "thinking takes keys"),
        (MINIMAL + "vllm: {gpus: {1: null}}\n", "gpus lacks [2, 4, 8]"),
        (MINIMAL + "vllm: {gpus: {1: null, 2: null, 4: null, 8: null}}\n", "why_null"),
        (MINIMAL + "vllm: {gpus: {3: null}}\n", "vllm.gpus.3"),
        (
            MINIMAL + "vllm: {why_null: why, gpus: {1: null, 2: null, 8: null, 4: "
            "{tensor_parallel: 2, max_model_len: 4096}}}\n",
            "gpus.4: tensor_parallel 2 times data_parallel 1 is not 4",
        ),
    ],
)
def test_a_bad_value_is_refused_with_its_key(tmp_path, text, named):
    assert named in str(refusal(tmp_path, text))


def test_a_file_of_ones_own_needs_little(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(f"{MINIMAL}thinking:\nsources:\n", encoding="utf-8")
    profile = load_profile(file)
    assert (profile.tokenizer, profile.terms.distillation) == ("org/model", "unknown")
    assert profile.sampled_by("paper") == profile.sampled_by("maker") == Sampling()


def test_each_provider_is_found_by_its_own_address():
    for name, provider in PROVIDERS.items():
        assert provider_at(provider.base_url) == name
        assert provider_at(f"{provider.base_url}/") == name
        assert provider.key_env.isupper()
    for own in (
        "http://localhost:8000/v1",
        "https://openrouter.ai.example.org/v1",
        "openrouter.ai",
    ):
        assert provider_at(own) is None

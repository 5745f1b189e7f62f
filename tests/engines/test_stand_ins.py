"""The stand-ins of the default lane behave as the real engines where the tests rely on it."""

import dataclasses
import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import vllm_engine
from command_line import MICRO
from fake_server import completion
from real_vllm import serving
from transformers import AutoTokenizer
from vllm import LLM, SamplingParams
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.reasoning import ReasoningParserManager
from vllm.utils.argparse_utils import FlexibleArgumentParser

from heavydistill.models.profiles import GPU_COUNTS, serve_command
from heavydistill.models.registry import profile_of, profiles

CONTEXT = 1024


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("log") / "vllm.log"
    flags = ["--dtype=float32", f"--max-model-len={CONTEXT}", "--served-model-name=mine"]
    with serving(log, MICRO, *flags, "--reasoning-parser=deepseek_r1") as url:
        yield url


def read(url: str, body: dict[str, Any] | None = None) -> Any:
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def names_in(tree: Any) -> set[str]:
    """All names of a JSON tree, each with those of the objects around it."""
    if isinstance(tree, list):
        return set().union(*map(names_in, tree))
    if not isinstance(tree, dict):
        return set()
    inner = {f"{name}.{below}" for name, value in tree.items() for below in names_in(value)}
    return set(tree) | inner


def test_what_the_stand_in_for_a_server_says_the_real_one_says(url):
    (model,) = read(f"{url}/models")["data"]
    assert model["id"] == "mine" and model["max_model_len"] == CONTEXT
    messages = [{"role": "user", "content": "What is 2 + 3?"}]
    real = read(f"{url}/chat/completions", {"model": "mine", "messages": messages, "seed": 1})
    status, stood_in = completion("5", reasoning="2 + 3 = 5")
    assert status == 200
    # vLLM 0.31 calls the thinking `reasoning`; both names are read.
    given = {name.replace("reasoning_content", "reasoning") for name in names_in(stood_in)}
    assert given <= names_in(real), given - names_in(real)


@pytest.mark.parametrize("name", profiles())
def test_the_flags_of_a_profile_are_those_of_vllm(name):
    profile = profile_of(name)
    parser = make_arg_parser(FlexibleArgumentParser())
    for count in (0, *GPU_COUNTS):
        if command := serve_command(profile, count):
            parser.parse_args(command[2:])
    if profile.thinking.parser:
        assert ReasoningParserManager.get_reasoning_parser(profile.thinking.parser)


def test_the_stand_in_for_an_engine_in_the_process_answers_as_vllm(monkeypatch):
    for name in (field.name for field in dataclasses.fields(vllm_engine.SamplingParams)):
        assert hasattr(SamplingParams(), name)
    keys = {"model": MICRO, "seed": 0, "max_model_len": CONTEXT, "gpu_memory_utilization": 0.2}
    real = LLM(**keys, dtype="float32", enforce_eager=True, logprobs_mode="processed_logprobs")
    monkeypatch.setattr(vllm_engine.LLM, "made", [], raising=False)
    stand_in = vllm_engine.LLM(**keys)
    tokenizer = AutoTokenizer.from_pretrained(MICRO)
    prompts = [
        {
            "prompt_token_ids": tokenizer.apply_chat_template(
                [{"role": "user", "content": f"What is {n} + 25?"}],
                add_generation_prompt=True,
                return_dict=False,
            )
        }
        for n in (7, 18)
    ]
    for most in (8, 64):
        asked = {"temperature": 0.01, "top_k": 0, "max_tokens": most, "logprobs": 0}
        answers = real.generate(prompts, SamplingParams(**asked), use_tqdm=False)
        own = stand_in.generate(prompts, vllm_engine.SamplingParams(**asked), use_tqdm=False)
        for theirs, ours in zip(answers, own, strict=True):
            assert theirs.prompt_token_ids == ours.prompt_token_ids
            (their, our) = theirs.outputs[0], ours.outputs[0]
            assert list(their.token_ids) == list(our.token_ids)
            gaps = [
                abs(mine[token].logprob - his[token].logprob)
                for token, his, mine in zip(
                    our.token_ids, their.logprobs, our.logprobs, strict=True
                )
            ]
            assert max(gaps) < 0.05  # a hundredth of the temperature makes rounding a hundredfold
    assert real.llm_engine.model_config.dtype == stand_in.llm_engine.model_config.dtype
    assert real.llm_engine.model_config.dtype == torch.float32
    real.llm_engine.engine_core.shutdown()

"""A server that is started by hand: a base and two adapters, with the parser of Qwen3.

Of two requests with ``prompt_logprobs`` in one batch vLLM 0.31 with adapters ends on a CPU, so they
are asked one after the other.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from adapters import write_adapter
from command_line import MICRO, run_command
from peft import PeftModel
from real_vllm import serving
from runs import build, write_run
from trainings import grpo_flags
from transformers import AutoModelForCausalLM

from heavydistill.config.models import Endpoint, Sampling
from heavydistill.models.http.engine import OpenAIEngine
from heavydistill.models.http.probe import TOKEN_IDS, probe
from heavydistill.models.registry import profile_at
from heavydistill.models.request import Request, Response, user_turn

TEACHER = Path(MICRO)
CONTEXT = 2048


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("adapters")
    thinker = write_adapter(folder / "thinker", TEACHER, strength=0.006)
    deliberator = write_adapter(
        folder / "deliberator", TEACHER, strength=0.001, r=4, use_rslora=True
    )
    return {"thinker": thinker, "deliberator": deliberator}


@pytest.fixture(scope="module")
def url(adapters: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("log") / "vllm.log"
    names = [f"{name}={folder}" for name, folder in adapters.items()]
    flags = ["--dtype=float32", f"--max-model-len={CONTEXT}", "--served-model-name=base"]
    flags += ["--reasoning-parser=qwen3", "--enable-lora", "--max-lora-rank=8", "--max-loras=2"]
    with serving(log, TEACHER, *flags, "--lora-modules", *names) as url:
        yield url


def answer(url: str, name: str, text: str, **sampling: Any) -> Response:
    endpoint = Endpoint(base_url=url)
    engine = OpenAIEngine(profile_at(name, endpoint), endpoint)
    try:
        (response,) = engine.generate(
            [Request(user_turn(text), Sampling(**{"top_k": 0, "max_tokens": 48} | sampling), 1)]
        )
    finally:
        engine.close()
    return response


def test_doctor_finds_nothing_wrong(url):
    flags = ["--teacher=base", f"--endpoint={url}", f"--tokenizer={TEACHER}", "--set=domain=brief"]
    done = run_command("doctor", *flags, "--limit=2", "--k=2", "--d=1")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_base_and_its_adapters_are_evaluated_on_one_server(url, tmp_path):
    out = tmp_path / "evaluation"
    done = run_command(
        *("evaluate", "--before=base", "--thinker=thinker", "--deliberator=deliberator"),
        *(f"--endpoint={url}", f"--tokenizer={TEACHER}", "--set=domain=brief", f"--out={out}"),
        *("--problems=micro", "--limit=4", "--k=2", "--d=1"),
        *("--set=think.sampling.max_tokens=192", "--set=deliberate.sampling.max_tokens=448"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (out / "evaluation.json").is_file()


def test_a_prompt_beyond_the_context_is_too_long(url):
    response = answer(url, "base", "1 + 2 + 3 = ? " * 400)
    assert response.failure == "too_long"


def test_thinking_that_is_cut_off_is_thinking(url):
    response = answer(url, "base", "What is 17 + 25?", max_tokens=6)
    assert response.finish_reason == "length"
    assert response.reasoning and not response.answer_text


@pytest.mark.parametrize("name", ["base", "thinker", "deliberator"])
def test_log_probabilities_are_those_of_transformers(url, adapters, name):
    model = AutoModelForCausalLM.from_pretrained(TEACHER, dtype=torch.float32)
    if name != "base":
        model = PeftModel.from_pretrained(model, adapters[name])
    ids = torch.tensor([TOKEN_IDS])
    with torch.no_grad():
        logps = model(ids).logits[0].log_softmax(dim=-1)
    expected = logps[:-1].gather(1, ids[0, 1:, None])[:, 0]
    endpoint = Endpoint(base_url=url)
    served = asyncio.run(probe(url, profile_at(name, endpoint), endpoint)).logprobs
    gaps = (torch.tensor(served) - expected).abs()
    assert gaps.max() < 1e-3


def test_a_server_that_cannot_take_weights_is_said_before_a_training(url, tmp_path):
    """NCCL alone brings weights to a server, so no training in server mode runs on a CPU."""
    run = write_run(tmp_path / "runs" / "sums", 100, k=4, words=6)
    build(tmp_path / "sets", run, validation=0.2)
    keys = {"use_vllm": True, "vllm_mode": "server", "steps_per_generation": 1, "max_steps": 1}
    keys["vllm_server_base_url"] = url.removesuffix("/v1")
    done = run_command("grpo", *grpo_flags(tmp_path / "sets", tmp_path / "out", **keys))
    assert done.returncode == 2
    assert "The training cannot be set up" in done.stderr
    assert "VLLM_SERVER_DEV_MODE=1" in done.stderr
    assert not list(tmp_path.glob("out/checkpoint-*"))

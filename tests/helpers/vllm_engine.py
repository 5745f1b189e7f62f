"""A stand-in for vLLM's engine in the process of a training, with what TRL calls of it.

``install`` puts it where TRL imports vLLM. It samples with transformers on the weights that it was
sent, in their dtype, and behaves as vLLM where that matters: asleep at level 2 it has no weights
and answers nothing, a weight that it does not know or of another shape is an error, it is strict
about the parameters of sampling, and it samples with the generators of the process, which it seeds
as it is made.
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, set_seed


@dataclass
class SamplingParams:
    """The parameters of vLLM that TRL sets; any other is an error."""

    n: int = 1
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    max_tokens: int | None = 16
    logprobs: int | None = None


class LLM:
    """vLLM's class of this name."""

    made: list[LLM]
    dtype = torch.float32

    def __init__(
        self, model: str, seed: int, enable_sleep_mode: bool = False, **options: Any
    ) -> None:
        self.options, self._sleeps = options, enable_sleep_mode
        set_seed(seed)
        self._model = AutoModelForCausalLM.from_pretrained(model, dtype=self.dtype).eval()
        self._weights = dict(self._model.named_parameters())
        self._ends = self._model.generation_config.eos_token_id
        self._awake = {"weights", "kv_cache"}
        self._loaded: set[str] = set(self._weights)
        self.loads = 0  # weights that were sent so far
        self.asked: list[tuple[list[int], int | None]] = []  # prompt ids and most tokens
        self.events: list[str] = []  # what else was asked of it
        self.written: list[list[int]] = []  # token ids of all responses
        worker = SimpleNamespace(
            model_runner=SimpleNamespace(model=SimpleNamespace(load_weights=self._load))
        )
        executor = SimpleNamespace(driver_worker=worker)
        self.llm_engine = SimpleNamespace(
            model_executor=executor,
            model_config=SimpleNamespace(dtype=self.dtype),
            engine_core=SimpleNamespace(shutdown=lambda: self.events.append("shutdown")),
        )
        LLM.made.append(self)

    def _load(self, weights: Any) -> None:
        assert "weights" in self._awake, "weights are loaded into memory that is given away"
        for name, weight in weights:
            own = self._weights[name]
            assert own.shape == weight.shape, name
            own.data.copy_(weight)
            self._loaded.add(name)
            self.loads += 1

    def sleep(self, level: int = 1) -> None:
        assert self._sleeps and level == 2
        self.events.append("sleep")
        self._awake.clear()
        self._loaded.clear()
        for weight in self._weights.values():
            weight.data.fill_(torch.nan)

    def wake_up(self, tags: list[str] | None = None) -> None:
        assert self._sleeps
        self._awake |= set(tags or ("weights", "kv_cache"))
        self.events.append(f"wake_up {' '.join(sorted(tags or ()))}")

    def reset_prefix_cache(self) -> None:
        self.events.append("reset_prefix_cache")

    def weights(self) -> dict[str, torch.Tensor]:
        """What it samples with."""
        return {name: weight.detach().clone() for name, weight in self._weights.items()}

    def generate(
        self, prompts: list[dict[str, list[int]]], sampling_params: SamplingParams, use_tqdm: bool
    ) -> list[Any]:
        assert self._awake == {"weights", "kv_cache"}, "asked while asleep"
        assert self._loaded == set(self._weights), "asked before all weights were sent"
        assert sampling_params.n == 1 and not use_tqdm
        return [self._answer(prompt["prompt_token_ids"], sampling_params) for prompt in prompts]

    @torch.no_grad()
    def _answer(self, prompt: list[int], sampling: SamplingParams) -> Any:
        assert prompt and sampling.max_tokens
        self.asked.append((prompt, sampling.max_tokens))
        written: list[int] = []
        logprobs: list[dict[int, Any]] = []
        cache, fed = None, prompt
        while len(written) < sampling.max_tokens:
            out = self._model(torch.tensor([fed]), past_key_values=cache, use_cache=True)
            logps = (out.logits[0, -1].float() / sampling.temperature).log_softmax(dim=-1)
            token = int(torch.multinomial(logps.exp(), 1))
            written.append(token)
            logprobs.append({token: SimpleNamespace(logprob=logps[token].item(), rank=1)})
            if token in (self._ends if isinstance(self._ends, list) else [self._ends]):
                break
            cache, fed = out.past_key_values, [token]
        self.written.append(written)
        answer = SimpleNamespace(token_ids=written, logprobs=logprobs)
        return SimpleNamespace(prompt_token_ids=prompt, outputs=[answer])


def install(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype = torch.float32) -> list[LLM]:
    """Put it where TRL looks for vLLM; the engines that are made from then on."""
    import trl.generation.vllm_generation as ours
    import trl.trainer.distillation_trainer as distillation

    LLM.made, LLM.dtype = [], dtype
    found(monkeypatch, "0.31.0")
    for place in (ours, distillation):
        monkeypatch.setattr(place, "is_vllm_available", lambda *_: True)
    for name, value in {"LLM": LLM, "SamplingParams": SamplingParams}.items():
        monkeypatch.setattr(ours, name, value, raising=False)
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "0")  # TRL sets them for the whole process
        monkeypatch.delenv(name)
    return LLM.made


def found(monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
    """The metadata of the installed packages have vLLM in this version; None: not at all."""
    distribution = importlib.metadata.distribution

    def of(name: str) -> Any:
        if name != "vllm":
            return distribution(name)
        if version is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return SimpleNamespace(version=version)

    monkeypatch.setattr(importlib.metadata, "distribution", of)

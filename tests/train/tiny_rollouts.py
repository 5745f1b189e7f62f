"""Rows and episodes with made-up tokens, for tests of the trainers that learn from them."""

import functools
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tiny_grpo
import torch
from generations import cache, trajectory
from students import PAD
from students import TURN_ENDS as END
from tiny_grpo import STUDENT as STUDENT

from heavydistill.train.grpo.episodes import EpisodeRow, Episodes, PolicyCompletion, Rollout

_WORDS = range(100, 600)
_CACHE = cache()


def made_up(
    episodes: int, k: int, seed: int = 0, truncated: float = 0.2, d: int = 1
) -> list[Rollout]:
    """Episodes whose rows have tokens at random, of many lengths; some are cut off."""
    rng = random.Random(seed)

    def row(prompt: tuple[int, int], completion: tuple[int, int]) -> EpisodeRow:
        whole = rng.random() >= truncated
        ids = rng.choices(_WORDS, k=rng.randint(*completion)) + [END] * whole
        asked = rng.choices(_WORDS, k=rng.randint(*prompt))
        return EpisodeRow([{"role": "user", "content": "?"}], asked, PolicyCompletion(ids, whole))

    return [
        Rollout(
            [
                *(row((3, 9), (4, 30)) for _ in range(k)),
                *(row((20, 50), (2, 12)) for _ in range(d)),
            ],
            [trajectory("5")] * k,
            _CACHE,
            None,
        )
        for _ in range(episodes)
    ]


def padded_rows(
    lengths: Sequence[tuple[int, int]], prompt: int, completion: int
) -> dict[str, torch.Tensor]:
    """Rows of (prompt, completion) tokens, as TRL pads them in a larger batch."""
    rng = random.Random(3)
    rows = []
    for asked, answered in lengths:
        words = rng.choices(_WORDS, k=asked + answered - 1)
        ids = [PAD] * (prompt - asked) + [*words, END] + [PAD] * (completion - answered)
        mask = [0] * (prompt - asked) + [1] * (asked + answered)
        rows.append((ids, mask + [0] * (completion - answered)))
    ids, mask = (torch.tensor(part) for part in zip(*rows, strict=True))
    return {
        "prompt_ids": ids[:, :prompt],
        "prompt_mask": mask[:, :prompt],
        "completion_ids": ids[:, prompt:],
        "completion_mask": mask[:, prompt:],
    }


class Replayed(Episodes):
    """Gives the same episodes whatever the policy is; ``played`` are those of all processes."""

    def __init__(self, k: int, played: list[Rollout], process: int = 0) -> None:
        self.k, self.d = k, len(played[0].rows) - k
        self._played_before, self._process = played, process

    def rollout(
        self, rows: Sequence[Mapping[str, Any]], seeds: Sequence[int], *_: Any
    ) -> list[Rollout]:
        assert len(seeds) == len(rows)
        return self._played_before[self._process * len(rows) :][: len(rows)]


def problems(number: int) -> Any:
    """A set of so many problems."""
    from datasets import Dataset

    return Dataset.from_list(tiny_grpo.rows(number))


def arguments(folder: Path, **changes: Any) -> Any:
    """Of a GSPO training on a CPU."""
    from trl import GRPOConfig

    usual: dict[str, Any] = {
        "importance_sampling_level": "sequence",
        "loss_type": "grpo",
        "max_completion_length": 64,
        "shuffle_dataset": False,
        "max_grad_norm": 0.0,
        "ddp_find_unused_parameters": False,
    }
    return GRPOConfig(str(folder), **{**tiny_grpo.ON_A_CPU, **usual, **changes})


def rewarding(rewards: Sequence[float | None], process: int = 0) -> Callable[..., Any]:
    """A reward function that gives these, of the completions of all processes in their order."""

    def reward(completions: list[Any], **_: Any) -> list[float | None]:
        return list(rewards[process * len(completions) :][: len(completions)])

    return reward


def trainer(
    kind: Any,
    folder: Path,
    rewards: Sequence[float | None],
    number: int = 4,
    own: Mapping[str, Any] | None = None,
    **changes: Any,
) -> Any:
    """One of our trainers of so many problems; options of its own, and arguments of TRL."""
    usual = {
        "model": STUDENT,
        "reward_funcs": rewarding(rewards),
        "train_dataset": problems(number),
    }
    return kind(
        args=arguments(folder, **changes), processing_class=tokenizer(), **{**usual, **(own or {})}
    )


def widths(model: Any) -> list[tuple[int, ...]]:
    """The shapes of all inputs that the model sees from now on."""
    seen: list[tuple[int, ...]] = []
    model.get_input_embeddings().register_forward_pre_hook(
        lambda _, inputs: seen.append(tuple(inputs[0].shape))
    )
    return seen


@functools.cache
def tokenizer() -> Any:
    """The student's."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(STUDENT)


def random_model(kind: str, dtype: Any, **sizes: int) -> Any:
    """A few layers of a kind with weights at random, for the micro student's tokens."""
    import torch
    import transformers

    usual = {
        "vocab_size": len(tokenizer()),
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 1024,
    }
    linear = {
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
    }
    experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    more: dict[str, dict[str, Any]] = {
        "Qwen3NextConfig": {**linear, **experts, "shared_expert_intermediate_size": 32},
        "Qwen3_5TextConfig": linear,
        "Lfm2Config": {"layer_types": ["conv", "full_attention"] * 2},
        "Qwen3MoeConfig": experts,
        "Gemma3TextConfig": {"sliding_window": 16},
    }
    torch.manual_seed(1)
    config = getattr(transformers, kind)(**{**usual, **sizes}, **more.get(kind, {}))
    return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)

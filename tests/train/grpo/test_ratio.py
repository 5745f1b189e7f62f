"""In bfloat16 too, importance ratios are exactly 1 while the weights are those that sampled.

Rounding depends on the shapes of a forward pass, so this holds only where the old and the new
log-probabilities come from the same micro-batches.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from generations import trajectory
from rollouts import END, Replayed, arguments, made_up, problems, rewarding, tokenizer
from transformers import AutoModelForCausalLM, Qwen3Config

from heavydistill.train.grpo.episodes import Episode, EpisodeRow, PolicyCompletion
from heavydistill.train.grpo.joint import JointTrainer
from heavydistill.train.grpo.trainer import RlTrainer
from heavydistill.verifiers.pool import VerdictPool

K, EPISODES, PARTS, ITERATIONS = 3, 8, 4, 2


class Watching:
    """Notes the log-ratios of all tokens of each micro-batch."""

    log_ratios: list[torch.Tensor]

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        self._old = inputs["old_per_token_logps"]
        return super()._compute_loss(model, inputs)  # type: ignore[misc]

    def _get_per_token_logps_and_entropies(self, *given: Any, **options: Any) -> Any:
        found = super()._get_per_token_logps_and_entropies(*given, **options)
        if torch.is_grad_enabled():
            self.log_ratios.append((found[0].detach() - self._old).float())
        return found


class WatchedEpisodes(Watching, JointTrainer):
    """The ratios of episodes."""


class WatchedRows(Watching, RlTrainer):
    """The ratios of rows."""


def replayed(prompts: list[Any], _: Any) -> dict[str, Any]:
    """The rows of the episodes, each by itself."""
    rows = [row for episode in uneven() for row in episode.rows][: len(prompts)]
    return {
        "prompt_ids": [row.prompt_ids for row in rows],
        "completion_ids": [row.completion.ids for row in rows],
        "logprobs": None,
        "env_mask": [[1] * len(row.completion.ids) for row in rows],
    }


def random_model(dtype: torch.dtype) -> Any:
    """Four layers with weights at random, for the micro student's tokens."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer()),
        hidden_size=192,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=48,
        max_position_embeddings=512,
    )
    return AutoModelForCausalLM.from_config(config, dtype=dtype)


def uneven() -> list[Episode]:
    """Episodes whose rows are of 4 to 200 tokens; some are cut off."""
    rng = random.Random(7)

    def row(longest: int) -> EpisodeRow:
        prompt = rng.choices(range(100, 600), k=rng.randint(2, longest))
        ids = rng.choices(range(100, 600), k=rng.randint(2, longest))
        is_whole = rng.random() < 0.8
        return EpisodeRow(
            [{"role": "user", "content": "?"}],
            prompt,
            PolicyCompletion([*ids, END] if is_whole else ids, is_whole),
        )

    cache = made_up(1, 1)[0].cache
    lengths = [100 if number % 3 else 12 for number in range(EPISODES)]
    return [
        Episode([row(longest) for _ in range(K + 1)], [trajectory("5")] * K, cache, None)
        for longest in lengths
    ]


def tokens(row: EpisodeRow) -> tuple[list[int], list[int]]:
    return row.prompt_ids, row.completion.ids


@pytest.mark.parametrize("of_episodes", [False, True])
@pytest.mark.parametrize("mixed", [False, True])
def test_the_ratios_of_unchanged_weights_are_exactly_1(
    tmp_path: Path, of_episodes: bool, mixed: bool
) -> None:
    rows = EPISODES * (K + 1)
    kind = WatchedEpisodes if of_episodes else WatchedRows
    own = {"episodes": Replayed(K, uneven()), "verdicts": VerdictPool()}
    trainer = kind(
        **(own if of_episodes else {"rollout_func": replayed}),
        model=random_model(torch.float32 if mixed else torch.bfloat16),
        args=arguments(
            tmp_path,
            bf16=mixed,
            num_generations=2 * (K + 1),
            per_device_train_batch_size=rows // PARTS,
            steps_per_generation=PARTS,
            gradient_accumulation_steps=1,
            num_iterations=ITERATIONS,
            max_steps=PARTS * ITERATIONS,
            gradient_checkpointing=not mixed,
            max_completion_length=128,
            optim="sgd",
            learning_rate=0.0,
            epsilon=3e-4,
            epsilon_high=4e-4,
            mask_truncated_completions=True,
            beta=0.0,
        ),
        train_dataset=problems(EPISODES // 2),
        reward_funcs=rewarding([1.0, 0.0] * (EPISODES // 2 if of_episodes else rows // 2)),
        processing_class=tokenizer(),
    )
    trainer.log_ratios = []
    shapes: Counter[tuple[int, ...]] = Counter()
    trainer.model.get_input_embeddings().register_forward_pre_hook(
        lambda _, inputs: shapes.update([tuple(inputs[0].shape)])
    )
    trainer.train()
    assert len(trainer.log_ratios) == PARTS * ITERATIONS
    assert all(torch.equal(one, torch.zeros_like(one)) for one in trainer.log_ratios)
    # Once for the old log-probabilities, once an iteration, and with little padding.
    assert all(count % (1 + ITERATIONS) == 0 for count in shapes.values())
    played = [row for episode in uneven() for row in episode.rows]
    longest = sum(max(map(len, of_all)) for of_all in zip(*map(tokens, played), strict=True))
    columns = sum(number * math.prod(shape) for shape, number in shapes.items())
    assert columns < 0.75 * (1 + ITERATIONS) * len(played) * longest
    clipped = [log["clip_ratio/region_mean"] for log in trainer.state.log_history[:-1]]
    assert clipped == [0.0] * len(clipped) and clipped

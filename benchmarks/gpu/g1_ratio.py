"""G1: are importance ratios exactly 1 in bfloat16 until the weights change?

GSPO clips ratios at 3e-4, and rounding of bfloat16 differs by more between two passes over other
shapes. ``RlTrainer`` computes the old log-probabilities on the micro-batches of the loss, so that
the two passes are the same. Here a generation of 32 responses (Qwen3-0.6B, an adapter) and one of
four episodes are learnt from at a rate of 0, and the ratio of each is looked at in the loss.

Bound: exactly 1 for 99 % of the samples. Beside it: how many ratios are 1 if the old ones come from
micro-batches of other shapes, which shows whether rounding is there to be seen.
"""

from __future__ import annotations

import random
from typing import Any

import torch
from shared import (
    ATTENTIONS,
    TINY,
    config_of,
    free,
    implementation,
    measuring,
    recorded,
    report,
    row,
)

from heavydistill.train.grpo.joint import JointTrainer
from heavydistill.train.grpo.trainer import RlTrainer

BOUND = "exactly 1 for 99 %"


class OtherShapes(RlTrainer):
    """Old log-probabilities are computed on pairs of unsorted micro-batches."""

    def _micro_batches(self, lengths: torch.Tensor, size: int) -> list[torch.Tensor]:
        return list(torch.arange(len(lengths), device=lengths.device).split(2 * size))


def ratios(kind: Any, samples: list[Any], attention: str) -> list[bool]:
    """Whether the ratio of each sample is 1 in the loss."""
    found: list[bool] = []

    class Watched(kind):
        def _compute_loss(self, model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
            self._seen = inputs
            return super()._compute_loss(model, inputs)

        def _get_per_token_logps_and_entropies(self, *given: Any, **named: Any) -> Any:
            result = super()._get_per_token_logps_and_entropies(*given, **named)
            if torch.is_grad_enabled():
                of_tokens = (result[0] - self._seen["old_per_token_logps"]).detach()
                mask = self._seen["completion_mask"]
                found.extend(((of_tokens * mask).sum(1) / mask.sum(1) == 0).tolist())
            return result

    # Four steps of two micro-batches, so that old log-probabilities are needed.
    trainer = recorded(
        Watched,
        samples,
        model=config_of("0.6B"),
        attention=implementation(attention),
        learning_rate=0.0,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        steps_per_generation=8,
        max_steps=4,
    )
    trainer.train()
    free()
    return found


def check() -> None:
    """Importance ratios are 1 until the weights change"""
    rng = random.Random(0)
    least, most = (20, 160) if TINY else (500, 4000)

    def sample() -> tuple[int, int]:
        tokens = rng.randint(least, most)
        return tokens // 4, tokens - tokens // 4

    rows = [sample() for _ in range(32)]
    episodes = [[sample() for _ in range(4)] for _ in range(8)]
    for name in ATTENTIONS:
        what = f"ratio of 32 responses of {least} to {most} tokens, bfloat16, {name}"
        with measuring(what, BOUND):
            ours = ratios(RlTrainer, rows, name)
            others = ratios(OtherShapes, rows, name)
            text = f"{sum(ours)} of {len(ours)}; of other shapes {sum(others)} of {len(others)}"
            row(what, BOUND, text, len(ours) == 32 and sum(ours) >= 0.99 * len(ours))
        what = f"ratio of 8 episodes of 4 such responses, bfloat16, {name}"
        with measuring(what, BOUND):
            ours = ratios(JointTrainer, episodes, name)
            text = f"{sum(ours)} of {len(ours)}"
            row(what, BOUND, text, len(ours) == 8 and sum(ours) >= 0.99 * len(ours))


if __name__ == "__main__":
    report(check)

"""G2: does an update of the GRPO trainers fit a GPU of 80 GB, and how fast is it?

Qwen3-4B in bfloat16 with an adapter of rank 32, gradient checkpointing and sdpa, as in
configs/grpo/1gpu: one micro-batch, forward and backward, and the pass for its old
log-probabilities. vLLM is asleep at that time and holds next to nothing. Three micro-batches:

- two deliberations of 8k tokens on prompts of 8k;
- one deliberation of 8k tokens on a prompt of 24k;
- an episode: two attempts each of 4k, 8k, 12k and 16k tokens on prompts of 4k, one deliberation of
  8k tokens on a prompt of 24k.

Bound: a peak of 80 GB. Beside it stands the peak that scripts/train_sizes.py computes for the same
rows. Seconds are those of the second of two steps.
"""

from __future__ import annotations

from typing import Any

from shared import (
    GIB,
    LIMIT_GIB,
    TINY,
    Clock,
    config_of,
    free,
    measuring,
    memory,
    named,
    recorded,
    report,
    row,
)

from heavydistill.train.grpo.joint import JointTrainer
from heavydistill.train.grpo.trainer import RlTrainer
from scripts import train_sizes

K = 16 if TINY else 1024
LAST = (24 * K, 8 * K)
CASES: dict[str, tuple[Any, list[Any]]] = {
    "2 deliberations": (RlTrainer, [(8 * K, 8 * K)] * 2),
    "a long one": (RlTrainer, [LAST]),
    "an episode of 9": (
        JointTrainer,
        [[*((4 * K, tokens * K) for tokens in (4, 8, 12, 16) for _ in "ab"), LAST]],
    ),
}
BOUND = f"peak {LIMIT_GIB:.1f} GiB"


def computed(rows: list[tuple[int, int]], is_joint: bool) -> float:
    """GiB of the peak, as computed; rows are padded to the longest of their pass."""
    attempts, last = (rows[:-1], rows[-1:]) if is_joint else ([], rows)
    passes = [
        len(part) * sum(map(max, zip(*part, strict=True))) for part in (attempts, last) if part
    ]
    method = train_sizes.Method(adapter=True, dtype="bfloat16", rank=32)
    shape = train_sizes.SHAPES["Qwen/Qwen3-4B"]
    engine = train_sizes.Engine()
    return train_sizes.memory(shape, method, engine, sum(passes), max(passes))["peak"] / GIB


def check() -> None:
    """Peak memory of an update by GRPO"""
    for name, (kind, samples) in CASES.items():
        rows = samples[0] if kind is JointTrainer else samples
        tokens = sum(map(sum, rows))
        what = f"update of {named('4B')} by GRPO, {name}, {tokens:,} tokens, sdpa"
        with measuring(what, BOUND):
            free()
            # A generation has two micro-batches, or TRL would need no old log-probabilities.
            trainer = recorded(
                kind,
                samples * 2,
                model=config_of("4B"),
                per_device_train_batch_size=len(rows),
                gradient_accumulation_steps=1,
                steps_per_generation=2,
                max_steps=2,
            )
            clock = Clock()
            trainer.add_callback(clock)
            trainer.train()
            text, fits = memory()
            del trainer
            speed = f"{clock.seconds[-1]:.2f} s, {tokens / clock.seconds[-1]:,.0f} tokens/s"
            if not TINY:
                text += f" (computed: {computed(rows, kind is JointTrainer):.1f})"
            row(what, BOUND, f"{text}; {speed}", fits)


if __name__ == "__main__":
    report(check)

"""G3: what do packs of 8k, 16k and 32k tokens cost in SFT, and do their rows stay apart?

``scripts/sft.py``'s trainer with configs/sft/4b-lora.yaml on a 4B model, one pack a step, with sdpa
and with FlashAttention; and with 4b-full.yaml and 8-bit AdamW on packs of 8k. The trainer itself
checks before the first step that a row does not change with the row before it in its pack
(``check_isolation``), and refuses otherwise.

Bound: the memory that configs/sft/README.md computes for FlashAttention, 48 GB for the adapter, and
80 GB for all weights and for sdpa, which needs more. Seconds are those of the last of three steps.
"""

from __future__ import annotations

from pathlib import Path

from shared import (
    ATTENTIONS,
    GIB,
    TINY,
    Clock,
    checkpoint,
    free,
    implementation,
    measuring,
    memory,
    named,
    report,
    row,
    sets,
    sft_plan,
)

from heavydistill.train.sft.train import new_trainer

LENGTHS = (4096,) if TINY else (8192, 16_384, 32_768)
STEPS = 3


def packs(
    size: str, model: Path, data: Path, length: int, attention: str, gigabytes: int, **keys: object
) -> None:
    """Train on packs of one length."""
    method = size.partition("-")[2]
    what = f"SFT of {named('4B')}, {method}, packs of {length:,} tokens, {attention}"
    most = gigabytes * 1e9 / GIB
    bound = f"rows apart, peak {most:.1f} GiB"
    with measuring(what, bound):
        if "8bit" in str(keys.get("optim")):
            import bitsandbytes  # noqa: F401
        free()
        plan = sft_plan(
            size,
            model,
            data,
            Path("out") / f"{length}-{attention}-{method}",
            attn_implementation=implementation(attention),
            max_length=length,
            gradient_accumulation_steps=1,
            max_steps=STEPS,
            **keys,
        )
        trainer, clock = new_trainer(plan), Clock()
        trainer.add_callback(clock)
        trainer.train()
        logged = [log["num_tokens"] for log in trainer.state.log_history if "num_tokens" in log]
        speed = (logged[STEPS - 1] - logged[STEPS - 2]) / clock.seconds[-1]
        text, fits = memory(most)
        row(what, bound, f"rows apart; {text}; {speed:,.0f} tokens/s", fits)
        del trainer


def check() -> None:
    """Packs in SFT"""
    model = checkpoint(Path("model"), "4B")
    data = sets(Path("data"), model)
    for attention in ATTENTIONS:
        for length in LENGTHS:
            packs("4b-lora", model, data, length, attention, 48 if attention != "sdpa" else 80)
    packs("4b-full", model, data, LENGTHS[0], "sdpa", 80, optim="adamw_8bit")


if __name__ == "__main__":
    report(check)

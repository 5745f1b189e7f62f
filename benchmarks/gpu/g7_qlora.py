"""G7: does a 32B model in 4 bits with an adapter fit a GPU of 80 GB on packs of 32k tokens?

``scripts/sft.py``'s trainer with configs/sft/32b-qlora.yaml on Qwen3-32B cut down to 4 and to 8 of
its 64 layers. Each layer adds its weights, its adapter with optimizer, and its checkpointed input;
embeddings, head, loss and the working memory of one layer are there once. So the peak grows
linearly, and that of 64 layers follows from two (extrapolated).

Bound: 80 GB for 64 layers.
"""

from __future__ import annotations

from pathlib import Path

from shared import (
    LIMIT_GIB,
    TINY,
    checkpoint,
    free,
    measuring,
    memory,
    named,
    peak_gib,
    report,
    row,
    sets,
    sft_plan,
)

from heavydistill.train.sft.train import new_trainer

LAYERS = (2, 4) if TINY else (4, 8)
LENGTH = 4096 if TINY else 32_768
WHOLE = 64


def check() -> None:
    """A 32B model in 4 bits on long packs"""
    bound = f"peak {LIMIT_GIB:.1f} GiB for {WHOLE} layers"
    what = f"SFT of {named('32B')} in nf4, pack of {LENGTH:,} tokens, auto attention"
    with measuring(what, bound):
        import bitsandbytes  # noqa: F401

        models = {layers: checkpoint(Path(f"model-{layers}"), "32B", layers) for layers in LAYERS}
        data = sets(Path("data"), models[LAYERS[0]])
        peaks = []
        for layers, model in models.items():
            plan = sft_plan(
                "32b-qlora",
                model,
                data,
                Path(f"out-{layers}"),
                max_length=LENGTH,
                gradient_accumulation_steps=1,
                max_steps=2,
            )
            trainer = new_trainer(plan)
            trainer.train()
            text = memory()[0]
            if not TINY:
                peaks.append(peak_gib())
            del trainer
            free()
        if TINY:
            row(what, bound, f"trained with {LAYERS} layers; {text}", True)
            return
        few, many = LAYERS
        of_layer = (peaks[1] - peaks[0]) / (many - few)
        whole = peaks[1] + (WHOLE - many) * of_layer
        text = f"{whole:.1f} GiB, extrapolated from {peaks[0]:.1f} and {peaks[1]:.1f} GiB for "
        text += f"{few} and {many} layers; {plan.record.launch.attention}"
        row(what, bound, text, whole <= LIMIT_GIB)


if __name__ == "__main__":
    report(check)

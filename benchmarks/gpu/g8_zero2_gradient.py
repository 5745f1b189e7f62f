"""G8: is the gradient that ZeRO-2 adds up over 32 micro-batches the sum of their gradients?

In bfloat16 DeepSpeed adds in bfloat16 unless it is told otherwise, and a sum of 32 then has few
right digits. The trainings tell it to add in float32 (``accumulate_in_float32``). One process,
launched with configs/accelerate/zero2.yaml, trains all weights of a 0.6B model for one step; the
gradients of the micro-batches are added in float32 and in bfloat16 beside it, as they arise.

Bound: the direction of ZeRO-2's sum differs from the sum in float32 by at most a tenth of what the
sum in bfloat16 differs by.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from run import ROW
from shared import ROOT, TINY, checkpoint, measuring, named, report, row, sets, sft_plan
from transformers import TrainerCallback

from heavydistill.train.sft.train import new_trainer

COUNT = 32
LAUNCH = ROOT / "configs" / "accelerate" / "zero2.yaml"
WHAT = f"gradient of {COUNT} micro-batches of {named('0.6B')}, ZeRO-2, bfloat16"
BOUND = "a tenth of the error of a sum in bfloat16"


class Sums(TrainerCallback):
    """Adds the gradients of the micro-batches in both types."""

    def on_train_begin(self, *_: Any, model: torch.nn.Module, **__: Any) -> None:
        self.parameters = [one for one in model.parameters() if one.requires_grad]
        self.single = [torch.zeros_like(one, dtype=torch.float32) for one in self.parameters]
        self.half = [torch.zeros_like(one, dtype=torch.bfloat16) for one in self.parameters]
        for parameter, single, half in zip(self.parameters, self.single, self.half, strict=True):
            parameter.register_hook(
                lambda gradient, single=single, half=half: self.add(gradient, single, half)
            )

    def add(self, gradient: torch.Tensor, single: torch.Tensor, half: torch.Tensor) -> None:
        single.add_(gradient)
        half.add_(gradient.to(torch.bfloat16))


def apart(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> float:
    """The difference of two directions: the norm of the difference of vectors of length 1."""

    def norm(parts: Sequence[torch.Tensor]) -> float:
        return sum(float(part.double().square().sum()) for part in parts) ** 0.5

    of_one, of_other = norm(one), norm(other)
    pairs = zip(one, other, strict=True)
    return norm([left.float() / of_one - right.float() / of_other for left, right in pairs])


def train() -> None:
    """Train one step, in the process that accelerate launched."""
    from deepspeed.runtime.engine import DeepSpeedEngine
    from deepspeed.utils import safe_get_full_grad

    if TINY:  # compiled for a minute on a CPU, for several processes
        import deepspeed.comm.torch

        deepspeed.comm.torch.build_shm_op = lambda: None
    step, sums = DeepSpeedEngine.step, Sums()

    def compared(engine: Any, *given: Any, **keys: Any) -> Any:
        DeepSpeedEngine.step = step
        found = [safe_get_full_grad(one) for one in sums.parameters]
        error, of_half = apart(found, sums.single), apart(sums.half, sums.single)
        text = f"{error:.2g}, in bfloat16 {of_half:.2g}; {engine.get_data_types()[0]}"
        row(WHAT, BOUND, text, error <= of_half / 10)
        return step(engine, *given, **keys)

    DeepSpeedEngine.step = compared
    model = checkpoint(Path("model"), "0.6B")
    plan = sft_plan(
        "4b-full",
        model,
        sets(Path("data"), model),
        Path("out"),
        packing=False,
        gradient_accumulation_steps=COUNT,
        max_steps=1,
    )
    trainer = new_trainer(plan)
    trainer.add_callback(sums)
    trainer.train()


def check() -> None:
    """The gradient of ZeRO-2"""
    with measuring(WHAT, BOUND):
        import deepspeed  # noqa: F401

        launched = ["-m", "accelerate.commands.launch", "--config_file", str(LAUNCH)]
        launched += ["--num_processes", "1", "--main_process_port", "0", __file__, "launched"]
        done = subprocess.run(
            [sys.executable, *launched],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        print(done.stdout)
        if done.returncode or ROW not in done.stdout:
            raise RuntimeError(f"the launch ended with code {done.returncode}")


if __name__ == "__main__":
    if "launched" in sys.argv:
        train()
    else:
        report(check)

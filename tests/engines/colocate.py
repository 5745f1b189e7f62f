"""Trains with vLLM in the process of the training, and writes what its samples say of the weights.

    python colocate.py FIGURES.json FLAGS OF scripts/grpo.py ...

For each generation, the largest and the mean difference of the engine's log-probabilities of its
tokens to those of the trained model, in nats. ENGINE_DTYPE sets vLLM's dtype, otherwise the one in
``config.json``. With UNSENT, no weights are sent after the first.
"""

import functools
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import torch
import trl.generation.vllm_generation as generation
from vllm import LLM

from heavydistill.train.grpo.trainer import RlTrainer

FIGURES, *FLAGS = sys.argv[1:]
GRPO = Path(__file__).parents[2] / "scripts" / "grpo.py"
gaps: list[tuple[float, float]] = []
computed = RlTrainer._generate_and_score_completions


def noted(trainer: Any, *arguments: Any) -> Any:
    batch = computed(trainer, *arguments)
    mask = batch["completion_mask"]
    if "tool_mask" in batch:
        mask = mask * batch["tool_mask"]
    gap = batch["sampling_per_token_logps"] - batch["old_per_token_logps"]
    gap = gap.abs()[mask.bool()].to(torch.float64)
    gaps.append((gap.max().item(), gap.mean().item()))
    Path(FIGURES).write_text(json.dumps(gaps))
    return batch


def main() -> None:
    RlTrainer._generate_and_score_completions = noted  # type: ignore[method-assign]
    # TRL passes neither: the model's own dtype, and a compiled model.
    dtype = os.environ.get("ENGINE_DTYPE", "auto")
    generation.LLM = functools.partial(LLM, dtype=dtype, enforce_eager=True)
    if "UNSENT" in os.environ:
        generation.VLLMGeneration.sync_weights = lambda _: None
    sys.argv = [str(GRPO), *FLAGS]
    runpy.run_path(str(GRPO), run_name="__main__")


if __name__ == "__main__":
    main()

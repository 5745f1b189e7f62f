"""What goes wrong on the machine while a model trains, and what mends it.

Out of memory names three settings to change, in this order, with their values: the first two cost
time alone and a few long rows, the last one is another method.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from heavydistill.errors import ConfigError, HeavydistillError, RunError

if TYPE_CHECKING:
    from heavydistill.record import TrainingRecord
    from heavydistill.training.arguments import Asked

_ON_CPU = ("can't allocate memory", "not enough memory", "DefaultCPUAllocator")


def explained(error: Exception, asked: Asked, record: TrainingRecord) -> HeavydistillError | None:
    """An error of the libraries in the user's words; None if it is none that is known."""
    import torch

    said = str(error)
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and any(words in said for words in _ON_CPU)
    ):
        first, second, third = settings(asked, record)
        return ConfigError(
            f"The memory does not suffice ({record.launch.device}; {_first_line(said)})",
            f"Change these, in this order: 1. {first} 2. {second} 3. {third}",
        )
    if "No space left" in said or (isinstance(error, OSError) and error.errno == errno.ENOSPC):
        return RunError(
            f"The disk of {asked.sft.output_dir} is full",
            "Make room, and go on with --resume_from_checkpoint true; what is not whole is not "
            "taken. --save_total_limit keeps fewer checkpoints.",
        )
    return None


def settings(asked: Asked, record: TrainingRecord) -> tuple[str, str, str]:
    """Three settings that lower the memory, in the order in which to change them."""
    sft, model = asked.sft, asked.model
    batch, steps = sft.per_device_train_batch_size, sft.gradient_accumulation_steps
    wanted = []
    if batch > 1:
        wanted.append(
            "--per_device_train_batch_size 1 --gradient_accumulation_steps "
            f"{batch * steps} (the same tokens a step)."
        )
    if not sft.gradient_checkpointing:
        wanted.append("--gradient_checkpointing true (slower by about a third).")
    wanted.append(
        f"--max_length {record.max_length // 2} --too_long leave_out (longer rows are left out and "
        "counted)."
    )
    if not model.use_peft:
        wanted.append("--use_peft true (an adapter has small optimizer states).")
    elif not model.load_in_4bit:
        wanted.append("--load_in_4bit true (the model in a quarter of the memory).")
    wanted.append("configs/accelerate/zero3_offload.yaml (weights and states on the host).")
    wanted.append("A smaller model.")
    first, second, third = wanted[:3]
    return first, second, third


def _first_line(said: str) -> str:
    return said.strip().partition("\n")[0][:200]

"""What goes wrong on the machine while a model trains, and what mends it.

Out of memory names three settings to change, in this order, with their values: first what costs
time alone, then a few long rows, then another method.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from heavydistill.errors import ConfigError, HeavydistillError, RunError

if TYPE_CHECKING:
    from heavydistill.record import TrainingRecord
    from heavydistill.training.strict import Asked

_MEMORY = ("can't allocate memory", "not enough memory", "DefaultCPUAllocator", "out of memory")
_DISK = ("No space left", "Not enough disk space", "Disk quota exceeded", "File too large")
# What torch says of a disk that took less than it was given.
_SHORT = ("PytorchStreamWriter failed", "unexpected pos")


def explained(error: Exception, asked: Asked, record: TrainingRecord) -> HeavydistillError | None:
    """An error of the libraries in the user's words; None if it is none that is known."""
    import torch

    said = str(error)
    if (
        isinstance(error, torch.OutOfMemoryError | MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or any(words in said for words in _MEMORY)
    ):
        first, second, third = settings(asked, record)
        return ConfigError(
            f"The memory does not suffice ({record.launch.device}; {_first_line(said)})",
            f"Change these, in this order: 1. {first} 2. {second} 3. {third}",
        )
    if any(words in said for words in (*_DISK, *_SHORT)):
        return RunError(
            f"The disk of {asked.trl.output_dir} is full, or fails ({_first_line(said)})",
            "Make room, and go on with --resume_from_checkpoint true; what is not whole is not "
            "taken. --save_total_limit keeps fewer checkpoints.",
        )
    return None


def settings(asked: Asked, record: TrainingRecord) -> tuple[str, str, str]:
    """Three settings that lower the memory, in the order in which to change them."""
    sft, model, launch = asked.trl, asked.model, record.launch
    batch, steps = sft.per_device_train_batch_size, sft.gradient_accumulation_steps
    quantized = model.load_in_4bit or model.load_in_8bit
    wanted = []
    if sft.do_eval and sft.per_device_eval_batch_size > batch:
        wanted.append(f"--per_device_eval_batch_size {batch} (slower evaluation).")
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
    elif not quantized:
        wanted.append("--load_in_4bit true (the model in a quarter of the memory).")
    if launch.device != "cpu" and not quantized:
        wanted.append("configs/accelerate/zero3_offload.yaml (weights and states on the host).")
    wanted += ["A smaller model.", "A machine with more memory."]
    first, second, third = wanted[:3]
    return first, second, third


def _first_line(said: str) -> str:
    return said.strip().partition("\n")[0][:200]

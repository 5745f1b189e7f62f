"""What goes wrong on the machine while a model trains, and what mends it.

Out of memory names three settings to change, in this order, with their values: first what costs
time alone, then a few long rows, then another method.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from heavydistill.errors import ConfigError, HeavydistillError, RunError

if TYPE_CHECKING:
    from heavydistill.store.training_record import TrainingRecord
    from heavydistill.train.arguments import Asked

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
    trl: Any = asked.trl
    model, launch = asked.model, record.launch
    quantized = model.load_in_4bit or model.load_in_8bit
    samples_with_vllm = record.stage == "grpo" and trl.use_vllm
    wanted = list(_of_batches(trl, record))
    if not trl.gradient_checkpointing:
        wanted.append("--gradient_checkpointing true (slower by about a third).")
    if record.stage == "grpo":
        most = trl.max_completion_length // 2
        wanted.append(f"--max_completion_length {most} (longer responses earn nothing).")
    else:
        wanted.append(
            f"--max_length {record.max_length // 2} --too_long leave_out (longer rows are left out "
            "and counted)."
        )
    if not model.use_peft:
        wanted.append("--use_peft true (an adapter has small optimizer states).")
    elif not quantized and not samples_with_vllm:
        wanted.append("--load_in_4bit true (the model in a quarter of the memory).")
    if launch.device != "cpu" and not quantized:
        wanted.append("configs/accelerate/zero3_offload.yaml (weights and states on the host).")
    wanted += ["A smaller model.", "A machine with more memory."]
    first, second, third = wanted[:3]
    return first, second, third


def _of_batches(trl: Any, record: TrainingRecord) -> Iterator[str]:
    """Smaller batches that train the same; GRPO evaluates whole groups and has episodes."""
    batch, steps = trl.per_device_train_batch_size, trl.gradient_accumulation_steps
    if record.stage == "sft":
        if trl.do_eval and trl.per_device_eval_batch_size > batch:
            yield f"--per_device_eval_batch_size {batch} (slower evaluation)."
        if batch > 1:
            yield (
                "--per_device_train_batch_size 1 --gradient_accumulation_steps "
                f"{batch * steps} (the same tokens a step)."
            )
        return
    if trl.use_vllm and trl.vllm_mode == "colocate" and not trl.vllm_enable_sleep_mode:
        yield "--vllm_enable_sleep_mode true (vLLM gives its memory back for the update)."
    least = record.rl.rows_of_episode if record.rl else 1
    if (times := batch // least) > 1:
        yield (
            f"--per_device_train_batch_size {least} --gradient_accumulation_steps {times * steps} "
            f"--steps_per_generation {times * trl.steps_per_generation} (the same rows a step)."
        )


def _first_line(said: str) -> str:
    return said.strip().partition("\n")[0][:200]

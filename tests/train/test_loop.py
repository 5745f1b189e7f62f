"""What goes wrong on the machine, in the user's words, and what mends it."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from trainings import RECORD, grpo_arguments, sft_arguments

from heavydistill.errors import ConfigError, RunError
from heavydistill.store.training_record import RlUsed, TrainingRecord
from heavydistill.train.arguments import TrainArguments
from heavydistill.train.loop import common_summary, explained

BATCH = "--per_device_train_batch_size {} --gradient_accumulation_steps {}"
ONE_ROW = {"per_device_train_batch_size": 1, "gradient_checkpointing": True}


def on(device: str) -> TrainingRecord:
    launch = RECORD.launch.model_copy(update={"device": device})
    return RECORD.model_copy(update={"launch": launch})


def less_memory(arguments: TrainArguments[Any], record: TrainingRecord) -> str:
    return str(explained(MEMORY[0], arguments, record))


@pytest.mark.parametrize(
    ("device", "keys", "wanted", "missing"),
    [
        ("cuda", {}, f"1. {BATCH.format(1, 2)} ", "A machine"),
        ("cuda", {"gradient_accumulation_steps": 4}, f"1. {BATCH.format(1, 8)} ", "A machine"),
        ("cuda", ONE_ROW, "1. --max_length 350 --too_long leave_out. 2. --use_peft", "_batch_size"),
        (
            "cuda",
            {**ONE_ROW, "use_peft": True},
            "2. --load_in_4bit true (the model in a quarter of the memory). 3. configs",
            "use_peft",
        ),
        ("cpu", {**ONE_ROW, "use_peft": True}, "3. A smaller model", "zero3"),
        ("cuda", {**ONE_ROW, "use_peft": True, "load_in_8bit": True}, "2. A smaller", "zero3"),
    ],
)
def test_settings_that_lower_the_memory_are_named_in_order(
    tmp_path: Path, device: str, keys: dict[str, Any], wanted: str, missing: str
) -> None:
    message = less_memory(sft_arguments("sets", tmp_path, **keys), on(device))
    assert wanted in message and missing not in message


MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    MemoryError(),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory"),
    RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronous"),
]
DISK = [
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EDQUOT, "Disk quota exceeded"),
    OSError(errno.EFBIG, "File too large"),
    RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0"),
    RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed"),
]


@pytest.mark.parametrize("error", MEMORY, ids=repr)
def test_too_little_memory_is_the_users_to_mend(tmp_path: Path, error: Exception) -> None:
    reason = explained(error, sft_arguments("sets", tmp_path), on("cuda"))
    assert isinstance(reason, ConfigError)
    assert "The memory does not suffice (cuda" in str(reason)
    assert [str(reason).count(f"{number}. --") for number in (1, 2, 3)] == [1, 1, 1]


@pytest.mark.parametrize("error", DISK, ids=repr)
def test_a_full_disk_breaks_it_and_what_is_whole_stays(tmp_path: Path, error: Exception) -> None:
    reason = explained(error, sft_arguments("sets", tmp_path), on("cuda"))
    assert isinstance(reason, RunError)
    assert str(tmp_path) in str(reason) and "--resume_from_checkpoint true" in str(reason)


def test_other_errors_are_left_as_they_are(tmp_path: Path) -> None:
    for error in (RuntimeError("shapes differ"), KeyError("x"), OSError(errno.EIO, "I/O error")):
        assert explained(error, sft_arguments("sets", tmp_path), on("cuda")) is None


@pytest.mark.parametrize(
    ("keys", "episode", "wanted"),
    [
        ({}, 1, f"1. {BATCH.format(1, 4)} --steps_per_generation 16 (the same rows a step)"),
        ({"gradient_checkpointing": True}, 4, "1. --max_completion_length 64."),
        (
            {"per_device_train_batch_size": 8},
            4,
            f"1. {BATCH.format(4, 2)} --steps_per_generation 8 ",
        ),
    ],
)
def test_of_grpo_a_step_keeps_its_rows_and_episodes_stay_whole(
    tmp_path: Path, keys: dict[str, Any], episode: int, wanted: str
) -> None:
    rl = RlUsed(
        mode="joint" if episode > 1 else "deliberator",
        rows_of_episode=episode,
        longest_prompt=9,
        problems_sha256="0" * 64,
    )
    record = on("cuda").model_copy(update={"stage": "grpo", "rl": rl})
    assert wanted in less_memory(grpo_arguments("sets", tmp_path, **keys), record)


def test_where_vllm_samples_it_gives_memory_back_and_weights_keep_their_bits(
    tmp_path: Path,
) -> None:
    arguments = grpo_arguments("sets", tmp_path, **ONE_ROW, use_peft=True)
    arguments.config.use_vllm, arguments.config.vllm_mode = True, "colocate"
    record = on("cuda").model_copy(update={"stage": "grpo"})
    message = less_memory(arguments, record)
    assert "1. --vllm_enable_sleep_mode true" in message and "4bit" not in message
    arguments.config.vllm_enable_sleep_mode = True
    assert "sleep_mode" not in less_memory(arguments, record)


@pytest.mark.parametrize(
    ("wanted", "found", "tokens", "warns"),
    [
        ("auto", "sdpa", 16384, True),
        ("auto", "sdpa", 8192, False),
        ("auto", "kernels-community/flash-attn2", 16384, False),
        ("sdpa", "sdpa", 16384, False),  # as it was asked for
    ],
)
def test_long_sequences_without_flash_attention_are_warned_of(
    wanted: str, found: str, tokens: int, warns: bool
) -> None:
    launch = RECORD.launch.model_copy(update={"attention": found})
    prepared: Any = SimpleNamespace(
        arguments=SimpleNamespace(model=SimpleNamespace(attn_implementation=wanted)),
        record=RECORD.model_copy(update={"launch": launch, "max_length": tokens}),
        start=None,
    )
    warnings = [text for name, text in common_summary(prepared) if name == "warning"]
    assert [f"{tokens:,} tokens" in text for text in warnings] == [True] * warns

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
from heavydistill.train.loop import common_summary, explained, settings

BATCH = "--per_device_train_batch_size 1 --gradient_accumulation_steps"
CHECKPOINTING = "--gradient_checkpointing true"
LENGTH = "--max_length 350 --too_long leave_out"
PEFT = "--use_peft true"
QUANTIZED = "--load_in_4bit true"
OFFLOAD = "configs/accelerate/zero3_offload.yaml"
SMALLER = "A smaller model."


def on(device: str) -> TrainingRecord:
    launch = RECORD.launch.model_copy(update={"device": device})
    return RECORD.model_copy(update={"launch": launch})


@pytest.mark.parametrize(
    ("device", "keys", "wanted"),
    [
        ("cuda", {}, [f"{BATCH} 2 ", CHECKPOINTING, LENGTH]),
        (
            "cuda",
            {"gradient_accumulation_steps": 4, "gradient_checkpointing": True},
            [f"{BATCH} 8 ", LENGTH, PEFT],
        ),
        (
            "cuda",
            {"per_device_train_batch_size": 1, "gradient_checkpointing": True},
            [LENGTH, PEFT, OFFLOAD],
        ),
        (
            "cuda",
            {"per_device_train_batch_size": 1, "gradient_checkpointing": True, "use_peft": True},
            [LENGTH, QUANTIZED, OFFLOAD],
        ),
        (
            "cpu",
            {"per_device_train_batch_size": 1, "gradient_checkpointing": True, "use_peft": True},
            [LENGTH, QUANTIZED, SMALLER],
        ),
        (
            "cuda",
            {
                "per_device_train_batch_size": 1,
                "gradient_checkpointing": True,
                "use_peft": True,
                "load_in_8bit": True,
            },
            [LENGTH, SMALLER, "A machine with more memory."],
        ),
        (
            "cuda",
            {"eval_strategy": "steps", "per_device_eval_batch_size": 8},
            ["--per_device_eval_batch_size 2 ", f"{BATCH} 2 ", CHECKPOINTING],
        ),
    ],
)
def test_three_settings_are_named_in_their_order(
    tmp_path: Path, device: str, keys: dict[str, Any], wanted: list[str]
) -> None:
    found = settings(sft_arguments("sets", tmp_path, **keys), on(device))
    assert all(one.startswith(start) for one, start in zip(found, wanted, strict=True)), found


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
        (
            {},
            1,
            [
                f"{BATCH} 4 --steps_per_generation 16 (the same rows a step)",
                CHECKPOINTING,
                "--max_completion_length 64 ",
            ],
        ),
        ({"gradient_checkpointing": True}, 4, ["--max_completion_length 64 ", PEFT, OFFLOAD]),
        (
            {"per_device_train_batch_size": 8, "gradient_checkpointing": True},
            4,
            [
                "--per_device_train_batch_size 4 --gradient_accumulation_steps 2 "
                "--steps_per_generation 8 ",
                "--max_completion_length 64 ",
                PEFT,
            ],
        ),
    ],
)
def test_of_grpo_a_step_keeps_its_rows_and_episodes_stay_whole(
    tmp_path: Path, keys: dict[str, Any], episode: int, wanted: list[str]
) -> None:
    rl = RlUsed(
        mode="joint" if episode > 1 else "deliberator",
        rows_of_episode=episode,
        longest_prompt=9,
        problems_sha256="0" * 64,
    )
    record = on("cuda").model_copy(update={"stage": "grpo", "rl": rl})
    given = settings(grpo_arguments("sets", tmp_path, **keys), record)
    assert [said.startswith(start) for said, start in zip(given, wanted, strict=True)] == [True] * 3


@pytest.mark.parametrize(("samples_with_vllm", "third"), [(False, QUANTIZED), (True, OFFLOAD)])
def test_four_bits_are_not_proposed_where_vllm_samples(
    tmp_path: Path, samples_with_vllm: bool, third: str
) -> None:
    keys = {"use_peft": True, "gradient_checkpointing": True, "per_device_train_batch_size": 2}
    wanted = grpo_arguments("sets", tmp_path, **keys)
    wanted.config.use_vllm, wanted.config.vllm_enable_sleep_mode = samples_with_vllm, True
    given = settings(wanted, on("cuda").model_copy(update={"stage": "grpo"}))
    assert given[2].startswith(third), given


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

"""What a launch really is, and what goes wrong on the machine, in the user's words."""

from __future__ import annotations

import errno
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from trainings import RECORD, grpo_arguments, sft_arguments

from heavydistill.errors import ConfigError, RunError
from heavydistill.store.training_record import Launch, RlUsed, TrainingRecord
from heavydistill.train import loop
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


def test_a_plain_start_is_one_process_on_this_device(tmp_path: Path) -> None:
    plan = loop.planned(sft_arguments("sets", tmp_path))
    assert plan == Launch(processes=1, engine="single", device="cpu", attention="sdpa")


def test_deepspeed_and_fsdp_are_planned_as_the_launcher_or_a_flag_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = sft_arguments("sets", tmp_path)
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    monkeypatch.setenv("ACCELERATE_DEEPSPEED_ZERO_STAGE", "3")
    assert loop.planned(wanted).engine == "zero3"
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "false")
    assert loop.planned(wanted).engine == "single"
    wanted.config.deepspeed = {"zero_optimization": {"stage": 2}}
    assert loop.planned(wanted).engine == "zero"


@pytest.mark.parametrize("by", ["launcher", "flag"])
def test_fsdp_on_a_cpu_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    wanted = sft_arguments("sets", tmp_path)
    if by == "flag":
        wanted.config.fsdp = True
    else:
        monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
        monkeypatch.setenv("FSDP_VERSION", "2")
    with pytest.raises(ConfigError, match=r"asks for fsdp2?, and would be ddp on cpu"):
        loop.planned(wanted)


def accelerator(kind: str, processes: int = 2, stage: int = 2) -> Any:
    return SimpleNamespace(
        distributed_type=SimpleNamespace(value=kind),
        num_processes=processes,
        state=SimpleNamespace(
            deepspeed_plugin=SimpleNamespace(zero_stage=stage),
            fsdp_plugin=SimpleNamespace(fsdp_version=2),
        ),
    )


@pytest.mark.parametrize(
    ("planned", "kind", "real"),
    [
        ("ddp", "MULTI_GPU", "ddp"),
        ("zero2", "DEEPSPEED", "zero2"),
        ("zero", "DEEPSPEED", "zero2"),
        ("fsdp2", "FSDP", "fsdp2"),
        ("fsdp2", "MULTI_CPU", None),
        ("zero3", "DEEPSPEED", None),
        ("zero2", "MULTI_CPU", None),
    ],
)
def test_another_engine_than_was_planned_is_refused(
    planned: str, kind: str, real: str | None
) -> None:
    plan = Launch(processes=2, engine=planned, device="cuda", attention="sdpa")
    if real is None:
        with pytest.raises(ConfigError, match=f"asks for {planned}, and would be"):
            loop.real(accelerator(kind), plan)
        return
    assert loop.real(accelerator(kind), plan).engine == real


@pytest.mark.parametrize(
    ("stage", "own", "used"),
    [(1, None, "fp32"), (2, None, "fp32"), (3, None, "fp32"), (2, "bf16", "bf16"), (0, None, None)],
)
def test_zero_adds_gradients_in_float32_unless_the_user_names_another_type(
    stage: int, own: str | None, used: str | None
) -> None:
    pytest.importorskip("deepspeed")
    from accelerate.utils import DeepSpeedPlugin

    types = {"data_types": {"grad_accum_dtype": own}} if own else {}
    plugin = DeepSpeedPlugin(hf_ds_config={"zero_optimization": {"stage": stage}, **types})
    loop.accumulate_in_float32(plugin)
    assert plugin.deepspeed_config.get("data_types", {}).get("grad_accum_dtype") == used


FA2, FA3 = "kernels-community/flash-attn2", "kernels-community/vllm-flash-attn3"


@pytest.mark.parametrize(
    ("capability", "there", "taken"),
    [
        ((7, 5), {FA2, FA3}, "sdpa"),
        ((8, 0), {FA2, FA3}, FA2),
        ((8, 9), {FA3}, "sdpa"),
        ((9, 0), {FA2, FA3}, FA3),
        ((9, 0), {FA2}, FA2),
        ((10, 0), {FA2, FA3}, FA2),
        ((12, 0), {FA3}, "sdpa"),
    ],
)
def test_auto_takes_the_kernel_that_fits_the_gpu(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capability: tuple[int, int],
    there: set[str],
    taken: str,
) -> None:
    def get_kernel(name: str) -> None:
        if name not in there:
            raise FileNotFoundError(name)

    kernels = ModuleType("kernels")
    kernels.__spec__ = SimpleNamespace(name="kernels")  # type: ignore[assignment]
    kernels.get_kernel = get_kernel  # type: ignore[attr-defined]
    wanted = sft_arguments("sets", tmp_path, attn_implementation="auto")
    monkeypatch.setitem(sys.modules, "kernels", kernels)
    monkeypatch.setattr("transformers.utils.is_kernels_available", lambda: True)
    monkeypatch.setattr("torch.version.hip", None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda: capability)
    assert loop.attention(wanted) == taken
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert loop.attention(wanted) == "sdpa"


def test_the_attention_that_is_asked_for_is_taken(tmp_path: Path) -> None:
    assert loop.attention(sft_arguments("sets", tmp_path, attn_implementation="eager")) == "eager"


def test_deepspeed_may_be_asked_for_with_a_file(tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    path = tmp_path / "zero.json"
    path.write_text(json.dumps({"zero_optimization": {"stage": 2}}), encoding="utf-8")
    wanted = sft_arguments("sets", tmp_path)
    wanted.config.deepspeed = str(path)
    assert loop.planned(wanted).engine == "zero"

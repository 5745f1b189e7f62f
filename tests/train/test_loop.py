"""What a launch really is, and what goes wrong on the machine, in the user's words."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
import torch
from trainings import RECORD, sft_arguments

from heavydistill.errors import ConfigError, RunError
from heavydistill.train import loop
from heavydistill.train.loop import TrainingPlan, common_summary, explained


def plan_on(device: str, folder: Path) -> TrainingPlan:
    launch = RECORD.launch.model_copy(update={"device": device})
    record = RECORD.model_copy(update={"launch": launch})
    return TrainingPlan(sft_arguments("sets", folder), cast("Any", None), record, None)


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
    reason = explained(error, plan_on("cuda", tmp_path))
    assert isinstance(reason, ConfigError)
    assert "The memory does not suffice (cuda" in str(reason)
    assert [str(reason).count(f"{number}. --") for number in (1, 2, 3, 4)] == [1] * 4


@pytest.mark.parametrize("error", DISK, ids=repr)
def test_a_full_disk_breaks_it_and_what_is_whole_stays(tmp_path: Path, error: Exception) -> None:
    reason = explained(error, plan_on("cuda", tmp_path))
    assert isinstance(reason, RunError)
    assert str(tmp_path) in str(reason) and "--resume_from_checkpoint true" in str(reason)


def test_other_errors_are_left_as_they_are(tmp_path: Path) -> None:
    for error in (RuntimeError("shapes differ"), KeyError("x"), OSError(errno.EIO, "I/O error")):
        assert explained(error, plan_on("cuda", tmp_path)) is None


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
    tmp_path: Path, wanted: str, found: str, tokens: int, warns: bool
) -> None:
    launch = RECORD.launch.model_copy(update={"attention": found})
    record = RECORD.model_copy(update={"launch": launch, "max_length": tokens})
    arguments = sft_arguments("sets", tmp_path, attn_implementation=wanted)
    lines = common_summary(TrainingPlan(arguments, cast("Any", None), record, None), 1, "rows")
    warnings = [text for name, text in lines if name == "warning"]
    assert [f"{tokens:,} tokens" in text for text in warnings] == [True] * warns


@pytest.mark.parametrize("by", ["launcher", "flag"])
def test_fsdp_on_a_cpu_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    keys = {"fsdp": "full_shard"} if by == "flag" else {}
    if by == "launcher":
        monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
        monkeypatch.setenv("FSDP_VERSION", "2")
    with pytest.raises(
        ConfigError, match=r"asks for fsdp2, and would be single on cpu.*\s.*FSDP needs GPUs"
    ):
        loop.planned(sft_arguments("sets", tmp_path, **keys))


@pytest.mark.parametrize("by", ["launcher", "flag"])
def test_deepspeed_is_planned_with_its_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    pytest.importorskip("deepspeed")
    keys: dict[str, Any] = {}
    if by == "launcher":
        monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
        monkeypatch.setenv("ACCELERATE_DEEPSPEED_ZERO_STAGE", "3")
    else:
        keys["deepspeed"] = tmp_path / "zero.json"
        keys["deepspeed"].write_text('{"zero_optimization": {"stage": 3}}', encoding="utf-8")
    assert loop.planned(sft_arguments("sets", tmp_path, **keys)).engine == "zero3"


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

"""What a launch really is."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from trainings import sft_arguments

from heavydistill.errors import ConfigError
from heavydistill.store.training_record import Launch
from heavydistill.train import launch


def test_a_plain_start_is_one_process_on_this_device(tmp_path: Path) -> None:
    plan = launch.planned(sft_arguments("sets", tmp_path))
    assert plan == Launch(processes=1, engine="single", device="cpu", attention="sdpa")


def test_deepspeed_and_fsdp_are_planned_as_the_launcher_or_a_flag_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = sft_arguments("sets", tmp_path)
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    monkeypatch.setenv("ACCELERATE_DEEPSPEED_ZERO_STAGE", "3")
    assert launch.planned(wanted).engine == "zero3"
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "false")
    assert launch.planned(wanted).engine == "single"
    wanted.config.deepspeed = {"zero_optimization": {"stage": 2}}
    assert launch.planned(wanted).engine == "zero"


@pytest.mark.parametrize("by", ["launcher", "flag"])
def test_fsdp_on_a_cpu_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    wanted = sft_arguments("sets", tmp_path)
    if by == "flag":
        wanted.config.fsdp = True
    else:
        monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
        monkeypatch.setenv("FSDP_VERSION", "2")
    with pytest.raises(ConfigError, match=r"asks for fsdp2?, and would be ddp on cpu"):
        launch.planned(wanted)


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
            launch.real(accelerator(kind), plan)
        return
    assert launch.real(accelerator(kind), plan).engine == real


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
    launch.accumulate_in_float32(plugin)
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
    assert launch.attention(wanted) == taken
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert launch.attention(wanted) == "sdpa"


def test_the_attention_that_is_asked_for_is_taken(tmp_path: Path) -> None:
    assert launch.attention(sft_arguments("sets", tmp_path, attn_implementation="eager")) == "eager"


def test_deepspeed_may_be_asked_for_with_a_file(tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    path = tmp_path / "zero.json"
    path.write_text(json.dumps({"zero_optimization": {"stage": 2}}), encoding="utf-8")
    wanted = sft_arguments("sets", tmp_path)
    wanted.config.deepspeed = str(path)
    assert launch.planned(wanted).engine == "zero"

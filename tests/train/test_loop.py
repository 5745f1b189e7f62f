"""What a launch really is, and what goes wrong on the machine, in the user's words."""

import errno
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import messages
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from recorded import K16, history
from trainings import RECORD, grpo_arguments, sft_arguments

from heavydistill.config.run import load_config, parse_assignment
from heavydistill.errors import ConfigError, RunError
from heavydistill.store.sets.folder import RunUsed
from heavydistill.store.training_record import RlUsed
from heavydistill.train import loop
from heavydistill.train.callbacks import LOG, LogLines, columns_of
from heavydistill.train.loop import TrainingPlan, common_summary, explained
from heavydistill.train.script import evaluation_command


def plan(folder: Path, max_length: int = 700, asked: str = "sdpa", **launch: str) -> TrainingPlan:
    changes = {"launch": RECORD.launch.model_copy(update=launch), "max_length": max_length}
    arguments = sft_arguments("sets", folder, attn_implementation=asked)
    return TrainingPlan(arguments, cast("Any", None), RECORD.model_copy(update=changes), None)


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
def test_too_little_memory_is_the_users_to_mend(tmp_path, error):
    reason = explained(error, plan(tmp_path, device="cuda"))
    assert isinstance(reason, ConfigError)
    assert "Out of memory (cuda" in str(reason)
    assert [str(reason).count(f"{number}. ") for number in (1, 2, 3, 4)] == [1] * 4


@pytest.mark.parametrize("error", DISK, ids=repr)
def test_a_full_disk_breaks_it_and_what_is_whole_stays(tmp_path, error):
    reason = explained(error, plan(tmp_path, device="cuda"))
    assert isinstance(reason, RunError)
    assert str(tmp_path) in str(reason) and "--resume_from_checkpoint true" in str(reason)


def test_other_errors_are_left_as_they_are(tmp_path):
    for error in (RuntimeError("shapes differ"), KeyError("x"), OSError(errno.EIO, "I/O error")):
        assert explained(error, plan(tmp_path, device="cuda")) is None


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
    tmp_path, wanted, found, tokens, warns
):
    lines = common_summary(plan(tmp_path, tokens, wanted, attention=found), 1, "rows")
    warnings = [text for name, text in lines if name == "warning"]
    assert [f"{tokens:,} tokens" in text for text in warnings] == [True] * warns


@pytest.mark.parametrize("by", ["launcher", "flag"])
def test_fsdp_on_a_cpu_is_refused(tmp_path, monkeypatch, by):
    keys = {"fsdp": "full_shard"} if by == "flag" else {}
    if by == "launcher":
        monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
        monkeypatch.setenv("FSDP_VERSION", "2")
    with messages.raises("engine_not_run", engine="fsdp2"):
        loop.planned(sft_arguments("sets", tmp_path, **keys))


@pytest.mark.parametrize("by", ["launcher", "flag"])
def test_deepspeed_is_planned_with_its_stage(tmp_path, monkeypatch, by):
    pytest.importorskip("deepspeed")
    keys: dict[str, Any] = {}
    if by == "launcher":
        monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
        monkeypatch.setenv("ACCELERATE_DEEPSPEED_ZERO_STAGE", "3")
    else:
        keys["deepspeed"] = tmp_path / "zero.json"
        keys["deepspeed"].write_text('{"zero_optimization": {"stage": 3}}', encoding="utf-8")
    assert loop.planned(sft_arguments("sets", tmp_path, **keys)).engine == "zero3"


def test_deepspeed_that_accelerate_would_ignore_is_refused(tmp_path, monkeypatch):
    pytest.importorskip("deepspeed")
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    monkeypatch.setenv("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2")
    arguments = sft_arguments("sets", tmp_path)
    assert loop.planned(arguments).engine == "zero2"
    monkeypatch.setenv("ACCELERATE_USE_CPU", "True")  # as `use_cpu: true` of a launch file does
    with messages.raises("engine_not_run", engine="zero2"):
        loop.planned(arguments)
    # It is accelerate that decides so.
    state = Accelerator(deepspeed_plugin=arguments.config.deepspeed_plugin).state
    assert state.deepspeed_plugins is None
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.parametrize("kind", ["CP", "SP"])
def test_processes_that_share_rows_get_no_packs_and_no_grpo(tmp_path, monkeypatch, kind):
    monkeypatch.setenv(f"PARALLELISM_CONFIG_{kind}_SIZE", "2")
    for message, arguments in (
        ("packs_shared", sft_arguments("sets", tmp_path, packing="true")),
        ("grpo_shares_rows", grpo_arguments("sets", tmp_path)),
    ):
        with messages.raises(message):
            loop.planned(arguments)
    rows = sft_arguments("sets", tmp_path, packing="false", attn_implementation="auto")
    launch = loop.planned(rows)
    assert (launch.engine, launch.attention) == ("single, 2 share a row", "sdpa")


@pytest.mark.parametrize(
    ("stage", "own", "used"),
    [(1, None, "fp32"), (2, None, "fp32"), (3, None, "fp32"), (2, "bf16", "bf16"), (0, None, None)],
)
def test_zero_adds_gradients_in_float32_unless_the_user_names_another_type(stage, own, used):
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
def test_auto_takes_the_kernel_that_fits_the_gpu(tmp_path, monkeypatch, capability, there, taken):
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
    asked = sft_arguments("sets", tmp_path, attn_implementation="eager")
    assert loop.attention(asked) == "eager"


def test_a_log_has_a_line_of_the_figures_that_matter_and_the_file_has_all(tmp_path, capsys):
    entries = history(K16, steps=30, noise=0)
    args = SimpleNamespace(output_dir=str(tmp_path))
    state: Any = SimpleNamespace(
        is_world_process_zero=True, log_history=entries[:3], global_step=2, max_steps=30
    )
    used = RlUsed(mode="deliberator", longest_prompt=9, problems_sha256="0" * 64)
    lines = LogLines(columns_of(RECORD.model_copy(update={"stage": "grpo", "rl": used})))
    lines.on_train_begin(args, state, None)
    for entry in entries[3:]:
        state.log_history, state.global_step = [*state.log_history, entry], entry["step"]
        lines.on_log(args, state, None, logs=entry)
    printed = capsys.readouterr().out.splitlines()
    assert max(map(len, printed)) <= 80
    head = "step left reward HM teach entropy tokens cut off clipped lr"
    heads = [number for number, line in enumerate(printed) if " ".join(line.split()) == head]
    assert heads == [0, 24]
    # What was not logged is no number.
    row = ["3/30", "0:00:00", "0.520", "-", "63%", "0.550", "1,750", "-", "-", "1.0e-06"]
    assert printed[1].split() == row
    assert "held out at step 12: HM 56.5%, V 54.0%, pass@1 44.0%" in printed
    assert [json.loads(line) for line in (tmp_path / LOG).read_text().splitlines()] == entries


def ran(config: dict[str, Any]) -> RunUsed:
    """The only run of the sets, with another configuration."""
    return RECORD.sets[0].manifest.runs[0].model_copy(update={"config": config})


@pytest.mark.parametrize(
    ("source", "pools", "problems"),
    [
        (
            {"source": "micro", "size": 60, "seed": 40},
            None,
            "micro --set problems.seed=100 --set problems.size=300",
        ),
        ({"source": "problems.jsonl", "size": 1, "seed": 0}, None, "FILE"),
        # Pools that were imported have problems that no configuration names.
        ({}, "0" * 64, "FILE"),
        (
            {"source": "gym:gsm_symbolic", "size": 10, "templates": [43], "rewrite": "small"},
            "0" * 64,
            "gym:gsm_symbolic --set problems.seed=5000 --set problems.size=300 --set "
            "problems.templates=[43] --set problems.rewrite=small --plugin FILE",
        ),
    ],
)
def test_a_training_ends_with_the_command_that_measures_it_on_other_problems(
    source, pools, problems
):
    record = RECORD.model_copy(deep=True)
    record.sets[0].manifest.runs[0] = ran({"problems": source, "pools_sha256": pools})
    roles = "--thinker out/both --deliberator out/both"
    command = f"heavydistill evaluate --before Qwen/Qwen3-4B {roles} --problems {problems}"
    said = evaluation_command(record, Path("out/both"), "Qwen/Qwen3-4B")
    controls = "--controls alone,garbled"
    assert said == f"{command} {controls} --out out/both-evaluation".split()


@pytest.mark.parametrize(
    ("k", "width", "tokens", "flags"),
    [
        (4, None, 192, "--k 4 --set think.sampling.max_tokens=192"),
        (8, 4, 192, "--k 8 --set cache.width=4 --set think.sampling.max_tokens=192"),
        # The teacher's limit may be larger than the student's context.
        (4, 4, 81920, "--k 4 --set think.sampling.max_tokens=700"),
    ],
)
def test_the_command_takes_sizes_and_lengths_of_the_training(k, width, tokens, flags):
    record = RECORD.model_copy(deep=True, update={"max_length": 700})
    gym = {"chain_sum": {"min_terms": 5}}
    asked = {
        "problems": {"source": "gym:chain_sum", "size": 60, "seed": 40, "gym": gym},
        "think": {"k": k, "sampling": {"max_tokens": tokens}},
        "cache": {"width": width},
        "deliberate": {"d": 1, "sampling": {"max_tokens": 448}},
    }
    record.sets[0].manifest.runs[0] = ran(asked)
    said = evaluation_command(record, Path("out/both"), "base")
    text = " ".join(said)
    assert f"{flags} --set deliberate.sampling.max_tokens=448 --controls alone,garbled" in text
    assert 'problems.gym.chain_sum={"min_terms": 5}' in said
    keys = dict(parse_assignment(word) for word in said if "=" in word and word[0] != "-")
    config = load_config(None, keys | {"think.k": k, "problems.source": "gym:chain_sum"})
    assert config.problems.gym == gym and config.deliberate.sampling.max_tokens == 448
    record = record.model_copy(update={"role": "thinker"})
    text = " ".join(evaluation_command(record, Path("out/both"), "base"))
    assert "--controls" not in text and "--k" not in text and "think.sampling" in text

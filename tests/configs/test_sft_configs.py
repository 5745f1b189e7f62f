"""Every file in configs/sft and configs/accelerate is read as strictly as when it is used."""

import functools
import re
from pathlib import Path
from typing import Any

import messages
import pytest
import train_sizes
from shipped import ROOT, command_of, memory_of, values

from heavydistill.train import launch as launching
from heavydistill.train.arguments import TrainArguments
from heavydistill.train.sft.train import SftConfig, parse

pytest.importorskip("trl", reason="TRL is not installed")

CONFIGS = ROOT / "configs"
GUIDE = ROOT / "docs" / "guides" / "train.md"
FILES = sorted((CONFIGS / "sft").glob("*.yaml"))
LAUNCHES = sorted((CONFIGS / "accelerate").glob("*.yaml"))
FOR_CPUS = ("micro", "135m-cpu")
DEEPSPEED = [file for file in LAUNCHES if file.stem.startswith("zero")]
# Where the machine that reads a file has no GPU, the precision of one is refused without it.
HERE = ["--use_cpu", "true"]


@functools.cache
def read(file: Path) -> TrainArguments[SftConfig]:
    """As scripts/sft.py reads it; once for all tests, which change nothing of it."""
    given = ["--dataset_name", "sets/glm", "--role", "both", *HERE]
    return parse(["--config", str(file), *given])


def test_there_are_files_for_all_sizes_and_launches():
    sizes = ["1.7b", "135m", "135m-cpu", "32b-qlora", "4b-full", "4b-lora", "micro"]
    assert sorted(file.stem for file in FILES) == sizes
    named = ["cpu2", "ddp", "fsdp2", "single", "ulysses", "zero2", "zero3", "zero3_offload"]
    assert [file.stem for file in LAUNCHES] == named


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_asks_for_what_its_name_says(file):
    found, size = read(file), file.stem
    assert found.model.use_peft == (size not in ("micro", "135m", "135m-cpu", "4b-full"))
    assert found.model.load_in_4bit == (size == "32b-qlora")
    assert found.config.bf16 == (size not in FOR_CPUS)
    # What every size has: nothing is cut, prompts are not learnt, packs go through one by one.
    config = found.config
    assert (config.max_length, config.too_long) == (None, "refuse")
    assert config.packing and config.completion_only_loss
    assert config.per_device_train_batch_size == config.per_device_eval_batch_size == 1
    assert config.metric_for_best_model == "eval_deliberator_loss"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_command_in_its_first_line_is_the_one_to_give(file):
    assert command_of(file)[1][::2] == ["--role", "--dataset_name"]


@pytest.mark.parametrize("file", [*FILES, *LAUNCHES], ids=lambda file: file.name)
def test_it_is_listed_beside_it(file):
    assert f"]({file.name})" in (file.parent / "README.md").read_text(encoding="utf-8")
    folder = "accelerate" if file in LAUNCHES else "sft"
    assert f"]({folder}/README.md)" in (CONFIGS / "README.md").read_text(encoding="utf-8")


FOR_GPUS = [file for file in FILES if file.stem not in FOR_CPUS]
FOR_GPUS += [file for file in LAUNCHES if file.stem != "cpu2"]


@pytest.mark.parametrize("file", FOR_GPUS, ids=lambda file: file.stem)
def test_what_no_gpu_has_run_says_so_and_what_to_measure(file):
    said = file.read_text(encoding="utf-8")
    assert ("Not run on GPUs" if file in LAUNCHES else "computed, not run") in said
    assert "# To be measured: " in said


@pytest.mark.parametrize("file", [f for f in FOR_GPUS if f in FILES], ids=lambda f: f.stem)
def test_the_memory_that_it_names_is_the_computed_one_and_in_the_tables(file, monkeypatch):
    monkeypatch.chdir(ROOT)
    memory = memory_of(file)
    for page, name in ((file.parent / "README.md", file.name), (GUIDE, f"`{file.stem}`")):
        rows = [row for row in page.read_text("utf-8").splitlines() if row.startswith("|")]
        assert [row for row in rows if name in row and f"| {memory}" in row], page


def test_the_table_of_long_rows_is_the_computed_one():
    part = GUIDE.read_text("utf-8").partition("### Long rows")[2].partition("###")[0]
    head, _, *rows = (line.strip("|").split("|") for line in part.splitlines() if line[:1] == "|")
    assert len(head) == 6 and len(rows) == 3
    for length, *figures in rows:
        for column, figure in zip(head[1:], figures, strict=True):
            config, *launch = re.findall("`([^`]+)`", column)
            words = ["sft", "--config", config, "--length", length.replace(",", "").strip()]
            chosen, others = train_sizes.parsed(
                [*words, *(f"--accelerate={name}" for name in launch)]
            )
            assert (
                f"{train_sizes.report(chosen, others)[1] / train_sizes.GIB:.1f}" == figure.strip()
            )


# --- How accelerate reads the launches.


@pytest.mark.parametrize("name", ["cpu2", "single"])
def test_a_launch_ends_with_the_exit_code_of_its_processes_and_no_traceback(name, capfd):
    code = launching.launch(CONFIGS / "accelerate" / f"{name}.yaml", [], ["sft", "--max_step", "1"])
    said = capfd.readouterr().err
    assert code == 2
    # The launcher ends the second process when the first has failed, perhaps before it says so too.
    assert 1 <= len(said.splitlines()) <= (2 if name == "cpu2" else 1), said
    assert all(messages.is_in(line, "no_flag", flag="--max_step") for line in said.splitlines())


def launch(file: Path, *flags: str) -> Any:
    """The arguments of the launcher, completed from the file as `accelerate launch` does."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser

    parser = launch_command_parser()
    given = parser.parse_args(["--config_file", str(file), *flags, "scripts/sft.py"])
    return _validate_launch_command(given)[0]


@pytest.mark.parametrize("file", LAUNCHES, ids=lambda file: file.stem)
def test_a_launch_has_only_keys_that_accelerate_knows(file):
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import launch_command_parser

    load_config_from_file(str(file))
    # Within the sections it takes any key, and does nothing with one that its launcher lacks.
    known = vars(launch_command_parser().parse_args(["scripts/sft.py"]))
    inner = [section for section in values(file).values() if isinstance(section, dict)]
    assert {key for section in inner for key in section} <= set(known)


@pytest.mark.parametrize(
    ("name", "launcher", "processes"),
    [
        ("single", None, 1), ("cpu2", "multi_gpu", 2), ("ddp", "multi_gpu", 8),
        ("fsdp2", "use_fsdp", 8), ("zero2", "use_deepspeed", 8), ("zero3", "use_deepspeed", 8),
        ("zero3_offload", "use_deepspeed", 8), ("ulysses", "use_deepspeed", 8),
    ],
)  # fmt: skip
def test_a_launch_starts_what_it_says(name, launcher, processes):
    file = CONFIGS / "accelerate" / f"{name}.yaml"
    started = launch(file)
    chosen = [kind for kind in ("multi_gpu", "use_fsdp", "use_deepspeed") if getattr(started, kind)]
    assert chosen == ([launcher] if launcher else [])
    assert (started.num_processes, started.num_machines) == (processes, 1)
    assert not started.cpu and started.use_cpu == (name == "cpu2")
    # The precision of the training would lose against another one here.
    assert started.mixed_precision == "no"
    if launcher:
        assert launch(file, "--num_processes", "4").num_processes == 4


@pytest.mark.parametrize("file", DEEPSPEED, ids=lambda file: file.stem)
def test_deepspeed_takes_accumulation_and_clipping_from_the_training(file, monkeypatch, tmp_path):
    taken = deepspeed_config(
        file, monkeypatch, tmp_path, gradient_accumulation_steps=7, max_grad_norm=0.25
    )
    assert taken.mismatches == []
    assert taken.config["gradient_accumulation_steps"] == 7
    assert taken.config["gradient_clipping"] == 0.25
    zero, stage = taken.config["zero_optimization"], int(file.stem[4])
    assert zero["stage"] == stage
    device = "cpu" if "offload" in file.stem else "none"
    assert zero["offload_optimizer"]["device"] == zero["offload_param"]["device"] == device
    # Else the folder of the model would have shards in place of a model.
    assert zero["stage3_gather_16bit_weights_on_model_save"] == (stage == 3)


def deepspeed_config(
    file: Path, monkeypatch: pytest.MonkeyPatch, folder: Path, **training: Any
) -> Any:
    """DeepSpeed's configuration as a process of the launch has it, the training filled in."""
    pytest.importorskip("deepspeed")
    from accelerate.utils import DeepSpeedPlugin
    from accelerate.utils.launch import prepare_deepspeed_cmd_env
    from transformers.integrations.deepspeed import (
        HfTrainerDeepSpeedConfig,
        unset_hf_deepspeed_config,
    )
    from trl import SFTConfig

    arguments = SFTConfig(str(folder), use_cpu=True, **training)
    started = launch(file, "--main_process_port", "0")
    started.deepspeed_fields_from_accelerate_config = ""  # the launcher sets it where it starts
    plugin = plugin_of(DeepSpeedPlugin, prepare_deepspeed_cmd_env(started)[1], monkeypatch)
    assert plugin.zero3_init_flag == (plugin.zero_stage == 3)
    config = HfTrainerDeepSpeedConfig(plugin.deepspeed_config)
    config.trainer_config_process(arguments)
    unset_hf_deepspeed_config()
    return config


def test_fsdp_is_the_second_one_and_saves_whole_models(monkeypatch):
    from accelerate.utils import FullyShardedDataParallelPlugin
    from accelerate.utils.launch import prepare_multi_gpu_env

    started = launch(CONFIGS / "accelerate/fsdp2.yaml", "--main_process_port", "0")
    plugin = plugin_of(FullyShardedDataParallelPlugin, prepare_multi_gpu_env(started), monkeypatch)
    assert plugin.fsdp_version == 2
    assert plugin.reshard_after_forward is True
    assert plugin.state_dict_type.name == "FULL_STATE_DICT"
    assert plugin.auto_wrap_policy.__name__ == "transformer_auto_wrap_policy"
    assert plugin.cpu_ram_efficient_loading
    assert type(plugin.cpu_offload).__name__ == "OffloadPolicy"  # and no CPUOffloadPolicy
    # The training does it: together they are an error.
    assert not plugin.activation_checkpointing
    assert read(CONFIGS / "sft/4b-full.yaml").config.gradient_checkpointing


def plugin_of(kind: type, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a started process makes of the environment that the launcher gives it."""
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    return kind()

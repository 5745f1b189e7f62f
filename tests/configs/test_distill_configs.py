"""Every file in configs/distill is read as strictly as when it is used."""

import re
from pathlib import Path

import pytest
import train_sizes
from shipped import ROOT, command_of, memory_of, values

from heavydistill.errors import ConfigError
from heavydistill.train.distill.train import parse
from heavydistill.train.guards import ROLL_BACK, check_guards

CONFIGS = ROOT / "configs" / "distill"
PROCESSES = {"1gpu": 1, "8gpu": 8, "micro": 2}
FILES = [CONFIGS / f"{name}.yaml" for name in PROCESSES]
README = (CONFIGS / "README.md").read_text(encoding="utf-8")
# Where the machine that reads a file has no GPU, the precision of one is refused without it.
HERE = ["--use_cpu", "true", "--use_vllm", "false"]


def test_there_is_a_file_for_every_machine_and_it_is_listed():
    assert set(CONFIGS.glob("*.yaml")) == set(FILES)
    assert all(f"]({file.name})" in README for file in FILES)
    listed = (ROOT / "configs" / "README.md").read_text(encoding="utf-8")
    assert "](distill/README.md)" in listed


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_asks_for_what_its_name_says(file: Path):
    launch, flags = command_of(file)
    found = parse(["--config", str(file), *flags, *HERE])
    trl = found.config
    assert (trl.mode, trl.output_dir) == ("deliberator", f"out/{file.stem}/distill-deliberator")
    assert (trl.objective, trl.temperature) == ("reverse KL", 1.0)
    assert trl.mask_truncated_completions and trl.unmeasured == "ask"
    assert found.model.use_peft == (file.stem == "1gpu") and trl.bf16 == (file.stem != "micro")
    assert values(file).get("use_vllm", False) == (file.stem != "micro")
    assert (
        values(ROOT / f"configs/accelerate/{launch}.yaml")["num_processes"]
        == (PROCESSES[file.stem])
    )
    responses = trl.prompts_of_generation * PROCESSES[file.stem]
    assert f"{responses} responses" in file.read_text(encoding="utf-8")
    assert_trains_thinkers_as_it_says(file)
    assert trl.max_steps % trl.save_steps == 0 and trl.save_steps % trl.logging_steps == 0
    if trl.eval_strategy != "no":
        trl.guard_evaluation = trl.guard_reading = ROLL_BACK
        check_guards(trl)


def assert_trains_thinkers_as_it_says(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    flags = ["--dataset_name", "sets", "--model_name_or_path", "micro-student", "--mode", "thinker"]
    if "# Thinkers learn from the same file: --mode thinker" in text:
        assert parse(["--config", str(file), *flags, *HERE]).config.mode == "thinker"
        return
    assert "# Thinkers learn from a copy without max_accuracy: --mode thinker" in text
    with pytest.raises(ConfigError, match=r"max_accuracy is 0\.625, but the mode is thinker"):
        parse(["--config", str(file), *flags, *HERE])


@pytest.mark.parametrize("file", FILES[:2], ids=lambda file: file.stem)
def test_the_memory_that_it_names_is_the_computed_one_and_in_the_table(file: Path):
    row = next(row for row in README.splitlines() if row.startswith(f"| [{file.stem}]"))
    assert f"| {memory_of(file)} |" in row
    teacher = str(values(file)["teacher_model_name_or_path"])
    assert f"| {teacher.removeprefix('Qwen/')} |" in row


def needed(*words: str) -> float:
    """GiB of one GPU."""
    return train_sizes.report(*train_sizes.parsed(["distill", *words]))[1] / train_sizes.GIB


def test_a_larger_teacher_of_the_family_does_not_fit_and_smaller_gpus_have_theirs():
    larger = needed(
        *["--config", "1gpu", "--teacher_model_name_or_path", "Qwen/Qwen3-32B"],
        *["--use_vllm", "false"],
    )
    assert larger > 80 and f"{larger:.1f} GiB on one GPU" in README
    rows = re.findall(r"^\| (\d+) GB \| (\S+) \| (\S+) \| (.*)\| ([\d.]+) GiB \|$", README, re.M)
    assert len(rows) == 3
    for gib, model, teacher, flags, memory in rows:
        words = ["--config", "1gpu", "--model_name_or_path", model, "--gpu_gib", gib]
        words += ["--teacher_model_name_or_path", teacher, *flags.replace("`", "").split()]
        assert f"{needed(*words):.1f}" == memory and needed(*words) < int(gib)

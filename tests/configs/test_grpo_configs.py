"""Every file in configs/grpo is read as strictly as when it is used."""

import copy
import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import train_sizes
from shipped import ROOT, command_of, memory_of, values

from heavydistill.config.run import load_config
from heavydistill.train.arguments import TrainArguments
from heavydistill.train.grpo.options import STEPS
from heavydistill.train.grpo.train import GrpoConfig, parse
from heavydistill.train.guards import GUARDS, ROLL_BACK, check_guards
from heavydistill.train.rollouts.options import HM, MODES, PASS_AT_1

pytest.importorskip("trl", reason="TRL is not installed")

CONFIGS = ROOT / "configs" / "grpo"
SIZES = ("1gpu", "8gpu", "micro")
PROCESSES = {"1gpu": 1, "8gpu": 8, "micro": 2}
FILES = [CONFIGS / size / f"{mode}.yaml" for size in SIZES for mode in MODES]
RUNS = sorted((CONFIGS / "problems").glob("*.yaml"))
# Where the machine that reads a file has no GPU, the precision of one is refused without it.
HERE = ["--use_cpu", "true", "--use_vllm", "false"]


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(ROOT)
    yield


@functools.cache
def read(file: Path) -> TrainArguments[GrpoConfig]:
    """As scripts/grpo.py reads it; once for all tests, which change nothing of it."""
    return parse(["--config", str(file), *given(file), *HERE])


def given(file: Path) -> list[str]:
    """The flags of the command in its first line, behind the file."""
    return command_of(file)[1]


def responses(file: Path) -> int:
    """Responses of a generation, on the machine that it is made for."""
    return int(read(file).config.generation_batch_size) * PROCESSES[file.parent.name]


def test_there_are_files_for_all_modes_and_machines():
    others = ("problems", "phases")
    found = {path for path in CONFIGS.glob("*/*.yaml") if path.parent.name not in others}
    assert found == set(FILES)


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_a_file_asks_for_what_its_name_says(file):
    found, size = read(file), file.parent.name
    assert found.config.mode == file.stem
    assert found.config.output_dir == f"out/{size}/grpo-{file.stem}"
    assert found.model.use_peft == (size == "1gpu")
    assert found.config.bf16 == (size != "micro")
    assert values(file).get("use_vllm", False) == (size != "micro")
    assert found.config.mask_truncated_completions and found.config.preset == "gspo"
    assert found.config.vllm_importance_sampling_mode == "token_truncate"
    # The micro models have few caches, and need all that they get right sometimes.
    assert (found.config.max_accuracy == 0.625) == (file.stem == "deliberator" and size != "micro")


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_its_batches_are_whole_and_learnt_from_in_as_many_steps_as_it_says(file):
    trl = read(file).config
    assert responses(file) % trl.num_generations == 0
    steps = 1 if f"{file.parent.name}/{file.stem}" == "micro/deliberator" else STEPS
    assert trl.steps_per_generation == steps * trl.gradient_accumulation_steps
    assert trl.save_steps % steps == 0 and trl.max_steps % trl.save_steps == 0
    if file.stem == "joint":
        trl.check_episodes(load_config(Path(str(trl.run))).think.k)
    lines = file.read_text(encoding="utf-8")
    prompts = responses(file) // trl.num_generations
    told = f"{responses(file)} responses, {prompts} prompts, learnt from in "
    assert f"{told}{'one step' if steps == 1 else 'four steps'}" in lines
    if (room := values(file).get("vllm_max_model_length")) is not None:
        assert room > trl.max_completion_length


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_it_is_measured_meanwhile_where_the_time_allows(file):
    found, text = read(file), file.read_text(encoding="utf-8")
    if f"{file.parent.name}/{file.stem}" == "micro/deliberator":
        assert not found.config.looks_at_held_out and found.config.guard_evaluation == "off"
        flags = re.search(r"^# (--eval_strategy .*)$", text, re.MULTILINE)
        assert flags, "the file says what switches it on"
        found = parse(["--config", str(file), *given(file), *shlex.split(flags[1]), *HERE])
    trl = found.config
    assert found.config.looks_at_held_out and found.config.guard_evaluation == "warn"
    assert trl.metric_for_best_model == (PASS_AT_1 if file.stem == "thinker" else HM)
    assert trl.per_device_eval_batch_size % trl.num_generations_eval == 0
    of_generation = trl.per_device_train_batch_size * trl.steps_per_generation
    assert trl.per_device_eval_batch_size <= of_generation
    rolling = copy.copy(trl)
    for guard in GUARDS:
        setattr(rolling, f"guard_{guard}", ROLL_BACK)
    check_guards(rolling)
    assert found.config.dataset_name or found.config.held_out_from, "a run holds no problems out"
    if sets := found.config.held_out_from:
        assert f"measured on the validation problems of {sets}" in text


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_there_are_as_many_problems_as_a_generation_asks_or_it_says_whose(file):
    run = read(file).config.run
    if run is None:
        return
    problems = load_config(Path(run)).problems
    there = problems.size
    if problems.source != "micro":
        there = len(Path(problems.source).read_text(encoding="utf-8").splitlines())
    said = f"# First put your own problems into {run}: its {there} are a sample.\n"
    if said not in file.read_text(encoding="utf-8"):
        assert there >= responses(file) // read(file).config.num_generations


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_the_command_in_its_first_line_is_the_one_to_give(file):
    launch = ROOT / f"configs/accelerate/{command_of(file)[0]}.yaml"
    assert values(launch)["num_processes"] == PROCESSES[file.parent.name]
    assert read(file).config.dataset_name or read(file).config.run


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_the_memory_that_it_names_is_the_computed_one_and_in_the_table(file):
    if file.parent.name != "micro":
        table = (CONFIGS / "README.md").read_text(encoding="utf-8")
        row = next(row for row in table.splitlines() if row.startswith(f"| [{file.parent.name}]"))
        assert f"{file.stem} {memory_of(file)}" in row


def test_the_flags_for_a_smaller_gpu_are_flags_and_enough():
    """The table in the README: model, mode, flags, memory."""
    table = (CONFIGS / "README.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (Qwen/\S+) \| `(1gpu/\w+)` \|(.*)\| ([\d.]+) GiB \|$", table, re.MULTILINE
    )
    assert len(rows) == 6
    for model, name, flags, memory in rows:
        words = ["--config", name, "--model_name_or_path", model, *flags.replace("`", "").split()]
        chosen, others = train_sizes.parsed(["grpo", *words, "--gpu_gib", "24"])
        needed = train_sizes.report(chosen, others)[1] / train_sizes.GIB
        assert f"{needed:.1f}" == memory and needed < 24
        trl = parse([*words, *given(CONFIGS / f"{name}.yaml")[2:], *HERE]).config
        assert trl.steps_per_generation == STEPS * trl.gradient_accumulation_steps
        assert trl.generation_batch_size % trl.num_generations == 0
        assert (trl.vllm_max_model_length or 0) > trl.max_completion_length


@pytest.mark.parametrize("file", RUNS, ids=lambda file: file.name)
def test_a_run_is_one_and_listed(file):
    run = load_config(file)
    assert run.domain and run.think.k >= 2
    assert f"](problems/{file.name})" in (CONFIGS / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("size", SIZES)
def test_it_is_listed_beside_it(size):
    assert f"]({size})" in (CONFIGS / "README.md").read_text(encoding="utf-8")
    assert "](grpo/README.md)" in (ROOT / "configs" / "README.md").read_text(encoding="utf-8")

"""What lies in an output folder is whole, or is not taken for it."""

import functools
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import messages
import pytest
from students import MICRO
from trainings import (
    SLOW_DISK,
    await_file,
    broken_off,
    flags,
    history,
    last_checkpoint,
    logged,
    refusal,
    run,
    same_weights,
    sft_arguments,
    start,
)

from heavydistill.store.training_record import TrainingRecord, read_record, write_record
from heavydistill.train import checkpoints
from heavydistill.train.callbacks import CheckpointMarkerCallback
from heavydistill.train.sft.train import prepare, train


def checkpoint(folder: Path, step: int, whole: bool = True) -> Path:
    path = folder / f"checkpoint-{step}"
    (path / "global_step").mkdir(parents=True)
    (path / "model.safetensors").write_bytes(b"1234")
    (path / "global_step" / "optimizer.pt").write_bytes(b"123456")
    if whole:
        checkpoints.mark_whole(path)
    return path


refused = functools.partial(refusal, checkpoints.start_of)


@pytest.mark.parametrize("name", ["model.safetensors", "global_step/optimizer.pt", "whole.json"])
@pytest.mark.parametrize("fault", ["truncated", "gone"])
def test_a_checkpoint_with_a_file_that_is_not_all_there_is_not_whole(tmp_path, name, fault):
    path = checkpoint(tmp_path, 1)
    assert checkpoints.is_whole(path)
    file = path / name
    if fault == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1])
    assert not checkpoints.is_whole(path)


def test_an_evaluation_of_the_model_before_is_not_taken_for_one_of_the_model_that_comes(tmp_path):
    last = checkpoint(tmp_path, 3)
    (tmp_path / "evaluation").mkdir()
    for resume in ("true", str(last), None):
        if not resume:
            shutil.rmtree(last)
        assert "has an evaluation of an earlier model" in refused(tmp_path, resume)


def test_a_folder_with_a_training_is_not_begun_in_again(tmp_path):
    assert checkpoints.start_of(tmp_path / "new", None) is None
    assert checkpoints.start_of(tmp_path, "false") is None
    (tmp_path / "training.json").write_text("{}", encoding="utf-8")  # alone it is of none
    assert checkpoints.start_of(tmp_path, None) is None
    checkpoint(tmp_path, 3)
    assert "already has a training" in refused(tmp_path, None)
    shutil.rmtree(tmp_path / "checkpoint-3")
    (tmp_path / "adapter_config.json").write_text("{}", encoding="utf-8")
    assert "--resume_from_checkpoint true" in refused(tmp_path, None)


def test_the_last_whole_checkpoint_is_gone_on_from(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert checkpoints.start_of(Path("out/here"), None) is None
    earlier, last = checkpoint(Path("out"), 9), checkpoint(Path("out"), 10)
    checkpoint(Path("out"), 11, whole=False)
    assert checkpoints.start_of(Path("out"), "true") == last
    assert checkpoints.start_of(Path("out"), str(earlier.absolute())) == earlier


def test_a_checkpoint_that_is_not_whole_or_of_another_folder_is_refused(tmp_path):
    checkpoint(tmp_path, 1, whole=False)
    other = checkpoint(tmp_path / "other", 2)
    for chosen in ("true", tmp_path / "checkpoint-1", other, tmp_path / "checkpoint-7"):
        assert f"{chosen} is not a complete checkpoint" in refused(tmp_path, str(chosen))


def test_broken_and_later_checkpoints_are_removed_when_a_training_goes_on(tmp_path, capsys):
    checkpoint(tmp_path, 8)
    begin = checkpoint(tmp_path, 9)
    checkpoint(tmp_path, 10)
    checkpoint(tmp_path, 11, whole=False)
    checkpoints.remove_others(tmp_path, begin)
    assert capsys.readouterr().out.splitlines() == [
        "Removed checkpoint-10, which will be written again.",
        "Removed checkpoint-11, which was not whole.",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-8", "checkpoint-9"]


@pytest.mark.parametrize(
    ("limit", "best", "left"),
    [
        (None, None, [7, 8, 9, 10]),
        (9, None, [7, 8, 9, 10]),
        (2, None, [9, 10]),
        (1, None, [10]),
        (2, 7, [7, 10]),
        (1, 7, [7, 10]),
        (3, 10, [8, 9, 10]),
    ],
)
def test_the_best_and_the_last_checkpoints_are_kept(tmp_path, limit, best, left):
    for step in (7, 8, 9, 10):
        checkpoint(tmp_path, step)
    checkpoints.remove_old(tmp_path, limit, best and str(tmp_path / f"checkpoint-{best}"))
    assert [checkpoints.step_of(path) for path in checkpoints._checkpoints(tmp_path)] == left


@pytest.fixture(scope="module")
def record(sets: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainingRecord:
    return prepare(sft_arguments(sets, tmp_path_factory.mktemp("out") / "new")).record


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        ({"learning_rate": 1e-4}, "learning_rate 0.001, and now it is 0.0001"),
        ({"per_device_train_batch_size": 1}, "per_device_train_batch_size 2"),
        ({"gradient_accumulation_steps": 4}, "gradient_accumulation_steps"),
        ({"num_train_epochs": 1}, "num_train_epochs"),
        ({"seed": 3}, "seed"),
        ({"packing": True}, "packing"),
        ({"dataloader_drop_last": True}, "dataloader_drop_last"),
        ({"use_peft": True}, "method 'full', and now it is 'lora'"),
        ({"role": "thinker"}, "source 2 ('deliberator', 17,"),
        ({"max_length": 2000}, "max_length"),
        ({"model_name_or_path": "BASE"}, "base"),
    ],
)
def test_another_training_does_not_go_on(sets, tmp_path, record, keys, named):
    if keys.get("model_name_or_path"):
        shutil.copytree(MICRO, tmp_path / "base")
        keys = {"model_name_or_path": tmp_path / "base"}
    write_record(record, tmp_path)
    checkpoint(tmp_path, 2)
    said = refusal(prepare, sft_arguments(sets, tmp_path, resume_from_checkpoint="true", **keys))
    assert messages.is_in(said, "other_training", before=named)


@pytest.mark.parametrize("engine", ["zero2", "fsdp2"])
def test_another_engine_does_not_go_on_for_it_would_forget_the_optimizer(tmp_path, record, engine):
    def by(engine: str) -> TrainingRecord:
        launch = record.launch.model_copy(update={"engine": engine})
        return record.model_copy(update={"launch": launch})

    write_record(by(engine), tmp_path)
    checkpoints.check_same(tmp_path, by(engine))
    with messages.raises("other_training", before=f"engine '{engine}', and now it is 'ddp'"):
        checkpoints.check_same(tmp_path, by("ddp"))


def test_what_is_said_looked_at_or_kept_may_change(sets, tmp_path, record):
    write_record(record, tmp_path)
    begin = checkpoint(tmp_path, 2)
    other = {"logging_steps": 7, "save_steps": 9, "save_total_limit": 1, "run_name": "x"}
    other |= {"gradient_checkpointing": True, "dataloader_num_workers": 1}
    prepared = prepare(sft_arguments(sets, tmp_path, resume_from_checkpoint="true", **other))
    assert prepared.start == begin
    moved = shutil.copytree(sets, tmp_path / "moved")
    assert prepare(sft_arguments(moved, tmp_path, resume_from_checkpoint="true")).start == begin


class Saving:
    """A trainer as ``save_model`` needs it, that saves the micro student."""

    args = SimpleNamespace(should_save=True)
    accelerator = SimpleNamespace(wait_for_everyone=lambda: None)

    def save_model(self, folder: str) -> None:
        shutil.copytree(MICRO, folder)
        (Path(folder) / "training_args.bin").write_bytes(b"hf_token")


def test_a_model_is_there_only_when_all_of_it_is(tmp_path, monkeypatch):
    from transformers import AutoModelForCausalLM

    files = sorted(path.name for path in MICRO.iterdir())
    replace = Path.replace
    for moves in range(len(files)):
        left = [moves]

        def killed(path: Path, target: Path, left: list[int] = left) -> Path:
            if not left[0]:
                raise KeyboardInterrupt
            left[0] -= 1
            return replace(path, target)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "replace", killed)
            with pytest.raises(KeyboardInterrupt):
                checkpoints.save_model(Saving(), tmp_path)  # type: ignore[arg-type]
        with pytest.raises((OSError, ValueError)):
            AutoModelForCausalLM.from_pretrained(tmp_path)
    checkpoints.save_model(Saving(), tmp_path)  # type: ignore[arg-type]
    assert sorted(path.name for path in tmp_path.iterdir()) == files
    AutoModelForCausalLM.from_pretrained(tmp_path)


def test_a_model_that_is_saved_again_is_gone_meanwhile(tmp_path):
    class Broken(Saving):
        def save_model(self, folder: str) -> None:
            raise OSError(28, "No space left on device")

    checkpoints.save_model(Saving(), tmp_path)  # type: ignore[arg-type]
    with pytest.raises(OSError):
        checkpoints.save_model(Broken(), tmp_path)  # type: ignore[arg-type]
    assert not (tmp_path / "config.json").exists()


STEPS = {"max_steps": 6, "save_strategy": "steps", "save_steps": 2, "packing": True, "seed": 5}


@pytest.mark.slow
def test_a_training_that_is_killed_while_it_saves_ends_as_if_it_was_not(sets, tmp_path):
    given = flags(sets, tmp_path / "killed", save_total_limit=1, **STEPS)
    with start(given, SLOW_DISK) as process:
        await_file(tmp_path / "killed" / "checkpoint-4" / "optimizer.pt", process)
        process.kill()
    there = {path.name for path in (tmp_path / "killed").iterdir()}
    assert {"checkpoint-2", "checkpoint-4", "training.json"} <= there
    assert not there & {"config.json", "model.safetensors"}
    assert read_record(tmp_path / "killed").result is None
    code, said = run(given)
    assert code == 2 and "already has a training" in said
    code, said = run([*given, "--resume_from_checkpoint", "true"])
    assert code == 0
    assert "resumes from checkpoint-2" in said
    assert "Removed checkpoint-4, which was not whole." in said
    assert run(flags(sets, tmp_path / "whole", **STEPS))[0] == 0
    both = [tmp_path / name for name in ("killed", "whole")]
    assert same_weights(*both)
    ours, other = (read_record(folder).result for folder in both)
    assert ours and other and ours.steps == other.steps == 6
    since = logged(tmp_path / "whole", "loss")[2:]
    assert ours.train_loss == pytest.approx(sum(since) / 4, rel=1e-3)
    assert 0 < ours.tokens < other.tokens
    done = {path.name for path in (tmp_path / "killed").iterdir()}
    assert [name for name in done if name.startswith("checkpoint-")] == ["checkpoint-6"]
    assert {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"} <= (
        done
    )
    assert "training_args.bin" not in done and ".new" not in done


@pytest.mark.slow
def test_ctrl_c_ends_with_130_and_what_to_do(sets, tmp_path):
    given = flags(sets, tmp_path / "out", **{**STEPS, "max_steps": 500})
    with start(given) as process:
        await_file(tmp_path / "out" / "checkpoint-2" / "whole.json", process)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "Interrupted. --resume_from_checkpoint true continues" in said
    assert "Traceback" not in said


FULL = {**STEPS, "max_steps": 2}


def check_full(code: int, said: str, out: Path) -> None:
    assert code == 1
    assert "The training failed: The disk of" in said and "Free some space, and continue" in said
    assert "Traceback" not in said
    assert not (out / "config.json").exists()
    assert not any(checkpoints.is_whole(path) for path in out.glob("checkpoint-*"))


@pytest.mark.slow
@pytest.mark.parametrize("mib", [1, 5], ids=["weights", "optimizer"])
def test_a_full_disk_leaves_nothing_that_is_taken_for_good(sets, tmp_path, mib):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        code, said = run(flags(sets, disk / "out", **FULL))
        check_full(code, said, disk / "out")
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.slow
def test_a_file_that_may_not_be_larger_leaves_nothing_either(sets, tmp_path):
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))"
    code, said = run(flags(sets, tmp_path / "out", **FULL), limit)
    check_full(code, said, tmp_path / "out")


@pytest.mark.slow
def test_too_little_memory_ends_with_three_settings_in_order(sets, tmp_path):
    # So much more than is there when the libraries are imported.
    limit = """
import re, resource, trl, transformers, peft
from pathlib import Path
from trl import SFTTrainer
there = int(re.search(r"VmSize:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
resource.setrlimit(resource.RLIMIT_AS, (there + 400 * 2**20,) * 2)
"""
    given = flags(sets, tmp_path / "out", packing=True, per_device_train_batch_size=64, max_steps=2)
    code, said = run(given, limit)
    assert code == 2
    assert "Error: Out of memory (cpu;" in said
    order = re.search(r"1\. (.*) 2\. (.*) 3\. (.*)", said)
    assert order
    wanted = ("--per_device_train_batch_size", "--gradient_checkpointing true", "--max_length")
    assert all(flag in one for one, flag in zip(order.groups(), wanted, strict=True))
    assert "Traceback" not in said
    # The same command with less goes on where it was told to, without cleaning up.
    assert checkpoints.start_of(tmp_path / "out", None) is None


@pytest.mark.parametrize("first", [True, False])
def test_the_first_process_marks_the_new_checkpoint_and_removes_old_ones(tmp_path, first):
    for step in (9, 10):
        (tmp_path / f"checkpoint-{step}").mkdir()
    state = SimpleNamespace(is_world_process_zero=first, global_step=10, best_model_checkpoint=None)
    CheckpointMarkerCallback(1).on_save(SimpleNamespace(output_dir=str(tmp_path)), state, None)
    assert checkpoints.is_whole(tmp_path / "checkpoint-10") == first
    assert (tmp_path / "checkpoint-9").exists() != first


EIGHT_STEPS = {
    "max_steps": 8,
    "packing": True,
    "eval_strategy": "steps",
    "save_strategy": "steps",
    "eval_steps": 4,
    "save_steps": 4,
    "metric_for_best_model": "eval_thinker_loss",
}


@pytest.fixture(scope="module")
def begun(sets: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training that broke off behind half of its steps."""
    out = tmp_path_factory.mktemp("begun") / "out"
    train(prepare(sft_arguments(sets, out, **EIGHT_STEPS)))
    return broken_off(out, 8)


def gone_on(begun: Path, sets: Path, out: Path, **keys: Any) -> Path:
    """The same, gone on with in another folder."""
    shutil.copytree(begun, out)
    keys = {**EIGHT_STEPS, **keys, "resume_from_checkpoint": "true"}
    train(prepare(sft_arguments(sets, out, **keys)))
    return out


def test_a_training_that_goes_on_logs_evaluates_and_saves_when_it_is_told_to(begun, sets, tmp_path):
    keys = {"logging_steps": 3, "eval_steps": 2, "save_steps": 0.375}
    out = gone_on(begun, sets, tmp_path / "out", **keys)
    entries = [entry for entry in history(out) if entry["step"] > 4]
    assert [entry["step"] for entry in entries if "loss" in entry] == [6]
    assert [entry["step"] for entry in entries if "eval_thinker_loss" in entry] == [6, 8]
    steps = sorted(checkpoints.step_of(path) for path in out.glob("checkpoint-*"))
    assert steps == [4, 6, 8]


@pytest.mark.parametrize("other", [None, "eval_deliberator_loss"])
def test_the_best_value_of_another_measure_is_forgotten(begun, sets, tmp_path, capsys, other):
    """At checkpoint 4 lies a value that no later one outdoes."""
    file = begun / "checkpoint-4" / "trainer_state.json"
    state = json.loads(file.read_text(encoding="utf-8"))
    shutil.copytree(begun, tmp_path / "begun")
    copied = tmp_path / "begun" / "checkpoint-4"
    (copied / file.name).write_text(json.dumps({**state, "best_metric": 0.0}), encoding="utf-8")
    checkpoints.mark_whole(copied)
    metric = other or EIGHT_STEPS["metric_for_best_model"]
    out = gone_on(copied.parent, sets, tmp_path / "out", metric_for_best_model=metric)
    (last,) = [entry[metric] for entry in history(out) if entry["step"] == 8 and metric in entry]
    after = json.loads((last_checkpoint(out) / file.name).read_text(encoding="utf-8"))
    best = (after["best_global_step"], after["best_metric"])
    assert best == ((8, last) if other else (4, 0.0))
    said = "Step 4 is no longer the best one: the measure has changed."
    assert (said in capsys.readouterr().out) == bool(other)

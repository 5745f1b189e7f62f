"""What the Trainer calls while it trains."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from trainings import history, last_checkpoint, sft_arguments

from heavydistill.train import checkpoints
from heavydistill.train.callbacks import KeepWhole
from heavydistill.train.sft import prepare, train


@pytest.mark.parametrize("first", [True, False])
def test_the_first_process_marks_the_new_checkpoint_and_removes_old_ones(
    tmp_path: Path, first: bool
) -> None:
    for step in (9, 10):
        (tmp_path / f"checkpoint-{step}").mkdir()
    state = SimpleNamespace(is_world_process_zero=first, global_step=10, best_model_checkpoint=None)
    KeepWhole(1).on_save(SimpleNamespace(output_dir=str(tmp_path)), state, None)
    assert checkpoints.is_whole(tmp_path / "checkpoint-10") == first
    assert (tmp_path / "checkpoint-9").exists() != first


STEPS = {
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
    train(prepare(sft_arguments(sets, out, **STEPS)))
    shutil.rmtree(out / "checkpoint-8")
    for name in ("config.json", "model.safetensors"):
        (out / name).unlink()
    return out


def gone_on(begun: Path, sets: Path, out: Path, **keys: Any) -> Path:
    """The same, gone on with in another folder."""
    shutil.copytree(begun, out)
    train(prepare(sft_arguments(sets, out, **{**STEPS, **keys}, resume_from_checkpoint="true")))
    return out


def test_a_training_that_goes_on_logs_evaluates_and_saves_when_it_is_told_to(
    begun: Path, sets: Path, tmp_path: Path
) -> None:
    keys = {"logging_steps": 3, "eval_steps": 2, "save_steps": 0.375}
    out = gone_on(begun, sets, tmp_path / "out", **keys)
    entries = [entry for entry in history(out) if entry["step"] > 4]
    assert [entry["step"] for entry in entries if "loss" in entry] == [6]
    assert [entry["step"] for entry in entries if "eval_thinker_loss" in entry] == [6, 8]
    steps = sorted(checkpoints.step_of(path) for path in out.glob("checkpoint-*"))
    assert steps == [4, 6, 8]


@pytest.mark.parametrize("other", [None, "eval_deliberator_loss"])
def test_the_best_value_of_another_measure_is_forgotten(
    begun: Path, sets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], other: str | None
) -> None:
    """At checkpoint 4 lies a value that no later one outdoes."""
    file = begun / "checkpoint-4" / "trainer_state.json"
    state = json.loads(file.read_text(encoding="utf-8"))
    shutil.copytree(begun, tmp_path / "begun")
    copied = tmp_path / "begun" / "checkpoint-4"
    (copied / file.name).write_text(json.dumps({**state, "best_metric": 0.0}), encoding="utf-8")
    checkpoints.mark_whole(copied)
    metric = other or STEPS["metric_for_best_model"]
    out = gone_on(copied.parent, sets, tmp_path / "out", metric_for_best_model=metric)
    (last,) = [entry[metric] for entry in history(out) if entry["step"] == 8 and metric in entry]
    text = (last_checkpoint(out) / file.name).read_text(encoding="utf-8")
    after = json.loads(text)
    best = (after["best_global_step"], after["best_metric"])
    assert best == ((8, last) if other else (4, 0.0))
    said = "Step 4 is no longer the best one: what is measured has changed."
    assert (said in capsys.readouterr().out) == bool(other)

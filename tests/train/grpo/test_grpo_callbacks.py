"""Guards and curves in real trainings of the micro student."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_grpo import Scripted, held_out, rewarding, trainer

from heavydistill.train.callbacks import KeepWhole, WatchGuards
from heavydistill.train.grpo.guards import GuardOptions
from heavydistill.train.loop import step_at_end

SOLVED_FROM_4 = rewarding(groups__all_right=lambda step: 0.9 if step >= 4 else 0.1)


def _weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


def _train(
    folder: Path, action: str, resume: str | None = None, **options: Any
) -> tuple[Any, WatchGuards]:
    """A training in which most groups are solved from step 4 on, evaluated every second step."""
    guards = GuardOptions(guard_window=1, guard_all_right=action, guard_entropy="off")
    watch = WatchGuards(guards)
    made = trainer(
        folder,
        SOLVED_FROM_4,
        [watch, KeepWhole(None)],
        **{
            "judge": Scripted(0.5, 0.25, 0.25),
            "eval_dataset": held_out(4),
            "eval_strategy": "steps",
            "save_strategy": "steps",
            "eval_steps": 2,
            "save_steps": 2,
            "metric_for_best_model": "eval_hm",
            **options,
        },
    )
    made.train(resume_from_checkpoint=resume)
    return made, watch


def test_a_warning_changes_nothing(tmp_path: Path, capsys: Any) -> None:
    made, watch = _train(tmp_path, "warn")
    assert made.state.global_step == 6
    (alarm,) = watch.alarms
    assert (alarm.guard, alarm.step, alarm.action) == ("all_right", 4, "warn")
    said = capsys.readouterr().out
    assert said.count("Guard all_right, step 4: 0.9 of the groups are solved") == 1
    assert "The training ends here" not in said
    assert {"curves.png", "curves.svg"} <= {path.name for path in tmp_path.iterdir()}


def test_a_training_in_which_all_is_cut_off_ends(tmp_path: Path, capsys: Any) -> None:
    cut_off = rewarding(verdict__cut_off=lambda step: 0.75 if step == 2 else 1.0)
    watch = WatchGuards(GuardOptions(guard_window=2, guard_entropy="off"))
    made = trainer(tmp_path, cut_off, [watch])
    made.train()
    assert made.state.global_step == 4
    ends = [(alarm.guard, alarm.step, alarm.action) for alarm in watch.alarms]
    assert ends == [("cut_off", 2, "warn"), ("cut_off", 4, "stop")]
    assert capsys.readouterr().out.count("The training ends here.") == 1


@pytest.mark.slow
def test_a_stop_leaves_the_model_of_that_step_and_going_on_stops_again(
    tmp_path: Path, capsys: Any
) -> None:
    import torch

    made, watch = _train(tmp_path, "stop")
    assert made.state.global_step == 4 and len(watch.alarms) == 1
    assert "The training ends here." in capsys.readouterr().out
    last = _weights(tmp_path / "checkpoint-4")
    now = made.model.state_dict()
    assert all(torch.equal(now[name], weight) for name, weight in last.items())

    made, watch = _train(tmp_path, "stop", resume=str(tmp_path / "checkpoint-4"))
    assert made.state.global_step == 4 and len(watch.alarms) == 1
    assert "The training ends here." in capsys.readouterr().out

    made, watch = _train(tmp_path, "warn", resume=str(tmp_path / "checkpoint-4"))
    assert made.state.global_step == 6 and len(watch.alarms) == 1
    assert "Guard all_right" not in capsys.readouterr().out  # it was said when it fired


def test_rolling_back_makes_the_best_checkpoint_the_model(tmp_path: Path, capsys: Any) -> None:
    import torch

    made, watch = _train(tmp_path, "roll_back")
    assert made.state.global_step == 4
    assert watch.alarms[0].rolled_back_to == step_at_end(made) == 2
    assert "Rolled back to checkpoint-2, the best one by eval_hm." in capsys.readouterr().out
    best, last = _weights(tmp_path / "checkpoint-2"), _weights(tmp_path / "checkpoint-4")
    now = made.model.state_dict()
    assert all(torch.equal(now[name], weight) for name, weight in best.items())
    assert not all(torch.equal(last[name], weight) for name, weight in best.items())


def test_what_cannot_be_rolled_back_is_said(tmp_path: Path, capsys: Any) -> None:
    made, watch = _train(
        tmp_path, "roll_back", eval_strategy="no", save_strategy="no", metric_for_best_model=None
    )
    assert made.state.global_step == 4 and watch.alarms[0].rolled_back_to is None
    assert step_at_end(made) == 4
    assert "no checkpoint to roll back to: the model is step 4" in capsys.readouterr().out

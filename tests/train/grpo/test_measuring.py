"""HM, V and pass@1 in a training: their values, their names, and the same draw each time."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_grpo import Scripted, held_out, rewarding, rows, trainer

from heavydistill.train.grpo.held_out import HeldOutResponse, figures


def test_the_figures_count_what_is_undecided_as_wrong() -> None:
    caches = rows(2, cache="c", vote=0.5)
    caches[0]["vote"] = 1.0
    deliberations = [
        HeldOutResponse(0, True, True),
        HeldOutResponse(0, None, False),
        HeldOutResponse(1, False, True),
    ]
    attempts = [
        HeldOutResponse(0, True, True),
        HeldOutResponse(0, False, True, True),
        HeldOutResponse(1, None, False),
    ]
    found = figures(
        {"deliberator": caches, "thinker": rows(2)},
        {"deliberator": deliberations, "thinker": attempts},
    )
    assert found == pytest.approx(
        {
            "hm": 1 / 3,
            "v": 0.75,
            "hm_minus_v": 1 / 3 - 0.75,
            "pass_at_1": 1 / 3,
            "pass_at_d": 0.5,
            "undecided": 2 / 6,
            "unanswered": 1 / 6,
            "cut_off": 2 / 6,
        }
    )


def test_what_is_not_held_out_has_no_figure() -> None:
    found = figures({"thinker": rows(1)}, {"thinker": [HeldOutResponse(0, True, True)]})
    assert found.keys() == {"pass_at_1", "pass_at_d", "undecided", "unanswered", "cut_off"}


def test_a_training_logs_them_once_an_evaluation_and_draws_the_same(tmp_path: Path) -> None:
    judge = Scripted(0.5, 0.25)
    made = trainer(
        tmp_path,
        rewarding(),
        judge=judge,
        eval_dataset=held_out(3, vote=0.25),
        most_tokens={"thinker": 2},
        eval_strategy="steps",
        eval_steps=2,
        eval_on_start=True,
        max_steps=2,
        learning_rate=0.0,
        num_generations_eval=4,
        per_device_eval_batch_size=8,
    )
    made.train()
    seen = [entry for entry in made.state.log_history if "eval_hm" in entry]
    assert [entry["step"] for entry in seen] == [0, 2]
    assert [entry["eval_hm"] for entry in seen] == [0.5, 0.25]
    for entry in seen:
        assert entry["eval_v"] == 0.25 and entry["eval_pass_at_1"] == 0
        assert entry["eval_hm_minus_v"] == entry["eval_hm"] - 0.25
        # Nothing of TRL's, which would be of one of the two sets, or of the training.
        assert all("/" not in name and "reward" not in name for name in entry)
    # The model did not change, so neither do its answers.
    first, second = judge.seen[:2], judge.seen[2:]
    assert first == second
    (caches, deliberations), (problems, attempts) = first
    assert len(deliberations) == 3 * 4 and len({str(ids) for ids in deliberations}) > 3
    assert [row["problem"] for row in caches] == [row["problem"] for row in problems]
    assert max(map(len, deliberations)) == 4 and max(map(len, attempts)) == 2
    # And the training goes on as it would have without.
    rewards = [entry["reward"] for entry in made.state.log_history if "reward" in entry]
    again = trainer(tmp_path / "again", rewarding(), max_steps=2, learning_rate=0.0)
    again.train()
    assert rewards == [entry["reward"] for entry in again.state.log_history if "reward" in entry]
    assert made.model.training

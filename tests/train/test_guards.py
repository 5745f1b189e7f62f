"""Which trainings are taken for a collapse, on recorded series and on odd ones."""

import itertools
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import K8, K16, history
from tiny_grpo import Scripted, held_out, rewarding, trainer
from trainings import weights
from transformers.trainer_utils import IntervalStrategy, SaveStrategy

from heavydistill.errors import ConfigError
from heavydistill.train.callbacks import CheckpointMarkerCallback, WatchGuards, WatchLoss
from heavydistill.train.guards import (
    ACTIONS,
    GUARDS,
    GuardOptions,
    alarm_text,
    alarms,
    check_guards,
    cut_off,
    loss_alarms,
)
from heavydistill.train.loop import step_at_end

USUAL = GuardOptions()
UNMEASURED = {"guard_evaluation": "off", "guard_reading": "off"}
NEVER = {"eval_strategy": "no"}


def fired(curves: dict[str, Any], guards: GuardOptions = USUAL, **options: Any) -> dict[str, int]:
    """The first step of each guard that fires."""
    found: dict[str, int] = {}
    for alarm in alarms(history(curves, **options), guards):
        found.setdefault(alarm.guard, alarm.step)
    return found


def test_the_papers_training_with_k_16_fires():
    found = fired(K16)
    # Entropy ends at .41 of .665, which is 62 % of its peak.
    assert found.keys() == {"length", "all_right", "evaluation"}
    assert 115 < found["length"] < 125  # 1,400 of 2,800 tokens
    assert 125 < found["all_right"] < 145
    assert found["evaluation"] == 150


def test_entropy_fires_where_it_falls_further_and_k_8_fires_nothing():
    deeper = {**K16, "entropy": (0.50, 0.60, 0.665, 0.56, 0.42, 0.35)}
    assert 126 < fired(deeper)["entropy"] < 136  # 0.399
    assert fired(K16, every=5).keys() == fired(K16).keys()
    assert fired(K8) == fired(K8, every=5) == {}


@pytest.mark.parametrize("name", ["entropy", "completions/mean_length"])
@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_two_odd_values_in_a_row_fire_nothing(name, factor):
    entries = history(K8)
    odd = [entry for entry in entries if 60 <= entry["step"] <= 61 and name in entry]
    for entry in odd:
        entry[name] *= factor
    assert len(odd) == 2 and alarms(entries, USUAL) == []


def test_a_window_of_1_takes_every_value_as_it_is():
    entries = history(K8)
    next(entry for entry in entries if entry["step"] == 60)["entropy"] = 0.01
    (alarm,) = alarms(entries, GuardOptions(guard_window=1))
    assert (alarm.guard, alarm.step, alarm.value) == ("entropy", 60, 0.01)


def test_values_that_are_missing_or_no_numbers_are_passed_over():
    entries = history(K8)
    for entry in entries[10:30]:
        entry.pop("entropy", None)
        if "groups/all_right" in entry:
            entry |= {"groups/all_right": None, "reward": math.nan}
    assert alarms(entries, USUAL) == []
    assert alarms([], USUAL) == []


def _cut_off(*shares: float, name: str = "verdict/cut_off") -> list[dict[str, Any]]:
    return [{name: share, "step": step} for step, share in enumerate(shares, start=1)]


@pytest.mark.parametrize("name", ["verdict/cut_off", "thinker/truncated"])
def test_most_responses_cut_off_is_a_warning_and_all_of_them_an_end(name):
    (warned,) = alarms(_cut_off(0.2, 0.9, 0.9, 0.9, 0.9, 1.0, 1.0, 1.0, 0.9, name=name), USUAL)
    assert (warned.guard, warned.step, warned.action) == ("cut_off", 5, "warn")
    assert "0.9 of the responses are cut off" in alarm_text(warned, USUAL)
    (ended,) = alarms(_cut_off(*[1.0] * 6, name=name), USUAL)
    assert (ended.guard, ended.step, ended.value, ended.action) == ("cut_off", 5, 1.0, "stop")
    said = alarm_text(ended, USUAL)
    assert "all responses are cut off, so that nothing is learnt" in said
    assert "Raise max_completion_length" in said
    both = alarms(_cut_off(*[0.8] * 5, *[1.0] * 5, name=name), USUAL)
    assert [(alarm.step, alarm.action) for alarm in both] == [(5, "warn"), (10, "stop")]


def _logged(**curves: list[float]) -> list[dict[str, Any]]:
    """Entries of the steps from 1 on; ``__`` in a name stands for a slash."""
    names = [name.replace("__", "/") for name in curves]
    rows = zip(*curves.values(), strict=True)
    return [{"step": step} | dict(zip(names, row, strict=True)) for step, row in enumerate(rows, 1)]


@pytest.mark.parametrize(
    ("curves", "bound"),
    [
        ({"groups__all_right": [0.5, 0.7]}, {"guard_all_right_above": 0.7}),
        ({"groups__all_wrong": [0.5, 0.7]}, {"guard_all_wrong_above": 0.7}),
        ({"verdict__cut_off": [0.25, 0.25]}, {"guard_cut_off_above": 0.25}),
        ({"undecided__all": [0.02, 0.02]}, {}),
        ({"verdict__undecided": [0.25, 0.5]}, {"guard_rise": 0.25}),
        ({"entropy": [1.0, 0.5]}, {"guard_entropy_below": 0.5}),
        ({"completions__mean_length": [100.0, 50.0]}, {}),
    ],
)
def test_a_value_at_its_threshold_fires_nothing(curves, bound):
    assert alarms(_logged(**curves), GuardOptions(guard_window=1, **bound)) == []
    change = -0.01 if "below" in str(bound) or "mean_length" in str(curves) else 0.01
    beyond = {name: [first, last + change] for name, (first, last) in curves.items()}
    assert [each.step for each in alarms(_logged(**beyond), GuardOptions(guard_window=1, **bound))]


def test_the_first_sign_counts_and_alarms_are_in_the_order_of_the_steps():
    guards = GuardOptions(guard_window=1)
    rises_first = _logged(verdict__cut_off=[0.1, 0.3, 0.6], entropy=[1.0, 1.0, 0.1])
    found = [(each.guard, each.step, each.bound) for each in alarms(rises_first, guards)]
    assert found == [("cut_off", 2, pytest.approx(0.2)), ("entropy", 3, pytest.approx(0.6))]
    is_high_first = _logged(verdict__undecided=[0.0, 0.0, 0.9], undecided__all=[0.0, 0.1, 0.1])
    assert [(each.step, each.bound) for each in alarms(is_high_first, guards)] == [(2, 0.02)]
    many = _logged(entropy=[1.0, 1.0, 0.1], groups__all_wrong=[0.1, 1.0, 1.0])
    assert [each.guard for each in alarms(many, guards)] == ["all_wrong", "entropy"]


def test_of_both_roles_the_one_that_is_cut_off_more_counts():
    for high, low in itertools.permutations(("verdict__cut_off", "thinker__truncated")):
        (found,) = alarms(_logged(**{high: [0.6] * 5, low: [0.4] * 5}), USUAL)
        assert (found.guard, found.step, found.value) == ("cut_off", 5, 0.6)
    # A role is not logged at every step.
    attempts = [{"thinker/truncated": share, "step": step} for step, share in ((1, 0.5), (3, 0.7))]
    entries = [*attempts, {"verdict/cut_off": 0.25, "step": 2}]
    assert cut_off(entries) == [(1, 0.5), (2, 0.25), (3, 0.7)]


def test_the_beginning_is_the_first_tenth_but_at_least_a_window():
    rising = _logged(verdict__undecided=[0.0, 0.1, 0.2, 0.5])
    guards = GuardOptions(guard_window=1)
    for steps, first, bound in ((0, 3, 0.1), (20, 3, 0.15), (30, 4, 0.2), (40, 4, 0.3)):
        (found,) = alarms(rising, guards, steps=steps)
        assert (found.step, found.bound) == (first, pytest.approx(bound))
    assert alarms(rising, guards, steps=50) == []  # the first tenth has not ended


def test_reasons_are_those_of_the_values_behind_the_alarm_most_of_all_first():
    shares = {"all": [0.0, 0.0, 0.06, 0.06, 0.9], "late": [0.0, 0.01, 0.03, 0.02, 0.9]}
    shares |= {"early": [0.9, 0.0, 0.04, 0.06, 0.0]}
    entries = _logged(**{f"undecided__{name}": each for name, each in shares.items()})
    (found,) = alarms(entries, GuardOptions(guard_window=3, guard_rise=1.0))
    assert found.step == 4 and list(found.reasons) == ["early", "late"]
    assert found.reasons == pytest.approx({"late": 0.02, "early": 0.1 / 3})


def test_what_is_done_about_cut_off_responses_can_be_chosen():
    for action, found in (("off", []), ("roll_back", ["roll_back"])):
        fired = alarms(_cut_off(*[1.0] * 6), GuardOptions(guard_cut_off=action))
        assert [alarm.action for alarm in fired] == found
    assert alarms(_cut_off(1.0, 1.0, 0.1, 0.2, 0.3, 1.0, 0.1), USUAL) == []


@pytest.mark.parametrize("name", ["verdict/cut_off", "verdict/undecided", "thinker/truncated"])
def test_a_share_that_rises_over_its_beginning_fires(name):
    guard = "undecided" if "undecided" in name else "cut_off"
    (risen,) = alarms(_cut_off(*[0.1] * 6, *[0.25] * 5, name=name), USUAL)
    assert (risen.guard, risen.step, risen.action) == (guard, 9, "warn")
    assert (risen.value, risen.bound) == (0.25, pytest.approx(0.2))
    assert "0.25 of the responses" in alarm_text(risen, USUAL)
    assert "more than 0.1 above the share in the beginning" in alarm_text(risen, USUAL)
    # A share that was as high from the beginning, one that is odd, and one that falls.
    for shares in ([0.3] * 12, [*[0.1] * 6, 0.4, 0.4, *[0.1] * 6], [*[0.3] * 6, *[0.1] * 6]):
        assert alarms(_cut_off(*shares, name=name), USUAL) == []
    # The beginning is the first tenth of the training.
    rising = _cut_off(*[0.1] * 5, *[0.3] * 15, *[0.33] * 10, name=name)
    assert [alarm.step for alarm in alarms(rising, USUAL)] == [8]
    assert alarms(rising, USUAL, steps=200) == []
    assert alarms(rising, GuardOptions(**{f"guard_{guard}": "off"})) == []


def test_one_answer_that_is_often_undecided_is_said_with_the_reasons():
    shares = {"all": 0.03, "outside_box": 0.02, "unknown_unit": 0.01}
    history = [
        {"step": step} | {f"undecided/{name}": share for name, share in shares.items()}
        for step in range(1, 7)
    ]
    (found,) = alarms(history, USUAL)
    assert (found.guard, found.action) == ("undecided", "warn")
    assert (found.value, found.bound) == (0.03, 0.02)
    assert found.reasons == {"outside_box": 0.02, "unknown_unit": 0.01}
    said = alarm_text(found, USUAL)
    assert "0.03 of the responses name one answer that cannot be judged, more than 0.02" in said
    assert "(outside_box 0.02, unknown_unit 0.01)" in said
    assert alarms(history, GuardOptions(guard_undecided_above=0.04)) == []


def test_groups_without_a_correct_response_are_said():
    (found,) = alarms(_cut_off(*[0.8] * 5, *[1.0] * 5, name="groups/all_wrong"), USUAL)
    assert (found.guard, found.step, found.value) == ("all_wrong", 8, 1.0)
    assert "no correct response" in alarm_text(found, USUAL)
    assert "heavydistill refilter" in alarm_text(found, USUAL)


def test_reading_that_falls_while_hm_rises_is_said():
    entries = _evaluations([0.5, 0.4, 0.3, 0.2], [0.1, 0.2, 0.3])
    for entry in entries:
        if "eval_hm" in entry:  # deliberations get better, but by themselves
            entry |= {"eval_hm_minus_garbled": entry["eval_hm"], "eval_hm": 1 - entry["eval_hm"]}
    (found,) = alarms(entries, GuardOptions(guard_window=1))
    assert (found.guard, found.step, found.bound, found.value) == ("reading", 3, 0.5, 0.2)
    assert "fell 3 times in a row, from 0.5 to 0.2" in alarm_text(found, USUAL)
    assert "while HM rose" in alarm_text(found, USUAL)
    assert alarms(entries, GuardOptions(guard_window=1, guard_reading="off")) == []
    for entry in entries:  # the reward may fall; HM may not
        entry.pop("reward", None)
    assert [alarm.guard for alarm in alarms(entries, GuardOptions())] == ["reading"]
    for entry in entries:
        entry.pop("eval_hm", None)
    assert alarms(entries, GuardOptions()) == []


LOSSES = [0.049, 0.052, 0.080, 0.095, 0.108, 0.101, 0.090, 0.070, 0.049]  # every 20 steps


def logged(losses: list[float]) -> list[dict[str, float]]:
    return [{"step": 20 * place, "loss": loss} for place, loss in enumerate(losses, 1)]


def test_a_loss_that_rises_after_the_warm_up_is_counted():
    # Medians of three: .052 at step 60, .080, .095, .101, .101, .090, .070 at step 180; 1.5 x .049.
    found = loss_alarms(logged(LOSSES), 40)
    assert [alarm.step for alarm in found] == [80, 100, 120, 140, 160]
    assert (found[0].guard, found[0].value, found[0].action) == ("loss", 0.080, "warn")
    assert found[0].bound == pytest.approx(0.0735)
    assert [alarm.step for alarm in loss_alarms(logged(LOSSES), 100)] == [120, 140, 160]
    assert loss_alarms(logged([0.05, 0.2, 0.05, 0.05, 0.04]), 0) == [], "one value is none"
    assert loss_alarms(logged([0.05, 0.06, 0.07, 0.07]), 0) == loss_alarms([], 0) == []
    assert loss_alarms(logged([0, 0.06, 0.05, 0.04]), 0) == [], "a step that learnt nothing is none"
    estimated = [-0.01, 0.02, -0.005, 0.01, 0.02, 0.01]  # as of a served teacher
    assert loss_alarms(logged(estimated), 0) == loss_alarms(logged([-0.02, -0.01, -0.01]), 0) == []
    assert loss_alarms(logged([-0.01, 0.1, 0.2, 0.3, 0.4]), 0)[0].bound == pytest.approx(0.15)


def test_a_loss_that_rises_is_said_once_and_counted_at_the_end(capsys):
    watch, history = WatchLoss(), []
    args: Any = SimpleNamespace(get_warmup_steps=lambda steps: 40)
    for entry in logged(LOSSES):
        history.append(entry)
        state: Any = SimpleNamespace(log_history=history, max_steps=810, is_world_process_zero=True)
        watch.on_log(args, state, None)
    watch.on_train_end(args, state, None)
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("Guard loss, step 80: the training loss is 0.08, above 1.5 times")
    assert "--learning_rate" in first
    assert last.startswith("Guard loss: 5 logged values after the warm-up were above 0.0735")


def _evaluations(values: list[float], rewards: list[float]) -> list[dict[str, Any]]:
    """An evaluation before the first step and after every step."""
    entries: list[dict[str, Any]] = [{"eval_hm": values[0], "step": 0}]
    for step, (value, reward) in enumerate(zip(values[1:], rewards, strict=True), start=1):
        entries += [{"reward": reward, "step": step}, {"eval_hm": value, "step": step}]
    return entries


@pytest.mark.parametrize(
    ("values", "rewards", "fires"),
    [
        ([0.5, 0.4, 0.3, 0.2], [0.1, 0.2, 0.3], True),
        ([0.5, 0.4, 0.3, 0.3], [0.1, 0.2, 0.3], False),  # not below
        ([0.5, 0.4, 0.3, 0.2], [0.3, 0.2, 0.1], False),  # the reward falls as well
        ([0.4, 0.5, 0.4, 0.3], [0.1, 0.2, 0.3], False),  # twice
        ([0.5, 0.4, 0.3, 0.2], [0.2, 0.2, 0.2], False),  # the reward stays
    ],
)
def test_an_evaluation_fires_at_the_third_fall_while_the_reward_rises(values, rewards, fires):
    found = alarms(_evaluations(values, rewards), GuardOptions(guard_window=1))
    assert [alarm.guard for alarm in found] == ["evaluation"] * fires
    if fires:
        assert (found[0].step, found[0].bound, found[0].value) == (3, 0.5, 0.2)


@pytest.mark.parametrize("again", [0.6, 0.9])
def test_an_evaluation_that_is_repeated_where_a_training_goes_on_hides_no_fall(again):
    entries = _evaluations([0.7, 0.6, 0.5, 0.4], [0.1, 0.2, 0.3])
    entries.insert(3, {"eval_hm": again, "step": 1})
    (alarm,) = alarms(entries, GuardOptions(guard_window=1))
    assert (alarm.guard, alarm.step, alarm.bound, alarm.value) == ("evaluation", 3, 0.7, 0.4)


def test_evaluations_without_a_logged_reward_say_nothing():
    entries = [{"eval_hm": value, "step": step} for step, value in enumerate((0.5, 0.4, 0.3, 0.2))]
    assert alarms(entries, GuardOptions(guard_window=1)) == []


def test_another_metric_may_be_the_one_that_is_held_out():
    entries = _evaluations([0.5, 0.4, 0.3, 0.2], [0.1, 0.2, 0.3])
    renamed = [
        {"eval_pass_at_1" if key == "eval_hm" else key: value for key, value in entry.items()}
        for entry in entries
    ]
    guards = GuardOptions(guard_window=1)
    assert alarms(renamed, guards) == []
    assert len(alarms(renamed, guards, metric="eval_pass_at_1")) == 1


@given(st.lists(st.tuples(st.floats(0, 2), st.floats(0, 1), st.floats(0, 1)), max_size=30))
def test_what_fired_earlier_stays_as_it_was(values):
    """A training that goes on finds in its history what it found before."""
    entries: list[dict[str, Any]] = []
    for step, (entropy, reward, hm) in enumerate(values, start=1):
        entries += [{"entropy": entropy, "reward": reward, "step": step}]
        entries += [{"eval_hm": hm, "step": step}, {"eval_hm": 1 - hm, "step": step}]
    guards = GuardOptions(guard_window=2, guard_evaluation_falls=2)
    whole = alarms(entries, guards)
    for end in range(len(entries)):
        before = alarms(entries[:end], guards)
        assert whole[: len(before)] == before


def test_an_alarm_is_told_with_its_values():
    sentences = [alarm_text(alarm, USUAL) for alarm in alarms(history(K16, noise=0), USUAL)]
    assert any("below 50% of its peak" in one and "tokens" in one for one in sentences)
    assert any("fell 3 times in a row, from 0.565 to 0.534" in one for one in sentences)
    assert any("of the groups are solved, more than 0.6" in one for one in sentences)


def check(guards: dict[str, Any], **arguments: Any) -> None:
    found: dict[str, Any] = {"metric_for_best_model": "eval_hm", "eval_steps": 10, "save_steps": 10}
    found |= {"eval_strategy": "steps", "save_strategy": "steps", **arguments}
    found["eval_strategy"] = IntervalStrategy(found["eval_strategy"])
    found["save_strategy"] = SaveStrategy(found["save_strategy"])
    check_guards(SimpleNamespace(**found, action_of=GuardOptions(**guards).action_of))


def test_all_guards_may_do_everything_where_there_is_a_best_checkpoint():
    for action in ACTIONS:
        guards = {f"guard_{guard}": action for guard in GUARDS}
        check(guards)
        check(guards, save_strategy="best", save_steps=7)
        check(guards, eval_steps=0.1, save_steps=0.1)
        check(guards, eval_strategy="epoch", save_strategy="epoch", save_steps=7)


@pytest.mark.parametrize(
    ("guards", "arguments", "said"),
    [
        ({**UNMEASURED, "guard_length": "roll_back"}, NEVER, "--eval_strategy steps, and --save"),
        ({"guard_evaluation": "warn"}, NEVER, "guard_evaluation is warn, but nothing is eval"),
        ({"guard_evaluation": "stop"}, NEVER, "and with --run also --held_out_from"),
        ({"guard_length": "roll_back"}, {"save_steps": 20}, "same number for save_steps"),
        ({"guard_length": "roll_back"}, {"save_strategy": "no"}, "--save_strategy best"),
        ({"guard_length": "roll_back"}, {"eval_strategy": "epoch"}, "--save_strategy best"),
        (
            {**UNMEASURED, "guard_length": "roll_back"},
            {**NEVER, "save_strategy": "no"},
            "guard_length is roll_back, but not every evaluation has a checkpoint",
        ),
        (
            {**UNMEASURED, "guard_undecided": "roll_back", "guard_length": "roll_back"},
            {**NEVER, "save_strategy": "best"},
            "guard_length is roll_back",
        ),
    ],
)
def test_what_cannot_be_done_is_refused(guards, arguments, said):
    with pytest.raises(ConfigError, match=said):
        check(guards, **arguments)


def test_without_rolling_back_the_others_need_no_evaluation():
    for action in ("warn", "stop"):
        others = {f"guard_{guard}": action for guard in GUARDS}
        check({**others, **UNMEASURED}, **NEVER)


SOLVED_FROM_4 = rewarding(groups__all_right=lambda step: 0.9 if step >= 4 else 0.1)


def _train(
    folder: Path, action: str, resume: str | None = None, **options: Any
) -> tuple[Any, WatchGuards]:
    """A training in which most groups are solved from step 4 on, evaluated every second step."""
    guards = GuardOptions(guard_window=1, guard_all_right=action, guard_entropy="off")
    watch = WatchGuards(guards)
    made = trainer(
        folder,
        SOLVED_FROM_4,
        [watch, CheckpointMarkerCallback(None)],
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


def test_a_warning_changes_nothing(tmp_path, capsys):
    made, watch = _train(tmp_path, "warn")
    assert made.state.global_step == 6
    (alarm,) = watch.alarms
    assert (alarm.guard, alarm.step, alarm.action) == ("all_right", 4, "warn")
    said = capsys.readouterr().out
    assert said.count("Guard all_right, step 4: 0.9 of the groups are solved") == 1
    assert "The training ends here" not in said
    assert {"curves.png", "curves.svg"} <= {path.name for path in tmp_path.iterdir()}


def test_a_training_in_which_all_is_cut_off_ends(tmp_path, capsys):
    all_cut_off = rewarding(verdict__cut_off=lambda step: 0.75 if step == 2 else 1.0)
    watch = WatchGuards(GuardOptions(guard_window=2, guard_entropy="off"))
    made = trainer(tmp_path, all_cut_off, [watch])
    made.train()
    assert made.state.global_step == 4
    ends = [(alarm.guard, alarm.step, alarm.action) for alarm in watch.alarms]
    assert ends == [("cut_off", 2, "warn"), ("cut_off", 4, "stop")]
    assert capsys.readouterr().out.count("The training ends here.") == 1


@pytest.mark.slow
def test_a_stop_leaves_the_model_of_that_step_and_going_on_stops_again(tmp_path, capsys):
    import torch

    made, watch = _train(tmp_path, "stop")
    assert made.state.global_step == 4 and len(watch.alarms) == 1
    assert "The training ends here." in capsys.readouterr().out
    last = weights(tmp_path / "checkpoint-4")
    now = made.model.state_dict()
    assert all(torch.equal(now[name], weight) for name, weight in last.items())

    made, watch = _train(tmp_path, "stop", resume=str(tmp_path / "checkpoint-4"))
    assert made.state.global_step == 4 and len(watch.alarms) == 1
    assert "The training ends here." in capsys.readouterr().out

    made, watch = _train(tmp_path, "warn", resume=str(tmp_path / "checkpoint-4"))
    assert made.state.global_step == 6 and len(watch.alarms) == 1
    assert "Guard all_right, step 4" in capsys.readouterr().out  # said again where it goes on


def test_rolling_back_makes_the_best_checkpoint_the_model(tmp_path, capsys):
    import torch

    made, watch = _train(tmp_path, "roll_back")
    assert made.state.global_step == 4
    assert watch.alarms[0].rolled_back_to == step_at_end(made) == 2
    assert "Rolled back to checkpoint-2, the best one by eval_hm." in capsys.readouterr().out
    best, last = weights(tmp_path / "checkpoint-2"), weights(tmp_path / "checkpoint-4")
    now = made.model.state_dict()
    assert all(torch.equal(now[name], weight) for name, weight in best.items())
    assert not all(torch.equal(last[name], weight) for name, weight in best.items())


def test_what_cannot_be_rolled_back_is_said(tmp_path, capsys):
    made, watch = _train(
        tmp_path, "roll_back", eval_strategy="no", save_strategy="no", metric_for_best_model=None
    )
    assert made.state.global_step == 4 and watch.alarms[0].rolled_back_to is None
    assert step_at_end(made) == 4
    assert "no checkpoint to roll back to: the model is that of step 4" in capsys.readouterr().out

"""GRPO of the micro student, from a set of caches to a folder with a model and its record."""

import json
import shutil
from types import SimpleNamespace
from typing import Any

import messages
import pytest
import vllm_engine
from messages import message
from runs import rows
from set_folders import rewrite
from students import MICRO
from trainings import GRPO, LOOKED_AT, grpo_arguments, grpo_flags, main, run_file
from transformers import TrainerState

from heavydistill.errors import ConfigError
from heavydistill.store.training_record import Alarm, Launch, read_record, write_record
from heavydistill.train.callbacks import WatchGuards
from heavydistill.train.checkpoints import mark_whole
from heavydistill.train.grpo.train import new_trainer, prepare, train
from heavydistill.train.guards import GuardOptions
from heavydistill.train.loop import trainer_options
from heavydistill.train.rollouts import plan as stage
from heavydistill.verifiers.pool import VerdictPool

# Setting up what several tests look at counts for the first of them.
FEW = {"steps_per_generation": 2}  # for two prompts


def test_a_dry_run_says_what_would_be_trained_and_writes_nothing(
    sets, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    given = grpo_flags(sets, "out", dry_run=True, num_train_epochs=2, **FEW)
    assert main(given, GRPO) == 0
    said = " ".join(capsys.readouterr().out.split())
    count = len(rows(sets, "rl", "train"))
    assert f"sets, deliberator {count} prompts of up to " in said
    assert "2 prompts x 4 responses of up to 128 tokens; gspo, temperature 1" in said
    assert f"steps {count // 2 * 2 * 2} of 4 responses, 2 epochs" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"num_generatons": 4}, message("no_flag", flag="--num_generatons")),
        ({"max_completion_length": 2000}, "Give a smaller max_completion_length"),
        ({"dataset_name": "nowhere"}, "Error: There is no folder nowhere"),
        ({"max_accuracy": 0.0}, "over_accuracy"),
        ({"max_steps": 0}, "Error: max_steps: 0 is not a number of steps"),
        ({"save_strategy": "steps", "save_steps": 0}, "Error: save_steps: 0.0 is not more than 0"),
        ({"lora_r": 8}, "Error: lora_r is set, but use_peft is not"),
    ],
)
def test_bad_input_ends_with_2_and_leaves_nothing(
    sets, tmp_path, monkeypatch, capsys, keys, message
):
    monkeypatch.chdir(tmp_path)

    def loads(*_: Any, **__: Any) -> None:
        raise AssertionError("the model is loaded")

    monkeypatch.setattr("trl.GRPOTrainer.__init__", loads)
    assert main(grpo_flags(sets, "out", **keys), GRPO) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_another_minor_version_of_trl_is_refused(sets, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(stage, "version", lambda name: "1.17.2")
    assert main(grpo_flags(sets, tmp_path / "out", dry_run=True, **FEW), GRPO) == 2
    said = capsys.readouterr().err
    assert "TRL 1.17.2 is installed" in said and "pip install 'trl==1.16.*'" in said


@pytest.mark.parametrize(
    ("installed", "said"),
    [
        (None, message("no_vllm_to_train")),
        ("0.99.1", message("vllm_unlike_trl", version="0.99.1")),
        ("0.21.0+cu129", message("vllm_unlike_trl", version="0.21.0+cu129")),
    ],
)
def test_a_vllm_that_trl_cannot_use_is_refused(
    sets, tmp_path, monkeypatch, capsys, installed, said
):
    monkeypatch.chdir(tmp_path)
    vllm_engine.found(monkeypatch, installed)
    assert main(grpo_flags(sets, "out", use_vllm=True, **FEW), GRPO) == 2
    printed = capsys.readouterr().err
    assert said in printed and "--use_vllm false" in printed
    assert list(tmp_path.iterdir()) == []


def test_a_build_of_the_allowed_vllm_is_not_refused(sets, tmp_path, monkeypatch, capsys):
    vllm_engine.found(monkeypatch, "0.31.0+cpu")
    given = grpo_flags(sets, tmp_path / "out", use_vllm=True, dry_run=True, **FEW)
    assert main(given, GRPO) == 0, capsys.readouterr().err


def test_fsdp_needs_vllm_and_no_adapter(sets, tmp_path, monkeypatch):
    launch = Launch(processes=2, engine="fsdp2", device="cuda", attention="sdpa")
    monkeypatch.setattr("heavydistill.train.loop.planned", lambda _: launch)
    with messages.raises("fsdp_without_vllm"):
        prepare(grpo_arguments(sets, tmp_path / "out", **FEW))
    with_vllm = grpo_arguments(sets, tmp_path / "out", **FEW, use_peft=True)
    with_vllm.config.use_vllm = True
    with messages.raises("fsdp_without_vllm"):
        prepare(with_vllm)


def test_held_out_prompts_that_do_not_fit_are_left_out_and_none_is_an_error(
    sets, tmp_path, monkeypatch
):
    keys = {**FEW, **LOOKED_AT}
    found = prepare(grpo_arguments(sets, tmp_path / "out", **keys)).held_out
    assert found and found.too_long == 0
    monkeypatch.setattr(stage, "context_of", lambda config, base: 2)
    with pytest.raises(ConfigError, match=r"no held-out cache \(\d+ exceed"):
        prepare(grpo_arguments(sets, tmp_path / "out", **keys))


def test_held_out_caches_of_an_episode_leave_room_for_its_own_deliberation(sets, tmp_path):
    limits = "think: {k: 2, sampling: {max_tokens: 96}}\ndeliberate: {sampling: {max_tokens: 64}}\n"
    run = run_file(tmp_path, more=limits)
    keys = {**FEW, **LOOKED_AT, "mode": "joint", "run": run, "num_generations": 6}
    keys |= {"per_device_train_batch_size": 6, "max_completion_length": 1000}
    found = prepare(grpo_arguments(None, tmp_path / "out", held_out_from=sets, **keys)).held_out
    assert found and found.roles["deliberator"] and not found.too_long


def test_what_the_libraries_do_not_take_is_said(sets, tmp_path):
    prepared = prepare(grpo_arguments(sets, tmp_path / "out", **FEW, router_aux_loss_coef=0.1))
    with messages.raises("not_set_up") as refused:
        train(prepared)
    assert "router_aux_loss_coef" in refused.value.what


def test_a_training_that_learns_nothing_leaves_a_model_with_its_record_and_says_why(
    sets, tmp_path, capfd
):
    out = tmp_path / "out"
    keys = {"max_completion_length": 8, "steps_per_generation": 1, "max_steps": 1}
    keys |= {"use_peft": True, "lora_target_modules": "all-linear"}
    keys |= {"claims_share": 0.1, "scale_rewards": "none"}
    assert main(grpo_flags(sets, out, **keys), GRPO) == 1
    shown = capfd.readouterr()
    assert "Nothing was learnt" in shown.err and "100% of the last ones were cut off" in shown.err
    assert "Raise max_completion_length" in shown.err
    record = read_record(out)
    assert (record.stage, record.role, record.method) == ("grpo", "deliberator", "lora")
    assert record.rl is not None and record.rl.mode == "deliberator"
    assert record.sets[0].rows["train"] == record.sequences == len(rows(sets, "rl", "train"))
    assert record.arguments["num_generations"] == 4
    assert record.arguments["importance_sampling_level"] == "sequence"
    result = record.result
    assert result is not None and result.steps == 1 and result.tokens > 0
    assert result.rollouts["verdict/cut_off"].last == 1.0
    assert "reward" not in result.rollouts  # nothing that was cut off has one
    assert result.rollouts["groups/uncompared"].last == 1.0 and result.is_unlearnt
    assert str(tmp_path) not in (out / "training.json").read_text(encoding="utf-8")
    assert {"adapter_model.safetensors", "adapter_config.json"} <= {p.name for p in out.iterdir()}
    card = (out / "README.md").read_text(encoding="utf-8")
    assert (
        "The reward was the verdict of a verifier on its deliberations on given attempts and, with "
        "a share of 0.1, the truth of their claims about these." in " ".join(card.split())
    )
    assert "- grpo" in card and "caches from `sets`" in " ".join(card.split())
    assert "nothing: no response earned a reward" in card


def test_the_reward_ends_responses_where_the_trainer_does(sets, tmp_path):
    prepared = prepare(grpo_arguments(sets, tmp_path / "out", **FEW))
    with VerdictPool() as pool:
        trainer = new_trainer(prepared, pool)
        (reward,) = trainer.reward_funcs
        assert trainer.reward_func_names == ["verdict"]
        assert set(trainer.eos_token_ids) < reward.ends
        assert reward.ends - set(trainer.eos_token_ids) == {trainer._tokenizer.pad_token_id}


def test_a_model_of_ours_brings_how_it_came_about(sets, tmp_path):
    base = tmp_path / "base"
    shutil.copytree(MICRO, base)
    before = prepare(grpo_arguments(sets, tmp_path / "out", **FEW)).record
    (base / "training.json").write_text(json.dumps(before.model_dump()), encoding="utf-8")
    keys = {**FEW, "model_name_or_path": base}
    record = prepare(grpo_arguments(sets, tmp_path / "out", **keys)).record
    assert record.base.name == "base" and record.base.training == before


@pytest.mark.parametrize("first", [True, False])
def test_evaluation_may_begin_or_end_when_a_training_goes_on(sets, tmp_path, first):
    out = tmp_path / "out"
    both = [FEW, {**FEW, **LOOKED_AT}]
    before, after = reversed(both) if first else both
    record = prepare(grpo_arguments(sets, out, **before)).record
    checkpoint = out / "checkpoint-1"
    checkpoint.mkdir(parents=True)
    mark_whole(checkpoint)
    write_record(record, out)
    asked = grpo_arguments(sets, out, **after, resume_from_checkpoint="true")
    assert prepare(asked).start == checkpoint


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        ({}, 1.0),
        ({"logging_steps": 9}, 1.0),
        ({"held_out": 2}, None),
        ({"held_out_from": "SETS"}, None),
        ({"num_generations_eval": 4}, None),
    ],
)
def test_the_best_value_on_other_held_out_problems_is_forgotten(sets, tmp_path, changed, kept):
    def begin(state: TrainerState, **keys: Any) -> None:
        asked = grpo_arguments(sets, tmp_path / "out", **{**FEW, **LOOKED_AT, **keys})
        for callback in trainer_options(prepare(asked))["callbacks"]:
            callback.on_train_begin(asked.config, state, None)

    (tmp_path / "out").mkdir()
    state = TrainerState(max_steps=4)
    begin(state)
    state.best_metric = 1.0
    begin(state, **{name: sets if value == "SETS" else value for name, value in changed.items()})
    assert state.best_metric == kept


def test_problems_that_nobody_can_judge_are_not_measured_on(sets, tmp_path):
    other = shutil.copytree(sets, tmp_path / "other")
    rewrite(other, "problems", lambda row: [{**row, "verifier": "mth"}])
    keys = {**FEW, **LOOKED_AT, "held_out_from": other}
    with messages.raises("no_verifier", verifier="mth"):
        prepare(grpo_arguments(sets, tmp_path / "out", **keys))


@pytest.mark.parametrize(
    ("loads", "best", "last"), [(True, 20, 19.5), (True, None, 57.5), (False, 20, 57.5)]
)
def test_the_record_of_a_training_ends_where_the_model_does(loads, best, last):
    watching = WatchGuards(GuardOptions())
    watching.alarms = [Alarm(guard="entropy", step=60, value=0.1, bound=0.6, action="warn")]
    state = SimpleNamespace(
        log_history=[
            {"step": step, "reward": float(step), "num_tokens": step} for step in range(1, 61)
        ],
        global_step=60,
        epoch=1.0,
        best_model_checkpoint=best and f"out/checkpoint-{best}",
    )
    trainer = SimpleNamespace(
        state=state,
        args=SimpleNamespace(load_best_model_at_end=loads),
        callback_handler=SimpleNamespace(callbacks=[watching]),
    )
    result = stage.measured_of(trainer, 0)
    assert result["rollouts"]["reward"].last == last
    assert (result["tokens"], result["alarms"]) == (60, watching.alarms)


def test_evaluation_of_a_run_asks_for_what_is_held_out(tmp_path):
    keys = {**FEW, **LOOKED_AT, "mode": "thinker", "run": run_file(tmp_path)}
    with messages.raises("held_out_of_run"):
        prepare(grpo_arguments(None, tmp_path / "out", **keys))

"""GRPO of the micro student, from a set of caches to a folder with a model and its record."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from runs import rows
from students import MICRO
from trainings import GRPO, ROOT, grpo_asked, grpo_flags, main

from heavydistill.errors import ConfigError
from heavydistill.hub.model_card import write_model_card
from heavydistill.record import Launch, TrainingRecord, read_record, write_record
from heavydistill.training.keeping import mark_whole
from heavydistill.training.rl import stage
from heavydistill.training.rl.passk import TOO_FEW
from heavydistill.training.rl.stage import new_trainer, outline, prepare, train
from heavydistill.verifiers.pool import VerdictPool

# Setting up what several tests look at counts for the first of them.
pytestmark = pytest.mark.timeout(900)

FEW = {"steps_per_generation": 2}  # for two prompts
# Of seven prompts three generations an epoch, each learnt from in four steps.
STEPS = {
    "max_steps": 8,
    "save_strategy": "steps",
    "save_steps": 4,
    "num_generations": 8,
    "max_completion_length": 160,
}


def test_a_dry_run_says_what_would_be_trained_and_writes_nothing(
    sets: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    given = grpo_flags(sets, "out", dry_run=True, num_train_epochs=2, **FEW)
    assert main(given, GRPO) == 0
    said = " ".join(capsys.readouterr().out.split())
    count = len(rows(sets, "rl", "train"))
    assert f"sets, deliberator {count} prompts of up to " in said
    assert "a generation 2 prompts x 4 responses of up to 128 tokens" in said
    assert f"steps {count // 2 * 2 * 2} of 4 responses, 2 epochs; gspo, temperature 1" in said
    assert "note which caches teach something was measured on teacher" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"num_generatons": 4}, "Error: There is no flag --num_generatons"),
        ({"num_generations": 3}, "Error: num_generations: 3 does not divide the 16 responses"),
        ({"max_completion_length": 2000}, "Error: max_completion_length: "),
        ({"dataset_name": "nowhere"}, "Error: There is no folder nowhere"),
        ({"max_accuracy": 0.0}, "Error: max_accuracy: "),
        ({"evaluate": "nowhere.yaml"}, "Error: nowhere.yaml: No such file"),
        ({"learning_rate": 0}, "Error: learning_rate: 0.0 is not more than 0"),
        ({"max_steps": 0}, "Error: max_steps: 0 is no number of steps"),
        ({"save_strategy": "steps", "save_steps": 0}, "Error: save_steps: 0 is not more than 0"),
        ({"lora_r": 8}, "Error: lora_r is set, and use_peft is not"),
    ],
)
def test_bad_input_ends_with_2_and_leaves_nothing(
    sets: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    keys: dict[str, Any],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)

    def loads(*_: Any, **__: Any) -> None:
        raise AssertionError("the model is loaded")

    monkeypatch.setattr("trl.GRPOTrainer.__init__", loads)
    assert main(grpo_flags(sets, "out", **keys), GRPO) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_another_minor_version_of_trl_is_refused(
    sets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stage, "version", lambda name: "1.17.2")
    assert main(grpo_flags(sets, tmp_path / "out", dry_run=True, **FEW), GRPO) == 2
    said = capsys.readouterr().err
    assert "TRL 1.17.2 is installed" in said and "pip install 'trl>=1.16,<1.17'" in said


def test_fsdp_needs_vllm(sets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = Launch(processes=2, engine="fsdp2", device="cuda", attention="sdpa")
    monkeypatch.setattr("heavydistill.training.launching.planned", lambda _: launch)
    with pytest.raises(ConfigError, match="FSDP and no vLLM"):
        prepare(grpo_asked(sets, tmp_path / "out", **FEW))


def test_held_out_prompts_that_do_not_fit_are_left_out_and_none_is_an_error(
    sets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {**FEW, **LOOKED_AT}
    found = prepare(grpo_asked(sets, tmp_path / "out", **keys)).held_out
    assert found and found.too_long == 0
    monkeypatch.setattr(stage, "_context", lambda asked, base: 2)
    with pytest.raises(ConfigError, match=r"no held-out cache to measure on \(\d+ too long"):
        prepare(grpo_asked(sets, tmp_path / "out", **keys))


def test_what_the_libraries_do_not_take_is_said(sets: Path, tmp_path: Path) -> None:
    prepared = prepare(grpo_asked(sets, tmp_path / "out", **FEW, sync_ref_model=True))
    with pytest.raises(ConfigError, match=r"cannot be set up: .*sync_ref_model=True"):
        train(prepared)


def test_a_step_on_prompts_that_nobody_answers_leaves_a_model_and_its_record(
    sets: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    keys = {"max_completion_length": 8, "steps_per_generation": 1, "max_steps": 1}
    asked = grpo_asked(sets, out, **keys, use_peft=True, lora_target_modules="all-linear")
    record = train(prepare(asked))
    assert read_record(out) == record
    assert (record.stage, record.role, record.method) == ("grpo", "deliberator", "lora")
    assert record.rl is not None and record.rl.mode == "deliberator"
    assert record.sets[0].rows["train"] == record.sequences == len(rows(sets, "rl", "train"))
    assert record.arguments["num_generations"] == 4
    assert record.arguments["importance_sampling_level"] == "sequence"
    result = record.result
    assert result is not None and result.steps == 1 and result.tokens > 0
    assert result.rollouts["verdict/cut_off"].last == 1.0
    assert "reward" not in result.rollouts  # nothing that was cut off has one
    assert str(tmp_path) not in (out / "training.json").read_text(encoding="utf-8")
    assert {"adapter_model.safetensors", "adapter_config.json"} <= {p.name for p in out.iterdir()}
    write_model_card(out)
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "reinforcement learning, in which the verdict of a verifier on its answers" in card
    assert "- grpo" in card and "caches of `sets` were asked" in card


def test_the_reward_ends_responses_where_the_trainer_does(sets: Path, tmp_path: Path) -> None:
    prepared = prepare(grpo_asked(sets, tmp_path / "out", **FEW))
    with VerdictPool() as pool:
        trainer = new_trainer(prepared, pool)
        (reward,) = trainer.reward_funcs
        assert trainer.reward_func_names == ["final_answer"]
        assert set(trainer.eos_token_ids) < reward.ends
        assert reward.ends - set(trainer.eos_token_ids) == {trainer._tokenizer.pad_token_id}


def test_a_model_of_ours_brings_how_it_came_about(sets: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    shutil.copytree(MICRO, base)
    before = prepare(grpo_asked(sets, tmp_path / "out", **FEW)).record
    (base / "training.json").write_text(json.dumps(before.model_dump()), encoding="utf-8")
    keys = {**FEW, "model_name_or_path": base}
    record = prepare(grpo_asked(sets, tmp_path / "out", **keys)).record
    assert record.base.name == "base" and record.base.training == before


@pytest.mark.parametrize("first", [True, False])
def test_evaluation_may_begin_or_end_when_a_training_goes_on(
    sets: Path, tmp_path: Path, first: bool
) -> None:
    out = tmp_path / "out"
    both = [FEW, {**FEW, **LOOKED_AT}]
    before, after = reversed(both) if first else both
    record = prepare(grpo_asked(sets, out, **before)).record
    checkpoint = out / "checkpoint-1"
    checkpoint.mkdir(parents=True)
    mark_whole(checkpoint)
    write_record(record, out)
    asked = grpo_asked(sets, out, **after, resume_from_checkpoint="true")
    assert prepare(asked).start == checkpoint


# --- On a set that was built from a real run.


@dataclass
class Trained:
    """A training that has ended, and what it said before and logged."""

    folder: Path
    record: TrainingRecord
    outline: dict[str, str]
    history: list[dict[str, Any]]


@pytest.fixture(scope="module")
def trained(real: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("trained") / "out"
    prepared = prepare(grpo_asked(real, folder, **STEPS))
    record = train(prepared)
    state = json.loads((folder / "checkpoint-8" / "trainer_state.json").read_text("utf-8"))
    return Trained(folder, record, dict(outline(prepared)), state["log_history"])


@pytest.mark.slow
def test_a_deliberator_is_really_trained(trained: Trained) -> None:
    record, result = trained.record, trained.record.result
    assert result is not None and result.steps == 8
    logged = [entry for entry in trained.history if "reward" in entry]
    assert [entry["step"] for entry in logged] == [1, 5]  # a generation is learnt from in 4 steps
    for entry in logged:
        assert entry["reward"] == pytest.approx(entry["verdict/correct"])
        assert 0 < entry["reward"] < 1 and 0 <= entry["frac_reward_zero_std"] < 1
    assert max(entry.get("clip_ratio/region_mean", 0) for entry in trained.history) > 0
    assert result.rollouts["reward"].first == pytest.approx(logged[0]["reward"])
    assert result.tokens == logged[-1]["num_tokens"]
    assert record.rl is not None and record.max_length == record.rl.longest_prompt + 160
    names = {path.name for path in trained.folder.iterdir()}
    assert {"model.safetensors", "config.json", "training.json"} <= names
    assert {"checkpoint-4", "checkpoint-8"} <= names and "README.md" not in names
    assert has_learnt(trained.folder)


def has_learnt(folder: Path) -> bool:
    """Whether the weights are other than those that it began with."""
    from transformers import AutoModelForCausalLM

    models = [AutoModelForCausalLM.from_pretrained(one) for one in (folder, MICRO)]
    pairs = zip(*(model.parameters() for model in models), strict=True)
    return any(not one.equal(other) for one, other in pairs)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["deliberator", "joint"])
def test_an_adapter_is_really_trained(real: Path, tmp_path: Path, mode: str) -> None:
    from safetensors.torch import load_file

    adapter = {"use_peft": True, "lora_target_modules": "all-linear"}
    more = episodes_of(tmp_path) if mode == "joint" else {"dataset_name": real}
    train(prepare(grpo_asked(None, tmp_path / "out", **{**STEPS, **more, **adapter})))
    weights = load_file(tmp_path / "out" / "adapter_model.safetensors")
    # They are 0 before they are trained.
    learnt = [value.any().item() for name, value in weights.items() if "lora_B" in name]
    assert learnt and all(learnt)


def episodes_of(folder: Path) -> dict[str, Any]:
    """Keys of a training on episodes of two attempts, whose run is written into the folder."""
    run = folder / "run.yaml"
    run.write_text(
        "problems: {source: micro, size: 20, seed: 9}\ndomain: brief\n"
        "think: {k: 2, sampling: {max_tokens: 96}}\n",
        "utf-8",
    )
    return {"mode": "joint", "run": run, "num_generations": 6, "per_device_train_batch_size": 6}


@pytest.mark.slow
def test_what_goes_on_from_a_generation_ends_as_the_same_model(
    trained: Trained, real: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    shutil.copytree(trained.folder, out)
    for name in ("checkpoint-8", "model.safetensors", "config.json"):
        path = out / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    record = train(prepare(grpo_asked(real, out, **STEPS, resume_from_checkpoint="true")))
    weights = [folder / "model.safetensors" for folder in (out, trained.folder)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    assert record.result is not None and trained.record.result is not None
    assert record.result.steps == 8
    assert 0 < record.result.tokens < trained.record.result.tokens
    assert record.result.rollouts == trained.record.result.rollouts


@pytest.mark.slow
def test_another_training_does_not_go_on(trained: Trained, real: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(trained.folder, out)
    for keys, named in (({"epsilon": 0.1}, "epsilon"), ({"max_accuracy": 0.5}, "source 1")):
        asked = grpo_asked(real, out, **STEPS, resume_from_checkpoint="true", **keys)
        with pytest.raises(ConfigError, match=f"began with {named}"):
            prepare(asked)


@pytest.mark.slow
def test_two_processes_train_and_judge_together(real: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    given = grpo_flags(real, out, **{**STEPS, "max_steps": 4}, per_device_train_batch_size=2)
    config = ROOT / "configs" / "accelerate" / "cpu2.yaml"
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config)]
    done = subprocess.run(
        [*launch, "--main_process_port", "0", str(GRPO), *given],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        timeout=800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    record = read_record(out)
    assert (record.launch.processes, record.launch.engine) == (2, "ddp")
    assert record.result is not None and record.result.steps == 4
    assert 0 < record.result.rollouts["reward"].first < 1
    assert "a generation 2 prompts x 8 responses" in " ".join(done.stdout.split())


@pytest.mark.slow
def test_the_command_line_of_trl_learns_from_our_caches_and_our_reward(
    real: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    given = {
        "model_name_or_path": MICRO,
        "dataset_name": real,
        "dataset_config": "rl",
        "reward_funcs": "heavydistill.training.rl.reward.final_answer",
        "output_dir": out,
        "use_cpu": True,
        "bf16": False,
        "num_generations": 8,
        "max_completion_length": 160,
        "mask_truncated_completions": True,
        "max_steps": 2,
        "save_steps": 2,
        "logging_steps": 1,
        "report_to": "none",
    }
    flags = [str(part) for key, value in given.items() for part in (f"--{key}", value)]
    done = subprocess.run(
        [sys.executable, "-m", "trl.scripts.grpo", *flags],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        timeout=800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    history = json.loads((out / "checkpoint-2" / "trainer_state.json").read_text())["log_history"]
    rewards = [entry["rewards/final_answer/mean"] for entry in history if "reward" in entry]
    assert len(rewards) == 2 and 0 < sum(rewards) < 2


@pytest.mark.slow
@pytest.mark.parametrize("of_pool", [{}, {"pass_at_k": 2, "scale_rewards": "none"}])
def test_a_thinker_learns_from_problems(tmp_path: Path, of_pool: dict[str, Any]) -> None:
    run = tmp_path / "run.yaml"
    run.write_text("problems: {source: micro, size: 20, seed: 9}\ndomain: brief\n", "utf-8")
    keys = {**STEPS, "max_steps": 4, "mode": "thinker", "run": run, **of_pool}
    record = train(prepare(grpo_asked(None, tmp_path / "out", **keys)))
    state = json.loads((tmp_path / "out" / "checkpoint-4" / "trainer_state.json").read_text())
    assert any(TOO_FEW in entry for entry in state["log_history"]) == bool(of_pool)
    assert has_learnt(tmp_path / "out")
    assert record.role == "thinker" and record.sets == []
    assert record.rl is not None and record.rl.run is not None
    assert record.rl.run["problems"]["size"] == 20
    write_model_card(tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "20 problems of `micro` were asked" in card and "--set domain=brief" in card


LOOKED_AT = {
    "eval_strategy": "steps",
    "eval_steps": 4,
    "held_out": 3,
    "num_generations_eval": 2,
    "per_device_eval_batch_size": 4,
}


@pytest.mark.slow
def test_a_deliberator_is_measured_on_caches_that_it_does_not_learn(
    real: Path, tmp_path: Path
) -> None:
    prepared = prepare(grpo_asked(real, tmp_path / "out", **STEPS, **LOOKED_AT))
    assert dict(outline(prepared))["held out"].startswith("3 caches, 3 problems for a thinker")
    assert prepared.held_out and not prepared.held_out.texts & set(prepared.prompts.train["text"])
    result = train(prepared).result
    assert result is not None and {"eval_hm", "eval_v", "eval_pass_at_1"} <= result.rollouts.keys()
    assert result.rollouts["eval_v"].first == result.rollouts["eval_v"].last
    assert {"curves.png", "curves.svg"} <= {path.name for path in (tmp_path / "out").iterdir()}


@pytest.mark.slow
def test_thinkers_and_a_deliberation_learn_as_one_episode(real: Path, tmp_path: Path) -> None:
    keys = {**STEPS, **LOOKED_AT, **episodes_of(tmp_path), "held_out_from": real}
    prepared = prepare(grpo_asked(None, tmp_path / "out", **keys))
    assert "2 episodes" in dict(outline(prepared))["a generation"]
    record = train(prepared)
    assert record.role == "both" and record.rl is not None and record.rl.rows_of_episode == 3
    assert record.result is not None and record.result.steps == 8
    assert {"eval_hm", "eval_pass_at_1"} <= record.result.rollouts.keys()
    history = json.loads((tmp_path / "out" / "checkpoint-8" / "trainer_state.json").read_text())
    logged = [entry for entry in history["log_history"] if "attempts/right" in entry]
    assert logged and all(entry["thinker/mean_length"] <= 96 for entry in logged)


@pytest.mark.slow
def test_episodes_that_go_on_end_as_the_same_model(tmp_path: Path) -> None:
    keys = {**STEPS, **episodes_of(tmp_path), "steps_per_generation": 2}
    keys |= {"max_steps": 4, "save_steps": 2}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    train(prepare(grpo_asked(None, whole, **keys)))
    assert has_learnt(whole)
    shutil.copytree(whole, broken)
    shutil.rmtree(broken / "checkpoint-4")
    for name in ("model.safetensors", "config.json"):
        (broken / name).unlink()
    record = train(prepare(grpo_asked(None, broken, **keys, resume_from_checkpoint="true")))
    assert record.result is not None and record.result.steps == 4
    weights = [folder / "model.safetensors" for folder in (whole, broken)]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_evaluation_of_a_run_asks_for_what_is_held_out(tmp_path: Path) -> None:
    run = tmp_path / "run.yaml"
    run.write_text("problems: {source: micro, size: 20, seed: 9}\ndomain: brief\n", "utf-8")
    keys = {**FEW, **LOOKED_AT, "mode": "thinker", "run": run}
    with pytest.raises(ConfigError, match="a run holds no problems out"):
        prepare(grpo_asked(None, tmp_path / "out", **keys))

"""GRPO of the micro student on a set that was built from a real run, and on episodes."""

from pathlib import Path
from typing import Any

import pytest
from students import MICRO
from trainings import (
    LOOKED_AT,
    Trained,
    broken_off,
    grpo_arguments,
    history,
    logged,
    run_file,
    same_weights,
    weights,
)

from heavydistill.hub.model_card import write_model_card
from heavydistill.train.grpo.passk import TOO_FEW
from heavydistill.train.grpo.train import prepare, summary, train

# Setting up what several tests look at counts for the first of them.
pytestmark = pytest.mark.slow

# Of seven prompts three generations an epoch, each learnt from in four steps.
STEPS = {
    "max_steps": 8,
    "save_strategy": "steps",
    "save_steps": 4,
    "num_generations": 8,
    "max_completion_length": 240,
}


@pytest.fixture(scope="module")
def trained(real: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    folder = tmp_path_factory.mktemp("trained") / "out"
    prepared = prepare(grpo_arguments(real, folder, **STEPS))
    record = train(prepared)
    return Trained(folder, record, dict(summary(prepared)))


def test_a_deliberator_is_really_trained(trained):
    record, result = trained.record, trained.record.result
    assert result is not None and result.steps == 8
    generations = [entry for entry in history(trained.folder) if "reward" in entry]
    assert [entry["step"] for entry in generations] == [1, 5]  # each is learnt from in 4 steps
    for entry in generations:
        assert entry["reward"] == pytest.approx(entry["verdict/correct"])
        assert 0 < entry["reward"] < 1 and 0 <= entry["frac_reward_zero_std"] < 1
    assert max(logged(trained.folder, "clip_ratio/region_mean")) > 0
    assert result.rollouts["reward"].first == pytest.approx(generations[0]["reward"])
    assert result.tokens == generations[-1]["num_tokens"]
    assert record.rl is not None and record.max_length == record.rl.longest_prompt + 240
    names = {path.name for path in trained.folder.iterdir()}
    assert {"model.safetensors", "config.json", "training.json"} <= names
    assert {"checkpoint-4", "checkpoint-8"} <= names and "README.md" not in names
    assert has_learnt(trained.folder)


def has_learnt(folder: Path) -> bool:
    """Whether the weights are other than those that it began with."""
    before = weights(MICRO)
    return any(not weight.equal(before[name]) for name, weight in weights(folder).items())


@pytest.mark.parametrize("mode", ["deliberator", "joint"])
def test_an_adapter_is_really_trained(real, tmp_path, mode):
    adapter = {"use_peft": True, "lora_target_modules": "all-linear"}
    more = {"dataset_name": real, "claims_share": 0.2, "scale_rewards": "none"}
    more = episodes_of(tmp_path) if mode == "joint" else more
    record = train(prepare(grpo_arguments(None, tmp_path / "out", **{**STEPS, **more, **adapter})))
    is_of_claims = mode == "deliberator"
    assert bool(logged(tmp_path / "out", "claims/score")) == is_of_claims
    assert record.result and ("claims/score" in record.result.rollouts) == is_of_claims
    # They are 0 before they are trained.
    found = weights(tmp_path / "out")
    learnt = [value.any().item() for name, value in found.items() if "lora_B" in name]
    assert learnt and all(learnt)


def episodes_of(folder: Path) -> dict[str, Any]:
    """Keys of a training on episodes of two attempts, whose run is written into the folder."""
    run = run_file(folder, more="think: {k: 2, sampling: {max_tokens: 192}}\n")
    return {"mode": "joint", "run": run, "num_generations": 6, "per_device_train_batch_size": 6}


def test_what_goes_on_from_a_generation_ends_as_the_same_model(trained, real, tmp_path):
    out = broken_off(trained.folder, 8, tmp_path / "out")
    record = train(prepare(grpo_arguments(real, out, **STEPS, resume_from_checkpoint="true")))
    assert same_weights(out, trained.folder)
    assert record.result is not None and trained.record.result is not None
    assert record.result.steps == 8
    assert 0 < record.result.tokens < trained.record.result.tokens
    assert record.result.rollouts == trained.record.result.rollouts


@pytest.mark.parametrize("of_pool", [{}, {"pass_at_k": 2, "scale_rewards": "none"}])
def test_a_thinker_learns_from_problems(tmp_path, of_pool):
    keys = {**STEPS, "max_steps": 4, "mode": "thinker", "run": run_file(tmp_path), **of_pool}
    record = train(prepare(grpo_arguments(None, tmp_path / "out", **keys)))
    assert bool(logged(tmp_path / "out", TOO_FEW)) == bool(of_pool)
    assert has_learnt(tmp_path / "out")
    assert record.role == "thinker" and record.sets == []
    assert record.rl is not None and record.rl.run is not None
    assert record.rl.run["problems"]["size"] == 20
    write_model_card(tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert (
        "Prompts: 20 problems from `micro`" in " ".join(card.split())
        and "--set domain=brief" in card
    )


def test_a_deliberator_is_measured_on_caches_that_it_does_not_learn(real, tmp_path):
    prepared = prepare(grpo_arguments(real, tmp_path / "out", **STEPS, **LOOKED_AT))
    held_out = dict(summary(prepared))["held out"]
    assert held_out.startswith("3 caches, 3 also garbled, 3 problems for a thinker")
    assert prepared.held_out
    texts = {row["text"] for rows in prepared.held_out.roles.values() for row in rows}
    assert not texts & set(prepared.prompts.train["text"])
    result = train(prepared).result
    assert result is not None and {"eval_hm", "eval_v", "eval_pass_at_1"} <= result.rollouts.keys()
    assert result.rollouts["eval_v"].first == result.rollouts["eval_v"].last
    assert {"curves.png", "curves.svg"} <= {path.name for path in (tmp_path / "out").iterdir()}


def test_thinkers_and_a_deliberation_learn_as_one_episode(real, tmp_path):
    keys = {**STEPS, **LOOKED_AT, **episodes_of(tmp_path), "held_out_from": real}
    prepared = prepare(grpo_arguments(None, tmp_path / "out", **keys))
    assert "2 episodes" in dict(summary(prepared))["a generation"]
    record = train(prepared)
    assert record.role == "both" and record.rl is not None and record.rl.rows_of_episode == 3
    assert record.result is not None and record.result.steps == 8
    assert {"eval_hm", "eval_pass_at_1"} <= record.result.rollouts.keys()
    assert logged(tmp_path / "out", "attempts/right")
    assert max(logged(tmp_path / "out", "thinker/mean_length")) <= 192


def test_episodes_that_go_on_end_as_the_same_model(tmp_path):
    keys = {**STEPS, **episodes_of(tmp_path), "steps_per_generation": 2}
    keys |= {"max_steps": 4, "save_steps": 2}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    train(prepare(grpo_arguments(None, whole, **keys)))
    assert has_learnt(whole)
    broken_off(whole, 4, broken)
    record = train(prepare(grpo_arguments(None, broken, **keys, resume_from_checkpoint="true")))
    assert record.result is not None and record.result.steps == 4
    assert same_weights(whole, broken)

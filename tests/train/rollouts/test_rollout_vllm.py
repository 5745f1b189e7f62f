"""Training by TRL's colocate way, against a stand-in for vLLM's engine."""

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import tiny_rollouts
import torch
import vllm_engine
from accelerate import Accelerator
from peft import LoraConfig
from tiny_grpo import Scripted, held_out
from tiny_rollouts import STUDENT, Replayed, made_up
from trainings import grpo_arguments
from transformers import AutoModelForCausalLM

from heavydistill.errors import ConfigError
from heavydistill.train.grpo.joint import JointTrainer
from heavydistill.train.grpo.train import prepare, train
from heavydistill.train.grpo.trainer import RlTrainer
from heavydistill.train.rollouts import vllm
from heavydistill.verifiers.pool import VerdictPool

VLLM = {
    "use_vllm": True,
    "vllm_mode": "colocate",
    "vllm_enable_sleep_mode": True,
    "vllm_importance_sampling_mode": "token_truncate",
    "gradient_accumulation_steps": 1,
}


def test_what_is_measured_is_sampled_within_each_roles_limit(tmp_path, monkeypatch):
    engines = vllm_engine.install(monkeypatch)
    own = {
        "judge": Scripted(0.5, 0.5),
        "most_tokens": {"deliberator": 5, "thinker": 3},
        "eval_dataset": held_out(4),
    }
    keys = {"num_generations": 4, "num_generations_eval": 2, "max_completion_length": 8}
    keys |= {"per_device_train_batch_size": 4, "per_device_eval_batch_size": 4}
    keys |= {"max_steps": 1, "eval_strategy": "steps", "eval_steps": 1}
    made = tiny_rollouts.trainer(RlTrainer, tmp_path, [0.0, 1.0] * 2, own=own, **VLLM, **keys)
    made.train()
    (engine,) = engines
    assert [most for _, most in engine.asked] == [8] * 4 + [5] * 8 + [3] * 8
    assert made.vllm_generation.max_completion_length == 8
    # Measured with the weights behind the step: they are sent again, after each sleep.
    sent = engine.weights()
    assert all(torch.isnan(weight).all() for weight in sent.values())  # asleep at the end
    made.vllm_generation.sync_weights()
    trained = dict(made.model.named_parameters())
    assert all(torch.equal(weight, trained[name]) for name, weight in engine.weights().items())
    assert any(log.get("eval_hm") == 0.5 for log in made.state.log_history)


def test_log_probabilities_of_vllm_reach_the_rows_of_an_episode(tmp_path, monkeypatch):
    vllm_engine.install(monkeypatch)
    k, limit = 2, 6
    played = made_up(4, k, truncated=0)

    class Sampled(Replayed):
        """Its prompts, answered by the policy."""

        def rollout(self, rows: Any, seeds: Any, *others: Any) -> Any:
            sample, _ = others
            episodes = super().rollout(rows, seeds)
            asked = [row.prompt_ids for one in episodes for row in one.rows]
            answers = iter(sample(asked, limit))
            return [
                dataclasses.replace(
                    one,
                    rows=[dataclasses.replace(row, completion=next(answers)) for row in one.rows],
                )
                for one in episodes
            ]

    own = {"episodes": Sampled(k, played), "verdicts": VerdictPool()}
    keys = {"num_generations": 2 * (k + 1), "per_device_train_batch_size": 2 * (k + 1)}
    keys |= {"steps_per_generation": 2, "max_completion_length": 16}
    made = tiny_rollouts.trainer(JointTrainer, tmp_path, [1.0, 0.0] * 2, 2, own, **VLLM, **keys)
    made.current_gradient_accumulation_steps = 1
    made.model.train()
    batch = made._generate_and_score_completions(next(iter(made.get_train_dataloader())))
    learnt = (batch["completion_mask"] * batch["tool_mask"]).bool()
    assert learnt.sum() > 4 * (k + 1)
    # vLLM's are those of the same weights, but for rounding, so nothing is to be corrected.
    difference = batch["sampling_per_token_logps"] - batch["old_per_token_logps"]
    assert difference[learnt].abs().max() < 1e-4
    assert batch["importance_sampling_ratio"][learnt] == pytest.approx(1, abs=1e-4)
    assert made.compute_loss(made.model, batch).isfinite()


def trainer(folder: Path, peft_config: Any, **changes: Any) -> Any:
    keys = {"num_generations": 4, "per_device_train_batch_size": 4, "max_completion_length": 4}
    keys |= {"use_vllm": True, "vllm_mode": "colocate"}
    keys |= {"vllm_importance_sampling_mode": "token_truncate"}
    keys |= {"model_init_kwargs": {"dtype": "bfloat16"}}
    own = {"peft_config": peft_config}
    return tiny_rollouts.trainer(RlTrainer, folder, [0.0, 1.0] * 2, own=own, **{**keys, **changes})


def base_of(trainer: RlTrainer) -> dict[str, torch.Tensor]:
    return {
        name: weight.detach().clone()
        for name, weight in trainer.model.named_parameters()
        if not weight.requires_grad
    }


def move_adapter(trainer: RlTrainer, seed: int) -> None:
    """As far as a training at a usual rate may take it."""
    torch.manual_seed(seed)
    for weight in trainer.model.parameters():
        if weight.requires_grad:
            weight.data += 0.01 * torch.randn_like(weight)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize(
    "lora",
    [
        {"target_modules": "all-linear", "use_rslora": True},
        {"target_modules": ["q_proj", "down_proj"], "use_dora": True},
        {"target_modules": ["q_proj"], "modules_to_save": ["norm"]},
        {"target_modules": ["embed_tokens"], "target_parameters": ["mlp.up_proj.weight"]},
    ],
    ids=["linear", "dora", "whole module", "embedding and parameter"],
)
def test_the_base_keeps_every_bit_and_what_is_sent_is_base_and_delta(
    tmp_path, monkeypatch, lora, dtype
):
    engines = vllm_engine.install(monkeypatch)
    made = trainer(
        tmp_path,
        LoraConfig(r=4, lora_alpha=16, task_type="CAUSAL_LM", **lora),
        model_init_kwargs={"dtype": dtype},
    )
    before = base_of(made)
    for seed in range(60):
        move_adapter(made, seed)
        made.vllm_generation.sync_weights()
    after = base_of(made)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)

    # The model in float32 with its adapter merged by PEFT, rounded once to the dtype of the base.
    dtype = getattr(torch, dtype)
    whole = made.model.float().merge_and_unload()
    expected = {name: weight.detach() for name, weight in whole.named_parameters()}
    bare = dict(AutoModelForCausalLM.from_pretrained(STUDENT).named_parameters())
    sent = engines[0].weights()
    assert sent.keys() == expected.keys()
    for name, weight in expected.items():
        assert torch.equal(sent[name], weight.to(dtype).float()), name
    changed = [name for name in sent if not torch.equal(sent[name], bare[name].to(dtype).float())]
    assert len(changed) >= 2


def test_an_adapter_trains_with_vllm_in_bfloat16_beside_a_base_that_stays(tmp_path, monkeypatch):
    engines = vllm_engine.install(monkeypatch)
    lora = LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM")
    made = trainer(
        tmp_path,
        lora,
        vllm_enable_sleep_mode=True,
        gradient_accumulation_steps=1,
        max_steps=3,
        learning_rate=1e-2,
    )
    before = base_of(made)
    made.train()
    after = base_of(made)
    assert all(torch.equal(before[name], after[name]) for name in before)
    (engine,) = engines
    assert len(engine.asked) == 3 * 4
    assert engine.loads == 3 * len(engine.weights())


LORA = {"r": 8, "target_modules": "all-linear", "task_type": "CAUSAL_LM"}
MOVING = {"gradient_accumulation_steps": 1, "max_steps": 4, "learning_rate": 5e-3}
MOVING |= {"max_completion_length": 32}


def not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """What PEFT merged is taken out again before vLLM has it, as it was for a base in float32."""
    monkeypatch.setattr(vllm, "_merged", lambda weight, _: weight.data)


@pytest.mark.parametrize("engine", ["bfloat16", "float32"])
def test_an_adapter_that_never_reaches_vllm_ends_the_training(tmp_path, monkeypatch, engine):
    vllm_engine.install(monkeypatch, getattr(torch, engine))
    not_sent(monkeypatch)
    made = trainer(tmp_path, LoraConfig(**LORA), model_init_kwargs={"dtype": "float32"}, **MOVING)
    with pytest.raises(ConfigError, match=r"At step [123], .* samples from other weights") as found:
        made.train()
    assert "--use_vllm false" in found.value.fix


@pytest.mark.parametrize(
    ("base", "engine", "has_adapter", "corrects"),
    [
        ("bfloat16", "bfloat16", True, True),
        ("float32", "bfloat16", False, True),
        ("float32", "float32", True, False),
    ],
)
def test_weights_that_reach_vllm_differ_by_rounding_alone(
    tmp_path, monkeypatch, base, engine, has_adapter, corrects
):
    engines = vllm_engine.install(monkeypatch, getattr(torch, engine))
    found: list[tuple[float, bool]] = []
    check = vllm.check_gap

    def noted(gap: float, step: int, is_float32: bool, temperature: float) -> None:
        found.append((gap, is_float32))
        check(gap, step, is_float32, temperature)

    monkeypatch.setattr(vllm, "check_gap", noted)
    keys = {**MOVING, "learning_rate": 5e-3 if has_adapter else 1e-3}
    keys |= {"model_init_kwargs": {"dtype": base}}
    keys |= {"vllm_importance_sampling_correction": corrects}
    made = trainer(tmp_path, LoraConfig(**LORA) if has_adapter else None, **keys)
    made.train()
    assert len(found) == 4 and all(0 < gap < 0.1 for gap, _ in found)
    assert {is_float32 for _, is_float32 in found} == {engine == base == "float32"}
    assert engines[0].loads == 4 * len(engines[0].weights())


@pytest.mark.parametrize(
    ("gap", "is_float32", "temperature", "fires"),
    [
        (2e-6, True, 1.0, False),
        (2e-3, True, 1.0, True),
        (2.8e-2, False, 1.0, False),
        (0.159, False, 1.0, True),
        (0.159, False, 0.5, False),  # rounding of logits counts twice
        (0.159, False, 2.0, True),
    ],
)
def test_only_more_than_rounding_ends_a_training(gap, is_float32, temperature, fires):
    with pytest.raises(ConfigError) if fires else contextlib.nullcontext():
        vllm.check_gap(gap, 1, is_float32, temperature)


def test_what_vllm_samples_follows_the_seed_and_goes_on_where_a_checkpoint_ends(
    tmp_path, monkeypatch
):
    engines = vllm_engine.install(monkeypatch)
    keys = {**MOVING, "model_init_kwargs": {"dtype": "float32"}}
    keys |= {"save_strategy": "steps", "save_steps": 2}

    def sampled(folder: str, seed: int, resume: str | None = None) -> list[list[int]]:
        made = trainer(tmp_path / folder, None, seed=seed, **keys)
        made.train(resume_from_checkpoint=resume)
        return engines[-1].written

    first = sampled("first", 1)
    assert sampled("again", 1) == first
    assert sampled("other", 2)[:4] != first[:4]  # the prompts are the same
    assert sampled("first", 1, str(tmp_path / "first" / "checkpoint-2")) == first[8:]


def test_an_engine_ends_before_the_process_group_that_it_needs(sets, tmp_path, monkeypatch):
    engines = vllm_engine.install(monkeypatch)
    ends = Accelerator.end_training

    def ending(accelerator: Accelerator) -> None:
        engines[0].events.append("end_training")
        ends(accelerator)

    monkeypatch.setattr(Accelerator, "end_training", ending)
    flags = {"use_vllm": True, "steps_per_generation": 2, "max_steps": 1}
    train(prepare(grpo_arguments(sets, tmp_path / "out", **flags)))
    assert engines[0].events[-2:] == ["shutdown", "end_training"]

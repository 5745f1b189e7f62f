"""Training by TRL's colocate way, against a stand-in for vLLM's engine."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import rollouts
import torch
import vllm_engine
from peft import LoraConfig
from rollouts import STUDENT, Replayed, made_up
from tiny_grpo import Scripted, held_out
from transformers import AutoModelForCausalLM

from heavydistill.train.grpo.joint import JointTrainer
from heavydistill.train.grpo.trainer import RlTrainer
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
    made = rollouts.trainer(RlTrainer, tmp_path, [0.0, 1.0] * 2, own=own, **VLLM, **keys)
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

        def play(self, rows: Any, seeds: Any, *others: Any) -> Any:
            sample, _ = others
            episodes = super().play(rows, seeds)
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
    made = rollouts.trainer(JointTrainer, tmp_path, [1.0, 0.0] * 2, 2, own, **VLLM, **keys)
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
    return rollouts.trainer(RlTrainer, folder, [0.0, 1.0] * 2, own=own, **keys, **changes)


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
def test_the_base_keeps_every_bit_and_what_is_sent_is_base_and_delta(tmp_path, monkeypatch, lora):
    engines = vllm_engine.install(monkeypatch)
    made = trainer(tmp_path, LoraConfig(r=4, lora_alpha=16, task_type="CAUSAL_LM", **lora))
    before = base_of(made)
    for seed in range(60):
        move_adapter(made, seed)
        made.vllm_generation.sync_weights()
    after = base_of(made)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)

    # The model in float32 with its adapter merged by PEFT, rounded once.
    whole = made.model.float().merge_and_unload()
    expected = {name: weight.detach() for name, weight in whole.named_parameters()}
    bare = dict(AutoModelForCausalLM.from_pretrained(STUDENT).named_parameters())
    sent = engines[0].weights()
    assert sent.keys() == expected.keys()
    for name, weight in expected.items():
        assert torch.equal(sent[name], weight.to(torch.bfloat16).float()), name
    changed = [name for name in sent if not torch.equal(sent[name], bare[name].bfloat16().float())]
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

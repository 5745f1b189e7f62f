"""vLLM receives base + delta, and the base keeps every bit, however often it is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import vllm_engine
from peft import LoraConfig
from rollouts import STUDENT, arguments, problems, rewarding, tokenizer
from transformers import AutoModelForCausalLM

from heavydistill.train.grpo.trainer import RlTrainer


def trainer(folder: Path, peft_config: Any, **changes: Any) -> RlTrainer:
    return RlTrainer(
        model=STUDENT,
        args=arguments(
            folder,
            use_vllm=True,
            vllm_mode="colocate",
            vllm_importance_sampling_mode="token_truncate",
            num_generations=4,
            per_device_train_batch_size=4,
            max_completion_length=4,
            model_init_kwargs={"dtype": "bfloat16"},
            **changes,
        ),
        train_dataset=problems(4),
        reward_funcs=rewarding([0.0, 1.0, 0.0, 1.0]),
        processing_class=tokenizer(),
        peft_config=peft_config,
    )


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
def test_the_base_keeps_every_bit_and_what_is_sent_is_base_and_delta(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lora: dict[str, Any]
) -> None:
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


def test_an_adapter_trains_with_vllm_in_bfloat16_beside_a_base_that_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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

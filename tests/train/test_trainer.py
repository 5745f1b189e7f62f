"""What our trainers write of gathered weights, and Muon and AdamW as one optimizer."""

import copy

import pytest
import torch
from students import MICRO
from trainings import sft_arguments, weights
from transformers import AutoModelForCausalLM

from heavydistill.train.sft.train import new_trainer, prepare
from heavydistill.train.trainer import MuonAdamW


@pytest.mark.parametrize(
    ("keys", "file"),
    [
        ({}, "model.safetensors"),
        ({"use_peft": True, "lora_target_modules": "all-linear"}, "adapter_model.safetensors"),
    ],
    ids=["full", "adapter"],
)
def test_a_tied_weight_that_was_gathered_twice_is_written_once(sets, tmp_path, keys, file):
    trainer = new_trainer(prepare(sft_arguments(sets, tmp_path / "out", role="thinker", **keys)))
    trainer.save_model(str(tmp_path / "one"))
    # As DeepSpeed does: a copy of each name.
    gathered = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    trainer._save(str(tmp_path / "several"), gathered)
    assert (tmp_path / "several" / file).read_bytes() == (tmp_path / "one" / file).read_bytes()


def test_weights_that_are_no_longer_alike_are_both_written(sets, tmp_path):
    trainer = new_trainer(prepare(sft_arguments(sets, tmp_path / "out", role="thinker")))
    gathered = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    gathered["lm_head.weight"] += 1
    trainer._save(str(tmp_path / "several"), dict(gathered))
    written = weights(tmp_path / "several")
    assert all(written[name].equal(weight) for name, weight in gathered.items())


def test_what_several_processes_on_a_cpu_wrote_is_read_to_each_of_them(tmp_path):
    written = {"step": torch.arange(3)}
    torch.save(written, tmp_path / "optimizer.pt")
    for number in range(2):
        place = torch.device("cpu", number)
        read = torch.load(tmp_path / "optimizer.pt", map_location=place, weights_only=True)
        assert torch.equal(read["step"], written["step"])


IDS = torch.arange(5, 45).reshape(2, 20)


def model() -> torch.nn.Module:
    loaded: torch.nn.Module = AutoModelForCausalLM.from_pretrained(MICRO, dtype=torch.float32)
    return loaded


def optimizer(of: torch.nn.Module) -> MuonAdamW:
    return MuonAdamW(of.named_parameters(), lr=1e-3, weight_decay=0.1, betas=(0.9, 0.95), eps=1e-8)


def take_step(of: torch.nn.Module, by: MuonAdamW) -> float:
    loss = of(input_ids=IDS, labels=IDS).loss
    loss.backward()
    by.step()
    by.zero_grad()
    return loss.item()


def test_matrices_of_layers_go_to_muon_and_all_else_to_adamw():
    trained = model()
    names = {id(parameter): name for name, parameter in trained.named_parameters()}
    muon, adamw = optimizer(trained).param_groups
    assert {names[id(one)].split(".")[-2] for one in muon["params"]} == {
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
    }
    assert any("embed_tokens" in names[id(one)] for one in adamw["params"])
    assert len(muon["params"]) + len(adamw["params"]) == len(names)


def test_every_weight_learns_and_the_loss_falls():
    trained = model()
    before = copy.deepcopy(trained.state_dict())
    by = optimizer(trained)
    losses = [take_step(trained, by) for _ in range(8)]
    assert losses[-1] < losses[0] * 0.7
    used = {int(id) for id in IDS.unique()}
    for name, now in trained.named_parameters():
        assert not torch.equal(now, before[name]), name
    changed = (trained.model.embed_tokens.weight != before["model.embed_tokens.weight"]).any(dim=1)
    assert used <= {int(row) for row in changed.nonzero()}


def test_a_schedule_changes_the_rate_of_both():
    trained = model()
    by = optimizer(trained)
    schedule = torch.optim.lr_scheduler.LambdaLR(by, lambda step: 0.0 if step else 1.0)
    assert [group["lr"] for group in by.param_groups] == [1e-3, 5e-4]
    take_step(trained, by)
    schedule.step()
    before = copy.deepcopy(trained.state_dict())
    take_step(trained, by)
    assert all(torch.equal(now, before[name]) for name, now in trained.state_dict().items())


@pytest.mark.parametrize("steps", [1, 3])
def test_what_goes_on_from_a_state_is_what_was_never_broken_off(tmp_path, steps):
    whole = model()
    by = optimizer(whole)
    for _ in range(steps):
        take_step(whole, by)
    torch.save(by.state_dict(), tmp_path / "optimizer.pt")
    again = model()
    again.load_state_dict(whole.state_dict())
    resumed = optimizer(again)
    resumed.load_state_dict(torch.load(tmp_path / "optimizer.pt"))
    schedule = torch.optim.lr_scheduler.LambdaLR(resumed, lambda step: 1.0)
    for _ in range(2):
        take_step(whole, by)
        take_step(again, resumed)
        schedule.step()
    for name, parameter in whole.named_parameters():
        assert torch.equal(parameter, again.get_parameter(name)), name


def test_on_a_cpu_directions_are_computed_in_single_precision():
    """Of bfloat16 not a third digit would be right."""
    weight = torch.nn.Parameter(torch.zeros(24, 40))
    bias = torch.nn.Parameter(torch.zeros(3))
    by = MuonAdamW(
        [("layer.weight", weight), ("layer.bias", bias)],
        lr=1.0,
        weight_decay=0.0,
        betas=(0.9, 0.95),
        eps=1e-8,
    )
    weight.grad = torch.randn(24, 40, generator=torch.Generator().manual_seed(0))
    kept = weight.grad.clone()
    by.step()
    assert torch.equal(weight.grad, kept)
    direction = kept.double() / kept.double().norm()
    for _ in range(5):
        gram = direction @ direction.T
        direction = 3.4445 * direction + (-4.775 * gram + 2.0315 * gram @ gram) @ direction
    expected = -0.2 * 40**0.5 * direction
    assert torch.allclose(weight.detach().double(), expected, rtol=1e-4, atol=1e-5)

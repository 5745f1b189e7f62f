"""What is written of the weights that an engine has gathered of its processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from trainings import sft_arguments

from heavydistill.train.sft import new_trainer, prepare


@pytest.mark.parametrize(
    ("keys", "file"),
    [
        ({}, "model.safetensors"),
        ({"use_peft": True, "lora_target_modules": "all-linear"}, "adapter_model.safetensors"),
    ],
    ids=["full", "adapter"],
)
def test_a_tied_weight_that_was_gathered_twice_is_written_once(
    sets: Path, tmp_path: Path, keys: dict[str, Any], file: str
) -> None:
    trainer = new_trainer(prepare(sft_arguments(sets, tmp_path / "out", role="thinker", **keys)))
    trainer.save_model(str(tmp_path / "one"))
    # As DeepSpeed does: a copy of each name.
    gathered = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    trainer._save(str(tmp_path / "several"), gathered)
    assert (tmp_path / "several" / file).read_bytes() == (tmp_path / "one" / file).read_bytes()


def test_weights_that_are_no_longer_alike_are_both_written(sets: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    trainer = new_trainer(prepare(sft_arguments(sets, tmp_path / "out", role="thinker")))
    gathered = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    gathered["lm_head.weight"] += 1
    trainer._save(str(tmp_path / "several"), dict(gathered))
    written = load_file(tmp_path / "several" / "model.safetensors")
    assert all(written[name].equal(weight) for name, weight in gathered.items())


def test_what_several_processes_on_a_cpu_wrote_is_read_to_each_of_them(tmp_path: Path) -> None:
    written = {"step": torch.arange(3)}
    torch.save(written, tmp_path / "optimizer.pt")
    for number in range(2):
        place = torch.device("cpu", number)
        read = torch.load(tmp_path / "optimizer.pt", map_location=place, weights_only=True)
        assert torch.equal(read["step"], written["step"])

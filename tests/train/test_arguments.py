"""The command line of the scripts, and which arguments are recorded: no place, address or token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from trainings import GRPO, SCRIPT, grpo_arguments, main, sft_arguments

from heavydistill.train.arguments import recorded
from heavydistill.train.sft_config import parse

LEAST = ["--model_name_or_path", "m", "--dataset_name", "s", "--role", "thinker"]


def test_of_defaults_the_precision_alone_is_recorded() -> None:
    assert recorded(parse([*LEAST, "--use_cpu"])) == {"bf16": True, "use_cpu": True}


def test_what_differs_is_told_in_simple_values_and_sorted(tmp_path: Path) -> None:
    keys: dict[str, Any] = {
        "lr_scheduler_type": "cosine",
        "eval_strategy": "epoch",
        "use_peft": True,
        "lr_scheduler_kwargs": '{"num_cycles": 2}',
    }
    found = recorded(sft_arguments("sets", tmp_path, **keys))
    assert found["lr_scheduler_type"] == "cosine"
    assert found["eval_strategy"] == "epoch"
    assert found["use_peft"] is True
    assert found["lr_scheduler_kwargs"] == {"num_cycles": 2}
    assert found["learning_rate"] == 1e-3
    assert list(found) == sorted(found)
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize(
    "keys",
    [
        {"push_to_hub": True, "hub_model_id": "secret/model"},
        {"run_name": "secret"},
        {"logging_dir": "secret"},
        {"trackio_space_id": "secret/space"},
        {"chat_template_path": "secret.jinja"},
        {"model_init_kwargs": '{"token": "secret"}'},
        {"resume_from_checkpoint": "secret/checkpoint-3"},
        {"project": "secret"},
    ],
)
def test_no_place_address_or_token_is_recorded(tmp_path: Path, keys: dict[str, Any]) -> None:
    known = parse([*LEAST, "--use_cpu"])
    keys = {key: value for key, value in keys.items() if hasattr(known.config, key)}
    found = recorded(sft_arguments("sets", tmp_path / "secret", **keys))
    assert "secret" not in json.dumps(found)
    assert str(tmp_path) not in json.dumps(found)


def test_of_grpo_our_own_arguments_are_told_and_no_address(tmp_path: Path) -> None:
    keys = {"format_share": 0.05, "max_accuracy": 0.5, "preset": "dapo", "vllm_server_port": 1}
    keys |= {"vllm_server_base_url": "http://secret:8000"}
    known = recorded(grpo_arguments("sets", tmp_path, **keys))
    assert (known["format_share"], known["max_accuracy"]) == (0.05, 0.5)
    assert (known["preset"], known["epsilon_high"]) == ("dapo", 0.28)
    assert "secret" not in json.dumps(known) and "vllm_server_port" not in known
    assert "dataset_name" not in known and "mode" not in known


@pytest.mark.parametrize(
    ("script", "names"),
    [
        (SCRIPT, ("--dataset_name", "--too_long", "--learning_rate", "--use_dora", "--dry_run")),
        (GRPO, ("--mode", "--preset", "--max_accuracy", "--num_generations", "--use_dora")),
    ],
    ids=["sft", "grpo"],
)
def test_help_begins_with_how_to_use_it(
    script: Path, names: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--help"], script) == 0
    shown = capsys.readouterr().out
    top = shown.splitlines()[:10]
    assert top[0] == f"usage: {script.name} --config FILE [--KEY VALUE ...]"
    assert "heavydistill build" in "\n".join(top)
    assert not {name for name in names if name not in shown}

"""Two phases of the micro student with the real scripts: what one leaves is what the next takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from runs import rows
from trainings import ROOT

from heavydistill.store.sets.folder import read_manifest
from heavydistill.store.training_record import read_record

pytestmark = pytest.mark.timeout(900)

KEYS = {
    "mode": "deliberator",
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "num_generations": 4,
    "per_device_train_batch_size": 4,
    "steps_per_generation": 1,
    "max_completion_length": 160,
    "max_steps": 1,
    "learning_rate": 1e-4,
    "logging_steps": 1,
    "report_to": "none",
    "save_strategy": "no",
    "eval_strategy": "steps",
    "eval_steps": 1,
    "held_out": 2,
    "num_generations_eval": 2,
    "per_device_eval_batch_size": 4,
}


@pytest.mark.slow
def test_a_refilter_gives_the_next_phase_prompts_of_its_model(real: Path, tmp_path: Path) -> None:
    config, out = tmp_path / "deliberator.yaml", tmp_path / "out"
    config.write_text(yaml.safe_dump({**KEYS, "dataset_name": str(real)}), encoding="utf-8")
    file = tmp_path / "phases.yaml"
    tree = {
        "model_name_or_path": "micro-student",
        "output_dir": str(out),
        "launch": ["--config_file", str(ROOT / "configs" / "accelerate" / "single.yaml")],
        "phases": [
            {"name": "bound", "config": str(config), "keys": {"max_accuracy": 0.75}},
            {"name": "own", "config": str(config), "refilter": {"d": 2}},
        ],
    }
    file.write_text(yaml.safe_dump(tree), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "phases.py"), "--config", str(file)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        timeout=800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"The model is in {out / '02-own'}" in done.stdout
    sets = out / "02-own-sets"
    first, second = (read_record(out / name) for name in ("01-bound", "02-own"))
    refiltered = read_manifest(sets).refiltered
    assert refiltered is not None
    assert (refiltered.checkpoint, refiltered.d) == (second.base.name, 2) == ("01-bound", 2)
    assert {row["measured_on"] for row in rows(sets, "rl", "train")} == {"01-bound"}
    assert "was measured on" not in done.stdout
    assert second.base.training == first
    assert [one.name for one in second.sets] == ["02-own-sets"]
    assert not (sets / "trajectories").exists()
    for record in (first, second):
        assert record.result is not None and record.result.steps == 1
        assert {"eval_hm", "eval_v", "eval_pass_at_1"} <= record.result.rollouts.keys()
    votes = [record.result.rollouts["eval_v"].last for record in (first, second) if record.result]
    assert votes[0] == votes[1], "of the same held-out caches"

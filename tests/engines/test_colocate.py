"""GRPO in TRL's colocate mode on real vLLM: what it samples with are the trained weights."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from trainings import command, grpo_flags, last_checkpoint

PROGRAM = Path(__file__).with_name("colocate.py")
COLOCATE = {
    "use_vllm": True,
    "vllm_mode": "colocate",
    "vllm_gpu_memory_utilization": 0.2,
    "gradient_accumulation_steps": 1,
    "steps_per_generation": 1,
    "per_device_train_batch_size": 8,
    "num_generations": 4,
    "max_completion_length": 256,
    "max_steps": 3,
    "dtype": "float32",
}
LORA = {"use_peft": True, "lora_r": 8, "lora_target_modules": "all-linear", "learning_rate": 5e-3}
WHOLE = {"learning_rate": 1e-3}
FLOAT32 = {"ENGINE_DTYPE": "float32"}


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Caches of the student's own attempts, on which it is right sometimes, so that it learns."""
    folder = tmp_path_factory.mktemp("built")
    command(
        *("generate", "--teacher=micro-student", "--k=3", "--d=3"),
        *("--set=problems.size=40", "--set=problems.seed=1000000", f"--out={folder / 'run'}"),
    )
    student = ["--student=micro-student", "--set=validation=0.2"]
    command("build", folder / "run", *student, f"--out={folder / 'sets'}")
    return folder / "sets"


def trained(
    sets: Path | None, out: Path, environment: dict[str, str], **keys: Any
) -> list[tuple[float, float]]:
    """(largest, mean) difference of the log-probabilities in each generation of a training."""
    figures = out.with_suffix(".json")
    flags = grpo_flags(sets, out, **{**COLOCATE, **keys})
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(figures), *flags],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        timeout=800,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "Traceback" not in done.stderr and "Traceback" not in done.stdout
    logged = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    assert any(entry.get("grad_norm", 0.0) > 0 for entry in logged)  # else no weight moves
    return [(largest, mean) for largest, mean in json.loads(figures.read_text())]


@pytest.mark.parametrize("keys", [WHOLE, LORA], ids=["whole", "adapter"])
def test_log_probabilities_of_a_deliberator_agree(sets, tmp_path, keys):
    agree(trained(sets, tmp_path / "out", FLOAT32, **keys))


@pytest.mark.parametrize(
    ("mode", "keys"),
    [
        ("joint", {**WHOLE, "num_generations": 6, "per_device_train_batch_size": 12}),
        pytest.param("thinker", LORA, marks=pytest.mark.slow),
    ],
)
def test_those_of_attempts_agree(tmp_path, mode, keys):
    run = tmp_path / "run.yaml"
    run.write_text(
        "problems: {source: micro, size: 40, seed: 9}\ndomain: brief\n"
        "think: {k: 2, sampling: {max_tokens: 192}}\ndeliberate: {sampling: {max_tokens: 256}}\n",
        "utf-8",
    )
    keys = {**keys, "mode": mode, "run": run}
    keys["max_completion_length"] = 256 if mode == "joint" else 192
    agree(trained(None, tmp_path / "out", FLOAT32, **keys))


def agree(gaps: list[tuple[float, float]]) -> None:
    """In each of three generations, to what rounding in float32 makes of the logits."""
    assert len(gaps) == 3
    for largest, mean in gaps:
        assert largest < 1e-3 and mean < 1e-5


@pytest.mark.slow
def test_in_bfloat16_they_differ_by_rounding(sets, tmp_path):
    gaps = trained(sets, tmp_path / "out", {}, **LORA, dtype="bfloat16")
    assert all(0 < mean < 0.05 for _, mean in gaps)


@pytest.mark.slow
def test_weights_that_are_not_sent_are_seen(sets, tmp_path):
    figures = tmp_path / "out.json"
    with pytest.raises(AssertionError, match="samples from other weights"):
        trained(sets, tmp_path / "out", {**FLOAT32, "UNSENT": "1"}, **WHOLE)
    assert json.loads(figures.read_text())[0][1] < 1e-5  # before the first step


@pytest.mark.slow
def test_a_training_goes_on_from_its_checkpoint(sets, tmp_path):
    keys = {**WHOLE, "save_strategy": "steps", "save_steps": 1}
    out = tmp_path / "out"
    trained(sets, out, FLOAT32, **keys)
    shutil.rmtree(last_checkpoint(out))  # as if it had ended at the second step
    gaps = trained(sets, out, FLOAT32, **keys, resume_from_checkpoint=True)
    assert len(gaps) == 1 and gaps[0][1] < 1e-5

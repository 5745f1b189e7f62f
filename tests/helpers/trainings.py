"""Trainings of the micro student on small sets, for tests: their flags, in this process or not."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from set_folders import manifest
from students import MICRO

from heavydistill.errors import UserError
from heavydistill.store.training_record import (
    BaseModelUsed,
    Launch,
    Result,
    SetsUsed,
    TrainingRecord,
    write_record,
)

if TYPE_CHECKING:
    from heavydistill.train.arguments import TrainArguments
    from heavydistill.train.grpo.train import GrpoConfig
    from heavydistill.train.sft.train import SftConfig

RECORD = TrainingRecord(
    heavydistill="0.1.0",
    versions={"trl": "1.16.0"},
    role="both",
    method="lora",
    base=BaseModelUsed(name="micro-student", revision="0" * 16, template_sha256="0" * 64),
    sets=[
        SetsUsed(
            name="sets",
            role="thinker",
            fraction=0.5,
            rows={"train": 10, "validation": 2},
            left_out={"train": 1, "validation": 0},
            manifest=manifest(),
        )
    ],
    max_length=700,
    sequences=5,
    tokens=3000,
    learnt_tokens=1000,
    arguments={"learning_rate": 1e-4, "optim": "größer"},
    launch=Launch(processes=1, engine="single", device="cpu", attention="sdpa"),
)
"""A training that has not ended."""
RESULT = Result(
    steps=150,
    epochs=3.0,
    train_loss=0.81234,
    eval_loss={"deliberator": 0.9},
    tokens=2_000_000,
    seconds=321.4,
    peak_memory_gib=None,
)

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "sft.py"
GRPO = ROOT / "scripts" / "grpo.py"
DISTILL = ROOT / "scripts" / "distill.py"
# After checkpoint-4 has got its optimizer, the disk takes no more.
SLOW_DISK = """
import time, torch
save = torch.save
def slow(what, where, *rest, **more):
    save(what, where, *rest, **more)
    if "checkpoint-4/optimizer" in str(where):
        time.sleep(3000)
torch.save = slow
"""
LOOKED_AT = {
    "eval_strategy": "steps",
    "eval_steps": 4,
    "held_out": 3,
    "num_generations_eval": 2,
    "per_device_eval_batch_size": 4,
}
"""Keys of GRPO that is measured on a few held-out problems as it goes."""
_USUAL = {
    "model_name_or_path": "micro-student",
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "logging_steps": 1,
    "save_strategy": "no",
}
_USUAL_OF_SFT = {
    "role": "both",
    "per_device_train_batch_size": 2,
    "per_device_eval_batch_size": 1,
    "learning_rate": 1e-3,
}
_USUAL_OF_GRPO = {
    "mode": "deliberator",
    "per_device_train_batch_size": 4,
    "num_generations": 4,
    "max_completion_length": 128,
    "learning_rate": 1e-4,
    "report_to": "none",
}


@dataclass(frozen=True)
class Trained:
    """What a training left, and what was said of it before it began."""

    folder: Path
    record: TrainingRecord
    summary: dict[str, str] = field(default_factory=dict)


def trained_deliberator(folder: Path, prompts: list[str]) -> Path:
    """The micro student with the record of a training of the deliberator on these prompts."""
    folder.mkdir()
    for file in Path(MICRO).iterdir():
        (folder / file.name).symlink_to(file)
    sets = RECORD.sets[0]
    manifest = sets.manifest.model_copy(update={"prompts": prompts})
    sets = sets.model_copy(update={"manifest": manifest, "role": "deliberator"})
    write_record(RECORD.model_copy(update={"sets": [sets], "role": "deliberator"}), folder)
    return folder


def last_checkpoint(folder: Path) -> Path:
    """Of a training."""
    return max(folder.glob("checkpoint-*"), key=lambda path: int(path.name[11:]))


def history(folder: Path) -> list[dict[str, Any]]:
    """All that a training logged before its last checkpoint."""
    state = json.loads((last_checkpoint(folder) / "trainer_state.json").read_text("utf-8"))
    entries: list[dict[str, Any]] = state["log_history"]
    return entries


def logged(folder: Path, name: str) -> list[float]:
    """One figure of that, as often as it was logged."""
    return [entry[name] for entry in history(folder) if name in entry]


def flags(
    sets: Path | str | None, out: Path | str, usual: dict[str, Any] = _USUAL_OF_SFT, **keys: Any
) -> list[str]:
    """Those of a short training; a key that is None is not given."""
    given = {**_USUAL, **usual, "dataset_name": sets, "output_dir": out, **keys}
    pairs = ((f"--{key}", str(value)) for key, value in given.items() if value is not None)
    return [part for pair in pairs for part in pair]


def grpo_flags(sets: Path | str | None, out: Path | str, **keys: Any) -> list[str]:
    """Those of a short training by GRPO; a key that is None is not given."""
    return flags(sets, out, _USUAL_OF_GRPO, **keys)


def sft_arguments(
    sets: Path | str | None, out: Path | str, **keys: Any
) -> TrainArguments[SftConfig]:
    """The same, as the script reads them."""
    from heavydistill.train.sft.train import parse

    return parse(flags(sets, out, **keys))


def grpo_arguments(
    sets: Path | str | None, out: Path | str, **keys: Any
) -> TrainArguments[GrpoConfig]:
    """The same, as the script reads them."""
    from heavydistill.train.grpo.train import parse

    return parse(grpo_flags(sets, out, **keys))


def written(folder: Path, least: dict[str, Any], **keys: Any) -> str:
    """A file with the least keys and these; None takes one out."""
    tree = {key: value for key, value in {**least, **keys}.items() if value is not None}
    path = folder / "keys.yaml"
    path.write_text(yaml.safe_dump(tree), encoding="utf-8")
    return str(path)


def run_file(folder: Path, size: int = 20, more: str = "") -> Path:
    """The configuration of a run on so many micro problems."""
    file = folder / "run.yaml"
    problems = f"problems: {{source: micro, size: {size}, seed: 9}}\ndomain: brief\n"
    file.write_text(f"{problems}{more}", "utf-8")
    return file


def broken_off(folder: Path, last: int, copy: Path | None = None) -> Path:
    """A training, or a copy of it, as if it had ended before it saved its last checkpoint."""
    folder = shutil.copytree(folder, copy) if copy else folder
    shutil.rmtree(folder / f"checkpoint-{last}")
    for name in ("config.json", "model.safetensors"):
        (folder / name).unlink()
    return folder


def weights(folder: Path) -> dict[str, Any]:
    """Of a model or an adapter."""
    from safetensors.torch import load_file

    (file,) = folder.glob("*model.safetensors")
    found: dict[str, Any] = load_file(file)
    return found


def same_weights(one: Path, other: Path) -> bool:
    """To the byte."""
    left, right = ((folder / "model.safetensors").read_bytes() for folder in (one, other))
    return left == right


def refusal(call: Callable[..., Any], *given: Any, **keys: Any) -> str:
    """What the error says with which a call of ours refuses this."""
    with pytest.raises(UserError) as raised:
        call(*given, **keys)
    return str(raised.value)


def command(*arguments: object) -> None:
    """The command line, in a process of its own."""
    code = "from heavydistill.cli.app import main; main()"
    subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        check=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def main(given: list[str], script: Path = SCRIPT) -> int:
    """The exit code of a script, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(script), *given])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(script), run_name="__main__")
    return int(ended.value.code or 0)


def start(
    given: list[str], before: str = "", script: Path = SCRIPT, **environment: str
) -> subprocess.Popen[str]:
    """The script in a process of its own, in which the code ``before`` is run first."""
    code = f"{before}\nimport runpy, sys; sys.argv = sys.argv[1:]\n"
    code += "runpy.run_path(sys.argv[0], run_name='__main__')"
    return subprocess.Popen(
        [sys.executable, "-c", code, str(script), *given],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


def run(
    given: list[str], before: str = "", script: Path = SCRIPT, **environment: str
) -> tuple[int, str]:
    """(exit code, what it said, with single blanks) of such a process."""
    with start(given, before, script, **environment) as process:
        said, _ = process.communicate(timeout=800)
    return process.returncode, " ".join(said.split())


def await_file(path: Path, process: subprocess.Popen[str]) -> None:
    """Return as soon as a process has written a file."""
    until = time.monotonic() + 600
    while not path.exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until
        time.sleep(0.05)


def run_module(*module: str) -> str:
    """What a module that starts processes says in the end."""
    done = subprocess.run(
        [sys.executable, "-m", *module],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=800,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
        },
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def in_two_processes(program: str, folder: Path, *more: str) -> str:
    """What a program says in two processes; it is given the folder, and more words."""
    (folder / "program.py").write_text(program, encoding="utf-8")
    launch = ROOT / "configs" / "accelerate" / "cpu2.yaml"
    flags = ["--config_file", str(launch), "--main_process_port", "0"]
    words = [str(folder / "program.py"), str(folder), *more]
    return run_module("accelerate.commands.launch", *flags, *words)

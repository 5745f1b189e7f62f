"""Train by GRPO in several phases, each starting from the model of the previous one.

    python scripts/phases.py --config configs/grpo/phases/alternating.yaml

The file lists the phases, each with a file and keys of `heavydistill grpo`:

    model_name_or_path: out/student   # model of the first phase
    output_dir: out/alternating
    launch: [--config_file, configs/accelerate/single.yaml]
    rounds: 2                         # repetitions of all phases
    phases:
    - name: thinker
      config: configs/grpo/1gpu/thinker.yaml
      # Keys win over the file.
      keys: {pass_at_k: 4, scale_rewards: none, max_steps: 100, held_out_from: sets/glm}
    - name: deliberator
      config: configs/grpo/1gpu/deliberator.yaml
      keys: {dataset_name: sets/glm, max_steps: 100}
      refilter: {d: 8}  # measures the prompts with the current model before the phase
    - name: mixed
      config: configs/grpo/1gpu/deliberator.yaml
      keys: {dataset_name: sets/glm, eval_strategy: steps, held_out: 512, held_out_none: true}
      step_down: 0.03  # the phase is repeated until HM without instructions loses less
      most: 4          # and ends all phases after so many repetitions

A phase has up to three commands, which are printed as they start: `heavydistill refilter` into
NN-NAME-sets, `accelerate launch scripts/grpo.py` into NN-NAME (with its keys in NN-NAME.yaml), and
scripts/merge.py into NN-NAME-merged if it trained an adapter. --dry_run prints all commands and
runs none. After a crash or Ctrl-C the same command continues with the unfinished one.

Exit codes: 0 done; 1 a command failed; 2 the file is wrong; 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, model_validator

from heavydistill.config.yaml import Section, parse, read_yaml
from heavydistill.errors import ConfigError, RunError
from heavydistill.store.sets.folder import MANIFEST
from heavydistill.store.training_record import NONE_LOSES_AT_MOST, RECORD, Result, read_record
from heavydistill.train.checkpoints import is_whole
from heavydistill.train.launch import exit_code

HERE = Path(__file__).parent
CLI = [sys.executable, "-c", "from heavydistill.cli.app import main; main()"]
LAUNCH = [sys.executable, "-m", "accelerate.commands.launch"]


class Phase(Section):
    """A training of the sequence."""

    name: str
    config: str
    keys: dict[str, Any] = Field(default_factory=dict)
    refilter: dict[str, Any] | None = None
    step_down: float | None = Field(None, gt=0, le=1)
    most: int = Field(3, ge=1)

    @model_validator(mode="after")
    def _is_measured(self) -> Phase:
        if self.step_down is not None and not self.keys.get("held_out_none"):
            raise ValueError(
                f"{self.name} has step_down, but does not measure HM without instructions. Add "
                "held_out_none: true and eval_strategy: steps to its keys."
            )
        return self


class Phases(Section):
    """The content of the file."""

    model_name_or_path: str
    output_dir: str
    launch: list[str] = Field(default_factory=list)
    rounds: int = Field(1, ge=1)
    phases: list[Phase] = Field(min_length=1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", type=Path, required=True, help="YAML file with the phases")
    parser.add_argument("--dry_run", action="store_true", help="print the commands, run none")
    chosen = parser.parse_args()
    phases = parse(Phases, read_yaml(chosen.config), chosen.config)
    run = print_command if chosen.dry_run else run_command
    model = phases.model_name_or_path
    queue, number, failed = [*phases.phases * phases.rounds], 0, 0
    while queue:
        phase, number = queue.pop(0), number + 1
        folder = Path(phases.output_dir) / f"{number:02}-{phase.name}"
        sets, keys = keys_of(phase, folder, model)
        file, result = Path(f"{folder}.yaml"), result_of(folder)
        if result and read_yaml(file) != keys:
            raise ConfigError(
                f"{folder} was trained with other keys than {chosen.config} has now: see {file}",
                "Restore the old keys, or give another output_dir.",
            )
        if not result:
            if phase.refilter is not None and not (Path(keys["dataset_name"]) / MANIFEST).is_file():
                run(refiltering(sets, phase.refilter, model, keys["dataset_name"]))
            if not chosen.dry_run:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(yaml.safe_dump(keys), encoding="utf-8")
            goes_on = any(is_whole(checkpoint) for checkpoint in folder.glob("checkpoint-*"))
            resume = ["--resume_from_checkpoint", "true"] * goes_on
            run([*LAUNCH, *phases.launch, str(HERE / "grpo.py"), "--config", str(file), *resume])
            result = result_of(folder)
        if result and result.is_unlearnt:
            raise RunError(
                f"{folder} learnt nothing, because no response earned a reward",
                f"Remove {folder} and raise max_completion_length in the keys of {phase.name}.",
            )
        model = str(folder)
        if (folder / "adapter_config.json").is_file():
            model = f"{folder}-merged"
            if not Path(model).is_dir():
                merge = str(HERE / "merge.py")
                run([sys.executable, merge, "--adapter", str(folder), "--out", model])
        if result and any(alarm.action == "stop" for alarm in result.alarms):
            print(f"A guard stopped {folder}, so no other phase follows.", flush=True)
            break
        failed = failed + 1 if result and not steps_down(phase, folder, result, failed) else 0
        queue[:0] = [phase] * bool(failed)
    print(f"The model {'will be' if chosen.dry_run else 'is'} in {model}", flush=True)


def steps_down(phase: Phase, folder: Path, result: Result, failed: int) -> bool:
    """Whether the next phase follows, after so many failures of this one; else it is repeated.

    It does if the one-sided 95 % bound of the loss of HM without instructions is below the margin.
    A point estimate would step down by chance.
    """
    if phase.step_down is None:
        return True
    if NONE_LOSES_AT_MOST not in result.rollouts:
        raise ConfigError(
            f"{folder} has not measured {NONE_LOSES_AT_MOST}, by which {phase.name} steps down",
            "Set eval_strategy: steps and an eval_steps within max_steps in its keys.",
        )
    bound = result.rollouts[NONE_LOSES_AT_MOST].last
    found = f"Without instructions {folder} loses at most {100 * bound:.1f} points of HM"
    if bound < phase.step_down:
        print(f"{found}: the next phase follows.", flush=True)
        return True
    if failed + 1 == phase.most:
        raise RunError(
            f"{found}, not below the margin of {100 * phase.step_down:g}, after {phase.most} times "
            f"{phase.name}",
            "Raise most to go on, or held_out for a narrower bound; or deliberate with "
            "instructions.",
        )
    print(f"{found}, the margin is {100 * phase.step_down:g}: {phase.name} again.", flush=True)
    return False


def keys_of(phase: Phase, folder: Path, model: str) -> tuple[str, dict[str, Any]]:
    """(the sets of a phase before a refilter, all keys of the phase)."""
    keys = {**read_yaml(Path(phase.config)), **phase.keys}
    keys |= {"model_name_or_path": model, "output_dir": str(folder)}
    sets = str(keys.get("dataset_name"))
    if phase.refilter is not None:
        keys["dataset_name"] = f"{folder}-sets"
        if keys.get("eval_strategy", "no") != "no" or keys.get("eval_on_start"):
            # A refilter drops the attempts, whose vote the evaluation needs.
            keys.setdefault("held_out_from", sets)
    return sets, keys


def refiltering(sets: str, chosen: dict[str, Any], model: str, out: str) -> list[str]:
    """The command that measures the prompts of sets with a model."""
    flags = [part for key in chosen for part in ("--set", f"{key}={json.dumps(chosen[key])}")]
    return [*CLI, "refilter", sets, "--checkpoint", model, "--out", out, *flags]


def result_of(folder: Path) -> Result | None:
    """The result of a training; None if it has not ended."""
    return read_record(folder).result if (folder / RECORD).is_file() else None


def print_command(command: list[str]) -> None:
    print(f"$ {shlex.join(command)}", flush=True)


def run_command(command: list[str]) -> None:
    """Run a command in a session of its own; end the session if this script is interrupted."""
    print_command(command)
    process = subprocess.Popen(command, start_new_session=True)
    try:
        code = process.wait()
    except KeyboardInterrupt:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
        raise
    if code:
        raise RunError(
            f"This command ended with exit code {code}: {shlex.join(command)}",
            "Correct the error above, and give the same command again: it continues there.",
        )


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(exit_code(main, "The same command continues."))

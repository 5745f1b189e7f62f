"""Several GRPO trainings in a row from one file, each of which begins with what the last one left.

    model_name_or_path: out/student
    output_dir: out/alternating
    launch: [--config_file, configs/accelerate/single.yaml]
    rounds: 2
    phases:
    - name: thinker
      config: configs/grpo/1gpu/thinker.yaml
      keys: {pass_at_k: 4, scale_rewards: none, max_steps: 100, held_out_from: sets/glm}
    - name: deliberator
      config: configs/grpo/1gpu/deliberator.yaml
      keys: {dataset_name: sets/glm, max_steps: 100}
      refilter: {d: 8}

Thinker and deliberator alternate like that; a curriculum is two phases of a deliberator, first with
``max_accuracy`` on its sets, then with ``refilter``: before the phase ``heavydistill refilter``
makes the prompts of its ``dataset_name`` anew, for the model as it is then. The caches stay those
of ``dataset_name``: what the thinker of an earlier phase would write never stands in one. For that,
``heavydistill generate`` with it and ``curate`` come between two files of phases.

Each phase is scripts/grpo.py in processes of its own, through ``accelerate launch``. In the output
folder there are, for each:

    NN-NAME.yaml           all of its keys: those of ``config``, over which ``keys`` win
    NN-NAME/               what scripts/grpo.py writes
    NN-NAME-refilter.yaml  if it has ``refilter``: all of its keys
    NN-NAME-sets/          likewise, the new prompts
    NN-NAME-merged/        the whole model, if it is an adapter, for the next phase

The same command goes on after a crash: what is done is not done again, and a phase that has begun
goes on from its last whole checkpoint. A phase that a guard ended with ``stop`` is the last one.

Not covered: phases at the same time; caches of the model as it is at a phase (mode ``joint`` has
them); new successes of a thinker's problems, which stay those of the attempts in ``dataset_name``.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field

from heavydistill.config.yaml import Section, form, parse, read_yaml
from heavydistill.errors import ConfigError, RunError
from heavydistill.store.sets.folder import MANIFEST
from heavydistill.store.training_record import RECORD, Result, read_record
from heavydistill.train import checkpoints

_CLI = "from heavydistill.cli.app import main; main()"
_SCRIPT, _MERGE = "grpo.py", "merge.py"
_OWN = ("model_name_or_path", "output_dir", "resume_from_checkpoint", "dry_run")
_REFILTER = "-refilter.yaml"
_OF_REFILTER = ("sets", "checkpoint", "out")
_GONE_S = 30.0
_MENDABLE = (2,)
# `accelerate launch` ends with 1 for all but 0, and a check ends badly for what can be mended.
_MENDABLE_UNTRAINED = (1, 2)


class Phase(Section):
    """One training."""

    name: Annotated[
        str,
        form(
            r"[A-Za-z0-9][\w-]*", "must begin with a letter or digit, and hold only those, _ and -"
        ),
    ]
    config: str
    """File of scripts/grpo.py."""
    keys: dict[str, Any] = Field(default_factory=dict)
    """Win over the file."""
    refilter: dict[str, Any] | None = None
    """Dotted keys of ``heavydistill refilter``, such as ``d``; may be empty."""


class Phases(Section):
    """All of them."""

    model_name_or_path: str
    """What the first one begins with."""
    output_dir: str
    launch: list[str] = Field(default_factory=list)
    """Flags of ``accelerate launch``."""
    rounds: int = Field(1, ge=1)
    """How often all phases follow each other."""
    phases: list[Phase] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class _Turn:
    """A phase in its place.

    Attributes:
        phase: Likewise.
        tree: Its keys, but for the model and the new prompts.
        folder: Of its training.
    """

    phase: Phase
    tree: dict[str, Any]
    folder: Path

    def beside(self, ending: str) -> Path:
        """A path next to the folder."""
        return self.folder.with_name(f"{self.folder.name}{ending}")


def load_phases(path: Path) -> Phases:
    """Read the file.

    Raises:
        ConfigError: It is none, or a key or value is none.
    """
    return parse(Phases, read_yaml(path), f"{path}: ", "Correct the value in the file.")


def run(path: Path, scripts: Path, dry_run: bool = False) -> Path:
    """Carry out what is not done yet.

    Args:
        path: The file.
        scripts: Folder with grpo.py and merge.py.
        dry_run: Check every phase with the model and the prompts that are there by now, and write
            nothing.

    Returns:
        Folder of the last model that is there; the first one's if there is none yet.

    Raises:
        ConfigError: The file, or that of a phase, is none; or a phase that is done was another one;
            or a phase cannot begin as it is asked for.
        RunError: A phase broke; the same command goes on with it.
    """
    phases = load_phases(path)
    turns = _turns(phases)
    model, total = phases.model_name_or_path, len(turns)
    with _terminated_as_interrupted():
        for number, turn in enumerate(turns, start=1):
            title = f"Phase {number} of {total}, {turn.folder.name}"
            result = _result(turn.folder)
            if result and result.is_unlearnt:
                raise RunError(
                    f"{title} learnt nothing: no response earned a reward",
                    f"Remove {turn.folder}, raise max_completion_length in its keys, and give the "
                    "same command again.",
                )
            if turn.phase.refilter is not None and _has_sets(turn):
                _check_same(turn.beside(_REFILTER), _asked(turn, model))
            if result:
                _check_same(turn.beside(".yaml"), _keys(turn, model))
                print(f"{title}: done", flush=True)
            elif dry_run:
                print(f"{title}: checked with {model}", flush=True)
                _check(turn, model, phases, scripts, title)
                continue
            else:
                print(f"{title}: begins with {model}", flush=True)
                _train(turn, model, phases, scripts, title)
                result = _result(turn.folder)
                if result is None:
                    raise RunError(f"{title} left no {RECORD} with a result", "Train it again.")
            model = _whole(turn, scripts, title, model if dry_run else None)
            if any(alarm.action == "stop" for alarm in result.alarms):
                print(f"{title}: a guard stopped it, so no other phase follows.", flush=True)
                break
    return Path(model)


def _turns(phases: Phases) -> list[_Turn]:
    """All phases of all rounds.

    Raises:
        ConfigError: A file is none, or a key is not for a phase.
    """
    names = [phase.name for phase in phases.phases]
    if len(set(names)) < len(names):
        raise ConfigError("phases: two of them have one name", "Give each a name of its own.")
    turns: list[_Turn] = []
    for phase in phases.phases * phases.rounds:
        if own := [key for key in _OWN if key in phase.keys]:
            raise ConfigError(
                f"phases: {phase.name}: {own[0]} is not for a phase to say",
                "Leave it out of keys; the model and the folder stand at the top of the file.",
            )
        given = read_yaml(Path(phase.config))
        tree = {key: value for key, value in given.items() if key not in _OWN} | phase.keys
        if phase.refilter is not None:
            if own := [key for key in _OF_REFILTER if key in phase.refilter]:
                raise ConfigError(
                    f"phases: {phase.name}: refilter.{own[0]} follows from the phase",
                    "Leave it out.",
                )
            if not (Path(str(tree.get("dataset_name"))) / MANIFEST).is_file():
                raise ConfigError(
                    f"phases: {phase.name}: there are no sets to refilter in "
                    f"{tree.get('dataset_name')}",
                    "Give dataset_name, a folder that `heavydistill build` wrote, in its keys.",
                )
        folder = Path(phases.output_dir) / f"{len(turns) + 1:02}-{phase.name}"
        turns.append(_Turn(phase, tree, folder))
    return turns


def _keys(turn: _Turn, model: str) -> dict[str, Any]:
    """All keys of a phase."""
    keys = {**turn.tree, "model_name_or_path": model, "output_dir": str(turn.folder)}
    if turn.phase.refilter is not None:
        keys["dataset_name"] = str(turn.beside("-sets"))
        if keys.get("eval_strategy", "no") != "no":
            # A refilter leaves out the attempts, whose vote the evaluation looks at.
            keys.setdefault("held_out_from", turn.tree["dataset_name"])
    return keys


def _result(folder: Path) -> Result | None:
    """What came out of a training; None as long as it has not ended."""
    return read_record(folder).result if (folder / RECORD).is_file() else None


def _check_same(file: Path, now: dict[str, Any]) -> None:
    """See to it that what is done, with the keys in a file, is what is asked for."""
    before = read_yaml(file)
    for key in sorted(before.keys() | now.keys()):
        if before.get(key) != now.get(key):
            raise ConfigError(
                f"{file.stem} is done with {key} {before.get(key)!r}, and now it is "
                f"{now.get(key)!r}",
                f"Put back what it was, or name another output_dir; {file} has all of its keys.",
            )


def _train(turn: _Turn, model: str, phases: Phases, scripts: Path, title: str) -> None:
    turn.folder.parent.mkdir(parents=True, exist_ok=True)
    if turn.phase.refilter is not None and not _has_sets(turn):
        _write(_asked(turn, model), turn.beside(_REFILTER))
        _call(_refiltering(turn, model), f"{title}: its refilter")
    file = turn.beside(".yaml")
    _write(_keys(turn, model), file)
    _call(_training(file, phases, scripts, _going_on(turn.folder)), title)


def _check(turn: _Turn, model: str, phases: Phases, scripts: Path, title: str) -> None:
    """As ``_train``, without writing; the sets are those before the refilter."""
    keys = _keys(turn, model)
    if turn.phase.refilter is not None and not _has_sets(turn):
        keys["dataset_name"] = turn.tree["dataset_name"]
        _call([*_refiltering(turn, model), "--dry-run"], f"{title}: its refilter")
    going_on = ["--resume_from_checkpoint", "true"] * _has_whole(turn.folder)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{turn.folder.name}.yaml"
        file.write_text(yaml.safe_dump(keys), encoding="utf-8")
        command = _training(file, phases, scripts, [*going_on, "--dry_run", "true"])
        _call(command, title, _MENDABLE_UNTRAINED)


def _asked(turn: _Turn, model: str) -> dict[str, Any]:
    """The keys of a refilter."""
    sets = str(turn.tree["dataset_name"])
    return {**(turn.phase.refilter or {}), "sets": sets, "checkpoint": model}


def _refiltering(turn: _Turn, model: str) -> list[str]:
    asked = _asked(turn, model)
    where = [asked.pop("sets"), "--checkpoint", asked.pop("checkpoint")]
    chosen = [part for key in asked for part in ("--set", f"{key}={json.dumps(asked[key])}")]
    out = ["--out", str(turn.beside("-sets"))]
    return [sys.executable, "-c", _CLI, "refilter", *where, *out, *chosen]


def _has_sets(turn: _Turn) -> bool:
    """Whether the prompts were made anew."""
    return (turn.beside("-sets") / MANIFEST).is_file()


def _write(keys: dict[str, Any], file: Path) -> None:
    new = file.with_name(f"{file.name}.new")
    new.write_text(yaml.safe_dump(keys), encoding="utf-8")
    new.replace(file)


def _training(file: Path, phases: Phases, scripts: Path, more: list[str]) -> list[str]:
    launcher = [sys.executable, "-m", "accelerate.commands.launch", *phases.launch]
    return [*launcher, str(scripts / _SCRIPT), "--config", str(file), *more]


def _going_on(folder: Path) -> list[str]:
    """Flags with which a training goes on; one with nothing to go on from is removed."""
    if _has_whole(folder):
        return ["--resume_from_checkpoint", "true"]
    if (folder / RECORD).is_file():
        shutil.rmtree(folder)
        print(f"Removed {folder}: it has no checkpoint to go on from.", flush=True)
    return []


def _has_whole(folder: Path) -> bool:
    return any(checkpoints.is_whole(checkpoint) for checkpoint in folder.glob("checkpoint-*"))


def _whole(turn: _Turn, scripts: Path, title: str, before: str | None) -> str:
    """The whole model of a phase that is done.

    Args:
        turn: The phase.
        scripts: As of ``run``.
        title: Of the phase.
        before: The model before it, which stands for one that was not merged yet; None merges it.
    """
    if not (turn.folder / "adapter_config.json").is_file():
        return str(turn.folder)
    merged = turn.beside("-merged")
    if not merged.is_dir():
        if before:
            return before
        where = ["--adapter", str(turn.folder), "--out", str(merged)]
        _call([sys.executable, str(scripts / _MERGE), *where], f"{title}: merging its adapter")
    return str(merged)


def _call(command: list[str], what: str, mendable: Collection[int] = _MENDABLE) -> None:
    """Run a program, and end it and all that it started if this one is interrupted.

    Args:
        command: The program.
        what: It does.
        mendable: Its exit codes for what the user can mend.

    Raises:
        ConfigError, RunError: It did not end well; its message is on the terminal.
    """
    process = subprocess.Popen(command, start_new_session=True)
    try:
        code = process.wait()
    except KeyboardInterrupt:
        # Ctrl-C does not reach a session of its own.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
        process.wait()
        _await_group(process.pid)
        raise
    if code:
        kind = ConfigError if code in mendable else RunError
        raise kind(
            f"{what} ended with exit code {code}: {shlex.join(command)}",
            "Mend what it says above, and give the same command again: it goes on there.",
        )


def _await_group(group: int) -> None:
    """Until a launcher's processes have ended as well; none is left after a while."""
    deadline = time.monotonic() + _GONE_S
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            time.sleep(0.1)
        os.killpg(group, signal.SIGKILL)


@contextlib.contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends what was started here as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

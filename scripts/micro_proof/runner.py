"""Runs stages as processes, two at once if there are two cores, and goes on where it was stopped.

A finished stage has a mark beside its folder: the command, seconds and processor seconds. Whatever
a killed stage has written stays, since the same command continues it: runs have a journal, and
trainings a checkpoint. A stage whose mark has another command, or is older than that of a stage
which it was made from, is refused and never mixed with new ones. Not covered: files changed by
hand, and other configurations or code behind the same command.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from heavydistill.errors import ConfigError
from micro_proof.stages import Stage, log_of

_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Done:
    """What is known of a finished stage."""

    command: str
    seconds: float  # from start to end, of the last start
    cpu_seconds: float  # of all its processes, of the last start


class Runner:
    """Runs the stages of an output folder."""

    def __init__(self, out: Path, jobs: int, say: Callable[[str], None]) -> None:
        self.out = out
        self.jobs = jobs
        self.say = say

    def done(self, name: str) -> Done | None:
        """The mark of a stage; None if it is not finished."""
        try:
            return Done(**json.loads(self._mark(name).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    def run(self, stages: Iterable[Stage], until: float) -> list[Stage]:
        """Run all stages that are not done, and return those left when ``until`` has passed.

        No stage begins after ``until``, a time as of ``time.monotonic``.

        Raises:
            ConfigError: A stage fails, and running ones are stopped; or as ``left`` raises.
        """
        left = self.left(stages)
        running: dict[Stage, tuple[subprocess.Popen[bytes], float]] = {}
        try:
            while running or (left and time.monotonic() < until):
                for stage in list(left) if time.monotonic() < until else []:
                    if len(running) < self.jobs and all(self.done(need) for need in stage.needs):
                        left.remove(stage)
                        running[stage] = (self._start(stage), time.monotonic())
                for stage in [each for each in running if self._has_ended(each, *running[each])]:
                    del running[stage]
                time.sleep(_POLL_S)
        finally:
            for process, _ in running.values():
                process.terminate()
            for process, _ in running.values():
                process.wait()
        return left

    def left(self, stages: Iterable[Stage]) -> list[Stage]:
        """The stages that are not done.

        Raises:
            ConfigError: A done stage was made by another command, or from what is not there now.
        """
        return [stage for stage in stages if not self._is_done(stage)]

    def _is_done(self, stage: Stage) -> bool:
        done, made = self.done(stage.name), self._mark(stage.name)
        if done is None:
            return False
        why = ""
        for need in stage.needs:
            mark = self._mark(need)
            if not mark.exists() or mark.stat().st_mtime > made.stat().st_mtime:
                why = f"before {need}, which it is made from"
        if not why and done.command != (command := _written(stage.command())):
            why = f"by another command: {done.command}. Now it is: {command}"
        if why:
            raise ConfigError(
                f"{self.out / stage.name} was made {why}",
                f"Give another --out, or remove {made}, that folder and all that is made from it.",
            )
        return True

    def _start(self, stage: Stage) -> subprocess.Popen[bytes]:
        log = log_of(self.out, stage.name)
        log.parent.mkdir(parents=True, exist_ok=True)
        command = stage.command()
        if any((self.out / stage.name).glob("checkpoint-*/whole.json")):
            command = [*command, "--resume_from_checkpoint", "true"]
        self.say(f"{stage.name}: begins, about {stage.minutes:g} min; log: {log}")
        with log.open("ab") as file:
            return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)

    def _has_ended(self, stage: Stage, process: subprocess.Popen[bytes], began: float) -> bool:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        if not pid:
            return False
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode and not self._is_whole(stage, process.returncode):
            raise ConfigError(
                f"{stage.name} ended with {process.returncode}; its log has why: "
                f"{log_of(self.out, stage.name)}",
                "Mend it and give the same command again: it continues.",
            )
        seconds = time.monotonic() - began
        done = Done(_written(stage.command()), seconds, used.ru_utime + used.ru_stime)
        mark = self._mark(stage.name)
        unfinished = mark.with_suffix(".part")
        unfinished.write_text(json.dumps(dataclasses.asdict(done), indent=1), encoding="utf-8")
        unfinished.replace(mark)
        self.say(f"{stage.name}: done in {seconds / 60:.1f} min")
        return True

    def _is_whole(self, stage: Stage, code: int) -> bool:
        """Whether a run is complete that ended with 1: problems had too few usable attempts."""
        return code == 1 and (self.out / stage.name / "summary.json").exists()

    def _mark(self, name: str) -> Path:
        return self.out / f"{name}.done.json"


def _written(command: list[str]) -> str:
    """The command without the interpreter, whose place may change."""
    return shlex.join(command[1:])

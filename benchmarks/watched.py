"""Runs a program and tells what each of its processes took. Linux only: it reads ``/proc``.

A process is looked at ten times a second, so what it takes in its last tenth is missed.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

_EVERY_S = 0.1
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Process:
    """What one process took.

    Attributes:
        name: Of its step, if it is one.
        cpu_s: In user and system mode.
        peak_mib: Most resident memory; pages shared with its siblings count for each.
    """

    name: str
    cpu_s: float
    peak_mib: float


@dataclass
class Watched:
    """What a program took.

    Attributes:
        wall_s: From before its start to after its end.
        processes: By their ids.
    """

    wall_s: float = 0.0
    processes: dict[int, Process] = field(default_factory=dict)

    @property
    def cpu_s(self) -> float:
        return sum(process.cpu_s for process in self.processes.values())

    @property
    def peak_mib(self) -> float:
        """Of its largest process."""
        return max(process.peak_mib for process in self.processes.values())


def run(command: list[str], env: dict[str, str]) -> Watched:
    """Run a command to its end.

    Raises:
        RuntimeError: It failed; with what it wrote.
    """
    watched = Watched()
    started = time.perf_counter()
    with tempfile.TemporaryFile("w+") as said:
        program = subprocess.Popen(command, env=os.environ | env, stdout=said, stderr=said)
        while program.poll() is None:
            _look(program.pid, watched.processes)
            time.sleep(_EVERY_S)
        watched.wall_s = time.perf_counter() - started
        said.seek(0)
        if program.returncode:
            raise RuntimeError(f"{command[:3]} ended with {program.returncode}:\n{said.read()}")
    return watched


def _look(pid: int, found: dict[int, Process], root: bool = True) -> None:
    folder = Path(f"/proc/{pid}")
    try:
        # The name is in parentheses, and may hold blanks.
        name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
        fields = rest.split()
        command = (folder / "cmdline").read_bytes()
        status = (folder / "status").read_text()
        children = [
            int(child)
            for task in (folder / "task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except (FileNotFoundError, ProcessLookupError):
        return
    peak = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")]
    if peak:  # else it has ended
        cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS
        found[pid] = Process(_named(name, command, root), cpu_s, peak[0] / 1024)
    for child in children:
        _look(child, found, root=False)


def _named(name: str, command: bytes, root: bool) -> str:
    if root:
        return "main process"
    if b"resource_tracker" in command:
        return "resource tracker"
    if b"forkserver" in command and name.startswith("python"):
        return "fork server"
    return name

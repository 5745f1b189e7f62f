"""Runs a command until this process's standard input is closed, then ends all its processes.

    python -I supervisor.py COMMAND ...

Standard input is a pipe whose other end the caller holds. If the caller ends, even by ``kill -9``,
the system closes the pipe. Then, as on SIGTERM, the command gets SIGTERM, followed by its
descendants, and all processes that remain after ``GRACE_S`` are killed. Orphaned descendants become
children of this process, so that those in separate sessions are found as well. If the command ends
by itself, its descendants are killed at once.

Exits with the code of the command, or 128 + N if signal N ended it. Linux only. Imports only the
standard library, so that it starts at once in any environment.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
from pathlib import Path
from types import FrameType

GRACE_S = 10.0
_POLL_S = 0.1
_PR_SET_CHILD_SUBREAPER = 36


def main(command: list[str]) -> int:
    """Run the command; returns the exit code."""
    signals: list[int] = []

    def tell(signum: int, frame: FrameType | None) -> None:
        signals.append(signum)

    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, tell)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    no_input = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    server = os.posix_spawnp(command[0], command, os.environ, file_actions=[no_input])
    ended: dict[int, int] = {}
    while _reap(ended) and server not in ended and not signals:
        # Nothing is ever written, so a readable pipe is a closed pipe.
        if select.select([0], [], [], _POLL_S)[0]:
            break
    deadline = time.monotonic()
    if server not in ended:
        deadline += GRACE_S
        os.kill(server, signal.SIGTERM)  # allows it to end its child processes properly
    while _reap(ended) and server not in ended and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    _signal_family(signal.SIGTERM)
    while _reap(ended):
        time.sleep(_POLL_S)
        if time.monotonic() > deadline:
            _signal_family(signal.SIGKILL)
    return ended[server] if ended[server] >= 0 else 128 - ended[server]


def _reap(ended: dict[int, int]) -> bool:
    """Collect the exit codes of ended children; returns whether any child is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if not pid:
            return True
        ended[pid] = os.waitstatus_to_exitcode(status)


def _signal_family(signum: signal.Signals) -> None:
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_bytes()
        except OSError:  # it has already ended
            continue
        parents[int(folder.name)] = int(stat.rpartition(b")")[2].split()[1])
    family = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    for pid in family - {os.getpid()}:
        try:
            os.kill(pid, signum)
        except ProcessLookupError:
            continue


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What Ctrl-C does to a command at swept moments of its start.

    python benchmarks/interrupts.py                                  # generate, 50 starts
    python benchmarks/interrupts.py --tries 10 --seconds 8 -- python scripts/sft.py --help

Each start runs in a session of its own, with an empty working folder, and gets SIGINT for its
whole process group, as a terminal sends it. Prints how each ended: exit code, seconds to the end,
lines of tracebacks, processes that are left. One that does not end within ``--patience`` seconds
is shown by py-spy, if that is installed, and killed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

COMMAND = [
    *(str(Path(sys.executable).parent / "heavydistill"), "generate", "--k=4", "--d=1"),
    *("--set=problems.size=64", "--out=run"),
]
_LEFT_S = 5.0  # after which a process of an ended command is one that it left behind


@dataclass(frozen=True, slots=True)
class End:
    """How a command ended.

    Attributes:
        code: Its exit code; None if it had to be killed.
        seconds: From the signal to the end.
        printed: Both of its streams.
        left: Processes of its session that outlived it.
    """

    code: int | None
    seconds: float
    printed: str
    left: int

    @property
    def kind(self) -> str:
        parts = ["did not end" if self.code is None else f"exit code {self.code}"]
        if "Traceback" in self.printed or "Exception ignored" in self.printed:
            parts.append("with a traceback")
        if self.left:
            parts.append(f"leaves {self.left} process(es)")
        return ", ".join(parts)


def interrupt(
    command: list[str], seconds: float, patience_s: float, signum: int = signal.SIGINT
) -> End:
    """Start a command, send a signal to its group after so many seconds, and await its end."""
    folder = Path(tempfile.mkdtemp(prefix="heavydistill-interrupt-"))
    try:
        with (folder / "printed").open("w+b") as printed:
            process = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
            sent = time.monotonic()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signum)
            try:
                code: int | None = process.wait(patience_s)
            except subprocess.TimeoutExpired:
                code = None
                _show(process.pid)
            took = time.monotonic() - sent
            left = 0 if code is None else _left(process.pid)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            printed.seek(0)
            return End(code, took, printed.read().decode(errors="replace"), left)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _session(leader: int) -> list[int]:
    """The processes of a session that are no zombies."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, session, *_ = path.read_text().rpartition(")")[2].split()
            if int(session) == leader and state != "Z":
                found.append(int(path.parent.name))
    return found


def _left(leader: int) -> int:
    latest = time.monotonic() + _LEFT_S
    while (left := len(_session(leader))) and time.monotonic() < latest:
        time.sleep(0.1)
    return left


def _show(leader: int) -> None:
    py_spy = Path(sys.executable).parent / "py-spy"
    for pid in _session(leader):
        if py_spy.exists():
            subprocess.run([py_spy, "dump", "--nonblocking", "--pid", str(pid)])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tries", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=20.0, help="the last moment")
    parser.add_argument("--first", type=float, default=0.1, help="the first moment")
    parser.add_argument("--patience", type=float, default=60.0)
    parser.add_argument("--signal", choices=("INT", "TERM"), default="INT")
    parser.add_argument("command", nargs="*", default=COMMAND)
    chosen = parser.parse_args()
    signum = signal.Signals[f"SIG{chosen.signal}"]
    kinds: Counter[str] = Counter()
    slowest = 0.0
    for number in range(chosen.tries):
        share = number / max(1, chosen.tries - 1)
        at = chosen.first + share * (chosen.seconds - chosen.first)
        end = interrupt(chosen.command, at, chosen.patience, signum)
        kinds[end.kind] += 1
        slowest = max(slowest, end.seconds)
        print(f"{at:6.2f} s: {end.kind}, after {end.seconds:.1f} s", flush=True)
        if "traceback" in end.kind or end.code not in (130, 0):
            print("    " + end.printed.strip()[-1500:].replace("\n", "\n    "), flush=True)
    for kind, count in kinds.most_common():
        print(f"{count} of {chosen.tries}: {kind}")
    print(f"slowest end: {slowest:.1f} s after the signal")


if __name__ == "__main__":
    main()

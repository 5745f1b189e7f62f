"""The command line and scripts in this process, where what they import is loaded already.

For whatever needs no process of its own: kills and Ctrl-C do, see ``started`` and ``broken_off``.
"""

import contextlib
import io
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from unittest import mock

from plug_ins import forgotten

from heavydistill.store.segment import Record, record_at, segments

COMMAND = str(Path(sys.executable).parent / "heavydistill")
MICRO = str(Path(__file__).parents[2] / "heavydistill" / "micro" / "teacher")


def run_command(
    *words: object, cwd: Path | None = None, **environment: str
) -> CompletedProcess[str]:
    """Give a command of heavydistill: its exit code and what it printed.

    It prints 80 columns unless COLUMNS is in its environment.
    """
    from heavydistill.cli.app import main

    with contextlib.chdir(cwd or Path.cwd()):
        return _ended(main, ["heavydistill", *map(str, words)], environment)


def run_script(path: Path, *words: object, **environment: str) -> CompletedProcess[str]:
    """Run a file as a program; otherwise as ``run_command``."""

    def run() -> None:
        runpy.run_path(str(path), run_name="__main__")

    return _ended(run, [str(path), *map(str, words)], environment)


def benchmark(*arguments: object, may_be_slow: bool = False) -> str:
    """What Python prints in a process of its own in the folder of the benchmarks.

    It has to end well, unless what a busy machine makes of its seconds does not matter.
    """
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=800,
        cwd=Path(__file__).parents[2] / "benchmarks",
    )
    is_slow = may_be_slow and done.stderr.startswith("Not as promised")
    assert done.returncode == 0 or is_slow, done.stderr
    return done.stdout


def proposed(printed: str, what: str = "Next") -> list[str]:
    """The words of the command that is printed after ``what``, without the program's name."""
    (command,) = re.findall(rf"^{what}: heavydistill (.*)$", printed.replace("\\\n", ""), re.M)
    return shlex.split(command)


def started(*words: object, **keys: Any) -> subprocess.Popen[str]:
    """A command in a process and a group of its own; ``keys`` as of ``Popen``."""
    keys = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True} | keys
    return subprocess.Popen([COMMAND, *map(str, words)], start_new_session=True, **keys)


def broken_off(
    words: list[str], when: Callable[[], object], signum: signal.Signals = signal.SIGINT
) -> tuple[int, str]:
    """Start a command and send its group a signal once something holds: (exit code, output)."""
    process = started(*words)
    latest = time.monotonic() + 600
    while not when() and process.poll() is None and time.monotonic() < latest:
        time.sleep(0.02)
    if process.poll() is None:
        os.killpg(process.pid, signum)
    printed, _ = process.communicate(timeout=300)
    assert when(), f"it ended before: {printed}"
    return process.returncode, printed


def served(url: str, *more: str) -> list[str]:
    """Flags of a run that asks a server, and its micro tokenizer."""
    return ["--teacher=served", f"--endpoint={url}", f"--tokenizer={MICRO}", *more]


def records_of(journal: Path) -> list[Record]:
    """All records of a journal, in their order."""
    return [record_at(each.path, line.offset) for each in segments(journal) for line in each.lines]


def _ended(
    run: Callable[[], Any], arguments: list[str], environment: Mapping[str, str]
) -> CompletedProcess[str]:
    out, errors = io.StringIO(), io.StringIO()
    code: str | int | None = 0
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
        mock.patch.object(sys, "argv", arguments),
        mock.patch.dict(os.environ, {"COLUMNS": "80", **environment}),
        forgotten(),
    ):
        try:
            run()
        except SystemExit as end:
            code = end.code
            if isinstance(code, str):  # as the interpreter does
                errors.write(f"{code}\n")
                code = 1
    return CompletedProcess(arguments, code or 0, out.getvalue(), errors.getvalue())

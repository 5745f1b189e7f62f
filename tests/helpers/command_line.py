"""The command line and scripts in this process, where what they import is loaded already.

For whatever needs no process of its own: kills, Ctrl-C, another seed of hashes and terminals do.
"""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from unittest import mock


def run_command(
    *words: object, cwd: Path | None = None, **environment: str
) -> CompletedProcess[str]:
    """Give a command of heavydistill: its exit code and what it printed.

    Args:
        words: After the program's name.
        cwd: Where it is given.
        environment: Set while it runs; it prints 80 columns unless COLUMNS is among them.
    """
    from heavydistill.cli.app import main

    with contextlib.chdir(cwd or Path.cwd()):
        return _ended(main, ["heavydistill", *map(str, words)], environment)


def run_script(path: Path, *words: object, **environment: str) -> CompletedProcess[str]:
    """Run a file as a program; otherwise as ``run_command``."""

    def run() -> None:
        runpy.run_path(str(path), run_name="__main__")

    return _ended(run, [str(path), *map(str, words)], environment)


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
    ):
        try:
            run()
        except SystemExit as end:
            code = end.code
            if isinstance(code, str):  # as the interpreter does
                errors.write(f"{code}\n")
                code = 1
    return CompletedProcess(arguments, code or 0, out.getvalue(), errors.getvalue())

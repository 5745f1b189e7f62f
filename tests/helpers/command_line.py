"""The command line in this process, where everything that it imports is loaded already."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from subprocess import CompletedProcess
from unittest import mock


def run_command(
    *words: object, cwd: Path | None = None, **environment: str
) -> CompletedProcess[str]:
    """Give a command: its exit code and what it printed, 80 columns wide unless COLUMNS is given.

    For what needs no process of its own: kills, Ctrl-C and a terminal do.
    """
    from heavydistill.cli.app import main

    arguments = ["heavydistill", *map(str, words)]
    out, errors = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(cwd or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(errors),
        mock.patch.object(sys, "argv", arguments),
        mock.patch.dict(os.environ, {"COLUMNS": "80", **environment}),
    ):
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    return CompletedProcess(arguments, code, out.getvalue(), errors.getvalue())

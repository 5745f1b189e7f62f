"""What stands before every verb of the installed command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import heavydistill

COMMAND = str(Path(sys.executable).parent / "heavydistill")


def told(*flags: str) -> tuple[int, str]:
    done = subprocess.run([COMMAND, *flags], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_the_version_is_that_of_the_package() -> None:
    assert told("--version") == (0, f"heavydistill {heavydistill.__version__}\n")


def test_the_help_lists_the_verbs_and_a_wrong_one_is_refused() -> None:
    code, said = told("--help")
    assert code == 0 and "small models that deliberate" in said
    assert all(f" {verb} " in said for verb in ("generate", "build", "evaluate", "report"))
    code, said = told("generat")
    assert code == 2 and "generat" in said

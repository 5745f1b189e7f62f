"""What the tests of shipped training files read of them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]


def values(file: Path) -> dict[str, Any]:
    """What stands in a file."""
    found: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


def command_of(file: Path) -> list[str]:
    """The command in its first line, behind ``accelerate launch --config_file``."""
    first = file.read_text(encoding="utf-8").partition("\n")[0]
    command = shlex.split(first.removeprefix("# "))
    assert command[:3] == ["accelerate", "launch", "--config_file"]
    launch, script, *rest = command[3:]
    assert (ROOT / launch).is_file() and (ROOT / script).is_file()
    assert rest[:2] == ["--config", str(file.relative_to(ROOT))]
    return command[3:]

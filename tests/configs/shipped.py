"""What the tests of shipped training files read of them."""

from __future__ import annotations

import dataclasses
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


def without_reason(file: Path, *parts: Any) -> set[str]:
    """Its keys that are not the defaults of these configurations, and have no reason beside."""
    usual = {
        field.name: getattr(part, field.name)
        for part in parts
        for field in dataclasses.fields(part)
    }
    usual |= {"use_cpu": False, "max_length": None, "steps_per_generation": None}
    lines = {line.partition(":")[0]: line for line in file.read_text(encoding="utf-8").splitlines()}
    given = values(file)
    return {key for key in given if given[key] != usual[key] and " # " not in lines[key]}

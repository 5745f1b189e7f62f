"""What the tests of shipped training files read of them."""

import shlex
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]


def values(file: Path) -> dict[str, Any]:
    """What stands in a file."""
    found: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


def command_of(file: Path) -> tuple[str, list[str]]:
    """(name of the accelerate file, flags behind the name) of the command in its first line."""
    first = file.read_text(encoding="utf-8").partition("\n")[0]
    program, verb, *flags = shlex.split(first.removeprefix("# "))
    folder = ROOT / "configs" / verb
    launch = flags[1] if flags[0] == "--accelerate" else "single"
    assert program == "heavydistill" and file.is_relative_to(folder)
    assert (ROOT / f"configs/accelerate/{launch}.yaml").is_file()
    at = flags.index("--config")
    assert flags[at + 1] == str(file.relative_to(folder).with_suffix(""))
    return launch, flags[at + 2 :]

"""What the tests of shipped training files read of them."""

import re
import shlex
from pathlib import Path
from typing import Any

import train_sizes
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
    assert flags[at + 1] == config_name(file)
    return launch, flags[at + 2 :]


def memory_of(file: Path) -> str:
    """The memory of a GPU that a file names, after computing it by the command beside it."""
    said = re.search(
        r": ([\d.]+) GiB.*computed, not run:\n# python scripts/train_sizes\.py (.*)\n",
        file.read_text(encoding="utf-8"),
    )
    assert said, "the file names its memory and the command that computes it"
    words = shlex.split(said[2])
    assert words[:3] == [file.relative_to(ROOT / "configs").parts[0], "--config", config_name(file)]
    assert f"{train_sizes.report(*train_sizes.parsed(words))[1] / train_sizes.GIB:.1f}" == said[1]
    return f"{said[1]} GiB"


def config_name(file: Path) -> str:
    """What --config takes for a file."""
    return "/".join(file.relative_to(ROOT / "configs").with_suffix("").parts[1:])

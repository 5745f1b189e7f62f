"""Processes that carry a mark in their environment, and waiting for what becomes true."""

import time
from collections.abc import Callable
from pathlib import Path

MARK = "HEAVYDISTILL_TEST_MARK"


def alive(mark: str) -> list[int]:
    """Processes with a mark that are there and no zombies."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                found += [int(folder.name)] if state != "Z" else []
        except OSError:
            continue
    return found


def eventually(condition: Callable[[], object], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not condition():
        time.sleep(0.1)
    return bool(condition())

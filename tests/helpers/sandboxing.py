"""Running attacks in the sandbox of this machine, and what a run may leave behind: nothing."""

import contextlib
import ctypes
import json
import os
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heavydistill.config.run import Sandboxing
from heavydistill.sandbox import Limits, SandboxResult, open_sandbox
from heavydistill.sandbox.session import SessionLimits, open_session

_PR_SET_CHILD_SUBREAPER = 36
_GONE_S = 60.0
SYSTEM_PYTHON = "/usr/bin/python3"

# What attacks are written with: `attempt` says what came of one try.
_PRELUDE = """
import json, os, sys
def attempt(f, *args):
    try:
        return ["done", repr(f(*args))[:200]]
    except BaseException as error:
        return ["refused", type(error).__name__]
said = {}
"""
_POSTLUDE = """
_ = sys.stdout.write(json.dumps(said))
"""


def need_sandbox() -> None:
    """Skips the test where nothing can be run; in continuous integration that is a failure."""
    if reason := open_sandbox(Sandboxing()).unavailable():
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)


def ran(
    program: str,
    *,
    cpu_s: float = 20,
    wall_s: float = 60,
    memory_mb: int = 256,
    output_bytes: int = 1 << 16,
    **files: str,
) -> SandboxResult:
    """What became of a program, given as it stands or indented."""
    limits = Limits(cpu_s, wall_s, memory_mb, output_bytes)
    texts = {"main.py": textwrap.dedent(program), **files}
    return open_sandbox(Sandboxing()).run(texts, limits)


def attempted(attack: str, **limits: Any) -> dict[str, Any]:
    """What an attack put into ``said``; it has to come to its end."""
    result = ran(_PRELUDE + textwrap.dedent(attack) + _POSTLUDE, **limits)
    assert (result.ended, result.exit_code) == ("exit", 0), result
    return json.loads(result.stdout)


def attempted_in_a_cell(attack: str, **limits: Any) -> dict[str, Any]:
    """The same of an attack in a cell of an interpreter, which goes on after it."""
    with open_session(
        SessionLimits(**{"cpu_s": 20, "output_bytes": 1 << 16, "memory_mb": 256, **limits})
    ) as it:
        result = it.run(_PRELUDE + textwrap.dedent(attack) + _POSTLUDE)
        assert (result.error, result.truncated) == (None, False), result
        assert it.run("'alive'").output == "'alive'\n"
        return json.loads(result.output)


def children() -> set[int]:
    """Processes whose parent is this one, ended ones that nobody waited for among them."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found |= set(map(int, (task / "children").read_text().split()))
    return found


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """While the block runs, orphans of this process's descendants become its children."""
    prctl = ctypes.CDLL(None).prctl
    assert prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def adopted_all_end(before: set[int]) -> bool:
    """Whether all children that are not in ``before`` end by themselves soon; reaps them."""
    until = time.monotonic() + _GONE_S
    while time.monotonic() < until:
        left = children() - before
        if not left:
            return True
        for child in left:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
    return False

"""Runs a program against tests in the sandbox and returns the outcome of each test.

The output is untrusted: only reports with the token of this start are used, in the order of the
tests, up to the first malformed one.
"""

from __future__ import annotations

import ast
import functools
import importlib
import json
import math
import re
import secrets
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, Literal

from heavydistill.config.run import Sandboxing
from heavydistill.sandbox import Limits, Sandbox, SandboxResult
from heavydistill.verifiers.code.values import Malformed, Tree, parsed

# Modules whose names contest sites import before a program, in their order: if a name occurs twice,
# the last module counts. Modules that a program does not need are left out, because imports take
# longer than most programs.
_MODULES = (
    *("string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random"),
    *("statistics", "itertools", "functools", "operator", "io", "sys", "json", "builtins"),
    "typing",
)


def prelude(program: str) -> str:
    """Import statements for the names that a program mentions."""
    words = set(_NAME.findall(program))
    origins = _origins()
    needed = {"builtins"}.union(origins[word] for word in words & origins.keys())
    lines = [f"from {module} import *" for module in _MODULES if module in needed]
    return "\n".join(lines + [f"import {module}" for module in _MODULES if module in words])


@functools.cache
def _origins() -> dict[str, str]:
    """Maps each name that ``_MODULES`` export to the module that counts."""
    origins: dict[str, str] = {}
    for name in _MODULES:
        module = importlib.import_module(name)
        exported = getattr(module, "__all__", None) or vars(module)
        origins |= {each: name for each in exported if not each.startswith("_")}
    return origins


MOST_VALUE = 4_000_000
"""Maximum number of characters of the encoded value of a call."""
_MOST_OUTPUT = 1 << 25  # maximum bytes of one start
_WIDEST = 6  # bytes of a report per byte that a program prints
_READS = """
with open("job.txt", encoding="utf-8") as file:
    job = parsed(file.read())
"""
START_S = 2.0  # seconds of processor time for the interpreter and for reading the tests
# A test is ended by the system after this multiple of its time, see ``inside.perform.Clock``.
_ENDED_AFTER = 1.5
_REPORT = re.compile(rb"([0-9a-f]{1,64}) (\d{1,6}) ([A-Z]) (\d{1,10})\n")
_MILLISECONDS = re.compile(rb"\d{1,9}")
_NAME = re.compile(r"[^\W\d]\w*")

# Outcomes of a test without a value. ``died``: a signal or an exit ended the process during this
# test, so that all later tests are ``not_run``.
ProgramsFault = Literal[
    "raised", "exited", "too_slow", "not_a_value", "too_large", "not_python", "died", "not_run"
]
# ``missing_module``: a module outside the standard library. ``timeout``: the wall clock limit.
# ``killed``: SIGKILL before the test had used its time, e.g. because the machine ran out of memory.
# ``out_of_time``: the time limit of the whole response.
NobodysFault = Literal["missing_module", "timeout", "killed", "out_of_time", "no_sandbox"]
Became = Literal["value"] | ProgramsFault | NobodysFault
_ENDS: dict[bytes, Became] = {
    b"X": "exited",
    b"S": "too_slow",
    b"N": "not_a_value",
    b"L": "too_large",
    b"T": "out_of_time",
}


@dataclass(frozen=True, slots=True)
class ProgramOutcome:
    """Outcome of one test."""

    became: Became
    detail: str = ""
    """Name of the exception or of the missing module, or why there is no sandbox; else empty."""
    tree: Tree = None
    """Returned value as a tree, if any; for a program that reads stdin, the printed text."""


def run_tests(
    sandbox: Sandbox,
    config: Sandboxing,
    program: str,
    tests: Sequence[object],
    kind: Literal["calls", "stdio"] = "calls",
    *,
    most: int = MOST_VALUE,
    prelude: str = "",
    after: str = "",
    any_status: bool = False,
) -> list[ProgramOutcome]:
    """Run a program's tests in one start of the sandbox and return their outcomes.

    See ``inside.perform``.
    """
    token, end_s = secrets.token_hex(16), _ENDED_AFTER * config.test_s
    job = {
        "token": token,
        "kind": kind,
        "program": program,
        "prelude": prelude,
        "after": after,
        "any_status": any_status,
        "tests": list(tests),
        "most": most,
        "test_s": config.test_s,
        "end_s": end_s,
        "total_s": config.total_s,
    }
    widest = most * (_WIDEST if kind == "stdio" else 1)
    output_bytes = min(len(tests) * (widest + 200) + 10_000, _MOST_OUTPUT)
    ran = start(sandbox, config, "perform", job, len(tests), output_bytes)
    if ran.ended == "output" and len(ran.stdout) < output_bytes:
        ran = replace(ran, ended="unavailable", stderr=b"it keeps too little of the output")
    return _outcomes(ran, token.encode(), len(tests), widest + 2, end_s)


def start(
    sandbox: Sandbox, config: Sandboxing, entry: str, job: Mapping[str, Any], tests: int, most: int
) -> SandboxResult:
    """Run ``entry``, a module of the folder ``inside``, in a new sandbox with this job."""
    cpu_s = processor_s(config, tests)
    limits = Limits(
        cpu_s=cpu_s, wall_s=wall_s(cpu_s), memory_mb=config.memory_mb, output_bytes=most
    )
    files = {"main.py": _program_of(entry), "job.txt": json.dumps(dict(job))}
    return sandbox.run(files, limits)


def processor_s(config: Sandboxing, tests: int) -> float:
    """Limit of the processor time of one start, in seconds."""
    return min(config.total_s + config.test_s, (tests + 1) * config.test_s) + START_S


def wall_s(cpu_s: float) -> float:
    """Wall-clock limit of one start in seconds; generous, because busy machines delay programs."""
    return 2 * cpu_s + 10


@functools.cache
def _program_of(entry: str) -> str:
    """Source of the ``main.py`` that runs a module of ``inside``."""
    folder = resources.files("heavydistill.verifiers.code") / "inside"
    # Only annotations need the last two modules, and importing typing takes long.
    left_out = ("heavydistill", "__future__", "typing", "collections.abc")
    kept = [
        ast.unparse(node)
        for name in ("serialize", entry)
        for node in ast.parse((folder / f"{name}.py").read_text(encoding="utf-8")).body
        if not (isinstance(node, ast.ImportFrom) and (node.module or "").startswith(left_out))
    ]
    return "\n".join(["from __future__ import annotations", *kept, _READS, f"{entry}(job)\n"])


def _outcomes(
    ran: SandboxResult, token: bytes, count: int, widest: int, end_s: float
) -> list[ProgramOutcome]:
    outcomes: list[ProgramOutcome] = []
    begun, end = 0, math.inf
    for index, letter, payload in reports(ran.stdout, token):
        if letter == b"P":
            return [ProgramOutcome("not_python", _told(payload)[0])] * count
        if letter == b"B" and index == len(outcomes) == begun:
            begun += 1
            end = int(payload) / 1000 + end_s if _MILLISECONDS.fullmatch(payload) else math.inf
        elif index == len(outcomes) < count and (begun == index + 1 or letter == b"T"):
            outcomes.append(_outcome(letter, payload, widest))
        else:
            break
    if len(outcomes) < count and (not outcomes or outcomes[-1].became != "out_of_time"):
        if ran.ended == "signal" and ran.exit_code == signal.SIGKILL and ran.cpu_s >= end:
            ran = replace(ran, ended="cpu")
        outcomes.append(stopped(ran, begun > len(outcomes)))
    if outcomes[-1].became in ("out_of_time", "timeout", "killed", "no_sandbox"):
        return outcomes + [outcomes[-1]] * (count - len(outcomes))
    return outcomes + [ProgramOutcome("not_run")] * (count - len(outcomes))


def reports(stdout: bytes, token: bytes) -> list[tuple[int, bytes, bytes]]:
    """(index, letter, payload) of each report, up to the first malformed one."""
    lines = []
    at = 0
    while (head := _REPORT.match(stdout, at)) and head[1] == token:
        end = head.end() + int(head[4])
        if stdout[end : end + 1] != b"\n":
            break
        lines.append((int(head[2]), head[3], stdout[head.end() : end]))
        at = end + 1
    return lines


def _outcome(letter: bytes, payload: bytes, widest: int) -> ProgramOutcome:
    if len(payload) > widest:
        return ProgramOutcome("too_large")
    if letter == b"V":
        try:
            return ProgramOutcome("value", tree=parsed(payload))
        except Malformed:
            return ProgramOutcome("not_a_value")
    if letter == b"E":
        kind, missing = _told(payload)
        became: Became = "missing_module" if missing else "raised"
        return ProgramOutcome(became, missing or kind)
    return ProgramOutcome(_ENDS.get(letter, "not_a_value"))


def _told(payload: bytes) -> tuple[str, str]:
    """Type of an exception, and the missing module outside the standard library, if any."""
    try:
        _, kind, missing = parsed(payload)
    except (Malformed, TypeError, ValueError):
        return "", ""
    words = [_NAME.match(word) if isinstance(word, str) else None for word in (kind, missing)]
    kind, missing = (word[0] if word else "" for word in words)
    return kind, "" if missing in sys.stdlib_module_names else missing


def stopped(ran: SandboxResult, in_test: bool = False) -> ProgramOutcome:
    """Convert the way a run ended to the outcome of the test that was running, if any."""
    if ran.ended == "unavailable":
        return ProgramOutcome("no_sandbox", ran.stderr.decode("utf-8", "replace").strip()[:500])
    if ran.ended == "wall":
        return ProgramOutcome("timeout")
    if ran.ended == "cpu" or (ran.ended == "signal" and ran.exit_code == signal.SIGXCPU):
        return ProgramOutcome("too_slow" if in_test else "out_of_time")
    if ran.ended == "output":
        return ProgramOutcome("too_large")
    if not in_test:
        return ProgramOutcome("no_sandbox", "the sandbox ended before the first test")
    if ran.ended == "signal" and ran.exit_code == signal.SIGKILL:
        return ProgramOutcome("killed")
    return ProgramOutcome("died")

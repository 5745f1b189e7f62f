"""Runs tests that ``asserts`` cannot split, without the program being where they are.

Three starts of the sandbox: the tests with a stand-in that notes the calls (once for a problem in
each process), the program on those calls, and the tests again with the values that it gave. See
``inside.rehearse``.

Not covered, and undecided: tests that give the program functions or objects of their own, tests
whose calls depend on earlier values, and those that need more than the standard library.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heavydistill.config.run import Sandboxing
from heavydistill.verifiers.code import running
from heavydistill.verifiers.code.running import (
    Became,
    ProgramOutcome,
    processor_s,
    reports,
    start,
    stopped,
)
from heavydistill.verifiers.code.values import Malformed, Tree, parsed
from heavydistill.verifiers.sandbox import Sandbox

MOST = 8_000_000  # characters of all calls, and bytes of one report
_MOST_CALLS = 5000  # as in ``inside.rehearse``
_CALLS_AT_ONCE = 10  # tests' own work counts as so many tests of a program
# What leaves open what the program would have given.
UNSURE: frozenset[Became] = frozenset(
    {
        "not_a_value",
        "too_large",
        "missing_module",
        "timeout",
        "killed",
        "out_of_time",
        "no_sandbox",
        "not_run",
    }
)


@dataclass(frozen=True, slots=True)
class Rehearsable:
    """Tests that are run as they are.

    Attributes:
        preamble: What is there before them: helpers of the prompt.
        tests: Their text.
        names: Functions of the program that they call; the first is what ``check`` takes.
        check: Function of the tests that takes the program's, or empty.
    """

    preamble: str
    tests: str
    names: tuple[str, ...]
    check: str


@dataclass(frozen=True, slots=True)
class Calls:
    """What the tests call.

    Attributes:
        trees: One for each: a tuple of the name, the arguments and the keyword arguments.
        texts: The same, as the stand-in notes them.
        assertions: How many there are.
    """

    trees: tuple[Tree, ...]
    texts: tuple[str, ...]
    assertions: int


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of the assertions."""

    yes: int
    no: int
    types: int
    unsure: int


_known: dict[Rehearsable, Calls | str] = {}
_MOST_KNOWN = 64


def wall_s(config: Sandboxing) -> float:
    """Most seconds of all three starts."""
    tests, program = processor_s(config, _CALLS_AT_ONCE), processor_s(config, _MOST_CALLS)
    return 2 * running.wall_s(tests) + running.wall_s(program)


def calls_of(
    tests: Rehearsable, sandbox: Sandbox, config: Sandboxing
) -> Calls | str | ProgramOutcome:
    """The calls; why the tests cannot be rehearsed; or what kept the sandbox from telling."""
    if tests not in _known:
        found = _first_time(tests, sandbox, config)
        if isinstance(found, ProgramOutcome):
            return found
        if len(_known) >= _MOST_KNOWN:
            _known.pop(next(iter(_known)))
        _known[tests] = found
    return _known[tests]


def performed(calls: Calls) -> list[dict[str, Any]]:
    """The tests for ``running.run_tests`` that make the calls."""
    return [
        {"entry": name, "args": args, "kwargs": kwargs, "returns_args": True}
        for _, name, args, kwargs in calls.trees
    ]


def counts_of(
    tests: Rehearsable,
    calls: Calls,
    given: list[ProgramOutcome],
    sandbox: Sandbox,
    config: Sandboxing,
) -> Counts | str | ProgramOutcome:
    """What became of the assertions, or as ``calls_of``."""
    answers = [_answer(outcome) for outcome in given]
    letter, payload = _run(tests, sandbox, config, calls=list(calls.texts), answers=answers)
    if isinstance(payload, ProgramOutcome):
        return payload
    if letter == b"D":
        return "the tests make other calls when they know the values"
    try:
        _, yes, no, types, unsure = parsed(payload)
    except (Malformed, ValueError, TypeError):
        return "the tests broke the rehearsal"
    return Counts(yes, no, types, unsure)


def _first_time(
    tests: Rehearsable, sandbox: Sandbox, config: Sandboxing
) -> Calls | str | ProgramOutcome:
    letter, payload = _run(tests, sandbox, config, calls=[], answers=None)
    if isinstance(payload, ProgramOutcome):
        return payload
    if letter != b"C":
        return payload.decode("utf-8", "replace")
    try:
        _, texts, assertions = parsed(payload)
        trees = [json.loads(text) for text in texts[1:]]
    except (Malformed, ValueError, TypeError):
        return "the tests broke the rehearsal"
    if not trees or not assertions:
        return "the tests call nothing of the program, or assert nothing"
    return Calls(tuple(trees), tuple(texts[1:]), assertions)


def _answer(outcome: ProgramOutcome) -> list[Any]:
    if outcome.became == "value":
        return ["V", outcome.tree] if _is_answer(outcome.tree) else ["U", ""]
    if outcome.became == "raised":
        return ["E", outcome.detail]
    return ["U" if outcome.became in UNSURE else "G", ""]


def _is_answer(tree: Tree) -> bool:
    """Whether this is a value with the arguments after the call."""
    return (
        isinstance(tree, list)
        and len(tree) == 3
        and tree[0] == "t"
        and isinstance(tree[2], list)
        and tree[2][:1] == ["l"]
    )


def _run(
    tests: Rehearsable, sandbox: Sandbox, config: Sandboxing, **more: Any
) -> tuple[bytes, bytes | ProgramOutcome]:
    token = secrets.token_hex(16)
    job: Mapping[str, Any] = {
        "token": token,
        "preamble": tests.preamble,
        "tests": tests.tests,
        "names": list(tests.names),
        "check": tests.check,
        "most": MOST,
        **more,
    }
    ran = start(sandbox, config, "rehearse", job, _CALLS_AT_ONCE, 2 * MOST)
    found = reports(ran.stdout, token.encode())
    if found:
        _, letter, payload = found[0]
        return letter, payload
    return b"", stopped(ran)

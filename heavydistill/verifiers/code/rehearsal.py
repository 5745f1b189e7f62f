"""Runs tests that ``asserts`` cannot split, in a sandbox separate from the program's.

The sandbox starts three times. It runs the tests with a stand-in that records the calls (once per
problem and process), then the program on those calls, then the tests again with the values that the
program returned. See ``inside.rehearse``.

Not covered, and therefore undecided: tests that pass functions or objects of their own classes to
the program, and tests whose calls depend on earlier values.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import secrets
from functools import lru_cache
from typing import Any, get_args

from heavydistill.config.run import Sandboxing
from heavydistill.sandbox import Sandbox, packages
from heavydistill.verifiers.code import running
from heavydistill.verifiers.code.formats import Rehearsable
from heavydistill.verifiers.code.running import NobodysFault, ProgramOutcome, processor_s, run_tests
from heavydistill.verifiers.code.values import Malformed, Tree, parsed

MOST = 8_000_000  # maximum characters of all calls, and bytes of one report
_MOST_CALLS = 5000  # as in ``inside.rehearse``
_CALLS_AT_ONCE = 10  # the tests' own work counts as this many tests when the time limit is set
# Outcomes without a value: the value is unknown, or it cannot leave the sandbox.
_UNKNOWN = get_args(NobodysFault)
_UNSURE = {"not_a_value", "too_large", "not_run", *_UNKNOWN}

# Outcome of one test: "passed" or a reason, and evidence.
Result = tuple[str, dict[str, Any]]
PASSED: Result = ("passed", {})


def failure(outcome: ProgramOutcome) -> Result:
    evidence = {"detail": outcome.detail} if outcome.detail else {}
    if outcome.became == "missing_module" and outcome.detail in packages.NAMES:
        evidence["fix"] = f"pip install {outcome.detail}, where the sandbox runs"
    return outcome.became, evidence


class NotRehearsedError(Exception):
    """The tests cannot be tried with a stand-in for the program, or gave no report."""

    def __init__(self, reason: str, evidence: dict[str, object]) -> None:
        super().__init__(reason)
        self.reason, self.evidence = reason, evidence


def wall_s(config: Sandboxing) -> float:
    """Time limit in seconds of a rehearsal, which starts the sandbox three times."""
    tests, program = processor_s(config, _CALLS_AT_ONCE), processor_s(config, _MOST_CALLS)
    return 2 * running.wall_s(tests) + running.wall_s(program)


def results(
    tests: Rehearsable, program: str, as_python: bool, sandbox: Sandbox, config: Sandboxing
) -> list[Result]:
    """Run the tests and return the outcomes of the assertions, in no particular order.

    Raises:
        NotRehearsedError: The results cannot be determined.
    """
    calls, assertions = _calls_of(tests, sandbox, config)
    performed = [
        {"entry": name, "args": args, "kwargs": kwargs, "returns_args": True}
        for _, name, args, kwargs in map(json.loads, calls)
    ]
    given = run_tests(sandbox, config, program, performed)
    answers = [_answer(outcome) for outcome in given]
    letter, payload = _run(tests, sandbox, config, calls=list(calls), answers=answers)
    if letter == b"D":
        raise _unfit("the calls of the tests depend on earlier values")
    yes, no, types, unsure = _parts(payload, int, int, int, int)
    if not yes + no + types + unsure:
        raise _unfit("the tests assert nothing about this answer")
    failed = [failure(outcome) for outcome in given if outcome.became != "value"]
    wrong = [result for result in failed if result[0] not in _UNSURE] or [("different", {})]
    unknown = [result for result in failed if result[0] in _UNKNOWN] or [("not_comparable", {})]
    outcomes = [
        *([wrong[0]] * no + [unknown[0]] * unsure),
        *([PASSED if as_python else ("types", {})] * types + [PASSED] * yes),
    ]
    # The program may have ended before it performed all calls.
    return outcomes + [("not_run", {})] * (assertions - len(outcomes) if no or unsure else 0)


@lru_cache(maxsize=64)
def _calls_of(
    tests: Rehearsable, sandbox: Sandbox, config: Sandboxing
) -> tuple[tuple[str, ...], int]:
    """The recorded calls, each as JSON of (name, arguments, keyword arguments), and the number of
    assertions."""
    letter, payload = _run(tests, sandbox, config, calls=[], answers=None)
    if letter != b"C":
        raise _unfit(payload.decode("utf-8", "replace"))
    texts, assertions = _parts(payload, list, int)
    if not texts[1:] or not assertions:
        raise _unfit("the tests call no function of the program, or assert nothing")
    return tuple(texts[1:]), assertions


def _unfit(why: str) -> NotRehearsedError:
    return NotRehearsedError("unfit_tests", {"why": why})


def _parts(payload: bytes, *kinds: type) -> list[Tree]:
    parts: list[Tree] = []
    with contextlib.suppress(Malformed, TypeError, ValueError):
        _, *parts = parsed(payload)
    if len(parts) != len(kinds) or not all(map(isinstance, parts, kinds)):
        raise _unfit("the tests ended without a report")
    return parts


def _answer(outcome: ProgramOutcome) -> list[Any]:
    """Convert an outcome to the stand-in's reply in the second run: a value with the changed
    arguments, an exception, a call that does not end, or an unknown value."""
    if outcome.became == "raised":
        return ["E", outcome.detail]
    if outcome.became != "value":
        return ["U" if outcome.became in _UNSURE else "G", ""]
    tree = outcome.tree
    is_pair = isinstance(tree, list) and len(tree) == 3 and tree[0] == "t"
    has_arguments = is_pair and isinstance(tree[2], list) and tree[2][:1] == ["l"]
    return ["V", tree] if has_arguments else ["U", ""]


def _run(
    tests: Rehearsable, sandbox: Sandbox, config: Sandboxing, **more: object
) -> tuple[bytes, bytes]:
    """Run the tests once; returns (letter, payload) of the report."""
    token = secrets.token_hex(16)
    job = {"token": token, "most": MOST, **dataclasses.asdict(tests), **more}
    ran = running.start(sandbox, config, "rehearse", job, _CALLS_AT_ONCE, 2 * MOST)
    for _, letter, payload in running.reports(ran.stdout, token.encode()):
        return letter, payload
    reason, evidence = failure(running.stopped(ran))
    raise NotRehearsedError(reason, evidence)

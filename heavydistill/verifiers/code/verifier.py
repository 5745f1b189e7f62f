"""The verifier ``code``: Python that a model wrote, run against tests in the sandbox.

``formats`` describes the tests that a problem brings, ``answer`` which part of an answer is the
program. What is right never enters the sandbox that the program runs in: calls and inputs go in,
values and texts come out and are compared here (``asserts``, ``values``), or by the tests
themselves in a start of their own (``rehearsal``). So exit status, printed claims and objects
that call themselves equal prove nothing.

All tests run in one start of the sandbox, each in a fresh module; ``inside.perform`` says what is
not reset. Only the standard library is there. ``score`` is the share of tests passed.

Verdicts, by reason; where tests end in several ways the first that is incorrect counts:

    correct    passed          every test
    incorrect  different       another value or output
    incorrect  raised          an exception
    incorrect  exited          an exit, or one with a status other than 0 from a program
    incorrect  too_slow        more processor time than ``sandbox.test_s``
    incorrect  not_a_value     something else than numbers, texts and containers of them
    incorrect  too_large       a value or output far larger than what is right
    incorrect  died            a crash
    incorrect  not_python      it does not compile
    undecided  no_code         the answer holds no program
    undecided  too_long        the program has more than ``MOST_CHARACTERS``
    undecided  types           right but for 1, 1.0 and True taking each other's place, which
                               ``"equality": "python"`` allows
    undecided  rounding        right but for how numbers were rounded or written, which
                               ``"tolerance"`` allows
    undecided  missing_module  it needs a module outside the standard library
    undecided  timeout         it slept, or the machine is busy
    undecided  killed          by the system, as when memory is short
    undecided  out_of_time     all tests took more processor time than ``sandbox.total_s``
    undecided  not_comparable  a test asks something of an object that cannot leave the sandbox
    undecided  unfit_tests     the tests cannot be run without the program
    undecided  no_sandbox      it is not available; ``evidence`` says what to install

Not covered: programs of several files, other languages, and what tests cannot see. A program is
compared with what the tests expect and nothing else, so answers that tests allow by other means
(several right outputs) are incorrect.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any, ClassVar

from heavydistill.config.run import Sandboxing, Verifying
from heavydistill.schema import Label, Problem
from heavydistill.verifiers.base import Decision, Verifier
from heavydistill.verifiers.code import rehearsal
from heavydistill.verifiers.code.answer import program_in
from heavydistill.verifiers.code.arguments import ARGUMENTS
from heavydistill.verifiers.code.formats import (
    MOST_VALUE,
    Case,
    Runs,
    Task,
    task_of,
)
from heavydistill.verifiers.code.rehearsal import Rehearsable
from heavydistill.verifiers.code.running import (
    ProgramOutcome,
    prelude,
    processor_s,
    run_tests,
    wall_s,
    words_in,
)
from heavydistill.verifiers.code.values import likeness_of_outputs, shown
from heavydistill.verifiers.sandbox import Sandbox, open_sandbox

MOST_CHARACTERS = 200_000
_OUTPUT_ROOM = 65_536
_OPEN = {
    "missing_module",
    "timeout",
    "killed",
    "out_of_time",
    "no_sandbox",
    "not_comparable",
    "types",
    "rounding",
}
_SLACK_S = 10.0

# What became of one test: "passed", or a reason, and what a reader needs to see of it.
Result = tuple[str, dict[str, Any]]
PASSED: Result = ("passed", {})


class Code(Verifier):
    """See the module."""

    name = "code"
    argument_columns: ClassVar[tuple[str, ...]] = ARGUMENTS
    needs_reference = False
    domain = "code"

    def __init__(self) -> None:
        self._config = Sandboxing()
        self._sandbox: Sandbox | None = None

    @property
    def version(self) -> str:
        return f"2-python-{sys.version_info.major}.{sys.version_info.minor}"

    def extract(self, problem: Problem, text: str) -> str | Decision:
        task = task_of(problem)
        program = program_in(text, task.names, task.prompt)
        if program is None or not program.strip():
            return Decision("undecided", "no_code")
        if len(program) > MOST_CHARACTERS:
            return Decision("undecided", "too_long", program[:MOST_CHARACTERS])
        return program

    def decide(self, problem: Problem, candidate: str) -> Decision:
        sandbox = self._sandbox or open_sandbox(self._config)
        return _decide(task_of(problem), candidate, sandbox, self._config)

    def check_reference(self, problem: Problem) -> str | None:
        try:
            task_of(problem)
        except ValueError as error:
            return str(error)
        return None

    def prepare(self, config: Verifying) -> None:
        self._config = config.sandbox
        self._sandbox = open_sandbox(config.sandbox)
        self._sandbox.unavailable()

    def limit_s(self, problem: Problem, config: Verifying) -> float:
        tests = task_of(problem).tests
        if isinstance(tests, Rehearsable):
            return rehearsal.wall_s(config.sandbox) + _SLACK_S
        count = len(tests.inputs) if isinstance(tests, Runs) else len(tests.calls)
        return wall_s(processor_s(config.sandbox, count)) + _SLACK_S

    def unavailable(self, config: Verifying) -> str | None:
        return open_sandbox(config.sandbox).unavailable()


def _decide(task: Task, program: str, sandbox: Sandbox, config: Sandboxing) -> Decision:
    if isinstance(task.tests, Rehearsable):
        return _rehearsed(task, task.tests, program, sandbox, config)
    if isinstance(task.tests, Runs):
        results = _run(task.tests, program, sandbox, config)
        return _decision("stdio", results, program)
    job = _job("calls", program, task.tests.calls, after=task.tests.after)
    if task.tests.with_prelude:
        job["prelude"] = prelude(words_in(program))
    outcomes = run_tests(sandbox, config, job)
    results = [_judged(case, outcomes[slice(*case.calls)], task) for case in task.tests.cases]
    return _decision("calls", results, program)


def _job(kind: str, program: str, tests: Iterable[Any], after: str = "") -> dict[str, Any]:
    return {
        "kind": kind,
        "program": program,
        "tests": list(tests),
        "prelude": "",
        "after": after,
        "most": MOST_VALUE,
    }


def _run(tests: Runs, program: str, sandbox: Sandbox, config: Sandboxing) -> list[Result]:
    job = _job("stdio", program, tests.inputs)
    longest = max(len(output.encode()) for output in tests.outputs)
    # In large steps: the program may see it, and how long what is right is would tell it something.
    job["most"] = _OUTPUT_ROOM * (1 + -(-2 * longest // _OUTPUT_ROOM))
    outcomes = run_tests(sandbox, config, job)
    return [
        _printed(outcome, output, tests)
        for outcome, output in zip(outcomes, tests.outputs, strict=True)
    ]


def _printed(outcome: ProgramOutcome, wanted: str, tests: Runs) -> Result:
    if outcome.became != "value":
        return _failed(outcome)
    given = outcome.tree
    if not isinstance(given, str):
        return "not_a_value", {}
    found = likeness_of_outputs(given, wanted, in_tokens=tests.in_tokens, tolerance=tests.tolerance)
    if found == "same" or (found == "close" and tests.tolerance is not None):
        return PASSED
    return "rounding" if found == "close" else "different", {"got": shown(given)}


def _judged(case: Case, outcomes: list[ProgramOutcome], task: Task) -> Result:
    failed = [_failed(outcome) for outcome in outcomes if outcome.became != "value"]
    if failed:
        reason, shown_of_it = failed[0]
        if reason in ("not_a_value", "too_large") and not case.needs_values:
            return "not_comparable", {}
        return reason, shown_of_it
    values = [outcome.tree for outcome in outcomes]
    try:
        truth = case.holds(values)
    except (ValueError, TypeError, ArithmeticError):
        # What Python could not compare either, or what no value is.
        return "not_a_value", {}
    if truth == "yes" or (truth == "types" and task.as_python):
        return PASSED
    return truth if truth != "no" else "different", {"got": [shown(value) for value in values]}


def _failed(outcome: ProgramOutcome) -> Result:
    return outcome.became, {"detail": outcome.detail} if outcome.detail else {}


def _decision(way: str, results: list[Result], program: str) -> Decision:
    """The decision on all tests; the first test that failed tells the reason."""
    passed = sum(result == PASSED for result in results)
    failed = [(number, *result) for number, result in enumerate(results, 1) if result != PASSED]
    wrong = [one for one in failed if one[1] not in _OPEN and one[1] != "not_run"]
    told = (wrong or failed or [(0, "passed", {})])[0]
    label: Label = "correct" if not failed else "incorrect" if wrong else "undecided"
    evidence: dict[str, Any] = {"way": way, "tests": len(results), "passed": passed}
    if failed:
        evidence["first"] = {"test": told[0], "outcome": told[1], **told[2]}
    return Decision(label, told[1], program, passed / len(results), json.dumps(evidence))


def _rehearsed(
    task: Task, tests: Rehearsable, program: str, sandbox: Sandbox, config: Sandboxing
) -> Decision:
    calls = rehearsal.calls_of(tests, sandbox, config)
    if not isinstance(calls, rehearsal.Calls):
        return _not_rehearsed(calls, program)
    outcomes = run_tests(sandbox, config, _job("calls", program, rehearsal.performed(calls)))
    counts = rehearsal.counts_of(tests, calls, outcomes, sandbox, config)
    if not isinstance(counts, rehearsal.Counts):
        return _not_rehearsed(counts, program)
    if counts == rehearsal.Counts(0, 0, 0, 0):
        return _not_rehearsed("the tests assert nothing of this answer", program)
    return _counted(task, counts, calls, outcomes, program)


def _not_rehearsed(why: str | ProgramOutcome, program: str) -> Decision:
    if isinstance(why, str):
        evidence = json.dumps({"way": "rehearsal", "why": why})
        return Decision("undecided", "unfit_tests", program, evidence=evidence)
    reason, shown_of_it = _failed(why)
    evidence = json.dumps({"way": "rehearsal", **shown_of_it})
    return Decision("undecided", reason, program, evidence=evidence)


def _counted(
    task: Task,
    counts: rehearsal.Counts,
    calls: rehearsal.Calls,
    outcomes: list[ProgramOutcome],
    program: str,
) -> Decision:
    passed = counts.yes + (counts.types if task.as_python else 0)
    total = counts.yes + counts.no + counts.types + counts.unsure
    if counts.no or counts.unsure:
        # It may have ended early.
        total = max(total, calls.assertions)
    failed = [outcome for outcome in outcomes if outcome.became != "value"]
    wrong = [outcome for outcome in failed if outcome.became not in rehearsal.UNSURE]
    label: Label
    reason: str
    if counts.no:
        label, reason = "incorrect", wrong[0].became if wrong else "different"
    elif counts.unsure:
        unsure = [outcome.became for outcome in failed if outcome.became in rehearsal.UNSURE]
        label, reason = "undecided", unsure[0] if unsure else "not_comparable"
        reason = "not_comparable" if reason in ("not_a_value", "too_large", "not_run") else reason
    elif passed < total:
        label, reason = "undecided", "types"
    else:
        label, reason = "correct", "passed"
    evidence: dict[str, Any] = {"way": "rehearsal", "tests": total, "passed": passed}
    if failed:
        became, detail = _failed((wrong or failed)[0])
        evidence["first"] = {"outcome": became, **detail}
    return Decision(label, reason, program, passed / total, json.dumps(evidence))

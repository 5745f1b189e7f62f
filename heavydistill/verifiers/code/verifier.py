"""The verifier ``code``: Python that a model wrote, run against tests in the sandbox.

``formats`` reads the tests of a problem; ``answer`` finds the program in a response. Expected
values never enter the sandbox of the program: calls and inputs go in, values and texts come out.
They are compared in this process (``values``), or by the tests themselves in a separate sandbox
(``rehearsal``). So a program cannot pass by its exit status, by printed claims or by objects that
override equality.

All tests run in one start of the sandbox, each in a fresh module; ``inside.perform`` lists what is
not reset. Programs may import the standard library and ``sandbox.packages``. ``score`` is the
share of tests passed.

Verdicts, by reason; if tests end in several ways, the first incorrect one counts:

    correct    passed          every test
    incorrect  different       another value or output
    incorrect  raised          an exception
    incorrect  exited          an exit; from a program that reads stdin, one with a status other
                               than 0
    incorrect  too_slow        more processor time than ``sandbox.test_s``
    incorrect  not_a_value     anything but numbers, texts and containers of them
    incorrect  too_large       a value or output far larger than the right one
    incorrect  died            a crash
    incorrect  not_python      it does not compile
    undecided  no_code         the answer contains no program
    undecided  too_long        the program has more than ``MOST_CHARACTERS``
    undecided  types           right except that 1, 1.0 and True stand for each other, which
                               ``"equality": "python"`` allows
    undecided  rounding        right except for the rounding or notation of numbers, which
                               ``"tolerance"`` allows
    undecided  missing_module  it needs another module, which ``evidence`` names
    undecided  timeout         it slept, or the machine is busy
    undecided  killed          by the system, e.g. without free memory
    undecided  out_of_time     all tests took more processor time than ``sandbox.total_s``
    undecided  not_comparable  a test needs an object that cannot leave the sandbox
    undecided  unfit_tests     the tests cannot run without the program
    undecided  no_sandbox      the sandbox is not available; ``evidence`` says what to install

Not covered: programs of several files, other languages, and faults that the tests do not reveal. If
a problem has several right outputs, only the expected one is correct.
"""

from __future__ import annotations

import json
import sys
from typing import ClassVar, Literal, get_args

from heavydistill.config.run import Sandboxing, Verifying
from heavydistill.sandbox import Sandbox, open_sandbox
from heavydistill.schema import Label, Problem
from heavydistill.verifiers.base import Decision, Verifier
from heavydistill.verifiers.code import formats, livecodebench, rehearsal, running
from heavydistill.verifiers.code.answer import program_in
from heavydistill.verifiers.code.formats import IoTests, Rehearsable, Task, task_of
from heavydistill.verifiers.code.rehearsal import PASSED, NotRehearsedError, Result, failure
from heavydistill.verifiers.code.running import MOST_VALUE, NobodysFault, ProgramOutcome, run_tests
from heavydistill.verifiers.code.values import Likeness, Tree, likeness, likeness_of_outputs, shown

MOST_CHARACTERS = 200_000
_OUTPUT_ROOM = 65_536
_OPEN = {*get_args(NobodysFault), "not_comparable", "types", "rounding"}
_REASONS = {"alike": "types", "close": "rounding", "different": "different"}
_SLACK_S = 10.0


class Code(Verifier):
    """The verifier ``code``, described in this module's docstring."""

    name = "code"
    version = f"5-python-{sys.version_info.major}.{sys.version_info.minor}"
    argument_columns: ClassVar[tuple[str, ...]] = formats.ARGUMENTS
    needs_reference = False
    domain = "code"

    def __init__(self) -> None:
        self._config = Sandboxing()
        self._sandbox: Sandbox | None = None

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
        return decide(task_of(problem), candidate, sandbox, self._config)

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
        return running.wall_s(running.processor_s(config.sandbox, len(tests.tests))) + _SLACK_S

    def unavailable(self, config: Verifying) -> str | None:
        return open_sandbox(config.sandbox).unavailable()


def decide(task: Task, program: str, sandbox: Sandbox, config: Sandboxing) -> Decision:
    """Run a program in a sandbox and return the decision on it."""
    tests = task.tests
    if isinstance(tests, Rehearsable):
        try:
            results = rehearsal.results(tests, program, task.as_python, sandbox, config)
        except NotRehearsedError as error:
            evidence = json.dumps({"way": "rehearsal", **error.evidence})
            return Decision("undecided", error.reason, program, evidence=evidence)
        return _decision("rehearsal", results, program)
    kind: Literal["stdio", "calls"] = "stdio" if tests.kind == "stdio" else "calls"
    most, prelude = MOST_VALUE, livecodebench.LIMITS if tests.of_livecodebench else ""
    if kind == "stdio":
        longest = max(len(output.encode()) for output in tests.right)
        # The limit grows in large steps: the program may see it, and it must not reveal the length
        # of the expected output.
        most = _OUTPUT_ROOM * (1 + -(-2 * longest // _OUTPUT_ROOM))
    if tests.kind == "functional" or tests.of_livecodebench:
        prelude += running.prelude(program)
    outcomes = run_tests(
        sandbox,
        config,
        program,
        tests.tests,
        kind,
        most=most,
        prelude=prelude,
        after=tests.after,
        any_status=tests.of_livecodebench,
    )
    pairs = zip(outcomes, tests.right, strict=True)
    results = [_compared(outcome, right, tests, task.as_python) for outcome, right in pairs]
    return _decision(kind, results, program)


def _compared(outcome: ProgramOutcome, right: Tree, tests: IoTests, as_python: bool) -> Result:
    if outcome.became != "value":
        return failure(outcome)
    given, got = outcome.tree, shown(outcome.tree)
    if tests.kind == "stdio" and not isinstance(given, str):
        return "not_a_value", {}
    try:
        alike = _likeness(given, right, tests)
    except (ValueError, TypeError, ArithmeticError):
        return "not_a_value", {}
    is_right = {"same": True, "alike": as_python, "close": tests.tolerance is not None}
    if is_right.get(alike):
        return PASSED
    return _REASONS[alike], {"got": got if tests.kind == "stdio" else [got]}


def _likeness(given: Tree, right: Tree, tests: IoTests) -> Likeness:
    is_stdio, tolerance = tests.kind == "stdio", tests.tolerance
    if tests.of_livecodebench:
        agree = livecodebench.outputs_agree if is_stdio else livecodebench.values_agree
        return "same" if agree(given, right) else "different"
    if is_stdio:
        return likeness_of_outputs(given, right, in_tokens=tests.in_tokens, tolerance=tolerance)
    is_functional = tests.kind == "functional"
    return likeness(given, right, tuples_are_lists=is_functional, tolerance=tolerance)


def _decision(way: str, results: list[Result], program: str) -> Decision:
    """The decision on all tests; the reason is that of the first failed test."""
    passed = sum(result == PASSED for result in results)
    failed = [(number, *result) for number, result in enumerate(results, 1) if result != PASSED]
    wrong = [each for each in failed if each[1] not in _OPEN and each[1] != "not_run"]
    label: Label = "correct" if not failed else "incorrect" if wrong else "undecided"
    evidence: dict[str, object] = {"way": way, "tests": len(results), "passed": passed}
    reason = "passed"
    if failed:
        number, reason, detail = (wrong or failed)[0]
        # The outcomes of rehearsed tests have no order.
        test = {} if way == "rehearsal" else {"test": number}
        if test or detail:
            evidence["first"] = {**test, "outcome": reason, **detail}
    return Decision(label, reason, program, passed / len(results), json.dumps(evidence))

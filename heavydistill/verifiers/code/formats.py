"""What the tests of a problem are, read from its ``verifier_args``.

One of these, and next to it ``equality``, which is ``strict`` or ``python`` (see ``verifier``):

    {"tests": [{"input": "2\\n", "output": "4\\n"}, ...]}
        A program that reads stdin. ``"compare": "tokens"`` compares words rather than lines.
        ``"tolerance": 1e-6`` takes numbers for right that are so near to what is right, relative
        or absolute, and however they are written (``0`` takes ``2.50`` for ``2.5``).
    {"tests": [{"args": [2], "kwargs": {}, "expected": 4}, ...], "entry_point": "f"}
        A function, or ``Solution.f``, a method of a class without arguments. As in LiveCodeBench
        a test may be ``{"input": "[1, 2]\\n3", "output": "5"}``: one JSON argument a line.
        ``tolerance`` is for these as well, where a float is or should be.
    {"public_test_cases": "[{...}]", "private_test_cases": "eJx...", "entry_point": "Solution.f"}
        Tests of either kind as the columns of LiveCodeBench hold them; see ``arguments``.
    {"asserts": ["assert f(2) == 4", ...], "imports": "import math", "setup": "table = [1, 2]"}
        As in MBPP; its own names ``test_list``, ``test_imports`` and ``test_setup_code`` do too.
    {"test": "def check(candidate): ...", "entry_point": "f", "prompt": "def f(x): ..."}
        As in HumanEval. Without ``prompt`` the problem's text is it if it holds the function.

``tests`` and ``asserts`` may be JSON text of a list. Null is as if it were not there.
"""

from __future__ import annotations

import ast
import builtins
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from heavydistill.schema import Problem
from heavydistill.verifiers.code.arguments import (
    arguments,
    check_text,
    choice_of,
    entry_point_of,
    list_of,
    syntax_of,
    text_of,
    tolerance_of,
)
from heavydistill.verifiers.code.asserts import (
    TRUTHS,
    Condition,
    Truth,
    Unsplittable,
    program_names,
    split,
)
from heavydistill.verifiers.code.inside.carry import NotAValue, TooLarge
from heavydistill.verifiers.code.rehearsal import Rehearsable
from heavydistill.verifiers.code.values import Tree, likeness, tree_of

MOST_VALUE = 4_000_000
"""Characters, as it travels, of the value that a call gives."""
_MOST_INPUT = 16_000_000
_MOST_OUTPUT = 8_000_000


@dataclass(frozen=True, slots=True)
class Runs:
    """Tests of a program that reads stdin."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    in_tokens: bool
    tolerance: float | None


@dataclass(frozen=True, slots=True)
class Case:
    """A test that was split.

    Attributes:
        calls: First and behind the last of the task's calls that are its.
        holds: Whether it holds, from their values.
        needs_values: Whether it fails where the program gives what is no plain value.
    """

    calls: tuple[int, int]
    holds: Condition
    needs_values: bool = True


@dataclass(frozen=True, slots=True)
class Called:
    """Tests that call functions.

    Attributes:
        calls: As ``inside.perform`` takes them.
        cases: The tests.
        with_prelude: Whether the program has ``prelude``'s names without importing them.
        after: What is run behind the program, in its module.
    """

    calls: tuple[dict[str, Any], ...]
    cases: tuple[Case, ...]
    with_prelude: bool
    after: str


@dataclass(frozen=True, slots=True)
class Task:
    """The tests of a problem.

    Attributes:
        names: What the program must define.
        prompt: What the program completes, or empty.
        as_python: Whether 1, 1.0 and True are the same.
        tests: The tests, and so how they are run.
    """

    names: tuple[str, ...]
    prompt: str
    as_python: bool
    tests: Runs | Called | Rehearsable


def task_of(problem: Problem) -> Task:
    """The tests of a problem.

    Raises:
        ValueError: They are malformed; the message says what is, and what to write.
    """
    return _task(problem.verifier_args, problem.text)


@lru_cache(maxsize=16)
def _task(verifier_args: str, text: str) -> Task:
    args = arguments(verifier_args)
    kinds = [key for key in ("tests", "asserts", "test") if key in args]
    if len(kinds) != 1:
        raise ValueError(
            "verifier_args of code hold one of tests, asserts (or test_list) and test, not "
            f"{' and '.join(kinds) or 'none'}"
        )
    if kinds != ["tests"] and "tolerance" in args:
        raise ValueError("tolerance is for tests; assertions say themselves how near is right")
    as_python = choice_of(args, "equality", ("strict", "python")) == "python"
    if kinds == ["asserts"]:
        return _asserted(args, as_python)
    if kinds == ["test"]:
        return _checked(args, text, as_python)
    tests = list_of(args["tests"], "tests", dict)
    functional = "entry_point" in args or any(t.get("testtype") == "functional" for t in tests)
    for key in ("compare",) if functional else ("imports", "setup"):
        if key in args:
            what = "programs that read stdin" if functional else "functions"
            raise ValueError(f"{key} in verifier_args of code is for tests of {what}; leave it out")
    if functional:
        return _functional(tests, args, as_python)
    return Task((), "", as_python, _runs(tests, args))


def _runs(tests: list[dict[str, Any]], args: dict[str, Any]) -> Runs:
    in_tokens = choice_of(args, "compare", ("lines", "tokens")) == "tokens"
    for number, test in enumerate(tests, 1):
        for key in ("input", "output"):
            if not isinstance(test.get(key), str):
                raise ValueError(
                    f"test {number} needs {key}, a text; a function is tested with args and "
                    "expected, and entry_point beside tests"
                )
            check_text(test[key], f"{key} of test {number}")
        if len(test["output"]) > _MOST_OUTPUT:
            raise ValueError(f"output of test {number} has more than {_MOST_OUTPUT:,} characters")
    if sum(len(test["input"]) + len(test["output"]) for test in tests) > 2 * _MOST_OUTPUT:
        raise ValueError(
            f"the tests have more than {2 * _MOST_OUTPUT:,} characters; leave some out"
        )
    inputs, outputs = (tuple(test[key] for test in tests) for key in ("input", "output"))
    return Runs(inputs, outputs, in_tokens, tolerance_of(args))


def _functional(tests: list[dict[str, Any]], settings: dict[str, Any], as_python: bool) -> Task:
    entry, setup, tolerance = entry_point_of(settings), _setup(settings), tolerance_of(settings)
    calls: list[dict[str, Any]] = []
    cases = []
    for number, test in enumerate(tests, 1):
        args, kwargs, expected = _call(test, number)
        try:
            given = {"args": tree_of(args, _MOST_INPUT), "kwargs": tree_of(kwargs, _MOST_INPUT)}
            right = tree_of(expected, MOST_VALUE)
        except (NotAValue, TooLarge) as error:
            raise ValueError(f"test {number} is too large or too deep; leave it out") from error
        cases.append(Case((len(calls), len(calls) + 1), _equals(right, tolerance)))
        calls.append({"entry": entry, **given})
    names = (entry.rpartition(".")[2],)
    return Task(names, "", as_python, Called(tuple(calls), tuple(cases), True, setup))


def _equals(right: Tree, tolerance: float | None) -> Condition:
    def holds(values: Sequence[Tree]) -> Truth:
        found = likeness(values[0], right, tuples_are_lists=True, tolerance=tolerance)
        return "yes" if found == "close" and tolerance is not None else TRUTHS[found]

    return holds


def _call(test: dict[str, Any], number: int) -> tuple[list[Any], dict[str, Any], Any]:
    """Arguments, keyword arguments and the right value of a functional test."""
    if "args" in test or "expected" in test:
        args, kwargs = test.get("args"), test.get("kwargs") or {}
        if not isinstance(args, list) or not isinstance(kwargs, dict) or "expected" not in test:
            raise ValueError(f"test {number} needs args, a list, and expected; kwargs is an object")
        return args, kwargs, test["expected"]
    if not all(isinstance(test.get(key), str) for key in ("input", "output")):
        raise ValueError(f"test {number} needs args and expected, or input and output as texts")
    try:
        lines = [line for line in test["input"].split("\n") if line.strip()]
        return [json.loads(line) for line in lines], {}, json.loads(test["output"])
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"test {number}: of a function, every line of input is a JSON value, and output is one"
        ) from error


def _asserted(args: dict[str, Any], as_python: bool) -> Task:
    texts = list_of(args["asserts"], "asserts", str)
    nodes = []
    for number, text in enumerate(texts, 1):
        parsed = syntax_of(text, f"assertion {number}").body
        if not parsed or not all(isinstance(node, ast.Assert) for node in parsed):
            raise ValueError(f"assertion {number} is no assert statement: {text[:100]!r}")
        nodes += [node for node in parsed if isinstance(node, ast.Assert)]
    setup = _setup(args)
    own = _defined_in(ast.parse(setup))
    names = tuple(program_names([node.test for node in nodes], own))
    if not names:
        raise ValueError("the assertions call no function that an answer could define")
    called = _split_all([node.test for node in nodes], names, setup)
    tests = called or Rehearsable(setup, "\n".join(texts), names, "")
    return Task(names, "", as_python, tests)


def _checked(args: dict[str, Any], text: str, as_python: bool) -> Task:
    test, entry = text_of(args, "test"), entry_point_of(args)
    tree = syntax_of(test, "test")
    checks = [
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "check"
    ]
    if not checks or len(checks[0].args.args) != 1:
        raise ValueError("test must define check(candidate)")
    prompt = text_of(args, "prompt") or text
    head = re.search(rf"^def[ \t]+{entry}\b", prompt, re.M)
    prompt = prompt if head else ""
    tests = _split_check(tree, checks[-1], entry) or Rehearsable(
        prompt[: head.start()] if head else "", test, (entry,), "check"
    )
    return Task((entry,), prompt, as_python, tests)


def _split_check(tree: ast.Module, check: ast.FunctionDef, entry: str) -> Called | None:
    """The tests as calls, if ``check`` is a list of assertions and nothing else."""
    candidate = check.args.args[0].arg
    asserts = [node for node in check.body if isinstance(node, ast.Assert)]
    around = [node for node in tree.body if node is not check]
    if not all(map(_does_nothing, [node for node in check.body if node not in asserts] + around)):
        return None
    tests = [node.test for node in asserts if not _is_true(node.test)]
    if not tests or not all(map(_stands_alone(candidate, entry), tests)):
        return None
    return _split_all(tests, (candidate, entry), f"{candidate} = {entry}\n")


def _stands_alone(*names: str) -> Callable[[ast.expr], bool]:
    """Whether a test uses nothing but the program and builtins: no helper of the prompt, which the
    program could replace."""
    known = {*names, "math", *vars(builtins)}

    def stands_alone(test: ast.expr) -> bool:
        used = {node.id for node in ast.walk(test) if isinstance(node, ast.Name)}
        bound = {node.arg for node in ast.walk(test) if isinstance(node, ast.arg)}
        return used <= known | bound

    return stands_alone


def _split_all(tests: list[ast.expr], names: tuple[str, ...], after: str) -> Called | None:
    calls: list[dict[str, Any]] = []
    cases = []
    for test in tests:
        try:
            parts = split(test, names)
        except (Unsplittable, RecursionError):
            return None
        span = len(calls), len(calls) + len(parts.calls)
        cases.append(Case(span, parts.holds, parts.needs_values))
        calls += [{"source": call} for call in parts.calls]
    return Called(tuple(calls), tuple(cases), False, after)


def _does_nothing(node: ast.stmt) -> bool:
    """Whether a statement is a comment in effect, or the metadata of a benchmark."""
    if isinstance(node, ast.Assign):
        return all(isinstance(name, ast.Name) and name.id == "METADATA" for name in node.targets)
    return isinstance(node, ast.Pass) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and bool(node.value)


def _defined_in(tree: ast.Module) -> set[str]:
    """Names that statements at the top level define or import."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def _setup(args: dict[str, Any]) -> str:
    """What is run behind the program and before its tests."""
    imports = args.get("imports", "")
    if isinstance(imports, list) and all(isinstance(line, str) for line in imports):
        imports = "\n".join(imports)
    setup = f"{text_of({'imports': imports}, 'imports')}\n{text_of(args, 'setup')}\n"
    syntax_of(setup, "imports and setup")
    return setup

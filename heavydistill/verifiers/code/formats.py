r"""Reads the tests of a problem from its ``verifier_args``.

The arguments have one of these forms. Each may also contain ``equality`` (``strict`` or ``python``,
see ``verifier``):

    {"tests": [{"input": "2\n", "output": "4\n"}, ...]}
        A program that reads stdin. ``"compare": "tokens"`` compares words rather than lines.
        ``"tolerance": 1e-6`` accepts numbers that are this close, relatively or absolutely, in
        any notation (``0`` accepts ``2.50`` for ``2.5``).
    {"tests": [{"args": [2], "kwargs": {}, "expected": 4}, ...], "entry_point": "f"}
        A function, or ``Solution.f``, a method of a class that is created without arguments. As in
        LiveCodeBench, a test may be ``{"input": "[1, 2]\n3", "output": "5"}``: one JSON argument
        per line. ``tolerance`` also applies here, where a value is or should be a float.
    {"public_test_cases": "[{...}]", "private_test_cases": "eJx...", "entry_point": "Solution.f"}
        Tests of either kind, as in the columns of LiveCodeBench. ``"judged_like":
        "livecodebench"``, which ``problems.shape`` sets, applies the rules of its grader (see
        ``livecodebench``) in place of ``compare``, ``tolerance`` and ``equality``.
    {"asserts": ["assert f(2) == 4", ...], "imports": "import math", "setup": "table = [1, 2]"}
        As in MBPP; its names ``test_list``, ``test_imports`` and ``test_setup_code`` also work.
    {"test": "def check(candidate): ...", "entry_point": "f", "prompt": "def f(x): ..."}
        As in HumanEval. ``prompt`` defaults to the problem's text if that contains the function.

``tests`` and ``asserts`` may be a list as JSON text. Null means absent. Malformed arguments raise
``ValueError`` with a message that names the fault and the fix.
"""

from __future__ import annotations

import ast
import base64
import binascii
import builtins
import json
import keyword
import pickletools
import re
import symtable
import sys
import warnings
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from heavydistill.sandbox import packages
from heavydistill.schema import Problem
from heavydistill.verifiers.code.asserts import program_names, split
from heavydistill.verifiers.code.inside.serialize import EncodeError, TooLarge
from heavydistill.verifiers.code.running import MOST_VALUE
from heavydistill.verifiers.code.values import Tree, tree_of

MOST_UNPACKED = 64_000_000
"""Maximum size of the uncompressed tests of a problem, in bytes."""
_MOST_INPUT, _MOST_OUTPUT = 16_000_000, 8_000_000
_MOST_TESTS = 5000
# The bytes of a pickle around a single text: version, length, memo, end.
_AROUND = {"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"}

_PACKED = ("public_test_cases", "private_test_cases")
_OTHER_NAMES = {"test_list": "asserts", "test_imports": "imports", "test_setup_code": "setup"}
ARGUMENTS = (
    *("tests", "entry_point", "compare", "equality", "tolerance", "asserts", "imports", "setup"),
    *("test", "prompt", "judged_like", *_OTHER_NAMES, *_PACKED),
)


@dataclass(frozen=True, slots=True)
class IoTests:
    """Tests whose outputs are compared; each test is one call or one run of the program."""

    kind: Literal["stdio", "functional", "asserts"]
    """How the tests run: programs that read stdin, function calls, or assertions."""
    tests: tuple[object, ...]  # Tests in the form that ``inside.perform`` expects
    right: tuple[Tree, ...]  # Expected outputs, or expected values as trees
    tolerance: float | None = None
    in_tokens: bool = False  # Whether outputs are compared word by word; if false, line by line
    after: str = ""  # Code that runs after the program, in the program's module
    of_livecodebench: bool = False  # Whether the rules of LiveCodeBench's grader apply


@dataclass(frozen=True, slots=True)
class Rehearsable:
    """Tests that run unchanged in a sandbox without the program (see ``rehearsal``)."""

    preamble: str
    """Code that runs before the tests: their setup, or helper functions from the prompt."""
    tests: str
    names: tuple[str, ...]
    """Functions of the program that the tests call; ``check`` is called with the first one."""
    check: str
    """Name of the test function that takes the program's function; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Task:
    """The tests of a problem, and how to run the program."""

    names: tuple[str, ...]  # Names that the program must define
    prompt: str  # Code that the program completes; may be empty
    as_python: bool  # Whether 1, 1.0 and True count as equal
    tests: IoTests | Rehearsable


def task_of(problem: Problem) -> Task:
    """Read the tests of a problem.

    Raises:
        ValueError: The arguments are malformed; the message names the fault and the fix.
    """
    return _task(problem.verifier_args, problem.text)


@lru_cache(maxsize=16)
def _task(verifier_args: str, text: str) -> Task:
    args = _arguments(verifier_args)
    kinds = [key for key in ("tests", "asserts", "test") if key in args]
    if len(kinds) != 1:
        raise ValueError(
            "verifier_args of code need exactly one of tests, asserts (or test_list) and test, not "
            f"{' and '.join(kinds) or 'none'}"
        )
    if kinds != ["tests"] and "tolerance" in args:
        raise ValueError(
            "tolerance applies to tests only; leave it out and allow for rounding in the assertions"
        )
    _check_grader(args)
    as_python = _choice(args, "equality", ("strict", "python")) == "python"
    if kinds == ["asserts"]:
        return _asserted(args, as_python)
    if kinds == ["test"]:
        return _checked(args, text, as_python)
    tests = _list(args["tests"], "tests", dict)
    functional = "entry_point" in args or any(t.get("testtype") == "functional" for t in tests)
    for key in ("compare",) if functional else ("imports", "setup"):
        if key in args:
            what = "programs that read stdin" if functional else "functions"
            raise ValueError(f"{key} in verifier_args of code is for tests of {what}; leave it out")
    if functional:
        return _functional(tests, args, as_python)
    return Task((), "", as_python, _runs(tests, args))


def _check_grader(args: dict[str, object]) -> None:
    if "judged_like" not in args:
        return
    _choice(args, "judged_like", ("livecodebench",))
    for key in ("asserts", "test", "compare", "equality", "tolerance"):
        if key in args:
            raise ValueError(f"judged_like sets how tests are compared; leave {key} out")


def _runs(tests: list[dict[str, Any]], args: dict[str, object]) -> IoTests:
    in_tokens = _choice(args, "compare", ("lines", "tokens")) == "tokens"
    for number, test in enumerate(tests, 1):
        for key in ("input", "output"):
            if not isinstance(test.get(key), str):
                raise ValueError(
                    f"test {number} needs {key}, a text; if the tests call a function, give args "
                    "and expected in each test, and entry_point in verifier_args"
                )
            _check_text(test[key], f"{key} of test {number}")
        if len(test["output"]) > _MOST_OUTPUT:
            raise ValueError(f"output of test {number} has more than {_MOST_OUTPUT:,} characters")
    if sum(len(test["input"]) + len(test["output"]) for test in tests) > 2 * _MOST_OUTPUT:
        raise ValueError(
            f"the tests have more than {2 * _MOST_OUTPUT:,} characters; leave some out"
        )
    inputs, outputs = (tuple(test[key] for test in tests) for key in ("input", "output"))
    like = "judged_like" in args
    return IoTests("stdio", inputs, outputs, _tolerance(args), in_tokens, of_livecodebench=like)


def _functional(
    tests: list[dict[str, object]], settings: dict[str, object], as_python: bool
) -> Task:
    entry, setup, tolerance = _entry_point(settings), _setup(settings), _tolerance(settings)
    names, like = (entry.rpartition(".")[2],), "judged_like" in settings
    if like:  # a method may be written without its class
        entry = names[0]
    calls, right = [], []
    for number, test in enumerate(tests, 1):
        args, kwargs, expected = _call(test, number)
        try:
            given = {"args": tree_of(args, _MOST_INPUT), "kwargs": tree_of(kwargs, _MOST_INPUT)}
            right.append(tree_of(expected, MOST_VALUE))
        except (EncodeError, TooLarge) as error:
            raise ValueError(f"test {number} is too large or too deep; leave it out") from error
        calls.append({"entry": entry, **given})
    compared = IoTests(
        "functional", tuple(calls), tuple(right), tolerance, after=setup, of_livecodebench=like
    )
    return Task(names, "", as_python, compared)


def _call(test: dict[str, Any], number: int) -> tuple[list[object], dict[str, object], object]:
    """Arguments, keyword arguments and expected value of a functional test."""
    if "args" in test or "expected" in test:
        args, kwargs = test.get("args"), test.get("kwargs") or {}
        if not isinstance(args, list) or not isinstance(kwargs, dict) or "expected" not in test:
            raise ValueError(
                f"test {number} needs args, a list, and expected; kwargs must be an object if given"
            )
        return args, kwargs, test["expected"]
    if not all(isinstance(test.get(key), str) for key in ("input", "output")):
        raise ValueError(f"test {number} needs args and expected, or input and output as texts")
    try:
        lines = [line for line in test["input"].split("\n") if line.strip()]
        return [json.loads(line) for line in lines], {}, json.loads(test["output"])
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"test {number} of a function: output and each line of input must be a JSON value"
        ) from error


def _asserted(args: dict[str, object], as_python: bool) -> Task:
    texts = _list(args["asserts"], "asserts", str)
    nodes = []
    for number, text in enumerate(texts, 1):
        parsed = _syntax(text, f"assertion {number}").body
        if not parsed or not all(isinstance(node, ast.Assert) for node in parsed):
            raise ValueError(f"assertion {number} is not an assert statement: {text[:100]!r}")
        nodes += [node for node in parsed if isinstance(node, ast.Assert)]
    setup = _setup(args)
    names_there = symtable.symtable(setup, "setup", "exec").get_symbols()
    own = {name.get_name() for name in names_there if name.is_assigned() or name.is_imported()}
    names = tuple(program_names([node.test for node in nodes], own))
    if not names:
        raise ValueError("the assertions call no function that an answer could define")
    called = _split_all([node.test for node in nodes], names, setup)
    tests = called or Rehearsable(setup, "\n".join(texts), names, "")
    return Task(names, "", as_python, tests)


def _checked(args: dict[str, object], text: str, as_python: bool) -> Task:
    test, entry = _text(args, "test"), _entry_point(args)
    tree = _syntax(test, "test")
    checks = [
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "check"
    ]
    if not checks or len(checks[0].args.args) != 1:
        raise ValueError("test must define check(candidate)")
    prompt = _text(args, "prompt") or text
    head = re.search(rf"^def[ \t]+{entry}\b", prompt, re.M)
    prompt, helpers = (prompt, prompt[: head.start()]) if head else ("", "")
    called = _split_check(tree, checks[-1], entry)
    tests = called or Rehearsable(helpers, test, (entry,), "check")
    return Task((entry,), prompt, as_python, tests)


def _split_check(tree: ast.Module, check: ast.FunctionDef, entry: str) -> IoTests | None:
    """The tests as calls if ``check`` consists only of assertions; otherwise None."""
    candidate = check.args.args[0].arg
    asserts = [node for node in check.body if isinstance(node, ast.Assert)]
    around = [node for node in tree.body if node is not check]
    if not all(map(_does_nothing, [node for node in check.body if node not in asserts] + around)):
        return None
    tests = [node.test for node in asserts if not _does_nothing(node)]
    for test in tests:
        nodes = list(ast.walk(test))
        bound = {node.arg for node in nodes if isinstance(node, ast.arg)}
        used = {node.id for node in nodes if isinstance(node, ast.Name)}
        # A helper of the prompt is excluded, because the program could replace it.
        if not used - bound <= {candidate, entry, "math", *vars(builtins)}:
            return None
    return _split_all(tests, (candidate, entry), f"{candidate} = {entry}\n")


def _split_all(tests: list[ast.expr], names: tuple[str, ...], after: str) -> IoTests | None:
    pairs = [pair for test in tests if (pair := split(test, names))]
    if not pairs or len(pairs) < len(tests):
        return None
    calls = tuple({"source": call} for call, _ in pairs)
    return IoTests("asserts", calls, tuple(right for _, right in pairs), after=after)


def _does_nothing(node: ast.stmt) -> bool:
    """Whether a statement has no effect or only sets metadata of the benchmark."""
    match node:
        case ast.Assign([ast.Name("METADATA")]) | ast.Pass() | ast.Expr(ast.Constant()):
            return True
        case ast.Assert(ast.Constant(value)):
            return bool(value)
    return False


def _setup(args: dict[str, object]) -> str:
    """Code that runs after the program and before its tests."""
    imports = args.get("imports", "")
    if isinstance(imports, list) and all(isinstance(line, str) for line in imports):
        imports = "\n".join(imports)
    setup = f"{_text({'imports': imports}, 'imports')}\n{_text(args, 'setup')}\n"
    _syntax(setup, "imports and setup")
    return setup


# --- Reading of single arguments.
def tests_in(cell: Any, what: str) -> list[object]:
    """Read the tests in a dataset cell of LiveCodeBench; empty if it has none.

    Public tests are a list as JSON text. Private tests may also be pickled, compressed and encoded
    in base64. Loading a pickle executes code, so it is never loaded: only a pickle of a single text
    is accepted, and the text is taken from its bytes.

    Raises:
        ValueError: The cell has none of these forms, or unpacks to more than ``MOST_UNPACKED``.
    """
    if isinstance(cell, str):
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError):
            cell = _unpacked(cell, what)
    if not isinstance(cell, list):
        raise ValueError(f"{what} must be a list of tests, or its JSON text, plain or packed")
    return cell


def _unpacked(cell: str, what: str) -> object:
    try:
        unzipping = zlib.decompressobj()
        pickled = unzipping.decompress(base64.b64decode(cell, validate=True), MOST_UNPACKED)
    except (ValueError, binascii.Error, zlib.error) as error:
        raise ValueError(f"{what} is neither JSON nor packed JSON: {error}") from error
    if unzipping.unconsumed_tail:
        raise ValueError(
            f"{what} unpacks to more than {MOST_UNPACKED:,} bytes; leave some tests out"
        )
    try:
        steps = [(step.name, value) for step, value, _ in pickletools.genops(pickled)]
        made = [(name, value) for name, value in steps if name not in _AROUND]
        if len(made) != 1 or "UNICODE" not in made[0][0]:
            raise ValueError("it is not the pickle of one text")
        return json.loads(str(made[0][1]))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what} is packed, but does not contain JSON: {error}") from error


def _arguments(verifier_args: str) -> dict[str, object]:
    args = json.loads(verifier_args)
    if not isinstance(args, dict):
        raise ValueError("verifier_args of code must be a JSON object")
    unknown = [key for key in args if key not in ARGUMENTS]
    if unknown:
        raise ValueError(
            f"verifier_args of code have no key {unknown[0]!r}; the keys are {', '.join(ARGUMENTS)}"
        )
    arguments: dict[str, object] = {}
    if parts := [key for key in _PACKED if args.get(key) is not None]:
        arguments["tests"] = [test for key in parts for test in tests_in(args[key], key)]
    for key, value in args.items():
        if key in parts:
            continue
        name = _OTHER_NAMES.get(str(key), str(key))
        if value is None or (value in ("", []) and name in ("imports", "setup", "prompt")):
            continue
        if name in arguments:
            raise ValueError(f"verifier_args of code hold {name} twice: as {name} and as {key}")
        arguments[name] = value
    return arguments


def _syntax(text: str, what: str) -> ast.Module:
    """Parse the tests; they may import only what is in the sandbox."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"{what} is not valid Python: {error}") from error
    for node in ast.walk(tree):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        for module in modules:
            top = module.partition(".")[0]
            if top not in sys.stdlib_module_names and not (
                top in packages.NAMES and packages.files_of(top)
            ):
                raise ValueError(
                    f"{what} imports {module}; the sandbox has only the standard library, "
                    f"{' and '.join(packages.NAMES)}"
                )
    return tree


def _text(args: dict[str, object], key: str) -> str:
    value = args.get(key, "")
    if not isinstance(value, str):
        raise ValueError(
            f"{key} in verifier_args of code must be a text, not {type(value).__name__}"
        )
    _check_text(value, key)
    return value


def _check_text(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} holds half a character (a lone surrogate)") from error


def _entry_point(args: dict[str, object]) -> str:
    entry = args.get("entry_point")
    parts = entry.split(".") if isinstance(entry, str) else []
    are_names = all(part.isidentifier() and not keyword.iskeyword(part) for part in parts)
    if not 1 <= len(parts) <= 2 or not are_names:
        raise ValueError('entry_point must name the function, e.g. "f" or "Solution.f"')
    return ".".join(parts)


def _choice(args: dict[str, object], key: str, choices: tuple[str, ...]) -> str:
    value = args.get(key, choices[0])
    if value not in choices:
        raise ValueError(f"{key} must be {' or '.join(choices)}, not {value!r}")
    return str(value)


def _tolerance(args: dict[str, Any]) -> float | None:
    value = args.get("tolerance")
    if value is not None and (type(value) not in (int, float) or not 0 <= value < 1):
        raise ValueError(f"tolerance must be a number from 0 to below 1, e.g. 1e-6, not {value!r}")
    return None if value is None else float(value)


def _list(value: object, what: str, kind: type) -> list[Any]:
    """Read a non-empty list, given as a list or as JSON text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{what} is neither a list nor the JSON text of one") from error
    if not isinstance(value, list) or not value:
        raise ValueError(f"{what} must be a list with at least one test")
    if len(value) > _MOST_TESTS:
        raise ValueError(f"{what} has {len(value):,} tests, but at most {_MOST_TESTS:,} can be run")
    for number, item in enumerate(value, 1):
        if not isinstance(item, kind):
            wanted = "an object" if kind is dict else "a text"
            raise ValueError(f"test {number} in {what} must be {wanted}, not {type(item).__name__}")
    return value

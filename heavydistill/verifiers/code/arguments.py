"""Reads the arguments of the verifier ``code`` one by one; what is malformed is a ``ValueError``
whose message says what, and what to write."""

from __future__ import annotations

import ast
import base64
import binascii
import json
import keyword
import pickletools
import re
import sys
import warnings
import zlib
from typing import Any

# --- Tests as LiveCodeBench writes them into a cell. Public tests are the JSON text of a list;
# private ones are too, or where that would be long it is pickled, compressed and written in base64.
# A pickle is a program, so it is never run: one that holds a single text and nothing else is read.
MOST_UNPACKED = 64_000_000
"""Bytes of the tests of a problem behind their compression."""
# What stands around the one text: the version, its length, a place in the memo and the end.
_AROUND = {"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"}


def tests_in(cell: Any, what: str) -> list[Any]:
    """The tests in a cell; empty where there are none.

    Args:
        cell: A list, its JSON text, or that packed.
        what: Names it in messages.

    Raises:
        ValueError: It is none of these, or unpacks to more than ``MOST_UNPACKED``.
    """
    if isinstance(cell, str):
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError):
            cell = _unpacked(cell, what)
    if not isinstance(cell, list):
        raise ValueError(f"{what} is a list of tests, its JSON text, or that packed")
    return cell


def _unpacked(cell: str, what: str) -> Any:
    try:
        unzipping = zlib.decompressobj()
        pickled = unzipping.decompress(base64.b64decode(cell, validate=True), MOST_UNPACKED)
    except (ValueError, binascii.Error, zlib.error) as error:
        raise ValueError(f"{what} is neither JSON nor packed JSON: {error}") from error
    if unzipping.unconsumed_tail:
        raise ValueError(f"{what} unpacks to more than {MOST_UNPACKED:,} bytes; leave some out")
    try:
        return json.loads(_text_in(pickled))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what} is packed, and no JSON text is in it: {error}") from error


def _text_in(pickled: bytes) -> str:
    """The text that a pickle of one text holds."""
    steps = [(step.name, value) for step, value, _ in pickletools.genops(pickled)]
    made = [(name, value) for name, value in steps if name not in _AROUND]
    if len(made) != 1 or "UNICODE" not in made[0][0]:
        raise ValueError("it is no pickle of one text")
    return str(made[0][1])


# --- The arguments.
ARGUMENTS = (
    "tests",
    "entry_point",
    "compare",
    "equality",
    "tolerance",
    "asserts",
    "imports",
    "setup",
    "test",
    "prompt",
    "test_list",
    "test_imports",
    "test_setup_code",
    "public_test_cases",
    "private_test_cases",
)
_OTHER_NAMES = {"test_list": "asserts", "test_imports": "imports", "test_setup_code": "setup"}
_PARTS = ("public_test_cases", "private_test_cases")
_MOST_TESTS = 5000
_ENTRY = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)?")


def arguments(verifier_args: str) -> dict[str, Any]:
    args = json.loads(verifier_args)
    if not isinstance(args, dict):
        raise ValueError("verifier_args of code are a JSON object")
    unknown = [key for key in args if key not in ARGUMENTS]
    if unknown:
        raise ValueError(
            f"verifier_args of code hold no {unknown[0]!r}; they take {', '.join(ARGUMENTS)}"
        )
    found: dict[str, Any] = {}
    if parts := [key for key in _PARTS if args.get(key) is not None]:
        found["tests"] = [test for key in parts for test in tests_in(args[key], key)]
    for key, value in args.items():
        if key in parts:
            continue
        name = _OTHER_NAMES.get(str(key), str(key))
        if value is None or (value in ("", []) and name in ("imports", "setup", "prompt")):
            continue
        if name in found:
            raise ValueError(f"verifier_args of code hold {name} twice: as {name} and as {key}")
        found[name] = value
    return found


def syntax_of(text: str, what: str) -> ast.Module:
    """The syntax tree of tests.

    Raises:
        ValueError: They are no Python, or need more than the standard library.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"{what} is no Python: {error}") from error
    for node in ast.walk(tree):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        for module in modules:
            if module.partition(".")[0] not in sys.stdlib_module_names:
                raise ValueError(
                    f"{what} imports {module}; only the standard library is in the sandbox"
                )
    return tree


def text_of(args: dict[str, Any], key: str) -> str:
    value = args.get(key, "")
    if not isinstance(value, str):
        raise ValueError(f"{key} in verifier_args of code is a text, not {type(value).__name__}")
    check_text(value, key)
    return value


def check_text(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{what} holds half a character (a lone surrogate)") from error


def entry_point_of(args: dict[str, Any]) -> str:
    entry = args.get("entry_point")
    named = isinstance(entry, str) and _ENTRY.fullmatch(entry)
    if not named or any(keyword.iskeyword(part) for part in str(entry).split(".")):
        raise ValueError('entry_point names the function, e.g. "f" or "Solution.f"')
    return str(entry)


def choice_of(args: dict[str, Any], key: str, choices: tuple[str, ...]) -> str:
    value = args.get(key, choices[0])
    if value not in choices:
        raise ValueError(f"{key} is {' or '.join(choices)}, not {value!r}")
    return str(value)


def tolerance_of(args: dict[str, Any]) -> float | None:
    value = args.get("tolerance")
    if value is not None and (type(value) not in (int, float) or not 0 <= value < 1):
        raise ValueError(f"tolerance is a number from 0 to below 1, e.g. 1e-6, not {value!r}")
    return None if value is None else float(value)


def list_of(value: Any, what: str, kind: type) -> list[Any]:
    """A list, not empty, of so many things; or the JSON text of one."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{what} is neither a list nor the JSON text of one") from error
    if not isinstance(value, list) or not value:
        raise ValueError(f"{what} is a list with at least one test")
    if len(value) > _MOST_TESTS:
        raise ValueError(f"{what} has {len(value):,} tests, and {_MOST_TESTS:,} can be run")
    for number, item in enumerate(value, 1):
        if not isinstance(item, kind):
            wanted = "an object" if kind is dict else "a text"
            raise ValueError(f"test {number} in {what} must be {wanted}, not {type(item).__name__}")
    return value

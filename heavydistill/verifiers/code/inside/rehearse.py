"""Runs tests in the sandbox without the program that they test.

A stand-in replaces every function of the program. In the first run it records each call and returns
an ``Unknown``, and assertions are not counted. The program then performs those calls in another
sandbox. In the second run the stand-in returns the values that the program computed, and assertions
are counted. So tests of any form run unchanged, and their expected values never enter the sandbox
of the program.

Reports, by letter: ``C`` the calls and the number of assertions; ``R`` the numbers of assertions
that passed, failed, passed except for types (``1`` for ``True``) and have no outcome; ``D`` the
calls of the second run differ from those of the first; ``U`` the tests cannot be rehearsed, with
the reason.
"""

from __future__ import annotations

import ast
import builtins
import math
import posix
import sys
from collections.abc import Callable, Iterator
from typing import Any

from heavydistill.verifiers.code.inside.serialize import (
    EncodeError,
    TooLarge,
    decode,
    encode,
    report,
)

_MOST_CALLS = 5000


class AbortRun(BaseException):
    """Ends the tests with a report (letter, reason); with an empty letter, ends one assertion."""

    def __init__(self, letter: str, why: str = "") -> None:
        self.letter, self.why = letter, why


class Unknown:
    """A value that is not known yet; every operation on it returns another ``Unknown``."""

    def __getattr__(self, name: str) -> Unknown:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def _same(self, *_: object, **__: object) -> Unknown:
        return self

    __call__ = __getitem__ = __neg__ = __abs__ = __round__ = _same
    __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = _same
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = _same
    __and__ = __or__ = __xor__ = __rand__ = __ror__ = __rxor__ = _same
    __lt__ = __le__ = __gt__ = __ge__ = _same
    __eq__ = __ne__ = _same  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]

    def __iter__(self) -> Iterator[object]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def _true(self, *_: object) -> bool:
        return True

    __bool__ = __contains__ = _true

    def __float__(self) -> float:
        return 1.0

    def __int__(self) -> int:
        return 1

    __index__ = __int__


class Rehearsal:
    """State of one run of the tests."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._answers = job["answers"]
        self._expected = job["calls"]
        self._room = job["most"]
        self.calls: list[str] = []
        self.counts = {"yes": 0, "no": 0, "types": 0, "unsure": 0}
        self._typed = True

    def stand_in(self, name: str) -> Callable[..., object]:
        """Create a stand-in for the function named ``name``."""
        return lambda *args, **kwargs: self._called(name, args, kwargs)

    def _called(self, name: str, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        try:
            call = encode((name, list(args), kwargs), self._room)
        except (EncodeError, TooLarge):
            raise AbortRun(
                "U", "an argument of a call is not a plain value, or too large"
            ) from None
        index = len(self.calls)
        self.calls.append(call)
        self._room -= len(call)
        if self._answers is None:
            if index >= _MOST_CALLS:
                raise AbortRun("U", "too many calls")
            return Unknown()
        if index >= len(self._expected) or call != self._expected[index]:
            raise AbortRun("D")
        return _answer(self._answers[index], args)

    def equal(self, left: object, right: object) -> object:
        """Evaluate ``left == right`` in an assertion, comparing types as well."""
        is_equal = left == right
        if is_equal is True and not _same_types(left, right):
            self._typed = False
        return is_equal

    def begin(self) -> None:
        self._typed = True

    def held(self, condition: object) -> None:
        """Count an assertion as passed or failed by the value of its condition."""
        self.counts["no" if not condition else "yes" if self._typed else "types"] += 1

    def broke(self, error: BaseException) -> None:
        """Count an assertion as failed or unsure, because ``error`` was raised in or around it."""
        if isinstance(error, AbortRun) and error.letter:
            raise error
        is_unsure = isinstance(error, AbortRun) and error.why == "unsure"
        self.counts["unsure" if is_unsure else "no"] += 1


def _answer(answer: list[Any], args: tuple[Any, ...]) -> object:
    """Repeat what the program did in a call: change the arguments and return a value, or raise."""
    letter, content = answer
    if letter == "E":
        kind = getattr(builtins, content, None)
        raises = isinstance(kind, type) and issubclass(kind, Exception)
        raise kind() if raises else Exception(content)  # type: ignore[misc]
    if letter != "V":
        raise AbortRun("", "unsure" if letter == "U" else "gone")
    value, after = decode(content)
    for before, now in zip(args, after, strict=True):
        if type(before) is type(now) and isinstance(before, list):
            before[:] = now
        elif type(before) is type(now) and isinstance(before, dict | set):
            before.clear()
            before.update(now)
    return value


def _same_types(left: Any, right: Any) -> bool:
    """Whether two equal values have the same types throughout."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list | tuple):
        return all(map(_same_types, left, right))
    if isinstance(left, dict) and not all(_same_types(left[key], right[key]) for key in left):
        return False
    if isinstance(left, dict | set | frozenset):
        keys = {key: key for key in right}
        return all(_same_types(key, keys[key]) for key in left)
    return True


class _Counted(ast.NodeTransformer):
    """Rewrites assertions so that they are counted and do not end the tests."""

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        if isinstance(node.test, ast.Constant) and node.test.value:
            return ast.Pass()
        test = _Equalities().visit(node.test)
        begin = ast.Expr(_call("begin"))
        held = ast.Expr(_call("held", test))
        broke = ast.Expr(_call("broke", ast.Name("__error__", ast.Load())))
        everything = ast.Name("BaseException", ast.Load())
        handler = ast.ExceptHandler(everything, "__error__", [broke])
        return ast.Try([begin, held], [handler], [], [])


class _Equalities(ast.NodeTransformer):
    """Rewrites the equalities in an assertion so that they compare types as well."""

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
            return _call("equal", node.left, node.comparators[0])
        return node


def _call(method: str, *args: ast.expr) -> ast.Call:
    rehearsal = ast.Name("__rehearsal__", ast.Load())
    return ast.Call(ast.Attribute(rehearsal, method, ast.Load()), list(args), [])


def rehearse(job: dict[str, Any]) -> None:
    """Run the tests once and report.

    Args:
        job: ``token``; ``preamble``, ``tests``, ``names`` and ``check`` of a ``Rehearsable``;
            ``calls`` and ``answers`` from the first run, or None; ``most``, maximum characters of
            all calls.
    """
    channel = posix.dup(1)
    nothing = posix.open("/dev/null", posix.O_RDWR)
    for target in range(3):
        posix.dup2(nothing, target)
    report(channel, job["token"], 0, *_rehearsed(Rehearsal(job), job))
    posix._exit(0)


def _rehearsed(rehearsal: Rehearsal, job: dict[str, Any]) -> tuple[str, bytes]:
    if "random" in job["tests"]:
        import random

        random.seed(0)
    module = type(sys)("tests")
    sys.modules["tests"] = module
    names = vars(module)
    # Tests compare floats with these functions, and many datasets do not import them.
    names.update(math=math, isclose=math.isclose)
    try:
        exec(compile(job["preamble"], "<preamble>", "exec", dont_inherit=True), names)
        names["__rehearsal__"] = rehearsal
        for name in job["names"]:
            names[name] = rehearsal.stand_in(name)
        tree = ast.fix_missing_locations(_Counted().visit(ast.parse(job["tests"])))
        exec(compile(tree, "<tests>", "exec", dont_inherit=True), names)
        if job["check"]:
            names[job["check"]](names[job["names"][0]])
    except BaseException as error:
        if isinstance(error, AbortRun) and error.letter:
            return error.letter, error.why.encode()
        if job["answers"] is None:
            return "U", f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:500]
        rehearsal.broke(error)
    if job["answers"] is None:
        return "C", encode((rehearsal.calls, sum(rehearsal.counts.values())), 2**40).encode()
    if len(rehearsal.calls) < len(job["calls"]) and not rehearsal.counts["no"]:
        return "D", b""
    return "R", encode(list(rehearsal.counts.values()), 2**40).encode()

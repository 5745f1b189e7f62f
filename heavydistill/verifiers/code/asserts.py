"""Splits an assertion into calls of the program, which go into the sandbox, and what is right.

``assert f(2) == 4`` becomes the call ``f(2)`` and the condition that its value equals 4. The call
alone is sent; the condition is decided outside, on the value that came back. What can be split:

    subject     a call of a name that the program must define, e.g. ``f(2)`` or ``Stack().pop()``;
                an item, slice or attribute of a subject; a builtin such as ``sorted``, ``set`` or
                ``len`` around one
    constant    literals; arithmetic on numbers; ``float("inf")``, ``set()``, ``math.pi`` and the
                like
    condition   a subject alone; ``==``, ``!=``, ``is``, ``in`` ... of subjects and constants,
                chained too; ``not``, ``and``, ``or`` of conditions

Anything else, such as ``<`` or ``math.isclose``, is ``Unsplittable``, and ``rehearsal`` takes it.
"""

from __future__ import annotations

import ast
import builtins
import math
import operator
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from heavydistill.verifiers.code.inside.carry import NotAValue, TooLarge
from heavydistill.verifiers.code.values import Likeness, Tree, likeness, members, tree_of, truth

# --- The values of expressions that are constant, found without running them.
_MAKERS: dict[str, Callable[..., Any]] = {
    kind.__name__: kind for kind in (float, set, frozenset, list, tuple, dict)
}
_MATH = {f"math.{name}": getattr(math, name) for name in ("pi", "e", "inf", "nan", "tau")}
_OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_MOST_BITS = 100_000


class Unsplittable(ValueError):
    """What is right in an assertion cannot be told from the calls in it."""


def constant(node: ast.expr) -> Any:
    """The value of an expression that is constant.

    Raises:
        Unsplittable: It is not, or it takes too long to find out.
    """
    try:
        if isinstance(node, ast.BinOp):
            return _arithmetic(constant(node.left), type(node.op), constant(node.right))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -constant(node.operand)
        if isinstance(node, ast.Attribute) and dotted(node) in _MATH:
            return _MATH[dotted(node)]
        if isinstance(node, ast.Call) and dotted(node.func) in _MAKERS and not node.keywords:
            return _MAKERS[dotted(node.func)](*map(constant, node.args))
        return ast.literal_eval(node)
    except Unsplittable:
        raise
    except (ValueError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise Unsplittable(str(error)) from error


def _arithmetic(left: Any, op: type[ast.operator], right: Any) -> Any:
    """Arithmetic on numbers; what would take long is refused."""
    if not all(isinstance(side, int | float | complex) for side in (left, right)):
        raise ValueError("arithmetic on something else than numbers")
    bits = [side.bit_length() if isinstance(side, int) else 64 for side in (left, right)]
    is_large = op is ast.Pow and isinstance(right, int) and bits[0] * abs(right) > _MOST_BITS
    if op not in _OPERATIONS or is_large or sum(bits) > _MOST_BITS:
        raise ValueError("arithmetic that is not done here")
    return _OPERATIONS[op](left, right)


def dotted(node: ast.expr) -> str:
    """``a`` or ``a.b``, as text; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return ""


# ``types``: it holds in Python, only because it takes 1, 1.0 and True for the same.
# ``rounding``: it does not, only because of floats that are close.
Truth = Literal["yes", "types", "rounding", "no"]
TRUTHS: dict[Likeness, Truth] = {
    "same": "yes",
    "alike": "types",
    "close": "rounding",
    "different": "no",
}
_FROM_BEST: tuple[Truth, ...] = ("yes", "types", "rounding", "no")
Condition = Callable[[Sequence[Tree]], Truth]
Term = Callable[[Sequence[Tree]], Tree]

_BUILTINS = frozenset(vars(builtins))
# Builtins around a subject that are sent with it: what they give is the program's answer as well.
# None that gives a boolean: an object that lies would know what to say.
_AROUND = {
    *("list", "tuple", "set", "frozenset", "dict", "sorted", "len", "str", "repr", "int", "float"),
    *("sum", "min", "max", "abs", "round", "next", "iter", "reversed"),
}
_WITH_SETTING = {"round", "int", "sum", "next"}


@dataclass(frozen=True, slots=True)
class Case:
    """One test that calls the program."""

    calls: list[dict[str, Any]]
    """The calls that are sent, as ``inside.perform`` takes them."""
    holds: Condition
    """Whether it holds, from their values."""
    needs_values: bool = True
    """Whether it fails where a call gives what is no plain value."""


def split(test: ast.expr, program: Collection[str]) -> Case:
    """Split the expression of an assertion on a program that defines some names.

    Raises:
        Unsplittable: See the module.
    """
    splitter = _Splitter(program)
    condition = splitter.condition(test)
    if not splitter.calls:
        raise Unsplittable("it calls nothing of the program")
    calls = [{"source": call} for call in splitter.calls]
    return Case(calls, condition, splitter.needs_values)


def program_names(trees: Sequence[ast.AST], own: Collection[str]) -> list[str]:
    """Names that tests call and do not define, as ``own``, so that the program must define them."""
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = [(node.func.id, node) for node in calls if isinstance(node.func, ast.Name)]
    elsewhere = _BUILTINS.union(own, ("isclose",))
    names = [name for name, _ in called if name not in elsewhere]
    if not names:
        # A program may define a function of the name of a builtin: a call without one within it.
        innermost = [name for name, call in called if not _calls_in(call)]
        names = [name for name in innermost if name not in own]
    return list(dict.fromkeys(names))


def _calls_in(call: ast.Call) -> list[ast.AST]:
    return [part for part in ast.walk(call) if isinstance(part, ast.Call) and part is not call]


class _Splitter:
    def __init__(self, program: Collection[str]) -> None:
        self._program = program
        self.calls: list[str] = []
        self.needs_values = True

    def condition(self, node: ast.expr) -> Condition:
        if isinstance(node, ast.BoolOp):
            conditions = [self.condition(part) for part in node.values]
            worst_or_best = max if isinstance(node.op, ast.And) else min
            return lambda values: worst_or_best(
                (condition(values) for condition in conditions), key=_FROM_BEST.index
            )
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self.needs_values = False
            negated = self.condition(node.operand)
            return lambda values: "yes" if negated(values) in ("no", "rounding") else "no"
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        term = self._term(node)
        self.needs_values = False
        return lambda values: "yes" if truth(term(values)) else "no"

    def _comparison(self, node: ast.Compare) -> Condition:
        sides = [node.left, *node.comparators]
        for op, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
                raise Unsplittable("an order")
            asks_right = isinstance(op, ast.In) and self._is_subject(right)
            if asks_right or isinstance(op, ast.NotEq | ast.IsNot | ast.NotIn):
                self.needs_values = False
        terms = [self._term(side) for side in sides]
        pairs = list(zip(terms, node.ops, terms[1:], strict=False))

        def compared(values: Sequence[Tree]) -> Truth:
            found = [_compare(a(values), type(op), b(values)) for a, op, b in pairs]
            return max(found, key=_FROM_BEST.index)

        return compared

    def _term(self, node: ast.expr) -> Term:
        """A subject or a constant."""
        if self._is_subject(node):
            self.calls.append(ast.unparse(node))
            return operator.itemgetter(len(self.calls) - 1)
        try:
            tree = tree_of(constant(node))
        except (NotAValue, TooLarge) as error:
            raise Unsplittable("a constant that is no plain value") from error
        return lambda values: tree

    def _is_subject(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Subscript | ast.Attribute):
            return self._is_subject(node.value)
        if not isinstance(node, ast.Call):
            return False
        if isinstance(node.func, ast.Attribute):
            # A method of an instance that is made here of a class of the program.
            made = dotted(node.func.value.func) if isinstance(node.func.value, ast.Call) else ""
            return made[:1].isupper() and made in self._program
        name = dotted(node.func)
        return name in self._program or (name in _AROUND and self._is_around(name, node))

    def _is_around(self, name: str, node: ast.Call) -> bool:
        """Whether a builtin goes around a subject and says nothing of what is right."""
        settings = [*node.args[1:], *(word.value for word in node.keywords)]
        return (
            bool(node.args)
            and self._is_subject(node.args[0])
            and (len(node.args) == 1 or name in _WITH_SETTING)
            and all(isinstance(node, ast.Lambda | ast.Name | ast.Constant) for node in settings)
        )


def _compare(left: Tree, op: type[ast.cmpop], right: Tree) -> Truth:
    if op in (ast.NotEq, ast.IsNot, ast.NotIn):
        positive = {ast.NotEq: ast.Eq, ast.IsNot: ast.Is, ast.NotIn: ast.In}[op]
        found = _compare(left, positive, right)
        # ``f() is not True`` holds of 1; ``f() != True`` does not.
        return "yes" if found in ("no", "rounding") else "no"
    if op is ast.Eq:
        return TRUTHS[likeness(left, right)]
    if op is ast.Is:
        return "yes" if likeness(left, right) == "same" else "no"
    if isinstance(right, str):
        return "yes" if isinstance(left, str) and left in right else "no"
    alike = [likeness(left, member) for member in members(right) or []]
    return "yes" if "same" in alike else "types" if "alike" in alike else "no"

"""Splits an assertion into calls of the program, which go into the sandbox, and what is right.

``assert f(2) == 4`` becomes the call ``f(2)`` and the condition that its value equals 4. The call
alone is sent; the condition is decided outside, on the value that came back. What can be split:

    subject     a call of a name that the program must define, e.g. ``f(2)`` or ``Stack().pop()``;
                an item, slice or attribute of a subject; a builtin such as ``sorted``, ``set`` or
                ``len`` around one
    constant    literals; arithmetic on them; ``float("inf")``, ``set()``, ``math.pi`` and the like
    condition   a subject alone; ``==``, ``!=``, ``is``, ``in``, ``<`` ... of subjects and
                constants, chained too; ``isclose(subject, constant)``;
                ``abs(subject - constant) < constant``; ``not``, ``and``, ``or`` of conditions

Anything else is ``Unsplittable``, and ``rehearsal`` takes it.
"""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from heavydistill.verifiers.code.inside.carry import NotAValue, TooLarge
from heavydistill.verifiers.code.values import (
    Likeness,
    Tree,
    likeness,
    members,
    number,
    tree_of,
    truth,
)

# --- The values of expressions that are constant, found without running them: literals, arithmetic
# on them, ``set()``, ``list(...)`` and the like of one constant. What would take long is refused.
_MAKERS: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "int": int,
    "complex": complex,
    "set": set,
    "frozenset": frozenset,
    "list": list,
    "tuple": tuple,
    "dict": dict,
    "sorted": sorted,
}
_MATH = {"pi": math.pi, "e": math.e, "inf": math.inf, "nan": math.nan, "tau": math.tau}
_MOST_BITS = 100_000


class Unsplittable(ValueError):
    """What is right in an assertion cannot be told from the calls in it."""


def constant(node: ast.expr) -> Any:
    """The value of an expression that is constant.

    Raises:
        Unsplittable: It is not, or it takes too long to find out.
    """
    try:
        return _constant(node)
    except (ValueError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise Unsplittable(str(error)) from error


def _constant(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List):
        return [_constant(item) for item in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple(_constant(item) for item in node.elts)
    if isinstance(node, ast.Set):
        return {_constant(item) for item in node.elts}
    if isinstance(node, ast.Dict):
        if None in node.keys:
            raise ValueError("a dictionary with ** in it")
        keys = [_constant(key) for key in node.keys if key is not None]
        return dict(zip(keys, map(_constant, node.values), strict=True))
    if isinstance(node, ast.UnaryOp):
        value = _constant(node.operand)
        operations: dict[type[ast.unaryop], Callable[[Any], Any]] = {
            ast.USub: lambda a: -a,
            ast.UAdd: lambda a: +a,
            ast.Invert: lambda a: ~a,
        }
        if type(node.op) in operations:
            return operations[type(node.op)](value)
    if isinstance(node, ast.BinOp):
        return _arithmetic(_constant(node.left), type(node.op), _constant(node.right))
    if isinstance(node, ast.Attribute) and dotted(node) in {f"math.{name}" for name in _MATH}:
        return _MATH[node.attr]
    if isinstance(node, ast.Call) and not node.keywords and len(node.args) <= 1:
        maker = _MAKERS.get(dotted(node.func))
        if maker and (node.args or maker in (set, frozenset, list, tuple, dict)):
            return maker(*map(_constant, node.args))
    raise ValueError(f"{type(node).__name__} is not constant")


def _arithmetic(left: Any, op: type[ast.operator], right: Any) -> Any:
    if op is ast.Add and type(left) is type(right) and isinstance(left, str | list | tuple):
        return left + right
    if op is ast.Mult and isinstance(left, str | list | tuple) and isinstance(right, int):
        if len(left) * right > _MOST_BITS:
            raise ValueError("too long")
        return left * right
    if not all(isinstance(side, int | float | complex) for side in (left, right)):
        raise ValueError("arithmetic on something else than numbers")
    bits = [side.bit_length() if isinstance(side, int) else 64 for side in (left, right)]
    if op is ast.Pow and isinstance(right, int) and bits[0] * abs(right) > _MOST_BITS:
        raise ValueError("too large a power")
    operations: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
        ast.Add: lambda a, b: a + b,
        ast.Sub: lambda a, b: a - b,
        ast.Mult: lambda a, b: a * b,
        ast.Div: lambda a, b: a / b,
        ast.FloorDiv: lambda a, b: a // b,
        ast.Mod: lambda a, b: a % b,
        ast.Pow: lambda a, b: a**b,
    }
    if op not in operations or sum(bits) > _MOST_BITS:
        raise ValueError("arithmetic that is not done here")
    return operations[op](left, right)


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
_AROUND = frozenset(
    {
        "list",
        "tuple",
        "set",
        "frozenset",
        "dict",
        "sorted",
        "len",
        "str",
        "repr",
        "int",
        "float",
        "sum",
        "min",
        "max",
        "abs",
        "round",
        "next",
        "iter",
        "reversed",
    }
)
_WITH_SETTING = {"round", "int", "sum", "next"}
_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_NEAR = 1e-9  # of math.isclose


@dataclass(slots=True)
class Split:
    """One assertion.

    Attributes:
        calls: Source of the calls that are sent.
        holds: Whether it holds, from the values of the calls.
        needs_values: Whether it fails where a call gives what is no plain value.
    """

    calls: list[str]
    holds: Condition
    needs_values: bool


def split(test: ast.expr, program: Collection[str]) -> Split:
    """Split the expression of an assertion.

    Args:
        program: Names that the program defines.

    Raises:
        Unsplittable: See the module.
    """
    splitter = _Splitter(program)
    condition = splitter.condition(test)
    if not splitter.calls:
        raise Unsplittable("it calls nothing of the program")
    return Split(splitter.calls, condition, splitter.needs_values)


def program_names(trees: Sequence[ast.AST], own: Collection[str]) -> list[str]:
    """Names that tests call and that the program must define, in their order.

    Args:
        own: Names that the tests define themselves.
    """
    calls = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = dict.fromkeys(node.func.id for node in calls if isinstance(node.func, ast.Name))
    elsewhere = _BUILTINS.union(own, ("isclose",))
    names = [name for name in called if name not in elsewhere]
    if names:
        return names
    # A program may define a function of the name of a builtin.
    inner = [node.func.id for node in calls if isinstance(node.func, ast.Name) and not _calls(node)]
    return [name for name in dict.fromkeys(inner) if name not in own]


def _calls(node: ast.Call) -> bool:
    """Whether there is a call within this one."""
    return sum(isinstance(part, ast.Call) for part in ast.walk(node)) > 1


class _Splitter:
    def __init__(self, program: Collection[str]) -> None:
        self._program = program
        self.calls: list[str] = []
        self.needs_values = True

    def condition(self, node: ast.expr) -> Condition:
        if isinstance(node, ast.BoolOp):
            return _joined(isinstance(node.op, ast.And), [self.condition(v) for v in node.values])
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self.needs_values = False
            return _negated(self.condition(node.operand))
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        if isinstance(node, ast.Call) and dotted(node.func) in ("isclose", "math.isclose"):
            return self._isclose(node)
        term = self._term(node)
        self.needs_values = False
        return lambda values: "yes" if truth(term(values)) else "no"

    def _comparison(self, node: ast.Compare) -> Condition:
        sides = [node.left, *node.comparators]
        if len(sides) == 2 and (distance := self._distance(sides[0])):
            limit, below = constant(sides[1]), type(node.ops[0])
            if below not in (ast.Lt, ast.LtE) or not isinstance(limit, int | float):
                raise Unsplittable("a distance that is not below a number")
            return lambda values: _below(distance(values), below, limit)
        for left, op, right in zip(sides, node.ops, sides[1:], strict=False):
            if isinstance(op, _ORDERS) and not any(map(_is_scalar, (left, right))):
                raise Unsplittable("an order of what is neither a number nor a text")
            asks_right = isinstance(op, ast.In) and self._is_subject(right)
            if asks_right or isinstance(op, ast.NotEq | ast.IsNot | ast.NotIn):
                self.needs_values = False
        terms = [self._term(side) for side in sides]
        pairs = zip(terms, node.ops, terms[1:], strict=False)
        return _joined(True, [_compared(left, type(op), right) for left, op, right in pairs])

    def _distance(self, node: ast.expr) -> Callable[[Sequence[Tree]], Any] | None:
        """``abs(a - b)`` with a subject in it; None if the node is something else."""
        if not (
            isinstance(node, ast.Call)
            and dotted(node.func) in ("abs", "math.fabs", "fabs")
            and len(node.args) == 1
            and isinstance(node.args[0], ast.BinOp)
            and isinstance(node.args[0].op, ast.Sub)
        ):
            return None
        left, right = self._term(node.args[0].left), self._term(node.args[0].right)

        def distance(values: Sequence[Tree]) -> Any:
            a, b = number(left(values)), number(right(values))
            return None if a is None or b is None else abs(float(a) - float(b))

        return distance

    def _isclose(self, node: ast.Call) -> Condition:
        if len(node.args) != 2:
            raise Unsplittable("isclose takes two numbers")
        settings = {word.arg: constant(word.value) for word in node.keywords}
        if settings.keys() - {"rel_tol", "abs_tol"}:
            raise Unsplittable("isclose takes rel_tol and abs_tol")
        left, right = self._term(node.args[0]), self._term(node.args[1])
        relative, absolute = settings.get("rel_tol", _NEAR), settings.get("abs_tol", 0.0)
        if not all(isinstance(one, int | float) and one >= 0 for one in (relative, absolute)):
            raise Unsplittable("isclose takes tolerances of 0 and above")

        def close(values: Sequence[Tree]) -> Truth:
            a, b = number(left(values)), number(right(values))
            if a is None or b is None:
                return "no"
            return "yes" if math.isclose(a, b, rel_tol=relative, abs_tol=absolute) else "no"

        return close

    def _term(self, node: ast.expr) -> Term:
        """A subject or a constant."""
        if self._is_subject(node):
            self.calls.append(ast.unparse(node))
            return _value_at(len(self.calls) - 1)
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
        if isinstance(node.func, ast.Name):
            name = node.func.id
            if name in self._program:
                return True
            return name in _AROUND and self._is_around(name, node)
        return isinstance(node.func, ast.Attribute) and self._is_instance(node.func.value)

    def _is_around(self, name: str, node: ast.Call) -> bool:
        """Whether a builtin goes around a subject and says nothing of what is right."""
        settings = [*node.args[1:], *(word.value for word in node.keywords)]
        return (
            bool(node.args)
            and self._is_subject(node.args[0])
            and (len(node.args) == 1 or name in _WITH_SETTING)
            and all(isinstance(node, ast.Lambda | ast.Name | ast.Constant) for node in settings)
        )

    def _is_instance(self, node: ast.expr) -> bool:
        """Whether this makes an instance of a class of the program: its methods are the program."""
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in self._program
            and node.func.id[:1].isupper()
        )


def _value_at(index: int) -> Term:
    return lambda values: values[index]


def _joined(every: bool, conditions: list[Condition]) -> Condition:
    def holds(values: Sequence[Tree]) -> Truth:
        found = [condition(values) for condition in conditions]
        return (max if every else min)(found, key=_FROM_BEST.index)

    return holds


def _negated(condition: Condition) -> Condition:
    opposite: dict[Truth, Truth] = {"yes": "no", "no": "yes", "types": "no", "rounding": "yes"}
    return lambda values: opposite[condition(values)]


def _compared(left: Term, op: type[ast.cmpop], right: Term) -> Condition:
    def holds(values: Sequence[Tree]) -> Truth:
        return _compare(left(values), op, right(values))

    return holds


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
    if op is ast.In:
        return _contained(left, right)
    return _ordered(left, op, right)


def _contained(item: Tree, container: Tree) -> Truth:
    if isinstance(container, str):
        return "yes" if isinstance(item, str) and item in container else "no"
    found = [likeness(item, member) for member in members(container) or []]
    return "yes" if "same" in found else "types" if "alike" in found else "no"


def _ordered(left: Tree, op: type[ast.cmpop], right: Tree) -> Truth:
    a: Any
    b: Any
    if isinstance(left, str) and isinstance(right, str):
        a, b = left, right
    else:
        a, b = number(left), number(right)
        if a is None or b is None:
            return "no"
    orders = {ast.Lt: a < b, ast.LtE: a <= b, ast.Gt: a > b, ast.GtE: a >= b}
    return "yes" if orders[op] else "no"


def _below(distance: Any, op: type[ast.cmpop], limit: float) -> Truth:
    if distance is None:
        return "no"
    return "yes" if (distance < limit if op is ast.Lt else distance <= limit) else "no"


def _is_scalar(node: ast.expr) -> bool:
    """Whether this is a constant number or text."""
    try:
        return isinstance(constant(node), int | float | str)
    except Unsplittable:
        return False

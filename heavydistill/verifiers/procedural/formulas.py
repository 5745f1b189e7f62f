r"""Reads formulas that models write, without ever running them, and judges antiderivatives.

``parsed`` takes numbers, ``+ - * / ( )`` and what its caller allows (powers, names, functions)
and gives a tree, or raises ``NotAFormula``. Also read: ``^`` for ``**``, ``×``, ``÷``,
``\frac{a}{b}``, ``\sqrt{a}``, ``\sin(x)``, ``\sin^2(x)``, and a product without a sign (``2x``,
``3(x+1)``).

Not read, because it could be meant in two ways: ``1/2x``, ``sin 2x``, ``x2``, ``2 3``. Everything
is bounded: ``MOST_CHARACTERS``, ``MOST_DEPTH``, digits of a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

from heavydistill.schema import Label

MOST_CHARACTERS = 1000
MOST_DEPTH = 60
MOST_DIGITS = 30
# Of a constant exponent, and of the digits that powers may make out of the digits in the text.
MOST_EXPONENT = 100
MOST_WEIGHT = 2000

_TOKEN = re.compile(r"\s*(?:([0-9]+(?:\.[0-9]+)?|\.[0-9]+)|\\?([A-Za-z]+)|(\*\*|[-+*/^(){}]))")
_SPELLINGS = str.maketrans({"×": "*", "·": "*", "÷": "/", "\u2212": "-", "[": "(", "]": ")"})
_OPERATORS = {"times": "*", "cdot": "*", "div": "/"}
_SKIPPED = frozenset({"left", "right"})
_OPERATOR_NAME = re.compile(r"\\operatorname\{([a-z]+)\}")
_CLOSES = {"(": ")", "{": "}"}


class NotAFormula(ValueError):
    """The text is outside of what is read; the message is a reason code."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number as written, without its sign."""

    value: Fraction


@dataclass(frozen=True, slots=True)
class Name:
    """A variable or a constant."""

    name: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function of one argument."""

    function: str
    argument: Node


@dataclass(frozen=True, slots=True)
class Binary:
    """``left operator right``; a sign is ``0 - right``. The operators are ``+ - * / ^``."""

    operator: str
    left: Node
    right: Node


Node = Number | Name | Call | Binary


def parsed(
    text: str,
    names: frozenset[str] = frozenset(),
    functions: frozenset[str] = frozenset(),
    powers: bool = False,
) -> Node:
    """The tree of a formula.

    Args:
        text: What a model wrote; any text.
        names: Variables and constants that may occur.
        functions: Functions of one argument that may occur.
        powers: Whether ``^`` and ``**`` may.

    Raises:
        NotAFormula: It is none, or is not within the bounds.
    """
    if len(text) > MOST_CHARACTERS:
        raise NotAFormula("too_complex")
    spaced = re.sub(r"\\[,;:! ]|~", " ", text.translate(_SPELLINGS))
    plain = _OPERATOR_NAME.sub(r" \1 ", spaced)
    parser = _Parser(list(_tokens(plain)), names, functions, powers)
    tree = parser.sum(0)
    if parser.next is not None:
        raise NotAFormula("unsafe_answer")
    return tree


def numbers_in(tree: Node) -> list[Fraction]:
    """The numbers of a formula from left to right, those of signs left out."""
    match tree:
        case Number(value):
            return [value]
        case Call(_, argument):
            return numbers_in(argument)
        case Binary(_, left, right):
            return ([] if left is _NOTHING else numbers_in(left)) + numbers_in(right)
    return []


def weight(tree: Node) -> int:
    """How many digits or terms the formula could come to when it is multiplied out.

    Raises:
        NotAFormula: A constant exponent is too large.
    """
    match tree:
        case Number(value):
            return len(str(value))
        case Call(_, argument):
            return 1 + weight(argument)
        case Binary("^", left, right):
            power = constant(right)
            times = weight(right) if power is None else 1 + abs(power.numerator)
            return weight(left) * times
        case Binary(_, left, right):
            return weight(left) + weight(right)
    return 1


def constant(tree: Node) -> Fraction | None:
    """The exact value of a formula of numbers alone; None if it holds a name or a function.

    Raises:
        NotAFormula: A power in it is too large or no rational number.
        ZeroDivisionError: It divides by zero.
    """
    if isinstance(tree, Number):
        return tree.value
    if not isinstance(tree, Binary):
        return None
    left, right = constant(tree.left), constant(tree.right)
    if left is None or right is None:
        return None
    if tree.operator == "^":
        return _power(left, right)
    if tree.operator == "/":
        return left / right
    return {"+": left + right, "-": left - right, "*": left * right}[tree.operator]


def _power(base: Fraction, exponent: Fraction) -> Fraction | None:
    if abs(exponent) > MOST_EXPONENT or exponent.denominator > MOST_EXPONENT:
        raise NotAFormula("too_complex")
    if exponent.denominator != 1:
        return None
    digits = max(len(str(base.numerator)), len(str(base.denominator)))
    if digits * abs(exponent) > MOST_WEIGHT:
        raise NotAFormula("too_complex")
    return base ** int(exponent)


_NOTHING = Number(Fraction(0))


def _tokens(text: str) -> Iterator[str]:
    position, end = 0, len(text.rstrip())
    while position < end:
        token = _TOKEN.match(text, position)
        if not token:
            raise NotAFormula("unsafe_answer")
        position = token.end()
        word = token[1] or token[2] or token[3]
        if word not in _SKIPPED:
            yield _OPERATORS.get(word, "^" if word == "**" else word)


class _Parser:
    """Recursive descent; every level of nesting passes through ``sum`` or ``sign`` once."""

    def __init__(
        self, tokens: list[str], names: frozenset[str], functions: frozenset[str], powers: bool
    ) -> None:
        self.tokens = tokens
        self.position = 0
        self.names = names
        self.functions = functions
        self.powers = powers

    @property
    def next(self) -> str | None:
        return self.tokens[self.position] if self.position < len(self.tokens) else None

    def take(self, wanted: str | None = None) -> str:
        token = self.next
        if token is None or wanted not in (None, token):
            raise NotAFormula("unsafe_answer")
        self.position += 1
        return token

    def sum(self, depth: int) -> Node:
        tree = self.product(depth)
        while self.next in ("+", "-"):
            tree = Binary(self.take(), tree, self.product(depth))
        return tree

    def product(self, depth: int) -> Node:
        tree = self.sign(depth)
        divided = False
        while self.next is not None and self.next not in ("+", "-", ")", "}", "^"):
            if self.next in ("*", "/"):
                divided = self.take() == "/"
                tree = Binary("/" if divided else "*", tree, self.sign(depth))
            elif divided or self.next[0].isdigit() or self.next[0] == ".":
                raise NotAFormula("unsafe_answer")
            else:
                tree = Binary("*", tree, self.power(depth))
        return tree

    def sign(self, depth: int) -> Node:
        if depth > MOST_DEPTH:
            raise NotAFormula("too_complex")
        if self.next in ("+", "-"):
            return Binary(self.take(), _NOTHING, self.sign(depth + 1))
        return self.power(depth)

    def power(self, depth: int) -> Node:
        base = self.primary(depth + 1)
        if self.next != "^":
            return base
        if not self.powers:
            raise NotAFormula("unsafe_answer")
        self.take()
        return Binary("^", base, self.sign(depth + 1))

    def primary(self, depth: int) -> Node:
        token = self.take()
        if token in _CLOSES:
            return self.rest_of_group(token, depth)
        if token[0].isdigit() or token[0] == ".":
            if len(token) > MOST_DIGITS:
                raise NotAFormula("too_complex")
            return Number(Fraction(token))
        if token in ("frac", "dfrac", "tfrac"):
            over = self.rest_of_group(self.take("{"), depth)
            return Binary("/", over, self.rest_of_group(self.take("{"), depth))
        if token in self.functions:
            return self.call(token, depth)
        if token in self.names:
            return Name(token)
        raise NotAFormula("unsafe_answer")

    def call(self, function: str, depth: int) -> Node:
        power = None
        if self.powers and self.next == "^":
            self.take()
            power = self.primary(depth + 1)
            # The power -1 stands for the inverse function.
            if not isinstance(power, Number):
                raise NotAFormula("unsafe_answer")
        if self.next not in _CLOSES:
            raise NotAFormula("unsafe_answer")
        called = Call(function, self.rest_of_group(self.take(), depth))
        return called if power is None else Binary("^", called, power)

    def rest_of_group(self, opened: str, depth: int) -> Node:
        if depth > MOST_DEPTH:
            raise NotAFormula("too_complex")
        tree = self.sum(depth + 1)
        self.take(_CLOSES[opened])
        return tree


# --- Whether a formula is an antiderivative, found out by its derivative. First the derivative is
# worked out at ``POINTS``, with ``DIGITS`` digits, which is quick whatever the formula is; only
# where it agrees at all of them does sympy prove that it is the integrand. So a formula that is
# wrong, or that would come to numbers of any size, ends before sympy sees it.
POINTS = tuple(
    sign * size
    for size in (0.11, 0.13, 0.29, 0.31, 0.67, 1.3, 2.9, 4.1, 11.3, 14.9, 120.7, 1301.9)
    for sign in (1, -1)
)
LEAST_POINTS = 4
# Between numbers of at most LARGEST, differences keep far more digits than SAME asks for.
DIGITS, LARGEST, SAME = 100, 1e30, 1e-25

_EULER = frozenset({"e", "E"})
_FREE = frozenset({"C", "c", "K", "k"})


@cache
def _field() -> Any:
    """Complex numbers of ``DIGITS`` digits, whatever precision others set."""
    import mpmath

    field = mpmath.MPContext()
    field.dps = DIGITS
    return field


# The derivatives of the functions, from the argument and the value.
_SLOPES: dict[str, Callable[[Any, Any], Any]] = {
    "sin": lambda u, v: _field().cos(u),
    "cos": lambda u, v: -_field().sin(u),
    "tan": lambda u, v: 1 + v * v,
    "cot": lambda u, v: -1 - v * v,
    "sec": lambda u, v: v * _field().tan(u),
    "csc": lambda u, v: -v * _field().cot(u),
    "sinh": lambda u, v: _field().cosh(u),
    "cosh": lambda u, v: _field().sinh(u),
    "tanh": lambda u, v: 1 - v * v,
    "asin": lambda u, v: 1 / _field().sqrt(1 - u * u),
    "acos": lambda u, v: -1 / _field().sqrt(1 - u * u),
    "atan": lambda u, v: 1 / (1 + u * u),
    "asinh": lambda u, v: 1 / _field().sqrt(u * u + 1),
    "exp": lambda u, v: v,
    "log": lambda u, v: 1 / u,
    "sqrt": lambda u, v: 1 / (2 * v),
}
_SPELLED = {"ln": "log", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh"}


def judge_antiderivative(answer: str, integrand: str, variable: str) -> tuple[Label, str]:
    """Label and reason of an answer.

        correct    scored           sympy reduces derivative minus integrand to 0
        incorrect  scored_below_1   the derivative differs at a point
        undecided  unsafe_answer    it is not read
        undecided  too_complex      too large, or too few points at which it has a value
        undecided  needs_symbolic   it agrees at all points, and sympy finds no proof

    Not covered: ``abs`` and ``log|x|``, constants other than ``C``, ``c``, ``K``, ``k``, ``pi``,
    ``e``; how long sympy looks for a proof, which is for the limit of the worker.

    Args:
        answer: What a model wrote; any text.
        integrand: The function to integrate, in the form in which sympy prints it.
        variable: One letter, in either case; the answer may use both.

    Raises:
        NotAFormula: The integrand is none that can be read.
    """
    letters = frozenset({variable.lower(), variable.upper()})
    wanted = _read(integrand, letters)
    try:
        found = _read(answer, letters)
        found_at = _agreement(found, wanted, letters)
    except NotAFormula as error:
        return "undecided", str(error)
    except ZeroDivisionError:
        return "incorrect", "scored_below_1"
    if isinstance(found_at, str):
        return ("undecided" if found_at == "too_complex" else "incorrect"), found_at
    if _proven(found, wanted, letters, positive=min(found_at) > 0):
        return "correct", "scored"
    return "undecided", "needs_symbolic"


def _read(text: str, letters: frozenset[str]) -> Node:
    tree = parsed(
        text,
        names=letters | _EULER | _FREE | {"pi"},
        functions=frozenset(_SLOPES) | frozenset(_SPELLED),
        powers=True,
    )
    if weight(tree) > MOST_WEIGHT:
        raise NotAFormula("too_complex")
    return tree


def _agreement(found: Node, wanted: Node, letters: frozenset[str]) -> list[float] | str:
    """The points at which the derivative is the integrand; or why that will not do.

    Points at which one of them is no real number count neither way: a logarithm may hold for
    positive numbers alone.
    """
    points = []
    for point in POINTS:
        try:
            value, slope = _dual(wanted, point, letters)[0], _dual(found, point, letters)[1]
        except (ArithmeticError, ValueError):
            continue
        if not (_is_real(value) and _is_real(slope)):
            continue
        if abs(slope - value) > SAME * max(1, abs(value)):
            return "scored_below_1"
        points.append(point)
    return points if len(points) >= LEAST_POINTS else "too_complex"


def _is_real(number: Any) -> bool:
    return bool(abs(number.imag) <= SAME * max(1, abs(number)))


def _dual(tree: Node, point: float, letters: frozenset[str]) -> tuple[Any, Any]:
    """Value and derivative at a point.

    Raises:
        ArithmeticError, ValueError: It has none there, or none within ``LARGEST``.
    """
    value, slope = _unbounded(tree, point, letters)
    if not (abs(value) <= LARGEST and abs(slope) <= LARGEST):
        raise OverflowError
    return value, slope


def _unbounded(tree: Node, point: float, letters: frozenset[str]) -> tuple[Any, Any]:
    field = _field()
    match tree:
        case Number(number):
            return field.mpc(number.numerator) / number.denominator, field.mpc(0)
        case Name(name):
            if name in letters:
                return field.mpc(point), field.mpc(1)
            known = {"pi": field.pi, "e": field.e, "E": field.e}
            return field.mpc(known.get(name, 0.7)), field.mpc(0)
        case Call(function, argument):
            u, du = _dual(argument, point, letters)
            function = _SPELLED.get(function, function)
            value = getattr(field, function)(u)
            return value, _SLOPES[function](u, value) * du if du else field.mpc(0)
    (u, du), (v, dv) = _dual(tree.left, point, letters), _dual(tree.right, point, letters)
    if tree.operator == "+":
        return u + v, du + dv
    if tree.operator == "-":
        return u - v, du - dv
    if tree.operator == "*":
        return u * v, du * v + u * dv
    if tree.operator == "/":
        return u / v, (du * v - u * dv) / (v * v)
    exponent = constant(tree.right)
    if exponent is not None and exponent.denominator == 1:
        times = int(exponent)
        return u**times, times * u ** (times - 1) * du if times else field.mpc(0)
    value = field.exp(v * field.log(u))
    return value, value * (dv * field.log(u) + v * du / u)


def _proven(found: Node, wanted: Node, letters: frozenset[str], positive: bool) -> bool:
    """Whether sympy reduces the difference of derivative and integrand to 0.

    Args:
        found: The antiderivative.
        wanted: The integrand.
        letters: The variable, in both cases.
        positive: Whether it is enough to show it for positive numbers.
    """
    import sympy

    variable = sympy.Symbol("x", real=True, positive=positive or None)
    derivative = sympy.diff(_symbolic(found, letters, variable), variable)
    difference = derivative - _symbolic(wanted, letters, variable)
    reductions = (
        sympy.expand,
        sympy.simplify,
        lambda formula: sympy.simplify(formula.rewrite(sympy.exp)),
        lambda formula: sympy.simplify(sympy.expand_trig(formula)),
    )
    return any(reduce(difference) == 0 for reduce in reductions)


def _symbolic(tree: Node, letters: frozenset[str], variable: Any) -> Any:
    import sympy

    match tree:
        case Number(number):
            return sympy.Rational(number.numerator, number.denominator)
        case Name(name):
            known = dict.fromkeys(letters, variable) | {"pi": sympy.pi, "e": sympy.E, "E": sympy.E}
            return known[name] if name in known else sympy.Symbol(name)
        case Call(function, argument):
            return getattr(sympy, _SPELLED.get(function, function))(
                _symbolic(argument, letters, variable)
            )
    left = _symbolic(tree.left, letters, variable)
    right = _symbolic(tree.right, letters, variable)
    if tree.operator == "^":
        return left**right
    if tree.operator == "/":
        return left / right
    return {"+": left + right, "-": left - right, "*": left * right}[tree.operator]

"""Parses formulas that a model wrote with ``mathematics.formula``; they are never executed.

SymPy's notation is accepted too: ``x**2``, ``atan(x)``, ``cos(x)^2`` for the square of the cosine.

The derivative of an answer is first compared with the integrand at ``POINTS``, with ``DIGITS``
digits, which is fast for any formula. SymPy is asked for a proof of equality only if they agree at
all points, so a wrong formula, or one with huge numbers, is rejected earlier.

Not covered: the time that SymPy needs for a proof; the worker's time limit bounds it.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import mpmath
import sympy

from heavydistill.schema import Label
from heavydistill.verifiers.mathematics import formula
from heavydistill.verifiers.mathematics.formula import FormulaParseError
from heavydistill.verifiers.mathematics.tokens import FUNCTIONS, cleaned, deepest, tokens_of

MOST_CHARACTERS = 1000
MOST_DEPTH = 25
POINTS = tuple(
    sign * size
    for size in (0.11, 0.13, 0.29, 0.31, 0.67, 1.3, 2.9, 4.1, 11.3, 14.9, 120.7, 1301.9)
    for sign in (1, -1)
)
LEAST_POINTS = 4
# Between numbers of at most LARGEST, differences keep far more digits than SAME requires.
DIGITS, LARGEST, SAME = 100, 1e30, 1e-25

_OPERATOR_NAME = re.compile(r"\\operatorname\{([a-z]+)\}")
_SPELLED = {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}
_CONSTANTS = frozenset("CcKkE")


def read(text: str) -> sympy.Expr:
    """Parse a formula.

    Raises:
        Unread: ``unsafe_answer`` if the text is not a formula or is ambiguous, ``too_complex`` if
            it is too large.
    """
    if len(text) > MOST_CHARACTERS or deepest(text) > MOST_DEPTH:
        raise FormulaParseError("too_complex")
    plain = cleaned(_OPERATOR_NAME.sub(r" \1 ", text.replace("**", "^")))
    try:
        tokens = tuple(_SPELLED.get(token, token) for token in tokens_of(plain))
        return formula.read(tokens, raises_calls=True)
    except (FormulaParseError, RecursionError) as error:
        is_large = isinstance(error, RecursionError) or str(error) == "too_complex"
        raise FormulaParseError("too_complex" if is_large else "unsafe_answer") from error


def rational(text: str) -> Fraction | None:
    """The exact value of a numeric formula; None if it is not a rational number.

    Raises:
        Unread: See ``read``.
    """
    value = read(text)
    return Fraction(int(value.p), int(value.q)) if value.is_Rational else None


def _agreeing(
    wanted: sympy.Expr, derivative: sympy.Expr, x: sympy.Symbol
) -> list[sympy.Rational] | None:
    """The points at which both functions have the same real value; None if they differ at one.

    A point where one of them has no real value is skipped: a logarithm may exist for positive
    numbers only.
    """
    agreeing = []
    for point in POINTS:
        try:
            value, slope = _value(wanted, x, point), _value(derivative, x, point)
        except (ArithmeticError, ValueError):
            continue
        if _is_real(value) and _is_real(slope):
            if abs(slope - value) > SAME * max(1, abs(value)):
                return None
            agreeing.append(point)
    return agreeing


def judge_antiderivative(answer: str, integrand: str, variable: str) -> tuple[Label, str]:
    """Label and reason for an antiderivative, as ``families`` lists them.

    The reason is ``too_complex`` if the formula is defined at too few of the points.

    Not covered: ``abs`` and ``log|x|``, constants other than ``C``, ``c``, ``K``, ``k``, ``pi``,
    ``e``.

    Args:
        answer: Text that a model wrote.
        integrand: Function to integrate, in SymPy's notation.
        variable: One letter, in either case; the answer may use both.

    Raises:
        FormulaParseError: The integrand cannot be read.
    """
    x = sympy.Symbol("x", real=True)
    wanted = _function(integrand, variable, x)
    try:
        derivative = sympy.diff(_function(answer, variable, x), x)
    except FormulaParseError as unread:
        return "undecided", str(unread)
    agreeing = _agreeing(wanted, derivative, x)
    if agreeing is None:
        return "incorrect", "scored_below_1"
    if len(agreeing) < LEAST_POINTS:
        return "undecided", "too_complex"
    # A proof for positive numbers is enough if the formulas exist only for those.
    domain = sympy.Symbol("x", real=True, positive=min(agreeing) > 0 or None)
    if _is_zero((derivative - wanted).xreplace({x: domain})):
        return "correct", "scored"
    return "undecided", "needs_symbolic"


def _function(text: str, variable: str, x: sympy.Symbol) -> sympy.Expr:
    """Parse a formula as a function of ``x``."""
    tree = read(text)
    letters = {sympy.Symbol(variable.lower()): x, sympy.Symbol(variable.upper()): x}
    names = {name.name for name in tree.free_symbols - letters.keys()}
    calls = {type(call).__name__ for call in tree.atoms(sympy.Function)}
    if names - _CONSTANTS or calls - set(FUNCTIONS.values()) or tree.has(sympy.I):
        raise FormulaParseError("unsafe_answer")
    for part in sympy.preorder_traversal(tree):
        if part.is_number and not part.is_Rational:
            try:  # must precede SymPy's test of a constant's sign
                _value(part, x, 0.0)
            except (ArithmeticError, ValueError, AttributeError) as error:
                raise FormulaParseError("too_complex") from error
    return tree.xreplace(letters | {sympy.Symbol("E"): sympy.E})


def _value(tree: sympy.Expr, x: sympy.Symbol, point: float) -> mpmath.mpc:
    """The value at a point, with 0.7 as the value of constants of integration.

    Raises:
        ArithmeticError, ValueError: The formula has no value at the point, or it exceeds
            ``LARGEST``.
    """
    parts = [_value(part, x, point) for part in tree.args]
    with mpmath.workdps(DIGITS):
        if tree.is_Symbol:
            value = mpmath.mpc(point if tree == x else 0.7)
        elif tree.is_Rational:
            value = mpmath.mpc(int(tree.p)) / int(tree.q)
        elif tree.is_NumberSymbol:
            value = mpmath.mpc(mpmath.pi if tree is sympy.pi else mpmath.e)
        elif tree.is_Add:
            value = mpmath.fsum(parts)
        elif tree.is_Mul:
            value = mpmath.fprod(parts)
        else:
            value = getattr(mpmath, "power" if tree.is_Pow else type(tree).__name__)(*parts)
    if not abs(value) <= LARGEST:
        raise OverflowError
    return value


def _is_real(number: Any) -> bool:
    return bool(abs(number.imag) <= SAME * max(1, abs(number)))


def _is_zero(difference: sympy.Expr) -> bool:
    """Whether SymPy simplifies an expression to 0."""
    reductions = (
        sympy.expand,
        sympy.simplify,
        lambda tree: sympy.simplify(tree.rewrite(sympy.exp)),
        lambda tree: sympy.simplify(sympy.expand_trig(tree)),
    )
    return any(reduce(difference) == 0 for reduce in reductions)

r"""Compares two formulas; the result is ``correct``, ``incorrect`` or ``undecided``.

Constants are compared exactly if both are rational, otherwise with 80 or more significant digits,
so that different tiny or huge numbers are not equal. Formulas with variables are equal if they
agree to 40 digits at fixed points in all parts of the real line. If they agree only in some parts,
equality depends on the domain and is undecided.

Verdicts, by reason:

    correct    equal        the same value or the same function
    incorrect  different    another value, or a function that differs wherever it is defined
    undecided  rounded      a decimal to which the other value rounds
    undecided  log_base     equal in one base of ``\log`` only
    undecided  other_names  other variables than in the reference
    undecided  domain       equal for some numbers only
    undecided  unproven     cannot be evaluated at any point
    undecided  too_small_to_tell  a part is so small that digits could miss it

Not covered: parameters with different names, e.g. ``2\pi n`` for ``2\pi k``.
"""

from __future__ import annotations

from fractions import Fraction

import sympy
from mpmath.libmp import NoConvergence
from sympy.core.function import AppliedUndef

from heavydistill.verifiers.mathematics.formula import FormulaParseError, longest_bits, read
from heavydistill.verifiers.mathematics.tokens import Tokens, tokens_of
from heavydistill.verifiers.normal import (
    DIFFERENT,
    EQUAL,
    ROUNDED,
    Outcome,
    is_rounded,
    normal_form,
)

DIGITS = 80
MOST_DIGITS = 1000
MOST_DEGREE = 6
_TINY = sympy.Float("1e-30")

# Numbers without special relations to each other, a few in each part of the real line.
_PARTS = (
    ("2", "3", "5", "7", "4", "6", "11", "13"),
    ("1.7320127", "2.6179313", "3.1428793", "1.2711937", "4.6301171", "2.1113917"),
    ("0.3141297", "0.5717213", "0.2360711", "0.8414791", "0.6931477", "0.1234577"),
    ("-1.4137219", "-2.2360713", "-0.7071091", "-3.3166277", "-1.8470911", "-0.4142137"),
)


def compare_formulas(given: Tokens, wanted: Tokens) -> Outcome:
    """Compare two formulas; undecided with the reason if one cannot be read."""
    texts = "".join(given), "".join(wanted)
    if texts[0] == texts[1]:
        return EQUAL
    try:
        # The base of a bare \log is unknown, so both common ones must give the same outcome.
        bases = (None, 10) if "log" in texts[0] + texts[1] else (None,)
        outcomes = {compare_values(_value(given, base), _value(wanted, base)) for base in bases}
        if len(outcomes) > 1:
            return "undecided", "log_base"
        return _or_rounded(given, wanted) if outcomes == {DIFFERENT} else outcomes.pop()
    except FormulaParseError as unread:
        return "undecided", str(unread)


def value_of(tokens: Tokens) -> sympy.Expr:
    r"""Parse a formula; formulas with ``\log`` are rejected, because the base may be unknown.

    Raises:
        Unread: The formula is not understood or is ambiguous.
    """
    if any("log" in token for token in tokens):
        raise FormulaParseError("log_base")
    return _value(tokens, None)


def _value(tokens: Tokens, log_base: int | None) -> sympy.Expr:
    plain = normal_form("".join(tokens)).value
    if plain is not None:
        return sympy.Rational(plain.numerator, plain.denominator)
    return read(tokens, log_base)


def _or_rounded(given: Tokens, wanted: Tokens) -> Outcome:
    """``different``, or ``rounded`` if one, a decimal or ending in zeros, rounds the other."""
    for tokens, other in ((given, wanted), (wanted, given)):
        text = "".join(tokens)
        pieces = [piece for piece in tokens_of(text) if "." in piece]
        if not pieces and not text.isdecimal():
            continue
        value, exact = value_of(tokens), value_of(other)
        if not (exact.is_number and exact.is_real and exact.is_finite and value.is_number):
            continue
        if is_rounded(text, Fraction(str(sympy.N(exact, 40)))):
            return ROUNDED
        if not pieces:
            continue
        digits = min(len(piece.replace(".", "").lstrip("0")) for piece in pieces)
        precision = sympy.Float(5) / 10**digits
        if digits >= 2 and exact != 0 and abs(sympy.N((value - exact) / exact, 20)) <= precision:
            return ROUNDED
    return DIFFERENT


def compare_values(given: sympy.Expr, wanted: sympy.Expr) -> Outcome:
    """Compare two values or two functions."""
    if given == wanted:
        return EQUAL
    if given.is_Rational and wanted.is_Rational:
        return DIFFERENT
    if applied := sorted(given.atoms(AppliedUndef) | wanted.atoms(AppliedUndef), key=str):
        # A divisor of letters is compared as a letter, which cannot prove a difference.
        named = {each: sympy.Dummy(f"d{at}") for at, each in enumerate(applied)}
        outcome = compare_values(given.subs(named), wanted.subs(named))
        return outcome if outcome == EQUAL else ("undecided", "unproven")
    if given.free_symbols != wanted.free_symbols:
        return "undecided", "other_names"
    if given.is_number:
        return compare_constants(given, wanted)
    agreements = [_agree(given, wanted, part) for part in _PARTS]
    decided = [agree for agree in agreements if agree is not None]
    if not decided:
        return "undecided", "unproven"
    return (EQUAL if all(decided) else ("undecided", "domain")) if any(decided) else DIFFERENT


def constant_factor(given: sympy.Expr, wanted: sympy.Expr) -> sympy.Expr | None:
    """The real number k with ``given`` = k * ``wanted``; None if there is none."""
    symbols = sorted(given.free_symbols, key=str)
    points = dict(zip(symbols, map(sympy.Rational, _PARTS[2]), strict=False))
    factor = _at(given / wanted, points)
    if factor is None or not factor.is_real or factor == 0:
        return None
    return factor if compare_values(given, factor * wanted) == EQUAL else None


def have_other_points(given: sympy.Expr, wanted: sympy.Expr) -> bool:
    """Whether a zero of the polynomial ``wanted`` is certainly no zero of ``given``."""
    symbols = sorted(wanted.free_symbols, key=str)
    if given.free_symbols != wanted.free_symbols or not 1 < len(symbols) < 5:
        return False
    if not all(each.is_polynomial(*symbols) for each in (given, wanted)):
        return False
    for part in _PARTS:
        for symbol in symbols:
            others = [other for other in symbols if other != symbol]
            points = dict(zip(others, map(sympy.Rational, part), strict=False))
            for root in _real_roots(wanted.subs(points), symbol):
                value = _at(given, {**points, symbol: root})
                if value is not None and abs(value) > sympy.Float("1e-20"):
                    return True
    return False


def _real_roots(value: sympy.Expr, symbol: sympy.Symbol) -> list[sympy.Expr]:
    """Real roots of a polynomial in one variable, in digits; empty if none is found."""
    try:
        polynomial = sympy.Poly(value, symbol).sqf_part()
        roots = polynomial.nroots(n=DIGITS) if 0 < polynomial.degree() <= MOST_DEGREE else []
    except (NoConvergence, sympy.PolynomialError):
        return []
    return [root for root in roots if root.is_real]


def compare_constants(given: sympy.Expr, wanted: sympy.Expr) -> Outcome:
    """Compare two values without variables, with as many digits as necessary."""
    if given == wanted:
        return EQUAL
    if given.is_infinite or wanted.is_infinite:
        return DIFFERENT
    if _hides_something(given) or _hides_something(wanted):
        return "undecided", "too_small_to_tell"
    longest = int(max(longest_bits(given), longest_bits(wanted)) * 0.302) + 1
    if longest > MOST_DIGITS:
        raise FormulaParseError("too_complex")
    digits = DIGITS + 2 * longest
    first, second = (_numeric(value, digits) for value in (given, wanted))
    if first is None or second is None:
        return "undecided", "unproven"
    if _is_lost(first) or _is_lost(second):
        # Digits alone cannot distinguish exact cancellation from a true zero.
        return EQUAL if sympy.simplify(given - wanted) == 0 else ("undecided", "unproven")
    # Up to thirty digits may be lost to cancellation, so they do not prove a difference.
    return DIFFERENT if _apart(first, second, 30 - digits) else EQUAL


def _numeric(value: sympy.Expr, digits: int) -> sympy.Expr | None:
    """The value to this many digits; None if it has no numeric value."""
    try:
        number = sympy.N(value, digits, maxn=4 * digits)
        parts = number.as_real_imag()
    except (ValueError, TypeError, ArithmeticError):
        return None
    return number if all(part.is_Float or part.is_Rational for part in parts) else None


def _is_lost(number: sympy.Expr) -> bool:
    """Whether a number has lost all reliable digits."""
    return any(part.is_Float and part._prec < 10 for part in number.as_real_imag())


def _apart(first: sympy.Expr, second: sympy.Expr, exponent: int) -> bool:
    """Whether two numbers differ by more than 10^``exponent`` times the larger of the two."""
    size = max(abs(first), abs(second))
    return bool(size != 0 and abs(first - second) > size * sympy.Float(10, 30) ** exponent)


def _hides_something(value: sympy.Expr) -> bool:
    """Whether a summand is so small that a comparison of digits could miss it."""
    if value.is_Atom:
        return False
    is_sum = not (value.is_Mul or value.is_Pow)
    return any(
        (is_sum and not part.is_Rational and bool(abs(sympy.N(part, 15)) < _TINY))
        or _hides_something(part)
        for part in value.args
    )


def _agree(given: sympy.Expr, wanted: sympy.Expr, part: tuple[str, ...]) -> bool | None:
    """Whether two expressions agree at all points of a part; None if neither has values there."""
    symbols = sorted(given.free_symbols, key=str)
    if len(symbols) > len(part) - 1:
        raise FormulaParseError("too_complex")
    agrees = None
    for turn in range(3):
        points = {
            symbol: sympy.Rational(part[(turn + place) % len(part)])
            for place, symbol in enumerate(symbols)
        }
        first, second = (_at(expression, points) for expression in (given, wanted))
        if first is None and second is None:
            continue
        if first is None or second is None or _apart(first, second, -40):
            return False
        agrees = True
    return agrees


def _at(expression: sympy.Expr, points: dict[sympy.Symbol, sympy.Rational]) -> sympy.Expr | None:
    value = expression.subs(points)
    if value.has(sympy.zoo, sympy.nan, sympy.oo) or value.free_symbols:
        return None
    number = _numeric(value, DIGITS)
    # A value that has lost its digits to cancellation does not count.
    return sympy.Integer(0) if number is not None and _is_lost(number) else number

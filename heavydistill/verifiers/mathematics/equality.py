r"""Whether two formulas are equal, as ``incorrect``, ``undecided`` or ``correct``.

Constants are compared exactly where both are rational, else at 80 digits and more, relatively, so
that neither tiny nor huge numbers fall together. Formulas with variables are equal if they agree at
fixed points in all parts of the real line, to 40 digits; where they agree in some parts alone, the
domain would decide, so nothing is decided.

Verdicts, by reason:

    correct    equal        the same value or the same function
    incorrect  different    another value, or another function wherever it is defined
    undecided  rounded      a decimal that the other rounds to
    undecided  log_base     equal in one base of ``\log`` alone
    undecided  other_names  other variables than in the reference
    undecided  domain       equal for a part of the numbers
    undecided  unproven     nowhere to be evaluated
    undecided  too_small_to_tell  a part is so small that it could be lost

Not covered: parameters of another name, ``2\pi n`` for ``2\pi k``.
"""

from __future__ import annotations

from fractions import Fraction

import sympy

from heavydistill.schema import Label
from heavydistill.verifiers.mathematics.formula import Unread, read
from heavydistill.verifiers.mathematics.numbers import DIFFERENT, EQUAL, ROUNDED, is_rounded
from heavydistill.verifiers.mathematics.tokens import Tokens, tokens_of
from heavydistill.verifiers.normal import normal_form

DIGITS = 80
_TINY = sympy.Float("1e-30")

# Numbers of no special relation, a few for each part of the real line.
_PARTS = (
    ("2", "3", "5", "7", "4", "6", "11", "13"),
    ("1.7320127", "2.6179313", "3.1428793", "1.2711937", "4.6301171", "2.1113917"),
    ("0.3141297", "0.5717213", "0.2360711", "0.8414791", "0.6931477", "0.1234577"),
    ("-1.4137219", "-2.2360713", "-0.7071091", "-3.3166277", "-1.8470911", "-0.4142137"),
)

Outcome = tuple[Label, str]


def compare_formulas(given: Tokens, wanted: Tokens) -> Outcome:
    """The outcome for two formulas. Undecided with the reason where one is not read."""
    texts = "".join(given), "".join(wanted)
    if texts[0] == texts[1]:
        return EQUAL
    values = normal_form(texts[0]).value, normal_form(texts[1]).value
    try:
        if not any(r"\log" in text or "log" in text for text in texts):
            outcome = _compare(
                *(_value(*pair, None) for pair in zip(values, (given, wanted), strict=True))
            )
        else:
            outcomes = {
                _compare(*(_value(None, tokens, base) for tokens in (given, wanted)))
                for base in (None, 10)
            }
            outcome = outcomes.pop() if len(outcomes) == 1 else ("undecided", "log_base")
        if outcome == DIFFERENT:
            outcome = _or_rounded(texts, given, wanted)
    except Unread as unread:
        return "undecided", str(unread)
    return outcome


def value_of(tokens: Tokens) -> sympy.Expr:
    """The value of a formula that holds no logarithm of a doubtful base.

    Raises:
        Unread: It has no reading, or two.
    """
    plain = normal_form("".join(tokens)).value
    if plain is None and any("log" in token for token in tokens):
        raise Unread("log_base")
    return _value(plain, tokens, None)


def _value(plain: Fraction | None, tokens: Tokens, log_base: int | None) -> sympy.Expr:
    if plain is not None:
        return sympy.Rational(plain.numerator, plain.denominator)
    return read(tokens, log_base)


def _or_rounded(texts: tuple[str, str], given: Tokens, wanted: Tokens) -> Outcome:
    """``different``, unless one is a decimal and the other rounds to it."""
    for text, other in ((texts[0], wanted), (texts[1], given)):
        if "." not in text:
            continue
        value = value_of(other)
        if value.is_number and value.is_real and value.is_finite:
            exact = Fraction(str(sympy.N(value, 40)))
            if is_rounded(text, exact) or _nearly(text, other):
                return ROUNDED
    return DIFFERENT


def _nearly(text: str, other: Tokens) -> bool:
    """Whether a formula with decimals is another value but for the precision of the decimals."""
    pieces = tokens_of(text)
    given = value_of(pieces)
    wanted = value_of(other)
    if not (given.is_number and wanted.is_number) or wanted == 0:
        return False
    digits = [len(piece.replace(".", "").lstrip("0")) for piece in pieces if "." in piece]
    if not digits or min(digits) < 2:
        return False
    return bool(abs(sympy.N((given - wanted) / wanted, 20)) <= sympy.Float(5) / 10 ** min(digits))


def _compare(given: sympy.Expr, wanted: sympy.Expr) -> Outcome:
    if given.is_Rational and wanted.is_Rational:
        return EQUAL if given == wanted else DIFFERENT
    if given == wanted:
        return EQUAL
    if given.free_symbols != wanted.free_symbols:
        return "undecided", "other_names"
    if given.is_number:
        return compare_constants(given, wanted)
    return _compare_functions(given, wanted)


def compare_constants(given: sympy.Expr, wanted: sympy.Expr) -> Outcome:
    """The outcome for two values without variables, at as many digits as they need."""
    if given == wanted:
        return EQUAL
    infinite = [value.is_infinite for value in (given, wanted)]
    if any(infinite):
        return DIFFERENT
    if _hides_something(given) or _hides_something(wanted):
        return "undecided", "too_small_to_tell"
    digits = DIGITS + 2 * max(_longest(given), _longest(wanted))
    first, second = (_numeric(value, digits) for value in (given, wanted))
    if first is None or second is None:
        return "undecided", "unproven"
    if _is_lost(first) or _is_lost(second):
        # Digits cannot tell what cancels from what is zero.
        return EQUAL if sympy.simplify(given - wanted) == 0 else ("undecided", "unproven")
    # The last thirty may be lost to cancellation: they are no digits of a difference.
    if _apart(first, second, 30 - digits):
        return DIFFERENT
    return EQUAL


def _numeric(value: sympy.Expr, digits: int) -> sympy.Expr | None:
    """A number of so many digits; None where there is none."""
    try:
        number = sympy.N(value, digits, maxn=4 * digits)
        parts = number.as_real_imag()
    except (ValueError, TypeError, ArithmeticError):
        return None
    return number if all(part.is_Float or part.is_Rational for part in parts) else None


def _is_lost(number: sympy.Expr) -> bool:
    """Whether none of the digits of a number is sure."""
    return any(part.is_Float and part._prec < 10 for part in number.as_real_imag())


def _apart(first: sympy.Expr, second: sympy.Expr, exponent: int) -> bool:
    """Whether two numbers differ by more than ten to ``exponent`` of the larger one."""
    size = max(abs(first), abs(second))
    return bool(size != 0 and abs(first - second) > size * sympy.Float(10, 30) ** exponent)


def _longest(value: sympy.Expr) -> int:
    """Digits of the longest rational in a value."""
    numbers = value.atoms(sympy.Rational)
    bits = (max(int(n.p).bit_length(), int(n.q).bit_length()) for n in numbers if n.is_finite)
    longest = int(max(bits, default=1) * 0.302) + 1
    if longest > 1000:
        raise Unread("too_complex")
    return longest


def _hides_something(value: sympy.Expr) -> bool:
    """Whether a part other than a factor is so small that comparing digits could miss it."""
    if value.is_Mul or value.is_Pow:
        return any(_hides_something(part) for part in value.args)
    if value.is_Atom:
        return False
    return any(
        not part.is_Rational and bool(abs(sympy.N(part, 15)) < _TINY) for part in value.args
    ) or any(_hides_something(part) for part in value.args)


def _compare_functions(given: sympy.Expr, wanted: sympy.Expr) -> Outcome:
    """The outcome for two expressions in the same variables."""
    found = [_agree(given, wanted, part) for part in _PARTS]
    told = [agree for agree in found if agree is not None]
    if not told:
        return "undecided", "unproven"
    if not any(told):
        return DIFFERENT
    if not all(told):
        return "undecided", "domain"
    return EQUAL


def _agree(given: sympy.Expr, wanted: sympy.Expr, part: tuple[str, ...]) -> bool | None:
    """Whether two expressions agree at all points of a part; None where neither has values."""
    symbols = sorted(given.free_symbols | wanted.free_symbols, key=str)
    if len(symbols) > len(part) - 1:
        raise Unread("too_complex")
    told = False
    for turn in range(3):
        points = {
            symbol: sympy.Rational(part[(turn + place) % len(part)])
            for place, symbol in enumerate(symbols)
        }
        values = [_at(expression, points) for expression in (given, wanted)]
        if values[0] is None and values[1] is None:
            continue
        if values[0] is None or values[1] is None:
            return False
        if _apart(values[0], values[1], -40):
            return False
        told = True
    return True if told else None


def _at(expression: sympy.Expr, points: dict[sympy.Symbol, sympy.Rational]) -> sympy.Expr | None:
    value = expression.subs(points)
    if value.has(sympy.zoo, sympy.nan, sympy.oo) or value.free_symbols:
        return None
    number = _numeric(value, DIGITS)
    # What cancels is worth nothing there.
    return sympy.Integer(0) if number is not None and _is_lost(number) else number

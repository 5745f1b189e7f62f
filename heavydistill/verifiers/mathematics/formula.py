r"""Reads one formula into SymPy, exactly, or says why not.

Strict where other parsers guess: two numbers side by side are no product or sum,
``1/2x`` and ``2\frac{1}{2}x`` have two readings, capitals are other names than small letters,
primes and subscripts are never dropped, decimals are fractions. The letter ``i`` is the imaginary
unit and ``e`` Euler's number.

Nothing is evaluated here that could grow without bound; what SymPy does with a value later on is
bounded by a worker's limits.

Not covered, hence ``Unread``: sums, integrals, limits, derivatives, functions of no common name,
degrees outside of trigonometric functions, units inside a formula.
"""

from __future__ import annotations

import math
import re

import sympy

from heavydistill.verifiers.mathematics.tokens import (
    ACCENTS,
    ANGLE_FUNCTIONS,
    DEGREES,
    END,
    FUNCTIONS,
    GREEK,
    HEAVY,
    INVERSES,
    LETTERS_OF_FUNCTIONS,
    NO_PRODUCT,
    NUMBER,
    OVER,
    PAIRS,
    TIMES,
    Tokens,
    continues_argument,
    starts_factor,
)

# --- Arithmetic that refuses to grow: every number is measured before or right after it is made.
MOST_BITS = 200_000
MOST_DIGITS = 100
LARGEST_FACTORIAL = 2000
LARGEST_EXPONENT = 10_000
LARGEST_PROVED_POWER = 60
MOST_TERMS = 1000


class Unread(Exception):
    """The formula was not read; the argument is the reason of an undecided verdict."""


def number(token: str) -> sympy.Expr:
    """An integer or a decimal, exactly; commas are thousands marks."""
    digits = token.replace(",", "")
    if len(digits) > MOST_DIGITS:
        raise Unread("too_complex")
    return sympy.Rational(digits)


def number_or_letter(token: str) -> sympy.Expr:
    """A single digit or letter."""
    if len(token) != 1 or not token.isalnum():
        raise Unread("two_readings")
    return number(token) if token.isdigit() else sympy.E if token == "e" else sympy.Symbol(token)


def factorial(value: sympy.Expr) -> sympy.Expr:
    """``value!``, once and of no large number."""
    if value.is_number and not (value.is_Integer and 0 <= value <= LARGEST_FACTORIAL):
        raise Unread("too_complex" if value.is_Integer and value > 0 else "not_understood")
    if value.has(sympy.factorial):
        raise Unread("too_complex")
    return bounded(sympy.factorial(value))


def to_the(base: sympy.Expr, exponent: sympy.Expr) -> sympy.Expr:
    """``base`` to a power, which is never zero to the zero."""
    if exponent.is_Rational:
        size = abs(exponent.p) // exponent.q
        grows = not base.is_Symbol and base not in (sympy.E, 0, 1, -1)
        if grows and (size > LARGEST_EXPONENT or _bits(base) * (size + 1) > MOST_BITS):
            raise Unread("too_complex")
        if exponent.q > LARGEST_EXPONENT or abs(exponent.p) > 10**6:
            raise Unread("too_complex")
    elif exponent.is_number and not exponent.is_finite:
        raise Unread("not_understood")
    elif exponent.is_number and abs(sympy.N(exponent)) > LARGEST_EXPONENT:
        raise Unread("too_complex")
    if base == 0 and not exponent.is_positive:
        raise Unread("not_understood")
    return bounded(base**exponent)


def _bits(value: sympy.Expr) -> int:
    """Bits of the largest rational in a value."""
    numbers = value.atoms(sympy.Rational)
    return max(
        (max(int(n.p).bit_length(), int(n.q).bit_length()) for n in numbers if n.is_finite),
        default=1,
    )


def bounded(value: sympy.Expr) -> sympy.Expr:
    """``value`` unless a number in it is too large to go on with."""
    if _bits(value) > MOST_BITS:
        raise Unread("too_complex")
    return value


def can_be_expanded(value: sympy.Expr) -> bool:
    """Whether products and powers can be multiplied out in little time."""
    return _terms(value) <= MOST_TERMS


def _terms(value: sympy.Expr) -> int:
    """At most how many terms are left when all is multiplied out; more than enough for too many."""
    if value.is_Add:
        return sum(map(_terms, value.args))
    if value.is_Mul:
        return math.prod(map(_terms, value.args))
    if not (value.is_Pow and value.exp.is_Integer):
        return 1
    power, terms = abs(int(value.exp)), _terms(value.base)
    if power > LARGEST_PROVED_POWER or terms > MOST_TERMS:
        return MOST_TERMS + 1
    return math.comb(power + terms - 1, power)


# --- The reader.
MOST_ATOMS = 200


def read(tokens: Tokens, log_base: int | None = None) -> sympy.Expr:
    r"""The value of a formula.

    Args:
        tokens: Those of a ``shape.Formula``.
        log_base: What ``\log`` without a base stands for; None for the natural logarithm.

    Raises:
        Unread: It has no reading, two of them, or one that is too large to evaluate.
    """
    reader = _Reader([token for token in tokens if token != " "], log_base)
    value = reader.sum()
    if reader.peek() != END:
        raise Unread("not_understood")
    if r"\infty" in tokens and len(set(tokens) - {" ", "+", "-", "{", "}", "(", ")"}) > 1:
        # Every expression with infinity in it is worth infinity.
        raise Unread("not_understood")
    if value is sympy.nan or value.has(sympy.zoo, sympy.nan):
        raise Unread("not_understood")
    return value


class _Reader:
    """A recursive descent over the tokens; each method reads one kind of part."""

    def __init__(self, tokens: list[str], log_base: int | None) -> None:
        self._tokens = tokens
        self._at = 0
        self._atoms = 0
        self._log_base = log_base
        self._inside_bars = 0
        self._in_angle = False

    def peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else END

    def _take(self) -> str:
        token = self.peek()
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        if self._take() != token:
            raise Unread("not_understood")

    def sum(self) -> sympy.Expr:
        total = self._signed_product()
        while self.peek() in ("+", "-"):
            sign = self._take()
            term = self._product()
            total = bounded(total + term if sign == "+" else total - term)
        return total

    def _signed_product(self) -> sympy.Expr:
        if self.peek() in ("+", "-"):
            negative = self._take() == "-"
            value = self._product()
            return -value if negative else value
        return self._product()

    def _product(self) -> sympy.Expr:
        value = self._power()
        may_mix = self._last_was_integer()
        while True:
            token = self.peek()
            if token in TIMES:
                self._take()
                value = bounded(value * self._signed_power())
            elif token in OVER:
                self._take()
                divisor = self._signed_power()
                if self._starts_factor(self.peek()):
                    raise Unread("two_readings")
                if divisor == 0:
                    raise Unread("not_understood")
                value = bounded(value / divisor)
            elif self._starts_factor(token):
                if NUMBER.fullmatch(token) and self._tokens[self._at - 1] != "!":
                    raise Unread("two_numbers")
                if may_mix and self._is_numeric_fraction():
                    raise Unread("two_readings")
                value = bounded(value * self._power())
            else:
                return value
            may_mix = False

    def _last_was_integer(self) -> bool:
        return self._tokens[self._at - 1].replace(",", "").isdigit()

    def _is_numeric_fraction(self) -> bool:
        ahead = "".join(self._tokens[self._at : self._at + 7])
        return bool(re.match(r"\\frac(?:[0-9]|\{[0-9]+\}\{[0-9]+\})", ahead))

    def _signed_power(self) -> sympy.Expr:
        if self.peek() == "-":
            self._take()
            return -self._power()
        return self._power()

    def _starts_factor(self, token: str) -> bool:
        return not self._inside_bars if token == "|" else starts_factor(token)

    def _power(self) -> sympy.Expr:
        value = self._atom()
        return self._raised(value)

    def _raised(self, value: sympy.Expr) -> sympy.Expr:
        for mark in DEGREES if self._in_angle else ():
            if tuple(self._tokens[self._at : self._at + len(mark)]) == mark:
                self._at += len(mark)
                return value * sympy.pi / 180
        if self.peek() == "!":
            self._take()
            value = factorial(value)
            if self.peek() == "!":
                raise Unread("two_readings")
        if self.peek() == "^":
            self._take()
            value = to_the(value, self._exponent())
            if self.peek() in ("^", "!", "_"):
                raise Unread("two_readings")
        if self.peek() in ("'", "_", r"\prime"):
            raise Unread("not_understood")
        return value

    def _exponent(self) -> sympy.Expr:
        token = self.peek()
        if token in ("{", "("):
            return self._bracketed()
        if token in ("+", "-"):
            negative = self._take() == "-"
            value = self._exponent()
            return -value if negative else value
        if NUMBER.fullmatch(token) or token.isalpha() or token == r"\pi" or token[1:] in GREEK:
            if token.isalpha() and len(token) > 1:
                raise Unread("two_readings")
            return self._atom()
        if token == r"\frac":
            return self._atom()
        raise Unread("not_understood")

    def _bracketed(self) -> sympy.Expr:
        closes = PAIRS[self._take()]
        bars, self._inside_bars = self._inside_bars, 0
        value = self.sum()
        self._inside_bars = bars
        self._expect(closes)
        return value

    def _atom(self) -> sympy.Expr:
        self._atoms += 1
        if self._atoms > MOST_ATOMS:
            raise Unread("too_complex")
        token = self.peek()
        if token in PAIRS:
            return self._bracketed()
        if NUMBER.fullmatch(token):
            return number(self._take())
        if token == "|":
            return self._absolute()
        if token in (r"\lfloor", r"\lceil"):
            return self._rounded()
        if token in HEAVY:
            raise Unread("too_complex")
        if token.isalpha():
            return self._letters()
        self._take()
        name = token[1:]
        if token == r"\pi":
            return sympy.pi
        if token == r"\infty":
            return sympy.oo
        if token == r"\frac":
            return self._fraction()
        if token in (r"\sqrt", r"\surd"):
            return self._root(whole_numbers=token == r"\surd")
        if token == r"\binom":
            return self._binomial()
        if token in ACCENTS:
            return self._accented(name)
        if name in FUNCTIONS and token[0] == "\\":
            return self._function(name)
        if name in GREEK and token[0] == "\\":
            return self._named(name)
        raise Unread("not_understood")

    def _letters(self) -> sympy.Expr:
        """Variables side by side, or a function written without its backslash."""
        run = self._take()
        if run in FUNCTIONS:
            return self._function(run)
        if run == "pi":
            return sympy.pi
        if run == "sqrt":
            return self._root(whole_numbers=False)
        if len(run) > 3 or run.lower() in NO_PRODUCT or not run.isascii():
            raise Unread("not_understood")
        factors = [self._named(letter, may_have_index=False) for letter in run[:-1]]
        last = self._named(run[-1])
        if self.peek() == "(" and run[-1] in LETTERS_OF_FUNCTIONS:
            raise Unread("not_understood")
        if len(run) > 1 and self.peek() == "!":
            raise Unread("two_readings")
        # x in xy^2 is not raised, so the power of the last letter is read here.
        return sympy.Mul(*factors, self._raised(last)) if factors else last

    def _named(self, name: str, *, may_have_index: bool = True) -> sympy.Expr:
        if may_have_index and self.peek() == "_":
            self._take()
            return sympy.Symbol(f"{name}_{self._index()}")
        if name == "e":
            return sympy.E
        if name == "i":
            return sympy.I
        return sympy.Symbol(name)

    def _index(self) -> str:
        token = self._take()
        if token != "{":
            if (NUMBER.fullmatch(token) and len(token) > 1) or not token.isalnum():
                raise Unread("two_readings")
            return token
        parts: list[str] = []
        while self.peek() not in ("}", END):
            parts.append(self._take())
        self._expect("}")
        if not parts or "{" in parts:
            raise Unread("not_understood")
        return "".join(parts)

    def _accented(self, accent: str) -> sympy.Expr:
        braces = 0
        while self.peek() == "{":
            self._take()
            braces += 1
        name = self._take()
        for _ in range(braces):
            self._expect("}")
        if not name.strip("\\").isalpha():
            raise Unread("not_understood")
        return self._named(f"{accent}({name})")

    def _fraction(self) -> sympy.Expr:
        token = self.peek()
        if NUMBER.fullmatch(token) and len(token) == 2 and token.isdigit():
            self._take()
            top, bottom = number(token[0]), number(token[1])
        else:
            top = self._argument()
            bottom = self._argument()
        if self._is_derivative():
            raise Unread("not_understood")
        if bottom == 0:
            raise Unread("not_understood")
        return bounded(top / bottom)

    def _is_derivative(self) -> bool:
        read = "".join(self._tokens[max(0, self._at - 12) : self._at])
        return bool(re.search(r"\{d[a-zA-Z]?\}\{d[a-zA-Z]", read))

    def _argument(self) -> sympy.Expr:
        """What a command takes: a group, one digit or one letter."""
        token = self.peek()
        if token == "{":
            return self._bracketed()
        if (len(token) == 1 and (token.isdigit() or token.isalpha())) or token == r"\pi":
            return self._atom()
        raise Unread("two_readings")

    def _root(self, *, whole_numbers: bool) -> sympy.Expr:
        degree = sympy.Integer(2)
        if self.peek() == "[":
            degree = self._bracketed()
            if not degree.is_Integer or not 2 <= degree <= 100:
                raise Unread("not_understood")
        if self.peek() == "(" or (whole_numbers and NUMBER.fullmatch(self.peek())):
            radicand = self._atom()
            if self.peek() == "^":
                raise Unread("two_readings")
        else:
            radicand = self._argument()
        if degree != 2 and radicand.is_negative:
            return -sympy.root(-radicand, degree) if degree % 2 else sympy.root(radicand, degree)
        return sympy.root(radicand, degree)

    def _binomial(self) -> sympy.Expr:
        top, bottom = self._argument(), self._argument()
        if any(part.is_number and abs(part) > LARGEST_FACTORIAL for part in (top, bottom)):
            raise Unread("too_complex")
        return bounded(sympy.binomial(top, bottom))

    def _absolute(self) -> sympy.Expr:
        if self._inside_bars:
            raise Unread("two_readings")
        self._take()
        self._inside_bars = 1
        value = self.sum()
        self._inside_bars = 0
        self._expect("|")
        return sympy.Abs(value)

    def _rounded(self) -> sympy.Expr:
        down = self._take() == r"\lfloor"
        value = self.sum()
        self._expect(r"\rfloor" if down else r"\rceil")
        return sympy.floor(value) if down else sympy.ceiling(value)

    def _function(self, name: str) -> sympy.Expr:
        base = self._log_base if name == "log" else None
        power = sympy.Integer(1)
        if self.peek() == "_" and name == "log":
            self._take()
            base = self._argument() if self.peek() == "{" else number_or_letter(self._take())
        if self.peek() == "^":
            self._take()
            power = self._exponent()
        outside, self._in_angle = self._in_angle, name in ANGLE_FUNCTIONS
        value = self._of_function()
        self._in_angle = outside
        if power == -1 and name in INVERSES:
            return getattr(sympy, INVERSES[name])(value)
        if not power.is_positive:
            raise Unread("two_readings")
        if base is not None and (base in (0, 1) or value == 0):
            raise Unread("not_understood")
        result = getattr(sympy, FUNCTIONS[name])(value)
        return to_the(result / sympy.log(base) if base is not None else result, power)

    def _of_function(self) -> sympy.Expr:
        """The argument of a function: a group, or what stands before the next sign."""
        if self.peek() in ("(", "{", "|"):
            value = self._atom()
            if self.peek() in ("^", "!"):
                raise Unread("two_readings")
            return value
        if self.peek() in (r"\frac", r"\sqrt", r"\surd"):
            value = self._power()
            if continues_argument(self.peek()):
                raise Unread("two_readings")
            return value
        factors: list[sympy.Expr] = []
        while continues_argument(self.peek()):
            if factors and NUMBER.fullmatch(self.peek()):
                raise Unread("two_numbers")
            factors.append(self._power())
        if not factors or self.peek() in ("(", "[", "{", r"\frac", r"\sqrt", r"\surd", "/"):
            raise Unread("two_readings")
        return sympy.Mul(*factors)

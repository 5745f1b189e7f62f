r"""Parses one formula into an exact SymPy expression; raises ``FormulaParseError`` if it cannot.

The reader is strict where other parsers guess. Two adjacent numbers are neither a product nor a
sum; ``1/2x`` and ``2\frac{1}{2}x`` are rejected as ambiguous; capitals and small letters are
different names; primes and subscripts are never dropped; decimals become exact fractions. The
letter ``i`` is the imaginary unit and ``e`` Euler's number.

Nothing whose size is unbounded is evaluated here. What SymPy does with the value later is bounded
by the limits of the worker.

Not covered, hence ``FormulaParseError``: sums, integrals, limits, derivatives, functions without a
common name, accents (``\vec{a}``), degrees, units inside a formula.
"""

from __future__ import annotations

import re

import sympy

from heavydistill.verifiers.mathematics.tokens import FUNCTIONS, Tokens

# --- Bounded arithmetic: the size of every number is checked before or right after it is computed.
MOST_BITS = 200_000
MOST_DIGITS = 100
LARGEST_FACTORIAL = 10_000
LARGEST_EXPONENT = 10_000


class FormulaParseError(Exception):
    """The formula cannot be read; the argument is the reason code of the undecided verdict."""


def _number(token: str) -> sympy.Expr:
    """An integer or a decimal as an exact value; commas separate thousands."""
    digits = token.replace(",", "")
    if len(digits) > MOST_DIGITS:
        raise FormulaParseError("too_complex")
    return sympy.Rational(digits)


def _factorial(value: sympy.Expr) -> sympy.Expr:
    """The factorial of a small integer; raises ``FormulaParseError`` for nested factorials."""
    if value.is_number and not (value.is_Integer and 0 <= value <= LARGEST_FACTORIAL):
        raise FormulaParseError(
            "too_complex" if value.is_Integer and value > 0 else "not_understood"
        )
    if value.has(sympy.factorial):
        raise FormulaParseError("too_complex")
    return _bounded(sympy.factorial(value))


def _power(base: sympy.Expr, exponent: sympy.Expr) -> sympy.Expr:
    """``base`` raised to ``exponent``; FormulaParseError for zero to the power of zero."""
    if exponent.is_Rational:
        size = abs(exponent.p) // exponent.q
        grows = not base.is_Symbol and base not in (sympy.E, 0, 1, -1)
        if grows and (size > LARGEST_EXPONENT or longest_bits(base) * (size + 1) > MOST_BITS):
            raise FormulaParseError("too_complex")
        if exponent.q > LARGEST_EXPONENT or abs(exponent.p) > 10**6:
            raise FormulaParseError("too_complex")
    elif exponent.is_number and _is_tower(exponent):
        raise FormulaParseError("too_complex")
    elif exponent.is_number and not exponent.is_finite:
        raise FormulaParseError("not_understood")
    elif exponent.is_number and abs(sympy.N(exponent)) > LARGEST_EXPONENT:
        raise FormulaParseError("too_complex")
    if base == 0 and not exponent.is_positive:
        raise FormulaParseError("not_understood")
    return _bounded(base**exponent)


def _is_tower(exponent: sympy.Expr) -> bool:
    """Whether a value contains a power of a power, which may be too large even to estimate."""
    powers = exponent.atoms(sympy.Pow, sympy.exp)
    return any(not power.exp.is_Rational for power in powers)


def longest_bits(value: sympy.Expr) -> int:
    """Number of bits of the largest rational number in a value."""
    rationals = (number for number in value.atoms(sympy.Rational) if number.is_finite)
    return max((max(int(n.p).bit_length(), int(n.q).bit_length()) for n in rationals), default=1)


def _bounded(value: sympy.Expr) -> sympy.Expr:
    """Return ``value``; raises ``FormulaParseError`` if a number in it is too large."""
    if longest_bits(value) > MOST_BITS:
        raise FormulaParseError("too_complex")
    return value


# --- The reader.
MOST_ATOMS = 200
_NUMBER = re.compile(r"[0-9][0-9,]*(?:\.[0-9]+)?|\.[0-9]+")
_TIMES = frozenset((r"\cdot", r"\times", "*"))
_OVER = frozenset(("/", r"\div"))
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_ROUNDING = {r"\lfloor": (r"\rfloor", sympy.floor), r"\lceil": (r"\rceil", sympy.ceiling)}
_CONSTANTS = {r"\pi": sympy.pi, r"\infty": sympy.oo}
_ROOTS = frozenset((r"\sqrt", r"\surd"))
_GREEK_NAMES = (
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu "
    "nu xi rho sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi "
    "Sigma Phi Psi Omega ell hbar"
)
_GREEK = frozenset(rf"\{name}" for name in _GREEK_NAMES.split())
# Functions of several numbers. SymPy's divisors of symbols are those of polynomials.
_OF_SEVERAL = {
    r"\max": sympy.Max,
    r"\min": sympy.Min,
    **dict.fromkeys((r"\gcd", r"\text{gcd}"), sympy.igcd),
    **dict.fromkeys((r"\lcm", r"\text{lcm}"), sympy.ilcm),
}
_OPENING = frozenset((*_PAIRS, *_OF_SEVERAL, *_ROUNDING, *_ROOTS, r"\frac", r"\binom", r"\infty"))
_HEAVY_NAMES = r"\sum \prod \int \iint \oint \lim \limsup \liminf \bigcup \bigcap \sup \inf"
_HEAVY = frozenset(_HEAVY_NAMES.split())
# Adjacent letters that are a word or a function name, not a product.
_NO_PRODUCT_NAMES = (
    "is as at an or and mod for gcd lcm max min in of to by if no th st nd rd per not the all "
    "any are was has det tr"
)
_NO_PRODUCT = frozenset(_NO_PRODUCT_NAMES.split())
_LETTERS_OF_FUNCTIONS = frozenset("fghFGHPQ")
_INVERSES = {"sin": sympy.asin, "cos": sympy.acos, "tan": sympy.atan}
_END = ""


def _continues_argument(token: str) -> bool:
    """Whether a token continues a function's argument without brackets: ``2x`` in ``sin 2x``."""
    is_name = token in _GREEK or (token.isalpha() and token not in FUNCTIONS)
    return is_name or token == r"\pi" or bool(_NUMBER.fullmatch(token))


def read(tokens: Tokens, log_base: int | None = None, *, raises_calls: bool = False) -> sympy.Expr:
    r"""Parse a formula.

    Args:
        tokens: Tokens of a ``shape.Formula``.
        log_base: Base of ``\log`` without an explicit base; None for the natural logarithm.
        raises_calls: Whether ``cos(x)^2`` means the square of the cosine; if not, it is ambiguous.

    Raises:
        Unread: The formula is not understood, is ambiguous, or is too large to evaluate.
    """
    reader = _Reader([token for token in tokens if token != " "], log_base, raises_calls)
    value = reader.sum()
    if reader.peek() != _END or value.has(sympy.zoo, sympy.nan):
        raise FormulaParseError("not_understood")
    if r"\infty" in tokens and len(set(tokens) - {" ", "+", "-", "{", "}", "(", ")"}) > 1:
        # SymPy would evaluate every expression that contains infinity to infinity.
        raise FormulaParseError("not_understood")
    return value


class _Reader:
    """Recursive descent parser over the tokens; each method parses one kind of part."""

    def __init__(self, tokens: list[str], log_base: int | None, raises_calls: bool) -> None:
        self._tokens = tokens
        self._at = 0
        self._atoms = 0
        self._log_base = log_base
        self._raises_calls = raises_calls
        self._inside_bars = False

    def peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def _take(self) -> str:
        token = self.peek()
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        if self._take() != token:
            raise FormulaParseError("not_understood")

    def sum(self) -> sympy.Expr:
        total = self._sign() * self._product()
        while self.peek() in ("+", "-"):
            sign = self._sign()
            # x + -5 is x - 5, while x--5 could be a range.
            sign = self._sign() if sign == 1 and self.peek() == "-" else sign
            total = _bounded(total + sign * self._product())
        return total

    def _sign(self) -> int:
        """Parse an optional sign; returns 1 or -1."""
        if self.peek() in ("+", "-"):
            return -1 if self._take() == "-" else 1
        return 1

    def _product(self) -> sympy.Expr:
        value = self._raised(self._atom())
        may_mix = self._tokens[self._at - 1].replace(",", "").isdigit()
        while True:
            token = self.peek()
            if token in _TIMES:
                self._take()
                value = _bounded(value * self._sign() * self._raised(self._atom()))
            elif token in _OVER:
                self._take()
                divisor = self._sign() * self._raised(self._atom())
                if self._starts_factor():
                    raise FormulaParseError("two_readings")
                if divisor == 0:
                    raise FormulaParseError("not_understood")
                value = _bounded(value / divisor)
            elif self._starts_factor():
                if _NUMBER.fullmatch(token) and self._tokens[self._at - 1] != "!":
                    raise FormulaParseError("two_numbers")
                ahead = "".join(self._tokens[self._at : self._at + 7])
                if may_mix and re.match(r"\\frac(?:[0-9]|\{[0-9]+\}\{[0-9]+\})", ahead):
                    raise FormulaParseError("two_readings")
                value = _bounded(value * self._raised(self._atom()))
            else:
                return value
            may_mix = False

    def _starts_factor(self) -> bool:
        token = self.peek()
        if token == "|":
            return not self._inside_bars
        is_function = token.lstrip("\\") in FUNCTIONS
        return token in _OPENING or is_function or _continues_argument(token)

    def _raised(self, value: sympy.Expr) -> sympy.Expr:
        """``value`` with the postfix operators after it: factorials and exponents."""
        if self.peek() == "!":
            self._take()
            value = _factorial(value)
            if self.peek() == "!":
                raise FormulaParseError("two_readings")
        if self.peek() == "^":
            self._take()
            value = _power(value, self._exponent())
            if self.peek() in ("^", "!", "_"):
                raise FormulaParseError("two_readings")
        if self.peek() in ("'", "_", r"\prime"):
            raise FormulaParseError("not_understood")
        return value

    def _exponent(self) -> sympy.Expr:
        sign, token = self._sign(), self.peek()
        if token in ("{", "("):
            return sign * self._bracketed()
        if token.isalpha() and len(token) > 1:
            raise FormulaParseError("two_readings")
        if token == r"\frac" or _continues_argument(token):
            return sign * self._atom()
        raise FormulaParseError("not_understood")

    def _bracketed(self) -> sympy.Expr:
        closes = _PAIRS[self._take()]
        outside, self._inside_bars = self._inside_bars, False
        value = self.sum()
        self._inside_bars = outside
        self._expect(closes)
        return value

    def _atom(self) -> sympy.Expr:
        self._atoms += 1
        token = self.peek()
        if self._atoms > MOST_ATOMS or token in _HEAVY:
            raise FormulaParseError("too_complex")
        if token in _PAIRS:
            return self._bracketed()
        if token.isalpha():
            return self._letters()
        self._take()
        if _NUMBER.fullmatch(token):
            return _number(token)
        if token == "|":
            return self._absolute()
        if token in _ROUNDING:
            closes, rounded = _ROUNDING[token]
            value = self.sum()
            self._expect(closes)
            return rounded(value)
        if token in _CONSTANTS:
            return _CONSTANTS[token]
        if token == r"\frac":
            return self._fraction()
        if token in _ROOTS:
            return self._root(whole_numbers=token == r"\surd")
        if token == r"\binom":
            top, bottom = self._argument(), self._argument()
            if any(part.is_number and abs(part) > LARGEST_FACTORIAL for part in (top, bottom)):
                raise FormulaParseError("too_complex")
            return _bounded(sympy.binomial(top, bottom))
        if token in _OF_SEVERAL:
            return self._of_several(token)
        if token in _GREEK:
            return self._named(token[1:])
        if token[1:] in FUNCTIONS:
            return self._function(token[1:])
        raise FormulaParseError("not_understood")

    def _of_several(self, name: str) -> sympy.Expr:
        """A function of several arguments in brackets: ``\\gcd(a, b)``, ``\\max\\{1, 2\\}``."""
        closes = {"(": ")", r"\{": r"\}"}.get(self._take())
        if closes is None:
            raise FormulaParseError("two_readings")
        arguments = [self.sum()]
        while self.peek() == ",":
            self._take()
            arguments.append(self.sum())
        self._expect(closes)
        function = _OF_SEVERAL[name]
        if function in (sympy.Max, sympy.Min):
            if not all(argument.is_extended_real is not False for argument in arguments):
                raise FormulaParseError("not_understood")
            return function(*arguments)
        if all(argument.is_Integer for argument in arguments):
            return sympy.Integer(function(*map(int, arguments)))
        return sympy.Function(name.strip("\\}").rpartition("{")[2])(*sorted(arguments, key=str))

    def _letters(self) -> sympy.Expr:
        """Parse adjacent variables, or a function name without its backslash."""
        run = self._take()
        if run in FUNCTIONS:
            return self._function(run)
        if run == "pi":
            return sympy.pi
        if run == "sqrt":
            return self._root(whole_numbers=False)
        if len(run) > 3 or run.lower() in _NO_PRODUCT or not run.isascii():
            raise FormulaParseError("not_understood")
        factors = [self._named(letter, may_have_index=False) for letter in run[:-1]]
        last = self._named(run[-1])
        if self.peek() == "(" and run[-1] in _LETTERS_OF_FUNCTIONS:
            raise FormulaParseError("not_understood")
        if factors and self.peek() == "!":
            raise FormulaParseError("two_readings")
        # In xy^2 the exponent applies only to y, so it is read here with the last letter.
        return sympy.Mul(*factors, self._raised(last)) if factors else last

    def _named(self, name: str, *, may_have_index: bool = True) -> sympy.Expr:
        if may_have_index and self.peek() == "_":
            self._take()
            return sympy.Symbol(f"{name}_{self._index()}")
        return {"e": sympy.E, "i": sympy.I}.get(name) or sympy.Symbol(name)

    def _index(self) -> str:
        token = self._take()
        if token != "{":
            if (_NUMBER.fullmatch(token) and len(token) > 1) or not token.isalnum():
                raise FormulaParseError("two_readings")
            return token
        parts: list[str] = []
        while self.peek() not in ("}", _END):
            parts.append(self._take())
        self._expect("}")
        if not parts or "{" in parts:
            raise FormulaParseError("not_understood")
        return "".join(parts)

    def _fraction(self) -> sympy.Expr:
        token = self.peek()
        if re.fullmatch("[0-9]{2}", token):
            self._take()
            top, bottom = _number(token[0]), _number(token[1])
        else:
            top, bottom = self._argument(), self._argument()
        spelled = "".join(self._tokens[max(0, self._at - 12) : self._at])
        is_derivative = re.search(r"\{d[a-zA-Z]?\}\{d[a-zA-Z]", spelled)
        if is_derivative or bottom == 0:
            raise FormulaParseError("not_understood")
        return _bounded(top / bottom)

    def _argument(self) -> sympy.Expr:
        """Parse the argument of a command: a group, one digit or one letter."""
        token = self.peek()
        if token == "{":
            return self._bracketed()
        if (len(token) == 1 and token.isalnum()) or token == r"\pi":
            return self._atom()
        raise FormulaParseError("two_readings")

    def _root(self, *, whole_numbers: bool) -> sympy.Expr:
        degree = sympy.Integer(2)
        if self.peek() == "[":
            degree = self._bracketed()
            if not degree.is_Integer or not 2 <= degree <= 100:
                raise FormulaParseError("not_understood")
        if self.peek() == "(" or (whole_numbers and _NUMBER.fullmatch(self.peek())):
            radicand = self._call_argument()
        else:
            radicand = self._argument()
        # The odd root of a negative number is read as the real root.
        is_flipped = degree % 2 == 1 and radicand.is_negative
        return -sympy.root(-radicand, degree) if is_flipped else sympy.root(radicand, degree)

    def _call_argument(self) -> sympy.Expr:
        value = self._atom()
        if self.peek() == "!" or (self.peek() == "^" and not self._raises_calls):
            raise FormulaParseError("two_readings")
        return value

    def _absolute(self) -> sympy.Expr:
        if self._inside_bars:
            raise FormulaParseError("two_readings")
        self._inside_bars = True
        value = self.sum()
        self._inside_bars = False
        self._expect("|")
        return sympy.Abs(value)

    def _function(self, name: str) -> sympy.Expr:
        base = self._log_base if name == "log" else None
        power = sympy.Integer(1)
        if self.peek() == "_" and name == "log":
            self._take()
            base = self._argument()
        if self.peek() == "^":
            self._take()
            power = self._exponent()
        value = self._of_function()
        if power == -1 and name in _INVERSES:
            return _INVERSES[name](value)
        if not power.is_positive:
            raise FormulaParseError("two_readings")
        if base is not None and (base in (0, 1) or value == 0):
            raise FormulaParseError("not_understood")
        result = getattr(sympy, FUNCTIONS[name])(value)
        return _power(result / sympy.log(base) if base is not None else result, power)

    def _of_function(self) -> sympy.Expr:
        """The argument of a function: a group, or the tokens up to the next operator."""
        if self.peek() in ("(", "{", "|"):
            return self._call_argument()
        if self.peek() == r"\frac" or self.peek() in _ROOTS:
            value = self._raised(self._atom())
            if _continues_argument(self.peek()):
                raise FormulaParseError("two_readings")
            return value
        factors: list[sympy.Expr] = []
        while _continues_argument(self.peek()):
            if factors and _NUMBER.fullmatch(self.peek()):
                raise FormulaParseError("two_numbers")
            factors.append(self._raised(self._atom()))
        if not factors or self.peek() in ("(", "[", "{", r"\frac", *_ROOTS, "/"):
            raise FormulaParseError("two_readings")
        return sympy.Mul(*factors)

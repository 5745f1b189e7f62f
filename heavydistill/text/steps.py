r"""Reads steps of arithmetic, ``a op b = c``, from a text.

An operand and a value are numbers in digits, with a sign, thousands separators or decimals. The
operations are + - * / and their signs in Unicode and LaTeX. A value may be the first operand of the
next step: ``57 +87=144 -22=122`` is two steps. It is true if it is the result, up to the precision
of a calculator; a quotient may be rounded to the decimals that are written. So two attempts that
write 3.3 and 3.33 for 10 / 3 say the same (``Step.said``).

Lines that begin with the name of an attempt ("Attempt 2: 57 + 87 = 134") say what that attempt has
and not what the text has, so they are left out.

Not covered: sums of three terms, brackets, powers, units inside of a step, fractions and per cent;
steps in words; an equation that is no step but looks like one (``2 + 3 = 6 - 1`` is passed over,
``2 + 3 = 6 - 1 = 5`` is read as two steps).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

_SPELLINGS = str.maketrans("−–×·⋅÷", "--***/", "$")
_LATEX = re.compile(r"\\(?:times|cdot|div)(?![a-zA-Z])")
_BULLET = re.compile(r"^[ \t]*[-*+][ \t]+", re.MULTILINE)
_DIGITS = r"(?:\d{1,3}(?:,\d{3}){1,6}|\d{1,20})(?:\.\d{1,20})?(?!\d|[.,]\d)"
_S = r"[ \t]*"
_NUMBER = rf"-?{_DIGITS}"
_STEP = re.compile(
    r"^[^\w\n]*(?:attempt|thinker|尝试|思考者)\s*#?\d.*$"
    # No operator, bracket, letter or digit before it: it is not the end of a longer term.
    r"|(?<![\w.,^/*+)\]}\\-])(?<![/+-][ \t])(?<![^*]\*[ \t])"
    rf"(?P<left>(?:(?<![\w)][ \t])-)?{_DIGITS})"
    rf"{_S}(?P<operation>[-+*/]){_S}(?P<right>{_NUMBER}|\({_NUMBER}\)){_S}="
    rf"(?={_S}(?:\\boxed\{{)?(?P<value>{_NUMBER})(?:{_S}[-+*/]{_S}{_NUMBER}{_S}=|"
    rf"(?![\w%])(?!{_S}[-+*/^]{_S}[\d(\\])))",
    re.MULTILINE | re.IGNORECASE,
)
_COMMUTES = "+*"
_FLOATS = 10**12  # relative precision that values of a calculator have at least


class Step(NamedTuple):
    """A step: two operands, the operation, and the value that is written for it."""

    operation: str  # one of + - * /
    operands: tuple[Fraction, Fraction]  # those of + and * are sorted
    value: Fraction
    is_true: bool  # whether the value is the result of the operation
    said: Fraction  # the result if the value is true, however it is rounded; else the value

    @property
    def asked(self) -> tuple[str, tuple[Fraction, Fraction]]:
        """Operation and operands: steps with the same ones have the same result."""
        return self.operation, self.operands


def read_steps(text: str) -> list[Step]:
    """Return the steps of a text in their order; a division by zero is none."""
    return [step for _, step in _found(text)]


def first_false_step(text: str) -> str:
    """Return the first false step of a text as ``a op b = c``; empty if there is none."""
    return next((written for written, step in _found(text) if not step.is_true), "")


def _found(text: str) -> Iterator[tuple[str, Step]]:
    """Yield the steps of a text, each with its text in plain signs."""
    plain = _LATEX.sub(lambda m: "/" if m[0] == r"\div" else "*", _BULLET.sub("", text))
    for match in _STEP.finditer(plain.translate(_SPELLINGS)):
        left, operation, right, value = match.group("left", "operation", "right", "value")
        if left and (step := _step(operation, left, right, value)):
            yield f"{left} {operation} {right} = {value}", step


def number(text: str) -> Fraction | None:
    """Return the number that a text consists of, e.g. ``-1,024.5``; None if it is no number."""
    return _value(text) if re.fullmatch(_NUMBER, text) else None


def _step(operation: str, left: str, right: str, written: str) -> Step | None:
    a, b, value = map(_value, (left, right, written))
    if operation == "/" and not b:
        return None
    result = {"+": a + b, "-": a - b, "*": a * b, "/": a / (b or 1)}[operation]
    rounded = Fraction(operation == "/", 2 * 10 ** len(written.partition(".")[2]))
    is_true = abs(result - value) <= max(rounded, abs(result) / _FLOATS)
    operands = (b, a) if operation in _COMMUTES and b < a else (a, b)
    return Step(operation, operands, value, is_true, result if is_true else value)


def _value(digits: str) -> Fraction:
    return Fraction(digits.replace(",", "").strip("()"))

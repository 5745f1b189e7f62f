"""Compares plain numbers exactly, and tells a rounded one from a wrong one.

Equal means equal: 0.333 is not 1/3, and 3.14 is not 3.1416. A decimal that is the other value
rounded to its places, or differs from it by floating-point noise, is undecided: whether rounding
was asked for stands in the problem's text.
"""

from __future__ import annotations

from fractions import Fraction

from heavydistill.schema import Label
from heavydistill.verifiers.normal import plain

FEWEST_DIGITS = 2
NOISE = Fraction(1, 10**6)

Outcome = tuple[Label, str]
EQUAL: Outcome = ("correct", "equal")
DIFFERENT: Outcome = ("incorrect", "different")
ROUNDED: Outcome = ("undecided", "rounded")


def compare_numbers(given: str, wanted: str, values: tuple[Fraction, Fraction]) -> Outcome:
    """The outcome for two plain numbers as they are written, with their ``values``."""
    given_value, wanted_value = values
    if given_value == wanted_value:
        return EQUAL
    if is_rounded(given, wanted_value) or is_rounded(wanted, given_value):
        return ROUNDED
    return DIFFERENT


def is_rounded(written: str, exact: Fraction) -> bool:
    """Whether a decimal is ``exact`` rounded or cut to its places, or off by mere noise."""
    whole, point, places = plain(written).replace(",", "").partition(".")
    if not point or not places.isdigit() or not whole.lstrip("+- ").isdigit():
        return False
    value = Fraction(f"{whole.replace(' ', '') or '0'}.{places}")
    if len(f"{whole}{places}".lstrip("+- 0")) < FEWEST_DIGITS:
        return False
    off = abs(value - exact)
    place = Fraction(1, 10 ** len(places))
    is_cut = off < place and abs(value) < abs(exact) and value * exact > 0
    return off <= place / 2 or is_cut or off <= NOISE * abs(exact)

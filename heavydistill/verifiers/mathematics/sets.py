r"""Sets of real numbers: intervals, unions, inequalities in one variable.

``real_set`` turns a shape into a SymPy set, ``compare_sets`` compares two, piece by piece, so that
ends of different spelling (``\sqrt{8}`` and ``2\sqrt{2}``) are the same ends.

Not covered: ends that hold variables, and inequalities that have to be solved first.
"""

from __future__ import annotations

import re
from fractions import Fraction

import sympy

from heavydistill.verifiers.mathematics.equality import Outcome, compare_constants, value_of
from heavydistill.verifiers.mathematics.formula import Unread
from heavydistill.verifiers.mathematics.numbers import DIFFERENT, EQUAL, ROUNDED, is_rounded
from heavydistill.verifiers.mathematics.shape import (
    Brackets,
    Formula,
    Many,
    Relation,
    Shape,
    Union,
    Without,
)
from heavydistill.verifiers.normal import normal_form

_FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le", r"\ne": r"\ne"}
_NAMED = {
    (r"\mathbb{R}",): sympy.S.Reals,
    (r"\emptyset",): sympy.S.EmptySet,
}


def is_set(shape: Shape) -> bool:
    """Whether a shape can only be a set of numbers."""
    if isinstance(shape, Relation):
        return all(sign in _FLIPPED for sign in shape.signs) or shape.signs == (r"\in",)
    if isinstance(shape, Brackets):
        return shape.must_be_interval
    if isinstance(shape, Formula):
        return shape.tokens in _NAMED
    if isinstance(shape, Many):
        return bool(shape.items) and all(
            isinstance(item, Relation) and is_set(item) for item in shape.items
        )
    return isinstance(shape, Union | Without)


def variable_of(shape: Shape) -> str | None:
    """The name that an inequality or membership is about; None where there is none."""
    if isinstance(shape, Many | Union):
        names = {variable_of(item) for item in shape.items}
        return names.pop() if len(names) == 1 else None
    if not isinstance(shape, Relation):
        return None
    formulas = (part for part in shape.parts if isinstance(part, Formula))
    return next(("".join(part.tokens) for part in formulas if _is_variable(part)), None)


def compare_sets(given: Shape, wanted: Shape) -> Outcome:
    """The outcome for two shapes of which one ``is_set``."""
    try:
        pieces = [_pieces(real_set(shape)) for shape in (given, wanted)]
    except Unread as unread:
        return "undecided", str(unread)
    names = [variable_of(shape) for shape in (given, wanted)]
    if len(pieces[0]) != len(pieces[1]):
        return DIFFERENT
    found: set[Outcome] = set()
    for first, second in zip(*pieces, strict=True):
        if (first.left_open, first.right_open) != (second.left_open, second.right_open):
            return DIFFERENT
        found |= {_compare_ends(first.start, second.start), _compare_ends(first.end, second.end)}
    if DIFFERENT in found:
        return DIFFERENT
    if undecided := found - {EQUAL}:
        return min(undecided)
    if None not in names and names[0] != names[1]:
        return "undecided", "other_names"
    return EQUAL


def _compare_ends(given: sympy.Expr, wanted: sympy.Expr) -> Outcome:
    """The outcome for two ends; a finite decimal that the other end rounds to is ``rounded``."""
    outcome = compare_constants(given, wanted)
    if outcome == DIFFERENT and given.is_finite and wanted.is_finite:
        for decimal, exact in ((given, wanted), (wanted, given)):
            spelled = normal_form(str(decimal)).text if decimal.is_Rational else ""
            if "." in spelled and is_rounded(spelled, Fraction(str(sympy.N(exact, 40)))):
                return ROUNDED
    return outcome


def real_set(shape: Shape) -> sympy.Set:
    """The set of real numbers that a shape stands for.

    Raises:
        Unread: It stands for none, or its ends are not numbers.
    """
    if isinstance(shape, Formula) and shape.tokens in _NAMED:
        return _NAMED[shape.tokens]
    if isinstance(shape, Brackets) and len(shape.items) == 2:
        low, high = (_end(item) for item in shape.items)
        is_point = low == high and (shape.opens, shape.closes) == ("[", "]")
        if not (is_point or (low < high) == True):  # noqa: E712 - it may be no truth value
            # (3, 1) is a tuple, not an empty interval.
            raise Unread("other_kind")
        return sympy.Interval(low, high, shape.opens == "(", shape.closes == ")")
    if isinstance(shape, Union):
        return sympy.Union(*map(real_set, shape.items))
    if isinstance(shape, Without):
        return sympy.Complement(real_set(shape.whole), real_set(shape.hole))
    if isinstance(shape, Relation):
        return _of_relation(shape)
    if isinstance(shape, Many) and all(isinstance(item, Relation) for item in shape.items):
        if shape.joined not in ("or", "and"):
            raise Unread("two_readings")
        joined = sympy.Union if shape.joined == "or" else sympy.Intersection
        return joined(*map(real_set, shape.items))
    if isinstance(shape, Many):
        return sympy.FiniteSet(*map(_end, shape.items))
    raise Unread("other_kind")


def _of_relation(relation: Relation) -> sympy.Set:
    if relation.signs == (r"\in",):
        return real_set(relation.parts[1])
    places = [at for at, part in enumerate(relation.parts) if _is_variable(part)]
    if len(places) != 1 or len(relation.parts) > 3:
        raise Unread("other_kind")
    place = places[0]
    found: sympy.Set = sympy.S.Reals
    for at, part in enumerate(relation.parts):
        if at == place:
            continue
        if abs(at - place) > 1:
            raise Unread("other_kind")
        sign = relation.signs[min(at, place)]
        found = sympy.Intersection(
            found, _half_line(sign if at > place else _FLIPPED.get(sign, sign), _end(part))
        )
    return found


def _half_line(sign: str, end: sympy.Expr) -> sympy.Set:
    if sign in ("<", r"\le"):
        return sympy.Interval(-sympy.oo, end, True, sign == "<")
    if sign in (">", r"\ge"):
        return sympy.Interval(end, sympy.oo, sign == ">", True)
    if sign == r"\ne":
        return sympy.Complement(sympy.S.Reals, sympy.FiniteSet(end))
    raise Unread("other_kind")


def _is_variable(part: Shape) -> bool:
    if not isinstance(part, Formula) or not part.tokens:
        return False
    first = part.tokens[0]
    is_letter = (len(first) == 1 and first.isalpha() and first not in "ei") or (
        first.startswith("\\") and first[1:].isalpha() and first not in (r"\pi", r"\infty")
    )
    # An index (x_1, x_{max}) or an argument (f(x)) may follow.
    rest = "".join(part.tokens[1:]).replace(" ", "")
    return is_letter and bool(
        re.fullmatch(r"(?:_(?:\w|\{\w+\}))?(?:\((?:[a-zA-Z]|\\[a-z]+)\))?", rest)
    )


def _end(shape: Shape) -> sympy.Expr:
    if not isinstance(shape, Formula):
        raise Unread("other_kind")
    value = value_of(shape.tokens)
    if not value.is_extended_real or value.free_symbols:
        raise Unread("other_names")
    return value


def _pieces(numbers: sympy.Set) -> list[sympy.Interval]:
    """The disjoint intervals of a set from the lowest on; single points are closed intervals."""
    if numbers is sympy.S.Reals:
        return [sympy.Interval(-sympy.oo, sympy.oo)]
    if numbers is sympy.S.EmptySet:
        return []
    found: list[sympy.Interval] = []
    for part in numbers.args if isinstance(numbers, sympy.Union) else (numbers,):
        if isinstance(part, sympy.Interval):
            found.append(part)
        elif isinstance(part, sympy.FiniteSet):
            found.extend(_Point(value) for value in part.args)
        else:
            raise Unread("not_understood")
    return sorted(found, key=lambda piece: sympy.N(piece.start))


class _Point:
    """A single number, with the attributes of a closed interval."""

    left_open = right_open = False

    def __init__(self, value: sympy.Expr) -> None:
        self.start = self.end = value

r"""Sets of real numbers: intervals, unions, inequalities in one variable.

``real_set`` turns a shape into a SymPy set, ``compare_sets`` compares two, piece by piece, so that
ends of different spelling (``\sqrt{8}`` and ``2\sqrt{2}``) are the same ends.

Not covered: ends that hold variables, and inequalities that have to be solved first.
"""

from __future__ import annotations

import re
from fractions import Fraction

import sympy

from heavydistill.verifiers.mathematics.equality import compare_constants, value_of
from heavydistill.verifiers.mathematics.formula import Unread
from heavydistill.verifiers.mathematics.relations import FLIPPED
from heavydistill.verifiers.mathematics.shape import (
    Brackets,
    Formula,
    Many,
    Relation,
    Shape,
    Union,
)
from heavydistill.verifiers.normal import (
    DIFFERENT,
    EQUAL,
    ROUNDED,
    Outcome,
    is_rounded,
    normal_form,
)

_NAMED = {(r"\mathbb{R}",): sympy.S.Reals, (r"\emptyset",): sympy.S.EmptySet}
# A letter, perhaps with an index (x_1, x_{max}) or an argument (f(x)).
_VARIABLE = re.compile(
    r"(?:(?![ei])[^\W\d_]|\\(?!(?:pi|infty)(?![a-zA-Z]))[a-zA-Z]+)"
    r"(?:_(?:\w|\{\w+\}))?(?:\((?:[a-zA-Z]|\\[a-z]+)\))?"
)


def is_set(shape: Shape) -> bool:
    """Whether a shape can only be a set of numbers."""
    if isinstance(shape, Relation):
        return shape.signs == (r"\in",) or all(sign in FLIPPED for sign in shape.signs)
    if isinstance(shape, Many):
        return all(isinstance(item, Relation) and is_set(item) for item in shape.items)
    if isinstance(shape, Brackets):
        return shape.must_be_interval
    return isinstance(shape, Union) or (isinstance(shape, Formula) and shape.tokens in _NAMED)


def compare_sets(given: Shape, wanted: Shape) -> Outcome:
    """The outcome for two shapes of which one ``is_set``."""
    try:
        pieces = [_pieces(real_set(shape)) for shape in (given, wanted)]
    except Unread as unread:
        return "undecided", str(unread)
    if len(pieces[0]) != len(pieces[1]):
        return DIFFERENT
    found: set[Outcome] = set()
    for (start, end, *are_open), (other_start, other_end, *other_open) in zip(*pieces, strict=True):
        if are_open != other_open:
            return DIFFERENT
        found |= {_compare_ends(start, other_start), _compare_ends(end, other_end)}
    if DIFFERENT in found:
        return DIFFERENT
    if undecided := found - {EQUAL}:
        return min(undecided)
    names = {_variable_of(shape) for shape in (given, wanted)} - {None}
    return ("undecided", "other_names") if len(names) > 1 else EQUAL


def _variable_of(shape: Shape) -> str | None:
    """The name that an inequality or membership is about; None where there is none."""
    if isinstance(shape, Many | Union):
        names = {_variable_of(item) for item in shape.items}
        return names.pop() if len(names) == 1 else None
    parts = shape.parts if isinstance(shape, Relation) else ()
    return next((part.text for part in parts if isinstance(part, Formula) and _is_name(part)), None)


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
        low, high = map(_end, shape.items)
        is_point = low == high and (shape.opens, shape.closes) == ("[", "]")
        if not (is_point or (low < high) == True):  # noqa: E712 - it may be no truth value
            # (3, 1) is a tuple, not an empty interval.
            raise Unread("other_kind")
        return sympy.Interval(low, high, shape.opens == "(", shape.closes == ")")
    if isinstance(shape, Relation):
        return _set_of_relation(shape)
    if isinstance(shape, Union):
        return sympy.Union(*map(real_set, shape.items))
    if isinstance(shape, Many) and all(isinstance(item, Relation) for item in shape.items):
        if shape.joined not in ("or", "and"):
            raise Unread("two_readings")
        joined = sympy.Union if shape.joined == "or" else sympy.Intersection
        return joined(*map(real_set, shape.items))
    if isinstance(shape, Many):
        return sympy.FiniteSet(*map(_end, shape.items))
    raise Unread("other_kind")


def _set_of_relation(relation: Relation) -> sympy.Set:
    parts, signs = relation.parts, relation.signs
    if signs == (r"\in",):
        return real_set(parts[1])
    places = [at for at, part in enumerate(parts) if _is_name(part)]
    if (len(parts), places) not in ((2, [0]), (2, [1]), (3, [1])):
        raise Unread("other_kind")
    at = places[0]
    lines = [_half_line(FLIPPED.get(signs[at - 1], ""), _end(parts[at - 1]))] if at else []
    lines += [
        _half_line(sign, _end(part)) for sign, part in zip(signs[at:], parts[at + 1 :], strict=True)
    ]
    return sympy.Intersection(*lines)


def _half_line(sign: str, end: sympy.Expr) -> sympy.Set:
    if sign in ("<", r"\le"):
        return sympy.Interval(-sympy.oo, end, True, sign == "<")
    if sign in (">", r"\ge"):
        return sympy.Interval(end, sympy.oo, sign == ">", True)
    if sign == r"\ne":
        return sympy.Complement(sympy.S.Reals, sympy.FiniteSet(end))
    raise Unread("other_kind")


def _is_name(part: Shape) -> bool:
    return isinstance(part, Formula) and bool(_VARIABLE.fullmatch(part.text.replace(" ", "")))


def _end(shape: Shape) -> sympy.Expr:
    if not isinstance(shape, Formula):
        raise Unread("other_kind")
    value = value_of(shape.tokens)
    if not value.is_extended_real or value.free_symbols:
        raise Unread("other_names")
    return value


Piece = tuple[sympy.Expr, sympy.Expr, bool, bool]


def _pieces(numbers: sympy.Set) -> list[Piece]:
    """The disjoint intervals of a set from the lowest on: start, end, whether they are open."""
    found: list[Piece] = []
    for part in numbers.args if isinstance(numbers, sympy.Union) else (numbers,):
        if part is sympy.S.Reals:
            found.append((-sympy.oo, sympy.oo, True, True))
        elif isinstance(part, sympy.Interval):
            found.append((part.start, part.end, bool(part.left_open), bool(part.right_open)))
        elif isinstance(part, sympy.FiniteSet):
            found.extend((value, value, False, False) for value in part.args)
        elif part is not sympy.S.EmptySet:
            raise Unread("not_understood")
    return sorted(found, key=lambda piece: sympy.N(piece[0]))

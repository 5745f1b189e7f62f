r"""Splits sets of real numbers into parts: intervals, points, inequalities in one variable.

``shape_comparison`` compares the parts of two sets one by one, so that end points written
differently (``\sqrt{8}`` and ``2\sqrt{2}``) are equal.

Not covered: parts that would have to be combined first, as in ``x > 1 and x < 3`` and
``(0, 1] \cup (1, 2)``, and inequalities that would have to be solved.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import sympy

from heavydistill.verifiers.mathematics.formula import FormulaParseError
from heavydistill.verifiers.mathematics.formula_equality import value_of
from heavydistill.verifiers.mathematics.relations import FLIPPED
from heavydistill.verifiers.mathematics.shape import (
    Brackets,
    Formula,
    Relation,
    Shape,
    Union,
    ValueSet,
    Without,
)
from heavydistill.verifiers.mathematics.tokens import stripped, tokens_of

_LOWEST, _HIGHEST = Formula(("-", r"\infty")), Formula((r"\infty",))
_NAMED: dict[tuple[str, ...], list[Shape]] = {
    (r"\mathbb{R}",): [Brackets("(", (_LOWEST, _HIGHEST), ")")],
    (r"\emptyset",): [],
}
# A variable: a letter, maybe with an index (x_1, x_{max}) or an argument (f(x)).
_VARIABLE = re.compile(
    r"(?:(?![ei])[^\W\d_]|\\(?!(?:pi|infty)(?![a-zA-Z]))[a-zA-Z]+)"
    r"(?:_(?:\w|\{\w+\}))?(?:\((?:[a-zA-Z]|\\[a-z]+)\))?"
)


def is_set(shape: Shape) -> bool:
    """Whether a shape can only be a set of numbers."""
    if isinstance(shape, Relation):
        return shape.signs == (r"\in",) or all(sign in FLIPPED for sign in shape.signs)
    if isinstance(shape, ValueSet):
        return all(isinstance(item, Relation) and is_set(item) for item in shape.items)
    if isinstance(shape, Brackets):
        return shape.must_be_interval
    return isinstance(shape, Union | Without) or (
        isinstance(shape, Formula) and shape.tokens in _NAMED
    )


def parts_of(shape: Shape) -> list[Shape]:
    """The intervals and points of a set.

    Raises:
        Unread: The shape is not a set, or its parts would have to be combined or solved first.
    """
    match shape:
        case Formula(tokens=tokens) if tokens in _NAMED:
            return _NAMED[tokens]
        case Brackets(items=(_, _)):
            return [shape]
        case Relation(signs=(r"\in",), parts=(_, of)):
            return parts_of(of)
        case Relation():
            return _intervals(shape)
        case Without(items=items):
            return _between_points(items)
        case Union(items=items) | ValueSet(items=items, joined="or"):
            return [part for item in items for part in parts_of(item)]
        case ValueSet(items=items) if all(isinstance(item, Formula) for item in items):
            return list(items)
    raise FormulaParseError("other_kind")


def variable_of(shape: Shape) -> str | None:
    """The variable in inequalities and memberships; None if there is none."""
    if isinstance(shape, ValueSet | Union):
        names = filter(None, map(variable_of, shape.items))
        return ",".join(sorted({*names})) or None
    parts = shape.parts if isinstance(shape, Relation) else ()
    sides = (part.text.strip("| ") for part in parts if isinstance(part, Formula))
    return next((side for side in sides if _VARIABLE.fullmatch(side.replace(" ", ""))), None)


def _between_points(points: Sequence[Shape]) -> list[Shape]:
    """The intervals that are left of the real line without some points."""
    ends = [point for point in points if isinstance(point, Formula)]
    values = {end: value_of(end.tokens) for end in ends}
    if len(ends) < len(points) or not all(v.is_real and v.is_number for v in values.values()):
        raise FormulaParseError("other_kind")
    ordered = [_LOWEST, *sorted(ends, key=values.__getitem__), _HIGHEST]
    return [_between([(">", low), ("<", high)]) for low, high in pairwise(ordered)]


def _distances(relation: Relation) -> list[Shape] | None:
    r"""The parts of ``|x - 3| < 2`` or ``|x| \ge 1``; None for another relation."""
    distance, end = relation.parts if len(relation.parts) == 2 else (None, None)
    if not isinstance(distance, Formula) or not isinstance(end, Formula):
        return None
    tokens = distance.tokens
    inner = Formula(stripped(tokens[1:-1]))
    is_absolute = (
        len(tokens) > 2 and (tokens[0], tokens[-1]) == ("|", "|") and "|" not in inner.tokens
    )
    radius = value_of(end.tokens) if is_absolute else None
    if radius is None or relation.signs[0] not in FLIPPED or not radius.is_positive:
        return None
    value = value_of(inner.tokens)
    name = max(value.free_symbols, key=str, default=sympy.Integer(0))
    middle = name - (-value if value.coeff(name) == -1 else value)
    if not (value.free_symbols and middle.is_number and middle.is_real):
        return None
    low, high = (_formula(middle + side * radius) for side in (-1, 1))
    sign = relation.signs[0]
    if sign in ("<", r"\le"):
        return [_between([(FLIPPED[sign], low), (sign, high)])]
    if sign in (">", r"\ge"):
        return [_between([(FLIPPED[sign], low)]), _between([(sign, high)])]
    return None


def _formula(value: sympy.Expr) -> Formula:
    return Formula(tokens_of(sympy.latex(value).replace(r"\left", "").replace(r"\right", "")))


def _intervals(relation: Relation) -> list[Shape]:
    r"""The parts of a relation such as ``x < 1``, ``0 \le x < 1``, ``x \ne 1`` or ``|x| > 1``."""
    if (parts_of_distance := _distances(relation)) is not None:
        return parts_of_distance
    parts, signs = relation.parts, relation.signs
    places = [at for at, part in enumerate(parts) if _is_name(part)]
    if (len(parts), places) not in ((2, [0]), (2, [1]), (3, [1])):
        raise FormulaParseError("other_kind")
    at = places[0]
    ends = [(FLIPPED.get(signs[0], ""), parts[0])] if at else []
    ends += zip(signs[at:], parts[at + 1 :], strict=True)
    if ends[0][0] == r"\ne" and len(ends) == 1:
        return [_between([(">", _LOWEST), ("<", ends[0][1])]), _between([(">", ends[0][1])])]
    return [_between(ends)]


def _between(ends: Sequence[tuple[str, Shape]]) -> Shape:
    """The interval given by end points and the relation of its numbers to each."""
    low = [(sign, end) for sign, end in ends if sign in (">", r"\ge")]
    high = [(sign, end) for sign, end in ends if sign in ("<", r"\le")]
    if len(low) > 1 or len(high) > 1 or len(low) + len(high) < len(ends):
        raise FormulaParseError("other_kind")
    (above, start), (below, end) = (*low, (">", _LOWEST))[0], (*high, ("<", _HIGHEST))[0]
    if not isinstance(start, Formula) or not isinstance(end, Formula):
        raise FormulaParseError("other_kind")
    if not (value_of(end.tokens) - value_of(start.tokens)).is_extended_positive:
        raise FormulaParseError("other_kind")
    return Brackets("[" if above == r"\ge" else "(", (start, end), "]" if below == r"\le" else ")")


def _is_name(part: Shape) -> bool:
    return isinstance(part, Formula) and bool(_VARIABLE.fullmatch(part.text.replace(" ", "")))

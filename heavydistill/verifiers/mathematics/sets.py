r"""Splits sets of real numbers into parts: intervals, points, inequalities in one variable.

``shape_comparison`` compares the parts of two sets one by one, so that end points written
differently (``\sqrt{8}`` and ``2\sqrt{2}``) are equal.

Not covered: parts that would have to be combined first, as in ``x > 1 and x < 3`` and
``(0, 1] \cup (1, 2)``, and inequalities that would have to be solved.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from heavydistill.verifiers.mathematics.formula import Unread
from heavydistill.verifiers.mathematics.formula_equality import value_of
from heavydistill.verifiers.mathematics.relations import FLIPPED
from heavydistill.verifiers.mathematics.shape import (
    Brackets,
    Formula,
    Many,
    Relation,
    Shape,
    Union,
)

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
    if isinstance(shape, Many):
        return all(isinstance(item, Relation) and is_set(item) for item in shape.items)
    if isinstance(shape, Brackets):
        return shape.must_be_interval
    return isinstance(shape, Union) or (isinstance(shape, Formula) and shape.tokens in _NAMED)


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
        case Union(items=items) | Many(items=items, joined="or"):
            return [part for item in items for part in parts_of(item)]
        case Many(items=items) if all(isinstance(item, Formula) for item in items):
            return list(items)
    raise Unread("other_kind")


def variable_of(shape: Shape) -> str | None:
    """The variable in inequalities and memberships; None if there is none."""
    if isinstance(shape, Many | Union):
        names = filter(None, map(variable_of, shape.items))
        return ",".join(sorted({*names})) or None
    parts = shape.parts if isinstance(shape, Relation) else ()
    return next((part.text for part in parts if isinstance(part, Formula) and _is_name(part)), None)


def _intervals(relation: Relation) -> list[Shape]:
    r"""The parts of a relation such as ``x < 1``, ``0 \le x < 1`` or ``x \ne 1``."""
    parts, signs = relation.parts, relation.signs
    places = [at for at, part in enumerate(parts) if _is_name(part)]
    if (len(parts), places) not in ((2, [0]), (2, [1]), (3, [1])):
        raise Unread("other_kind")
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
        raise Unread("other_kind")
    (above, start), (below, end) = (*low, (">", _LOWEST))[0], (*high, ("<", _HIGHEST))[0]
    if not isinstance(start, Formula) or not isinstance(end, Formula):
        raise Unread("other_kind")
    if not (value_of(end.tokens) - value_of(start.tokens)).is_extended_positive:
        raise Unread("other_kind")
    return Brackets("[" if above == r"\ge" else "(", (start, end), "]" if below == r"\le" else ")")


def _is_name(part: Shape) -> bool:
    return isinstance(part, Formula) and bool(_VARIABLE.fullmatch(part.text.replace(" ", "")))

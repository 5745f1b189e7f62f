r"""Compares equations, and values with the name they are given: ``x = 5`` and ``5``.

The left side of an equation counts as a name if it is a letter, an indexed letter, a function of
letters (``f(x)``), points (``AB``, ``\angle ABC``), a tuple of letters or words. ``4 = 5`` names
nothing, ``3 + 4 = 7`` is worth 7.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import sympy

from heavydistill.verifiers.mathematics.equality import Outcome, value_of
from heavydistill.verifiers.mathematics.formula import Unread, can_be_expanded
from heavydistill.verifiers.mathematics.numbers import DIFFERENT, EQUAL, ROUNDED
from heavydistill.verifiers.mathematics.shape import (
    Brackets,
    Formula,
    Many,
    Relation,
    Shape,
    Words,
)

Compare = Callable[[Shape, Shape], Outcome]

_LETTER = r"(?:[a-zA-Z]|\\[a-zA-Z]+)(?:_(?:\w|\{(?:\\?\w+|\\text\{\w+\})\}))?"
_NAME = re.compile(
    rf"{_LETTER}(?:\({_LETTER}(?:,{_LETTER})*\))?|(?:\\angle|\\triangle)?[A-Z]{{1,4}}|\|[A-Z]{{2}}\|"
    r"|\{?\\(?:overline|overrightarrow)\{[A-Z]{2}\}\}?|[PEV]\([A-Z]\)|\|?[a-z]\|?"
)
_NO_NAMES = frozenset((r"\pi", r"\infty", r"\emptyset", "e", "i"))
# Of coordinates an equation is a line, a curve or a surface; of other letters it is their value.
_COORDINATE = re.compile(r"[xyzr]|\\rho")


def name_of(shape: Shape) -> str | None:
    """What an equation gives a value to; None if it is none or its left side is no name."""
    if not isinstance(shape, Relation) or shape.signs[0] not in ("=", r"\approx"):
        return None
    left = shape.parts[0]
    if isinstance(left, Words):
        return left.text
    if isinstance(left, Brackets) and all(isinstance(item, Formula) for item in left.items):
        letters = ["".join(item.tokens) for item in left.items if isinstance(item, Formula)]
        is_point = all(re.fullmatch(_LETTER, letter) for letter in letters)
        return f"({','.join(letters)})" if is_point and not _NO_NAMES & {*letters} else None
    if not isinstance(left, Formula):
        return None
    text = "".join(left.tokens).replace(" ", "")
    return text if _NAME.fullmatch(text) and text not in _NO_NAMES else None


def compare_relations(given: Shape, wanted: Shape, compare: Compare) -> Outcome:
    """The outcome where one side at least is a ``Relation``; ``compare`` compares their parts."""
    if isinstance(given, Relation) and isinstance(wanted, Relation):
        return _both(given, wanted, compare)
    if isinstance(given, Relation):
        value = _value(given, compare)
        if value is None:
            return "undecided", "not_a_value"
        outcome = compare(value, wanted)
        rounded = given.signs[-1] == r"\approx" and compare(given.parts[-1], wanted) == EQUAL
        return ROUNDED if rounded and outcome != EQUAL else outcome
    assert isinstance(wanted, Relation)
    value = _value(wanted, compare)
    if value is None:
        return "undecided", "other_kind"
    outcome = compare(given, value)
    is_curve = _COORDINATE.fullmatch(name_of(wanted) or "") and _has_variables(value)
    return ("undecided", "other_kind") if is_curve else outcome


def spread(shape: Shape) -> Shape:
    """``x = ±2`` and ``(x, y) = (1, 2), (2, 1)`` as the values; anything else as it is."""
    if isinstance(shape, Many) and shape.joined != "braces":
        first, *others = shape.items
        value = _bare(first)
        if (
            isinstance(value, Brackets)
            and value is not first
            and all(isinstance(other, Brackets) for other in others)
        ):
            return Many((value, *others), shape.joined)
    is_named = isinstance(shape, Relation) and shape.signs == ("=",) and name_of(shape)
    if is_named and isinstance(shape, Relation) and isinstance(shape.parts[1], Many):
        return shape.parts[1]
    return shape


def have_same_names(given: Sequence[Shape], wanted: Sequence[Shape]) -> bool:
    """Whether all values have names, each its own, and the names of both sides are the same."""
    names = [[name_of(item) for item in items] for items in (given, wanted)]
    return (
        None not in names[0]
        and len(set(names[0])) == len(names[0])
        and (len(names[0]) > 1 and sorted(map(str, names[0])) == sorted(map(str, names[1])))
    )


def without_common_names(
    given: Sequence[Shape], wanted: Sequence[Shape]
) -> tuple[Sequence[Shape], Sequence[Shape]]:
    """Two lists of values without the name that is given to each: ``x = 1, x = 2``."""
    stems = [{_stem(name_of(item)) for item in items} for items in (given, wanted)]
    if all(len(found - {None}) <= 1 for found in stems) and stems[0] != stems[1]:
        common = stems[0] | stems[1]
        if len(common - {None}) == 1:
            return [_bare(item) for item in given], [_bare(item) for item in wanted]
    same = stems[0] == stems[1] and len(stems[0]) == 1 and None not in stems[0]
    if same:
        return [_bare(item) for item in given], [_bare(item) for item in wanted]
    # x = 1, 2: the name stands for all of them.
    return given, wanted


def _stem(name: str | None) -> str | None:
    return name.partition("_")[0] if name else None


def _bare(item: Shape) -> Shape:
    is_assignment = isinstance(item, Relation) and len(item.parts) == 2 and name_of(item)
    return item.parts[1] if is_assignment and isinstance(item, Relation) else item


def _value(relation: Relation, compare: Compare) -> Shape | None:
    """What an equation says its name is worth; None if it gives no value or several."""
    parts = list(relation.parts)
    if relation.signs == (r"\in",):
        return parts[1]
    cut = next((at for at, sign in enumerate(relation.signs) if sign == r"\approx"), None)
    signs = relation.signs
    if cut is not None:
        # What an exact value is about says nothing more about it.
        only_name = cut == 0 and name_of(relation) is not None
        parts, signs = (parts[:2], ("=",)) if only_name else (parts[: cut + 1], signs[:cut])
    if any(sign != "=" for sign in signs):
        return None
    if len(parts) == 1:
        return parts[0]
    values = parts[1:] if name_of(relation) else parts
    return values[-1] if all(compare(v, values[-1]) == EQUAL for v in values[:-1]) else None


def _both(given: Relation, wanted: Relation, compare: Compare) -> Outcome:
    names = name_of(given), name_of(wanted)
    values = [
        _value(relation, compare) if name_of(relation) else None for relation in (given, wanted)
    ]
    if values[0] is not None and values[1] is not None:
        outcome = compare(values[0], values[1])
        if names[0] == names[1] and (outcome == EQUAL or _are_explicit(names[0], values)):
            return outcome
        if names[0] != names[1] and not any(map(_has_variables, values)):
            return ("undecided", "other_names") if outcome == EQUAL else outcome
    if given.signs == wanted.signs and all(
        compare(*pair) == EQUAL for pair in zip(given.parts, wanted.parts, strict=True)
    ):
        return EQUAL
    try:
        return _proportional(given, wanted)
    except Unread as unread:
        return "undecided", str(unread)


def _are_explicit(name: str | None, values: Sequence[Shape | None]) -> bool:
    """Whether neither value holds the name again, so that it is one value and no condition."""
    names = (name or "").strip("()").split(",") if (name or "").startswith("(") else [name or ""]
    letters = {sympy.Symbol(letter.strip("\\")) for letter in names}
    try:
        return not any(letters & _free(value) for value in values)
    except Unread:
        return False


def _free(value: Shape | None) -> set[sympy.Symbol]:
    if isinstance(value, Brackets):
        return set().union(*map(_free, value.items))
    if not isinstance(value, Formula):
        raise Unread("other_kind")
    return set(value_of(value.tokens).free_symbols)


def _has_variables(value: Shape | None) -> bool:
    try:
        return bool(_free(value))
    except Unread:
        return isinstance(value, Formula)


def _proportional(given: Relation, wanted: Relation) -> Outcome:
    """Equal if the two sides' differences are a constant multiple of each other."""
    opposite = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le", "=": "="}
    if len(given.signs) != 1 or len(wanted.signs) != 1:
        return "undecided", "other_equation"
    differences: list[sympy.Expr] = []
    for relation in (given, wanted):
        if not all(isinstance(part, Formula) for part in relation.parts):
            return "undecided", "other_equation"
        left, right = (
            value_of(part.tokens) for part in relation.parts if isinstance(part, Formula)
        )
        differences.append(left - right)
    if not all(d.free_symbols for d in differences):
        return "undecided", "other_equation"
    if not all(d.is_polynomial() for d in differences):
        return "undecided", "other_equation"
    if not all(map(can_be_expanded, differences)):
        return "undecided", "too_complex"
    ratio = sympy.cancel(differences[0] / differences[1])
    if not ratio.is_number or not ratio.is_real or ratio == 0:
        return "undecided", "other_equation"
    wanted_sign = wanted.signs[0] if ratio > 0 else opposite.get(wanted.signs[0])
    if wanted.signs[0] in (r"\ne",):
        wanted_sign = r"\ne"
    return EQUAL if given.signs[0] == wanted_sign else DIFFERENT

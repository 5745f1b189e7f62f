r"""Compares equations with each other, and an equation such as ``x = 5`` with the value ``5``.

The left side of an equation is a name if it is a letter, an indexed letter, a function of letters
(``f(x)``), points (``AB``, ``\angle ABC``), a tuple of letters or words. ``4 = 5`` names nothing,
and ``3 + 4 = 7`` has the value 7.

Equations are equal if they are multiples of each other, and different if a point solves only one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import permutations

import sympy

from heavydistill.verifiers.mathematics.formula import FormulaParseError
from heavydistill.verifiers.mathematics.formula_equality import (
    constant_factor,
    have_other_points,
    value_of,
)
from heavydistill.verifiers.mathematics.shape import (
    Brackets,
    Formula,
    Measure,
    Relation,
    Shape,
    ValueSet,
    Words,
)
from heavydistill.verifiers.normal import DIFFERENT, EQUAL, ROUNDED, Outcome

Compare = Callable[[Shape, Shape], Outcome]

OTHER_EQUATION: Outcome = ("undecided", "other_equation")
FLIPPED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le", r"\ne": r"\ne"}
_LETTER = r"(?:[a-zA-Z]|\\[a-zA-Z]+)(?:_(?:\w|\{(?:\\?\w+|\\text\{\w+\})\}))?"
_NAME = re.compile(
    rf"{_LETTER}(?:\({_LETTER}(?:,{_LETTER})*\))?|(?:\\angle|\\triangle)?[A-Z]{{1,4}}|\|[A-Z]{{2}}\|"
    r"|\{?\\(?:overline|overrightarrow)\{[A-Z]{2}\}\}?|[PEV]\([A-Z]\)|\|?[a-z]\|?"
)
_NO_NAMES = frozenset((r"\pi", r"\infty", r"\emptyset", "e", "i"))
# Equations of coordinates are lines, curves or surfaces; equations of other letters give values.
_COORDINATE = re.compile(r"[xyzr]|\\rho")


def name_of(shape: Shape) -> str | None:
    """The name to which an equation gives a value; None for other equations and shapes."""
    if not isinstance(shape, Relation) or shape.signs[0] not in ("=", r"\approx"):
        return None
    left = shape.parts[0]
    if isinstance(left, Words):
        return left.text
    if isinstance(left, Brackets):
        letters = [item.text if isinstance(item, Formula) else "" for item in left.items]
        is_point = all(re.fullmatch(_LETTER, letter) for letter in letters)
        return f"({','.join(letters)})" if is_point and not _NO_NAMES & {*letters} else None
    text = left.text.replace(" ", "") if isinstance(left, Formula) else ""
    return text if _NAME.fullmatch(text) and text not in _NO_NAMES else None


def compare_relations(given: Shape, wanted: Shape, compare: Compare) -> Outcome:
    """Compare two shapes, at least one of them a ``Relation``; ``compare`` compares their parts."""
    if isinstance(given, Relation) and isinstance(wanted, Relation):
        return _both(given, wanted, compare)
    if isinstance(given, Relation):
        value = _value(given, compare)
        outcome = compare(value, wanted) if value else ("undecided", "not_a_value")
        rounded = given.signs[-1] == r"\approx" and compare(given.parts[-1], wanted) == EQUAL
        return ROUNDED if value and rounded and outcome != EQUAL else outcome
    assert isinstance(wanted, Relation)
    value = _value(wanted, compare)
    is_curve = _COORDINATE.fullmatch(name_of(wanted) or "") and _has_variables(value)
    outcome = compare(given, value) if value else ("undecided", "other_kind")
    return ("undecided", "other_kind") if is_curve else outcome


def spread(shape: Shape) -> Shape:
    r"""Expand ``x = ±2`` and ``x = \{1, 2\}`` into their values; return other shapes unchanged."""
    is_named = isinstance(shape, Relation) and len(shape.parts) == 2 and name_of(shape)
    if is_named and isinstance(shape, Relation) and isinstance(shape.parts[1], ValueSet):
        return shape.parts[1]
    return shape


def assigned(shape: Shape) -> dict[str, Shape] | None:
    """The values of several names, as in ``x = 3, y = 4`` or ``(x, y) = (3, 4)``; else None."""
    if isinstance(shape, Relation) and shape.signs == ("=",) and (name_of(shape) or "")[:1] == "(":
        left, right = shape.parts
        if isinstance(left, Brackets) and isinstance(right, Brackets):
            names = [item.text for item in left.items if isinstance(item, Formula)]
            same = len(names) == len(right.items) == len({*names})
            return dict(zip(names, right.items, strict=True)) if same else None
    if not isinstance(shape, ValueSet) or shape.joined in ("or", "braces", "sign"):
        return None
    items = [item for item in shape.items if isinstance(item, Relation) and item.signs == ("=",)]
    values = {name: item.parts[1] for item in items if (name := name_of(item))}
    return values if 1 < len(values) == len(shape.items) else None


def order_of(names: Iterable[str], problem: str) -> list[str] | None:
    """The order of names in a tuple: that of the problem, or of the alphabet if it has none."""
    ordered = sorted(names)
    text = re.sub(r"\s|\\(?:left|right|,|!)", "", problem)
    tried = permutations(ordered) if len(ordered) < 5 else ()
    orders = [names for names in tried if f"({','.join(names)})" in text]
    if orders:
        return list(orders[0]) if len(orders) == 1 else None
    codes = [ord(name) for name in ordered if len(name) == 1]
    follow = len(codes) == len(ordered) and codes == list(range(codes[0], codes[0] + len(codes)))
    return ordered if follow else None


def _value(relation: Relation, compare: Compare) -> Shape | None:
    """The value that an equation gives to its name; None if there is none or there are several."""
    parts, signs = relation.parts, relation.signs
    if signs == (r"\in",):
        return parts[1]
    if r"\approx" in signs:
        # The approximation after an exact value adds nothing to it, if it is one.
        cut = signs.index(r"\approx")
        if cut == 0 and name_of(relation) is not None:
            cut, signs = 1, ("=", *signs[1:])
        if {*signs[cut:]} - {r"\approx"}:
            return None
        rounded = [_approximates(part, parts[cut]) for part in parts[cut + 1 :]]
        if not all(rounded):
            return None
        exact, last = parts[cut], parts[-1]
        if isinstance(exact, Formula) and isinstance(last, Measure):
            # The unit may be written only once.
            exact = Measure(exact, last.unit)
        parts, signs = (*parts[:cut], exact), signs[:cut]
    if {*signs} - {"="}:
        return None
    values = parts[1:] if name_of(relation) and len(parts) > 1 else parts
    return values[-1] if all(compare(v, values[-1]) == EQUAL for v in values[:-1]) else None


def _approximates(part: Shape, exact: Shape) -> bool:
    """Whether a decimal or an integer, perhaps with the unit of ``exact``, is its rounded value."""
    if isinstance(part, Measure) and (not isinstance(exact, Measure) or part.unit == exact.unit):
        part, exact = part.value, exact.value if isinstance(exact, Measure) else exact
    if not isinstance(part, Formula) or not isinstance(exact, Formula):
        return False
    try:
        value, number = value_of(part.tokens), value_of(exact.tokens)
    except FormulaParseError:
        return False
    if not (value.is_Rational and number.is_number and number.is_real and number.is_finite):
        return False
    # 1.23 \times 10^5 has the place of its last digit times the power.
    digits = next((token for token in part.tokens if token[0].isdigit()), "")
    written = sympy.Rational(digits.replace(",", "")) if digits else sympy.Integer(0)
    scale = abs(value / written) if written else sympy.Integer(1)
    place = scale / 10 ** len(digits.partition(".")[2])
    is_place = scale == 1 or sympy.log(scale, 10).is_integer
    off = abs(sympy.N(number - value, 40))
    return bool(is_place and (off <= place / 2 or (off < place and abs(value) < abs(number))))


def _both(given: Relation, wanted: Relation, compare: Compare) -> Outcome:
    names = name_of(given), name_of(wanted)
    values = [
        _value(relation, compare) if name_of(relation) else None for relation in (given, wanted)
    ]
    if values[0] and values[1]:
        outcome = compare(values[0], values[1])
        if names[0] == names[1] and (outcome == EQUAL or _are_explicit(names[0] or "", values)):
            return outcome
        if names[0] != names[1] and not any(map(_has_variables, values)):
            return ("undecided", "other_names") if outcome == EQUAL else outcome
    if given.signs == wanted.signs and all(
        compare(*pair) == EQUAL for pair in zip(given.parts, wanted.parts, strict=True)
    ):
        return EQUAL
    try:
        return _proportional(given, wanted)
    except FormulaParseError as unread:
        return "undecided", str(unread)


def _are_explicit(name: str, values: Sequence[Shape | None]) -> bool:
    """Whether no value contains the name itself, so that each is a value and not a condition."""
    names = name.strip("()").split(",") if name.startswith("(") else [name]
    letters = {sympy.Symbol(letter.strip("\\")) for letter in names}
    try:
        return not any(letters & _variables(value) for value in values)
    except FormulaParseError:
        return False


def _variables(value: Shape | None) -> set[sympy.Symbol]:
    if isinstance(value, Brackets):
        return set().union(*map(_variables, value.items))
    if not isinstance(value, Formula):
        raise FormulaParseError("other_kind")
    return set(value_of(value.tokens).free_symbols)


def _has_variables(value: Shape | None) -> bool:
    try:
        return bool(_variables(value))
    except FormulaParseError:
        return isinstance(value, Formula)


def _proportional(given: Relation, wanted: Relation) -> Outcome:
    """Compare two equations: equal if the differences of their sides are proportional."""
    differences: list[sympy.Expr] = []
    for relation in (given, wanted):
        sides = [value_of(part.tokens) for part in relation.parts if isinstance(part, Formula)]
        if len(sides) != 2 or len(relation.parts) != 2:
            return OTHER_EQUATION
        differences.append(sides[0] - sides[1])
    if not all(difference.free_symbols for difference in differences):
        return OTHER_EQUATION
    factor = constant_factor(*differences)
    if factor is None:
        is_curve = given.signs == wanted.signs == ("=",)
        return DIFFERENT if is_curve and have_other_points(*differences) else OTHER_EQUATION
    sign = wanted.signs[0] if factor > 0 else FLIPPED.get(wanted.signs[0], "=")
    return EQUAL if given.signs[0] == sign else DIFFERENT

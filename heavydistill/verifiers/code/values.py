"""Compares values and outputs from the sandbox with the expected ones.

A value is the parsed JSON of ``inside.serialize`` (a tree). A program may have forged it, so a tree
can be any JSON. It is never converted to objects, sets or dictionaries, because a program could
choose values that make hashing slow.

Two values are ``same`` if they are equal and have the same types throughout; ``alike`` if they are
equal in Python but their types differ (``1``, ``1.0`` and ``True``); ``close`` if they differ only
in floats, by no more than rounding; otherwise ``different``. The order in sets and dictionaries
does not matter, nan equals nan, and 0.0 equals -0.0. Set members and dictionary keys are never
close.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from fractions import Fraction
from itertools import zip_longest
from typing import Any, Literal

from heavydistill.verifiers.code.inside.serialize import decode, encode

# --- Outputs. Lines are compared without trailing blanks and without blank lines at the end; in
# token mode, words are compared and blanks are ignored. Two numbers may be ``close`` if one of them
# has a point or an exponent. A whole number is close to another number only within an explicit
# tolerance, as contest judges use; other tests do not accept such outputs.
_NUMBER = re.compile(r"[-+]?(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:[eE][-+]?\d{1,3})?", re.A)
_BLANKS = re.compile(r"(\s+)")


def likeness_of_outputs(
    given: str, wanted: str, *, in_tokens: bool, tolerance: float | None
) -> Likeness:
    """Compare two outputs as ``same``, ``close`` or ``different``; see ``is_close``."""
    parts = str.split if in_tokens else _lines
    left, right = parts(given), parts(wanted)
    if left == right:
        return "same"
    parts_of = zip(map(_BLANKS.split, left), map(_BLANKS.split, right), strict=False)
    pairs = [pair for ours, theirs in parts_of for pair in zip_longest(ours, theirs)]
    are_close = all(a == b or _are_close_numbers(a, b, tolerance) for a, b in pairs)
    return "close" if len(left) == len(right) and are_close else "different"


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _are_close_numbers(given: str | None, wanted: str | None, tolerance: float | None) -> bool:
    if not (given and wanted and _NUMBER.fullmatch(given) and _NUMBER.fullmatch(wanted)):
        return False
    whole = [not any(sign in number for sign in ".eE") for number in (given, wanted)]
    if all(whole):
        return False
    if any(whole) and tolerance is None:
        return Fraction(given) == Fraction(wanted)
    return is_close(float(given), float(wanted), tolerance)


Tree = Any
Likeness = Literal["same", "alike", "close", "different"]

# --- Values.
_NUMBERS = {"i", "F", "c", "q", "D"}
_UNORDERED = {"s", "f"}
_NEAR, _NEAR_ZERO = 1e-6, 1e-9


class Malformed(ValueError):
    """The tree does not encode a value."""


def tree_of(value: object, most: int = 1_000_000) -> Tree:
    """Encode a value as a tree; raises the exceptions of ``encode``."""
    return json.loads(encode(value, most))


def parsed(payload: bytes) -> Tree:
    """Parse the tree in a report; raises ``Malformed`` if it is not one."""
    try:
        return json.loads(payload)
    except (ValueError, RecursionError) as error:
        raise Malformed from error


def is_close(left: float, right: float, tolerance: float | None) -> bool:
    """Whether two numbers are equal up to rounding or, if ``tolerance`` is set, differ by at most
    ``tolerance``, absolute or relative to the larger one."""
    relative, absolute = (_NEAR, _NEAR_ZERO) if tolerance is None else (tolerance, tolerance)
    return math.isclose(left, right, rel_tol=relative, abs_tol=absolute)


def likeness(
    left: Tree, right: Tree, *, tuples_are_lists: bool = False, tolerance: float | None = None
) -> Likeness:
    """Compare two values; raises ``Malformed`` if a tree is not a value."""
    flat = tuples_are_lists
    try:
        if _canonical(left, True, flat) == _canonical(right, True, flat):
            return "same"
        if _canonical(left, False, flat) == _canonical(right, False, flat):
            return "alike"
        return "close" if _is_close(left, right, flat, tolerance) else "different"
    except (RecursionError, ArithmeticError) as error:
        raise Malformed from error


def _is_close(left: Tree, right: Tree, flat: bool, tolerance: float | None) -> bool:
    kinds = ["l" if flat and _kind(tree) == "t" else _kind(tree) for tree in (left, right)]
    if kinds[0] != kinds[1] or kinds[0] not in ("l", "t", "d"):
        a, b = number(left), number(right)
        if a is not None and b is not None and isinstance(a, float) | isinstance(b, float):
            # Without a tolerance, a float near a whole number is not equal to it.
            whole = isinstance(a, int) or isinstance(b, int)
            if not whole or tolerance is not None:
                return is_close(float(a), float(b), tolerance)
        return _canonical(left, False, flat) == _canonical(right, False, flat)
    if len(left) != len(right):
        return False
    if kinds[0] != "d":
        pairs = list(zip(left[1:], right[1:], strict=True))
    else:
        ours, theirs = (
            {
                _canonical(key, False, flat): value
                for key, value in zip(tree[1::2], tree[2::2], strict=True)
            }
            for tree in (left, right)
        )
        if ours.keys() != theirs.keys():
            return False
        pairs = [(ours[key], theirs[key]) for key in ours]
    return all(_is_close(a, b, flat, tolerance) for a, b in pairs)


def number(tree: Tree) -> int | float | Fraction | Decimal | None:
    """The number that a value represents; None for other values and complex numbers."""
    value = _decoded(tree) if _kind(tree) in _NUMBERS - {"c"} else tree
    return value if isinstance(value, int | float | Fraction | Decimal) else None


def shown(tree: Tree, most: int = 200) -> str:
    """The value as JSON for messages, cut to ``most`` characters."""
    text = json.dumps(tree)
    return text if len(text) <= most else text[: most - 3] + "..."


def _kind(tree: Tree) -> str:
    return tree[0] if isinstance(tree, list) and tree and isinstance(tree[0], str) else ""


def _decoded(tree: Tree) -> Any:
    """The Python value of a tree that is not a container."""
    parts = tree[1:]
    if _kind(tree) not in _NUMBERS | {"b"} or any(
        _kind(part) not in ("", "i", "F") for part in parts
    ):
        raise Malformed
    try:
        value = decode(tree)
    except (ValueError, TypeError, IndexError, ArithmeticError) as error:
        raise Malformed from error
    if isinstance(value, Decimal) and value and value.is_finite() and abs(value.adjusted()) > 400:
        raise Malformed
    return value


def _canonical(tree: Tree, strict: bool, flat: bool) -> str:
    """A text that is equal for values that are ``same``, or, if not ``strict``, ``alike``."""
    if tree is None or isinstance(tree, str):
        return json.dumps(tree)
    kind = _kind(tree)
    if not isinstance(tree, list) or kind in _NUMBERS:
        return _canonical_number(tree, strict)
    parts = [_canonical(part, strict, flat) for part in tree[1:] if kind != "b"]
    if kind == "b":
        return f"b{_decoded(tree).hex()}"
    if kind == "d" and len(parts) % 2 == 0:
        pairs = sorted(f"{key}:{value}" for key, value in zip(parts[::2], parts[1::2], strict=True))
        return f"d{{{','.join(pairs)}}}"
    if kind in _UNORDERED:
        letter = kind if strict else "s"
        return f"{letter}{{{','.join(sorted(parts))}}}"
    if kind in ("l", "t"):
        letter = "l" if flat else kind
        return f"{letter}[{','.join(parts)}]"
    raise Malformed


def _canonical_number(tree: Tree, strict: bool) -> str:
    value = tree if not isinstance(tree, list) else _decoded(tree)
    name = type(value).__name__ + " " if strict else ""
    if isinstance(value, complex):
        if value.imag or strict:
            return f"{name}{value!r}"
        value = value.real
    if isinstance(value, float) and not math.isfinite(value):
        return f"{name}{value!r}"
    if isinstance(value, Decimal) and not value.is_finite():
        return f"{name}{str(value).lower().replace('infinity', 'inf')}"
    if isinstance(value, int | float | Fraction | Decimal):
        numerator, denominator = value.as_integer_ratio()
        return f"{name}{numerator:x}/{denominator:x}"
    raise Malformed

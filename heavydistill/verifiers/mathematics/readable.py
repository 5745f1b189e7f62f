"""Whether a reference can be judged against: what is wrong with it, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator

from heavydistill.verifiers.mathematics.formula import Unread, read
from heavydistill.verifiers.mathematics.shape import (
    Formula,
    Many,
    Matrix,
    Measure,
    Ratio,
    Relation,
    Row,
    Shape,
    Unclear,
    Union,
    Without,
    Words,
)
from heavydistill.verifiers.normal import normal_form

MOST_WORDS = 3
_SET_NAME = re.compile(r"\\emptyset|\\mathbb\{?[A-Z]\}?")

_WHY = {
    "ellipsis": "it holds an ellipsis",
    "set_builder": "it describes a set by a condition",
    "hedged": "it leaves open which answer is meant",
    "doubtful": "it leaves open which answer is meant",
    "several_signs": "it holds several plus-minus signs",
    "too_complex": "it is too long or too large, or holds a sum, an integral or a limit",
    "two_readings": "it can be read in two ways (write fractions as \\frac, arguments in brackets)",
    "two_numbers": "it holds two numbers without an operator",
    "no_answer": "a part of it is empty",
    "sentence": f"it is a text of more than {MOST_WORDS} words",
}


def fault(reference: Shape) -> str | None:
    """What makes a reference unfit, as a message; None if it is fit."""
    for part in _parts(reference):
        reason = _reason(part)
        if reason:
            why = _WHY.get(reason, "it holds notation that is not understood")
            return (
                f"no answer can be compared with the reference: {why}; rewrite it, leave the row "
                "out, or name another verifier"
            )
    return None


def _reason(part: Shape) -> str | None:
    if isinstance(part, Unclear):
        return part.reason
    if isinstance(part, Words):
        return "sentence" if len(part.text.split()) > MOST_WORDS else None
    if isinstance(part, Formula) and not _SET_NAME.fullmatch("".join(part.tokens)):
        if normal_form("".join(part.tokens)).value is not None:
            return None
        try:
            read(part.tokens)
        except Unread as unread:
            return str(unread)
    return None


def _parts(shape: Shape) -> Iterator[Shape]:
    """The shapes that hold no others, in their order."""
    if isinstance(shape, Many | Row | Union):
        inner: tuple[Shape, ...] = shape.items
    elif isinstance(shape, Relation):
        # The name on the left may be any notation.
        inner = shape.parts[1:] if shape.signs[0] in ("=", r"\in") else shape.parts
    elif isinstance(shape, Ratio):
        inner = shape.parts
    elif isinstance(shape, Without):
        inner = (shape.whole, shape.hole)
    elif isinstance(shape, Matrix):
        inner = tuple(cell for row in shape.rows for cell in row)
    elif isinstance(shape, Measure):
        inner = (shape.value,)
    else:
        yield shape
        return
    for item in inner:
        yield from _parts(item)

"""Finds references with which no answer can be compared, before a run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from heavydistill.verifiers.mathematics import units
from heavydistill.verifiers.mathematics.formula import FormulaParseError, read
from heavydistill.verifiers.mathematics.shape import (
    AmbiguousAnswer,
    Brackets,
    Formula,
    Matrix,
    Measure,
    Ratio,
    Relation,
    Shape,
    Union,
    ValueSet,
    Without,
    Words,
)
from heavydistill.verifiers.mathematics.shape_comparison import BASED, number_in

MOST_WORDS = 3
# Names of sets, segments and vectors; they are equal only to the same text.
_SET_NAME = re.compile(r"\\emptyset|\\mathbb\{?[A-Z]\}?|\\(?:vec|hat|over[a-z]+)\{[a-zA-Z]{1,3}\}")
_WHY = {
    "ellipsis": "it holds an ellipsis",
    "set_builder": "it describes a set by a condition",
    "hedged": "it leaves open which answer is meant",
    "doubtful": "it leaves open which answer is meant",
    "several_signs": "it contains several plus-minus signs",
    "too_complex": "it is too long or too large, or contains a sum, an integral or a limit",
    "two_readings": "it can be read in two ways (write fractions as \\frac, arguments in brackets)",
    "two_numbers": "it contains two numbers without an operator",
    "no_answer": "a part of it is empty",
    "sentence": f"it is a text of more than {MOST_WORDS} words",
}


def fault(reference: Shape, problem: str) -> str | None:
    """Why a reference to ``problem`` is unfit, as a message; None if it is fit."""
    for unit in (part.unit for part in _parts(reference) if isinstance(part, Measure)):
        if not units.known(unit) and not units.is_counted_noun(unit, problem):
            return (
                f"the unit {unit!r} of the reference is not known, and the problem does not "
                "mention it; give the number alone, or a unit that pint knows"
            )
    reason = next(filter(None, map(_fault, _parts(reference))), None)
    if reason is None:
        return None
    why = _WHY.get(reason, "it contains notation that is not understood")
    return (
        f"no rule can compare an answer with the reference: {why}; rewrite it, or give the row the "
        "verifier judged, and the run a judge (--judge MODEL)"
    )


def _fault(part: Shape) -> str | None:
    if isinstance(part, AmbiguousAnswer):
        return part.reason
    if isinstance(part, Words) and len(part.text.split()) > MOST_WORDS:
        return "sentence"
    if isinstance(part, Formula) and not (
        _SET_NAME.fullmatch(part.text) or BASED.fullmatch(part.text) or number_in(part) is not None
    ):
        try:
            read(part.tokens)
        except FormulaParseError as unread:
            return str(unread)
    return None


def _parts(shape: Shape) -> Iterator[Shape]:
    """The shape and all shapes in it, in order."""
    yield shape
    inner: Sequence[Shape]
    match shape:
        case ValueSet() | Brackets() | Union() | Without() | Ratio() | Matrix():
            inner = shape.items
        case Relation():
            # The name on the left side may have any notation.
            inner = shape.parts[1:] if shape.signs[0] in ("=", r"\in") else shape.parts
        case Measure():
            inner = (shape.value,)
        case _:
            return
    for item in inner:
        yield from _parts(item)

"""Prints grids as Markdown, for cards and comparisons; other texts are escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from heavydistill.report.grid import UNKNOWN, Grid, Value, bracketed

NUMBER = re.compile(r"[-+]?\d|-$|$")
"""Matches the start of every cell in a column of numbers."""


def text(value: object) -> str:
    """Return a value on one line, escaped so that it is not markup and does not end a cell."""
    plain = html.escape(" ".join(str(value).split()), quote=False)
    for mark in "\\`*_[]|":
        plain = plain.replace(mark, f"\\{mark}")
    return plain


def code(value: object) -> str:
    """Return a value as code, on one line."""
    return f"`{' '.join(str(value).split()).replace('`', chr(39)).replace('|', '/')}`"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown, with columns of numbers right-aligned.

    Raises ValueError if the rows differ in length.
    """
    body = list(rows)
    numbers = [all(NUMBER.match(cell) for cell in column) for column in zip(*body, strict=True)]
    align = ["--:" if is_number else ":--" for is_number in numbers or [False] * len(head)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, align, *body))


def from_grid(grid: Grid) -> str:
    """Return a grid as a table; the note of a row is beside its label, other notes are below."""
    rows = [
        [text(f"{line.label}, {line.note}" if line.note else line.label), *map(cell, line.cells)]
        for line in grid.lines
    ]
    return "\n\n".join([table(list(map(text, grid.head)), rows), *map(text, grid.notes)])


def cell(value: Value) -> str:
    """Return a cell of a grid, on one line."""
    if isinstance(value, str):
        return text(value)
    shown = bracketed(value.value, signed=value.signed) if value.value else UNKNOWN
    return text(f"{shown} {value.note}")


def at(tree: Mapping[str, Any], dotted: str) -> Any:
    """Return the value at a dotted key; None if there is none."""
    value: Any = tree
    for key in dotted.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def interval(value: Mapping[str, float] | None, *, signed: bool = False) -> str:
    """Format an ``Interval`` read from JSON, as a share in per cent or a difference in points."""
    if not value:
        return UNKNOWN
    mean, low, high = (100 * value[key] for key in ("mean", "low", "high"))
    if signed:
        return f"{mean:+.1f} ({low:+.1f} to {high:+.1f})"
    return f"{mean:.1f}% ({low:.1f} to {high:.1f})"


def usd(cost: float | None) -> str:
    """Format a cost in US dollars with cents; ``-`` for None."""
    return UNKNOWN if cost is None else f"{cost:,.2f}"

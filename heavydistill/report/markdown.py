"""Printer of grids as Markdown, for cards and comparisons: texts of others stay texts."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from heavydistill.report.grid import UNKNOWN, Grid, Value, bracketed

NUMBER = re.compile(r"[-+]?\d|-$|$")
"""Begins a cell of a column of numbers."""


def text(value: object) -> str:
    """A value on one line, in which nothing is markup or ends a cell."""
    plain = html.escape(" ".join(str(value).split()), quote=False)
    for mark in "\\`*_[]|":
        plain = plain.replace(mark, f"\\{mark}")
    return plain


def code(value: object) -> str:
    """A value as code, on one line."""
    return f"`{' '.join(str(value).split()).replace('`', chr(39)).replace('|', '/')}`"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already: columns of numbers right, the others left.

    A ValueError if the rows are not equally long.
    """
    body = list(rows)
    numbers = [all(NUMBER.match(cell) for cell in column) for column in zip(*body, strict=True)]
    align = ["--:" if is_number else ":--" for is_number in numbers or [False] * len(head)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, align, *body))


def from_grid(grid: Grid) -> str:
    """A grid as a table, notes of labels behind them, and what is to be known of it below."""
    rows = [
        [text(f"{line.label}, {line.note}" if line.note else line.label), *map(cell, line.cells)]
        for line in grid.lines
    ]
    return "\n\n".join([table(list(map(text, grid.head)), rows), *map(text, grid.notes)])


def cell(value: Value) -> str:
    """A cell of a grid, on one line."""
    if isinstance(value, str):
        return text(value)
    shown = bracketed(value.value, signed=value.signed) if value.value else UNKNOWN
    return text(f"{shown} {value.note}")


def at(tree: Mapping[str, Any], dotted: str) -> Any:
    """The value at a dotted key; None where there is none."""
    value: Any = tree
    for key in dotted.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def interval(value: Mapping[str, float] | None, *, signed: bool = False) -> str:
    """An ``Interval`` as it is in JSON: a share in per cent, or a difference in points.

    Given are ``mean``, ``low`` and ``high`` as shares in [0, 1] or differences in [-1, 1].
    """
    if not value:
        return UNKNOWN
    mean, low, high = (100 * value[key] for key in ("mean", "low", "high"))
    if signed:
        return f"{mean:+.1f} ({low:+.1f} to {high:+.1f})"
    return f"{mean:.1f}% ({low:.1f} to {high:.1f})"


def usd(cost: float | None) -> str:
    """A cost in US dollars, with cents; ``-`` if it is not known."""
    return UNKNOWN if cost is None else f"{cost:,.2f}"

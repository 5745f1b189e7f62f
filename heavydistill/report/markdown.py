"""Markdown of cards and tables: texts of others stay texts, and numbers are written alike."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

UNKNOWN = "-"
_NUMBER = re.compile(r"[-+]?\d|-$|$")


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
    """A table: columns of numbers right, the others left.

    Args:
        head: Titles.
        rows: Cells that are Markdown already.
    """
    body = list(rows)
    numbers = [all(_NUMBER.match(cell) for cell in column) for column in zip(*body, strict=True)]
    align = ["--:" if is_number else ":--" for is_number in numbers or [False] * len(head)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, align, *body))


def count(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{100 * share:.1f}%"


def share(part: int, whole: int) -> str:
    """So many of so many."""
    return f"{part:,} of {whole:,} ({percent(part / whole if whole else None)})"


def interval(value: Mapping[str, float] | None, *, signed: bool = False) -> str:
    """A share with its interval, as ``metrics.intervals.Interval`` is in JSON; or points."""
    if not value:
        return UNKNOWN
    mean, low, high = (100 * value[key] for key in ("mean", "low", "high"))
    if signed:
        return f"{mean:+.1f} ({low:+.1f} to {high:+.1f})"
    return f"{mean:.1f}% ({low:.1f} to {high:.1f})"


def usd(cost: float | None) -> str:
    return UNKNOWN if cost is None else f"{cost:,.2f}"


def at(tree: Mapping[str, Any], dotted: str) -> Any:
    """The value at a dotted key; None where there is none."""
    value: Any = tree
    for key in dotted.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value

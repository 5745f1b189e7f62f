"""HTML and SVG: whatever is not ``Markup`` is text, and is escaped."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources

import jinja2
from markupsafe import Markup, escape

from heavydistill.report.grid import (
    FEW_NOTE,
    UNKNOWN,
    Grid,
    IntervalCell,
    Value,
    bare_ends,
    percent,
    points,
)
from heavydistill.report.markdown import NUMBER

_FILES = resources.files("heavydistill.report.page")

Attribute = str | int | float | None


def tag(name: str, *children: str, **attributes: Attribute) -> Markup:
    """One element.

    Args:
        name: Name of the element.
        children: Content; ``Markup`` as it is, any other text escaped.
        attributes: Attributes; ``class_`` and the like lose their underscore, other underscores
            become hyphens, and None leaves one out.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{written}>{''.join(map(escape, children))}</{name}>")


def shipped(folder: str, name: str) -> str:
    """A file that comes with this package, from ``web`` or ``katex``."""
    return (_FILES / folder / name).read_text(encoding="utf-8")


def environment() -> jinja2.Environment:
    """The templates in ``web``, which escape every value."""
    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: shipped("web", name)),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters |= {"lines": lines, "column_classes": column_classes}
    made.globals["few_note"] = FEW_NOTE
    return made


def lines(cell: Value) -> list[str]:
    """The lines of a cell: the first one, and what stands smaller below it."""
    if isinstance(cell, str):
        return cell.split("\n")
    value, note = cell.value, [cell.note] if cell.note else []
    if value is None:
        return [UNKNOWN, *note]
    if cell.signed:
        return [points(value.mean), bare_ends(value, signed=True), *note]
    return [percent(value.mean), f"{bare_ends(value)}%", *note]


def column_classes(grid: Grid) -> Iterator[str]:
    """The class of each column but that of labels: ``words``, or empty for one of numbers."""
    for column in zip(*(line.cells for line in grid.lines), strict=True):
        texts = [cell for cell in column if not isinstance(cell, IntervalCell)]
        yield "" if all(NUMBER.match(text) for text in texts) else "words"


def _text(value: Attribute) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)

"""HTML and SVG elements: any text that is not ``Markup`` is escaped."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources

from markupsafe import Markup, escape

from heavydistill.report.grid import Grid, Line, Value
from heavydistill.report.markdown import NUMBER

_FILES = resources.files("heavydistill.report.page")

Attribute = str | int | float | None


def tag(name: str, *children: str, **attributes: Attribute) -> Markup:
    """Return an HTML element.

    Args:
        name: Name of the element.
        children: Content; any text that is not ``Markup`` is escaped.
        attributes: Attributes. A trailing underscore is removed, other underscores become hyphens,
            and attributes that are None are left out.
    """
    written = ""
    for key, value in attributes.items():
        if value is not None:
            is_long = isinstance(value, float)
            shown = f"{value:.2f}".rstrip("0").rstrip(".") if is_long else str(value)
            written += f' {key.rstrip("_").replace("_", "-")}="{escape(shown)}"'
    return Markup(f"<{name}{written}>{''.join(map(escape, children))}</{name}>")


def shipped(folder: str, name: str) -> str:
    """Return the text of a file in the folder ``web`` or ``katex`` of this package."""
    return (_FILES / folder / name).read_text(encoding="utf-8")


def narrow(grid: Grid) -> Grid:
    """Return a copy of the grid with the last column, if it has words, moved below the labels."""
    if not grid.wordy:
        return grid
    lines = [Line(label, cells[:-1], str(cells[-1])) for label, cells, _ in grid.lines]
    return Grid(grid.head[:-1], lines, grid.notes)


def lines(cell: Value) -> list[str]:
    """Return the lines of a cell: the value, then explanations in smaller print."""
    return cell.split("\n") if isinstance(cell, str) else cell.lines("%")


def column_classes(grid: Grid) -> Iterator[str]:
    """Yield the CSS class of each column after the labels: ``words``, or empty for numbers."""
    for column in zip(*(line.cells for line in grid.lines), strict=True):
        texts = [cell for cell in column if isinstance(cell, str)]
        yield "" if all(NUMBER.match(text) for text in texts) else "words"

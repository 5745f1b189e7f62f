"""HTML and SVG out of Python: what is no ``Html`` is text, and is escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

_VOID = {"meta", "input", "br"}
_NUMBER = re.compile(r"[-+]?\d|-$|-<|$")

Attribute = str | int | float | None


class Html(str):
    """Markup that is inserted as it is."""

    __slots__ = ()


def tag(name: str, *children: str, **attributes: Attribute) -> Html:
    """One element.

    Args:
        name: Of the element.
        children: ``Html`` as it is, any other text escaped.
        attributes: ``class_`` and the like lose their underscore, other underscores become
            hyphens; None leaves one out.
    """
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Html(f"<{name}{told}>")
    return Html(f"<{name}{told}>{joined(children)}</{name}>")


def joined(parts: Iterable[str]) -> Html:
    """Several one after the other, as children of ``tag``."""
    return Html(
        "".join(
            part if isinstance(part, Html) else html.escape(part, quote=False) for part in parts
        )
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """A table: the first column names the rows, and columns of words have that class.

    Args:
        head: Titles of the columns.
        rows: Their cells.
    """
    body = list(rows)
    classes = [
        None if all(_NUMBER.match(cell) for cell in column) else "words"
        for column in zip(*body, strict=True)
    ] or [None] * len(head)
    titles = zip(head, [None, *classes[1:]], strict=True)
    return tag(
        "table",
        tag(
            "thead", tag("tr", *(tag("th", one, scope="col", class_=kind) for one, kind in titles))
        ),
        tag(
            "tbody",
            *(
                tag(
                    "tr",
                    tag("th", first, scope="row"),
                    *(
                        tag("td", cell, class_=kind)
                        for cell, kind in zip(cells, classes[1:], strict=True)
                    ),
                )
                for first, *cells in body
            ),
        ),
    )


def _text(value: Attribute) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)

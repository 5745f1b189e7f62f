"""Small pieces that the table and the trace view print alike.

Everything that this package itself writes is ASCII unless the console is a terminal.
"""

from __future__ import annotations

import re

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

_ASCII_BOX = box.Box(
    str(box.SIMPLE_HEAD).replace("\N{BOX DRAWINGS LIGHT HORIZONTAL}", "-"), ascii=True
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(text: str, style: str = "") -> Text:
    """A text of a user or a model, literally: no markup, and control characters shown as hex.

    A raw control character could move the cursor or recolour the terminal.
    """
    text = text.replace("\r\n", "\n").expandtabs(4)
    return Text(_CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text), style=style)


def table(console: Console, *columns: str) -> Table:
    """An empty table: the first column left, the others right."""
    result = Table(
        box=box.SIMPLE_HEAD if console.is_terminal else _ASCII_BOX,
        show_edge=False,
        pad_edge=False,
    )
    for position, name in enumerate(columns):
        result.add_column(name, justify="right" if position else "left", overflow="fold")
    return result


def print_table(table: Table, console: Console) -> None:
    """Print a table with a blank line before it."""
    console.print()
    console.print(table)

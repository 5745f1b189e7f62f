"""Printer of grids and texts to a ``rich`` console.

Everything that this package itself writes is ASCII unless the console is a terminal. Texts of
problems and models are printed literally: nothing in them is read as markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from heavydistill.errors import CONTROL
from heavydistill.report.grid import Grid, Value

_ASCII_BOX = box.Box(
    str(box.SIMPLE_HEAD).replace("\N{BOX DRAWINGS LIGHT HORIZONTAL}", "-"), ascii=True
)
_COLOURS = {"better than": "green", "worse than": "red"}  # of cells that begin so


def plain(text: str, style: str = "") -> Text:
    """A text of a user or a model, literally: no markup, and control characters shown as hex.

    A raw control character could move the cursor, recolour the terminal or reverse a line.
    """
    text = text.replace("\r\n", "\n").expandtabs(4)
    return Text(CONTROL.sub(lambda match: ascii(match[0])[1:-1], text), style=style)


def folded(lines: Sequence[Text], first: int, last: int = 0) -> list[Text]:
    """Only the first and last of many printed lines, and between them how many more there are."""
    hidden = len(lines) - first - last
    if hidden <= 1:
        return list(lines)
    cut = Text(f"... {hidden:,} more lines; --full prints them", style="dim italic")
    return [*lines[:first], cut, *lines[len(lines) - last :]]


def table(console: Console, *columns: str) -> Table:
    """An empty table: the first column left, the others right, their names literal."""
    result = Table(
        box=box.SIMPLE_HEAD if console.is_terminal else _ASCII_BOX,
        show_edge=False,
        pad_edge=False,
    )
    for position, name in enumerate(columns):
        justify: JustifyMethod = "right" if position else "left"
        result.add_column(plain(name), justify=justify, overflow="fold")
    return result


def print_table(table: Table, console: Console) -> None:
    """Print a table with a blank line before it."""
    console.print()
    console.print(table)


def print_grid(grid: Grid, console: Console) -> None:
    """Print a figure with its notes, if it has rows.

    Labels and cells are folded where the console is narrow, and never cut off.
    """
    if not grid.lines:
        return
    rows = table(console, *grid.head)
    if grid.wordy:
        rows.columns[-1].justify = "left"
    for label, cells, note in grid.lines:
        first = plain(label).append(f"\n  {note}" if note else "")
        rows.add_row(first, *map(_cell, cells))
    print_table(rows, console)
    for note in grid.notes:
        console.print(plain(note))


def print_lines(
    lines: Iterable[str], console: Console, *, fold: bool = False, gap: bool = False
) -> None:
    """Print sentences, one a line.

    Args:
        lines: The sentences.
        console: Where to print them.
        fold: Whether they are folded to the width; a terminal wraps them anyway, a file does not.
        gap: Whether a blank line stands before the first one.
    """
    for number, line in enumerate(lines):
        if gap and not number:
            console.print()
        console.print(plain(line), soft_wrap=not fold)


def _cell(cell: Value) -> Text:
    """A cell; of narrow ones, the ends of intervals are whole numbers."""
    if isinstance(cell, str):
        style = next((_COLOURS[start] for start in _COLOURS if cell.startswith(start)), "")
        return plain(cell, style=style)
    shown, value = cell.lines(), cell.value
    if cell.narrow and value and cell.signed:
        shown[1] = f"{100 * value.low:+.0f} to {100 * value.high:+.0f}"
    elif cell.narrow and value:
        shown[:2] = shown[0].rstrip("%"), f"{100 * value.low:.0f}-{100 * value.high:.0f}"
    return Text("\n".join(shown))

"""Prints grids and texts to a ``rich`` console.

This package prints only ASCII unless the console is a terminal. Texts of problems and models are
printed literally, never as markup.
"""

from __future__ import annotations

import contextlib
import shlex
import textwrap
import threading
import time
from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from heavydistill.errors import CONTROL
from heavydistill.report.grid import Grid, Value

_ASCII_BOX = box.Box(
    str(box.SIMPLE_HEAD).replace("\N{BOX DRAWINGS LIGHT HORIZONTAL}", "-"), ascii=True
)
LINE_EVERY_S = 10.0
"""Seconds between two lines about work that goes on."""
_said_at = 0.0  # time of the last line, on the monotonic clock
_COLOURS = {"better than": "green", "worse than": "red"}  # by the start of the cell's text


def plain(text: str, style: str = "") -> Text:
    """Return a text without markup, with control characters in hexadecimal.

    Otherwise control characters could move the cursor, recolour the terminal or reverse a line.
    """
    text = text.replace("\r\n", "\n").expandtabs(4)
    return Text(CONTROL.sub(lambda match: ascii(match[0])[1:-1], text), style=style)


def folded(lines: Sequence[Text], first: int, last: int = 0) -> list[Text]:
    """Return the first and last of many lines, with the number of lines between them."""
    hidden = len(lines) - first - last
    if hidden <= 1:
        return list(lines)
    cut = Text(f"... {hidden:,} more lines; --full prints them", style="dim italic")
    return [*lines[:first], cut, *lines[len(lines) - last :]]


def table(console: Console, *columns: str, numbers: int | None = None) -> Table:
    """Return an empty table with these columns.

    The first column is left-aligned; others are right-aligned, but left-aligned from column
    ``numbers`` on.
    """
    result = Table(
        box=box.SIMPLE_HEAD if console.is_terminal else _ASCII_BOX,
        show_edge=False,
        pad_edge=False,
    )
    for position, name in enumerate(columns):
        is_left = not position or (numbers is not None and position >= numbers)
        justify: JustifyMethod = "left" if is_left else "right"
        result.add_column(plain(name), justify=justify, overflow="fold")
    return result


def print_table(table: Table, console: Console) -> None:
    """Print a table with a blank line before it."""
    console.print()
    console.print(table)


def print_grid(grid: Grid, console: Console) -> None:
    """Print a grid with its notes, if it has rows; a narrow console wraps its cells."""
    if not grid.lines:
        return
    rows = table(console, *grid.head, numbers=len(grid.head) - 1 if grid.wordy else None)
    for label, cells, note in grid.lines:
        first = plain(label).append(f"\n  {note}" if note else "")
        rows.add_row(first, *map(_cell, cells))
    print_table(rows, console)
    for note in grid.notes:
        console.print(plain(note))


def say(text: str, console: Console, style: str = "") -> None:
    """Print a text, wrapped only at spaces, so that paths are not broken."""
    said()
    lines = [
        textwrap.fill(
            line,
            console.width,
            subsequent_indent=" " * (len(line) - len(line.lstrip())),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in text.split("\n")
    ]
    console.print(plain("\n".join(lines), style), soft_wrap=True)


def print_lines(lines: Iterable[str], console: Console, *, gap: bool = False) -> None:
    """Print sentences, each on a new line; with ``gap``, print a blank line first."""
    for number, line in enumerate(lines):
        if gap and not number:
            console.print()
        say(line, console)


def print_command(what: str, words: Iterable[object], console: Console) -> None:
    """Print a command that can be copied; a long command continues after a backslash."""
    lines = [f"{what}:"]
    for word in map(shlex.quote, map(str, words)):
        if len(lines[-1]) + len(word) + 3 > console.width:  # plus two spaces and a backslash
            lines[-1] += " \\"
            lines.append(f"   {word}")
        else:
            lines[-1] += f" {word}"
    console.print(plain("\n".join(lines)), soft_wrap=True)


def _cell(cell: Value) -> Text:
    """Return a cell as text; in narrow cells, the ends of intervals are whole numbers."""
    if isinstance(cell, str):
        style = next((_COLOURS[start] for start in _COLOURS if cell.startswith(start)), "")
        return plain(cell, style=style)
    shown, value = cell.lines(), cell.value
    if cell.narrow and value and cell.signed:
        shown[1] = f"{100 * value.low:+.0f} to {100 * value.high:+.0f}"
    elif cell.narrow and value:
        shown[:2] = shown[0].rstrip("%"), f"{100 * value.low:.0f}-{100 * value.high:.0f}"
    return Text("\n".join(shown))


def said() -> None:
    """Note that a line was printed, so that ``going_on`` is silent for a while."""
    global _said_at
    _said_at = time.monotonic()


@contextlib.contextmanager
def going_on(what: str, is_shown: bool = True) -> Iterator[None]:
    """Print what is being done, and again where nothing was printed for ``LINE_EVERY_S``.

    Without ``is_shown`` nothing is printed.
    """
    began, ended = time.monotonic(), threading.Event()

    def repeat() -> None:
        while not ended.wait(max(0.0, _said_at + LINE_EVERY_S - time.monotonic())):
            if time.monotonic() - _said_at >= LINE_EVERY_S:
                said()
                with contextlib.suppress(OSError):  # nobody reads the pipe any more
                    print(f"{what}, {time.monotonic() - began:.0f} s", flush=True)

    if not is_shown:
        yield
        return
    said()
    print(what, flush=True)
    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()

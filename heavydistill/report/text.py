"""Small pieces that the tables and the trace view print alike.

Everything that this package itself writes is ASCII unless the console is a terminal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from heavydistill.errors import CONTROL
from heavydistill.metrics.intervals import FEW_PROBLEMS, FEW_WARNING

_ASCII_BOX = box.Box(
    str(box.SIMPLE_HEAD).replace("\N{BOX DRAWINGS LIGHT HORIZONTAL}", "-"), ascii=True
)
FEW = "(few)"
"""Marks figures of fewer problems than that: of a run beside others, of a group, of a rate."""
FEW_NOTE = f"{FEW}: fewer than {FEW_PROBLEMS} problems, whose intervals are not to be relied on."
# Values of sampling that change nothing, so that they need not be shown.
_OFF = {"min_p": 0, "repetition_penalty": 1}


def plain(text: str, style: str = "") -> Text:
    """A text of a user or a model, literally: no markup, and control characters shown as hex.

    A raw control character could move the cursor, recolour the terminal or reverse a line.
    """
    text = text.replace("\r\n", "\n").expandtabs(4)
    return Text(CONTROL.sub(lambda match: ascii(match[0])[1:-1], text), style=style)


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


def print_if_few(problems: int, console: Console) -> None:
    """Print a warning if there are so few problems that intervals over them mislead."""
    if problems < FEW_PROBLEMS:
        console.print(Text(FEW_WARNING))


def marked(told: str, problems: int) -> str:
    """How many problems there are, with a mark where they are few."""
    return f"{told} {FEW}" if 0 < problems < FEW_PROBLEMS else told


def print_marks(sizes: Iterable[int], console: Console) -> None:
    """Print what the mark says, below tables of so many problems each, if it is in them."""
    if any(marked("", size) for size in sizes):
        console.print(plain(FEW_NOTE))


def counted(count: int, noun: str) -> str:
    """A number with its noun."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def sampled(chosen: dict[str, Any]) -> str:
    """How a model was sampled, without values that change nothing."""
    shown = {
        name: value
        for name, value in chosen.items()
        if value is not None and _OFF.get(name) != value
    }
    return ", ".join(f"{name} {value:g}" for name, value in shown.items())


def versions(prompts: Sequence[str], verifiers: Sequence[str]) -> str:
    """What was asked and who judged, by name and version."""
    asked, judged = (", ".join(names) or "unknown" for names in (prompts, verifiers))
    return f"Prompts {asked}; verdicts by {judged}."


def percent(share: float | None) -> str:
    """A share in per cent; ``-`` if there is none."""
    return "-" if share is None else f"{100 * share:.1f}%"


def points(share: float) -> str:
    """Percentage points, signed; what rounds to nothing has no sign."""
    rounded = round(100 * share, 1)
    return f"{rounded:+.1f}" if rounded else "0.0"

"""One bar for work that goes through stages; without a terminal, a plain line now and then."""

from __future__ import annotations

import time

from rich import progress as rich_progress
from rich.console import Console

_PLAIN_LINE_EVERY_S = 10.0


class Bar:
    """Shows (what is done, how many are done, of how many).

    Args:
        console: Where.
    """

    def __init__(self, console: Console) -> None:
        self._bars = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(),
            rich_progress.MofNCompleteColumn(),
            rich_progress.TimeElapsedColumn(),
            rich_progress.TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._console = console
        self._tasks: dict[str, rich_progress.TaskID] = {}
        self._last_line = time.monotonic()

    def __enter__(self) -> Bar:
        self._bars.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._bars.stop()

    def show(self, what: str, done: int, total: int) -> None:
        """Take note of how far a stage is."""
        if what not in self._tasks:
            self._tasks[what] = self._bars.add_task(what, total=total)
        self._bars.update(self._tasks[what], completed=done, total=total)
        due = time.monotonic() - self._last_line > _PLAIN_LINE_EVERY_S
        if not self._console.is_terminal and due:
            self._last_line = time.monotonic()
            self._console.print(f"{what}: {done:,} of {total:,}", highlight=False)

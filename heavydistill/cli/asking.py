"""What is shown while a model is asked about caches, before it and when it ends early."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich import progress as rich_progress

from heavydistill.errors import StoppedError

if TYPE_CHECKING:
    from rich.console import Console

    from heavydistill.curate.redeliberation.asking import ResolvedDeliberator, Volume
    from heavydistill.curate.redeliberation.deliberate import Tally

_PLAIN_LINE_EVERY_S = 10.0


def print_volume(volume: Volume, asking: ResolvedDeliberator, console: Console) -> None:
    """What is to be asked, in a line, and what the user should know of it."""
    if volume.skipped:
        from heavydistill.store.journal import skipped_note

        _say(skipped_note(asking.journal, volume.skipped), console)
    if asking.context and not asking.context.is_known:
        _say(str(asking.context), console)
    left = volume.requests - volume.in_journal
    parts = [f"{left:,} of {volume.requests:,} deliberations on {volume.caches:,} caches"]
    if volume.in_journal:
        parts += [f"{volume.in_journal:,} are in the journal {asking.journal}"]
    parts += [
        f"{volume.prompt_tokens:,} tokens of prompts",
        f"at most {volume.completion_tokens:,} of responses",
    ]
    if asking.model.kind == "local":
        parts += ["nothing to pay"]
    else:
        usd = volume.usd
        parts += ["price unknown" if usd is None else f"at most {usd:,.2f} USD"]
    _say(f"To ask of {asking.model.name}: {', '.join(parts)}", console)


class AskingProgress:
    """How many caches a model has deliberated on: a bar on a terminal, else a line now and then."""

    def __init__(self, console: Console, total: int) -> None:
        self._bars = rich_progress.Progress(
            rich_progress.TextColumn("deliberating"),
            rich_progress.BarColumn(),
            rich_progress.MofNCompleteColumn(),
            rich_progress.TimeElapsedColumn(),
            rich_progress.TextColumn("{task.fields[note]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bars.add_task("deliberating", total=total, note="")
        self._console, self._total = console, total
        self._started = self._last_line = time.monotonic()

    def __enter__(self) -> AskingProgress:
        self._bars.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._bars.stop()

    def show(self, tally: Tally) -> None:
        """How far it is; it may be called by any thread."""
        tokens = tally.tokens.usage.completion
        note = f"{tokens:,} tokens, {tally.failed + tally.cut_off:,} failed or cut off"
        if tally.from_journal:
            note += f", {tally.from_journal:,} from the journal"
        self._bars.update(self._task, completed=tally.caches, note=note)
        now = time.monotonic()
        done = tally.caches == self._total
        if not self._console.is_terminal and (done or now - self._last_line > _PLAIN_LINE_EVERY_S):
            self._last_line = now
            seconds = now - self._started
            where = f"deliberating {tally.caches:,}/{self._total:,}"
            _say(f"[{seconds:.0f} s] {where} ({note})", self._console)


@contextlib.contextmanager
def ending_early(console: Console, out: object, journal: Path | None) -> Iterator[None]:
    """Say what was kept if the budget ends or it is interrupted, also by SIGTERM, and exit.

    Args:
        console: Where.
        out: The folder that is about to be written.
        journal: Where responses are; None if nobody is asked.

    Raises:
        typer.Exit: With 1 where it was stopped, and 130 where it was interrupted.
    """
    from heavydistill.run.interrupts import terminate_as_interrupt

    handlers = terminate_as_interrupt()
    kept = f"{out} was not written"
    if journal:
        kept += f", and every response is in {journal}"
    again = "The same command goes on from there." if journal else "Give the command again."
    try:
        yield
    except StoppedError as end:
        _say(f"Stopped: {end} For now {kept}.", console)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        _say(f"Interrupted: {kept}. {again}", console)
        raise typer.Exit(130) from None
    finally:
        for signum, handler in handlers.items():
            signal.signal(signum, handler)


def _say(line: str, console: Console) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)

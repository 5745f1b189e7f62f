"""What is shown while a verb works: bars and pictures on a terminal, elsewhere a line now and then.

Not covered: what a run's status looks like, which ``watch`` draws too.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich import progress as rich_progress
from rich.console import Console
from rich.live import Live
from rich.text import Text

from heavydistill.errors import StoppedError, printable
from heavydistill.report.terminal import say
from heavydistill.run.interrupts import as_exceptions
from heavydistill.store.portable import name_alone

if TYPE_CHECKING:
    from heavydistill.curate.redeliberation import DeliberationTally, Volume
    from heavydistill.models.resolve import ResolvedRun
    from heavydistill.problems import OnChecked
    from heavydistill.run.generate import Plan
    from heavydistill.run.status import Status

_PLAIN_LINE_EVERY_S = 10.0
_WIDE = 160  # columns where there is no terminal
_FIRST_TRAJECTORIES = 8  # so many without thinking are remarked on while a run lasts


def same_command(*more: str) -> list[str]:
    """The words of this command without ``--dry-run``, and further ones, which win."""
    return ["heavydistill", *(word for word in sys.argv[1:] if word != "--dry-run"), *more]


def wide_console() -> Console:
    """A console for tables, none of whose lines is folded where there is no terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=_WIDE)


class Bar(rich_progress.Progress):
    """A bar for each stage of some work; without a terminal, a line now and then."""

    def __init__(self, console: Console) -> None:
        super().__init__(
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(),
            rich_progress.MofNCompleteColumn(),
            rich_progress.TimeElapsedColumn(),
            rich_progress.TextColumn("{task.fields[note]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._stages: dict[str, rich_progress.TaskID] = {}
        self._last_line = time.monotonic()

    def show(self, what: str, done: int, total: int, note: str = "") -> None:
        """Take note of how far a stage is; any thread may call it."""
        if what not in self._stages:
            self._stages[what] = self.add_task(what, total=total, note=note)
        self.update(self._stages[what], completed=done, total=total, note=note)
        due = time.monotonic() - self._last_line > _PLAIN_LINE_EVERY_S
        if due and not self.console.is_terminal:
            self._last_line = time.monotonic()
            say(f"{what}: {done:,} of {total:,}{f' ({note})' if note else ''}", self.console)


@contextlib.contextmanager
def checking(console: Console) -> Iterator[OnChecked]:
    """A bar for the references that a check reads.

    It stands there at once, since reading large files or loading a verifier takes time.
    """
    what = "checking problems and references"
    if not console.is_terminal:
        say(what, console)
    with Bar(console) as bar:
        yield lambda done, total: bar.show(what, done, total)


class Progress:
    """The status of a run while it lasts, and before that what is loaded or started."""

    def __init__(self, console: Console, plan: Plan) -> None:
        self._console = console
        self._without_thinking = remark_without_thinking(plan.run)  # empty once it was made
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        # Models in this process are loaded first, servers need nothing.
        names = dict.fromkeys(model.name for model in plan.run.models if model.is_local)
        loaded = " and ".join(map(name_alone, names))
        self._starting = f"loading {loaded}" if loaded else "starting the steps of the run"
        self._last: Status | None = None
        self._last_line = 0.0
        self._lock = threading.RLock()

    def __enter__(self) -> Progress:
        if self._live:
            self._live.start()
        self._draw(self._starting)
        return self

    def __exit__(self, *raised: object) -> None:
        if self._last:
            self._draw(self._last, now=True)
        if self._live:
            self._live.stop()

    def on_start(self, seconds: float, line: str) -> None:
        """Show what a server says that is starting."""
        self._draw(f"starting vLLM: {printable(line)}")

    def on_status(self, status: Status) -> None:
        """Show how far the run is, and once that its trajectories hold no thinking."""
        from heavydistill.run.status import THINKING

        with self._lock:
            self._last = status
            for stage in status.stages:
                answered = stage.asked - sum(stage.failures.values())
                is_enough = stage.name == THINKING and answered >= _FIRST_TRAJECTORIES
                if self._without_thinking and is_enough and not stage.thoughts:
                    say(self._without_thinking, self._console)
                    self._without_thinking = ""
            self._draw(status if status.loaded else self._starting)

    def reused(self) -> str:
        """The samples that the journal had, for people; empty without any."""
        stages = self._last.stages if self._last else []
        parts = [f"{s.from_journal:,} of {s.asked:,} in {s.name}" for s in stages if s.from_journal]
        return f"Already billed, from the journal: {', '.join(parts)}" if parts else ""

    def _draw(self, shown: Status | str, now: bool = False) -> None:
        from heavydistill.cli.watch import line_of, picture_of

        with self._lock:
            if self._live:
                drawn = Text(shown) if isinstance(shown, str) else picture_of("", shown)
                self._live.update(drawn, refresh=True)
            elif now or time.monotonic() - self._last_line > _PLAIN_LINE_EVERY_S:
                self._last_line = time.monotonic()
                say(printable(shown if isinstance(shown, str) else line_of(shown)), self._console)


def remark_without_thinking(run: ResolvedRun) -> str:
    """The line for trajectories none of which holds thinking; empty where that is as it should."""
    if not run.thinker or run.thinker.profile.is_described:
        return ""
    text = f"No response of {run.thinker.profile.name} held thinking, so a model that is trained "
    text += "on these traces learns answers without reasoning. If it thinks, "
    if run.thinker.is_local:
        return f"{text}name the tags of its thinking in a profile (a YAML file)."
    return (
        f"{text}its server leaves the thinking out: start vLLM with --reasoning-parser; "
        "`heavydistill doctor` with the same flags shows what comes."
    )


def print_volume(volume: Volume, run: ResolvedRun, console: Console) -> None:
    """Print in a line what a deliberator will be asked, and what the user should know of it."""
    journal = run.config.journal
    if volume.skipped:
        from heavydistill.store.journal import skipped_note

        say(skipped_note(Path(journal or ""), volume.skipped), console)
    for context in run.contexts:
        if not context.is_known:
            say(str(context), console)
    left = volume.requests - volume.in_journal
    parts = [f"{left:,} of {volume.requests:,} deliberations on {volume.caches:,} caches"]
    if volume.in_journal:
        parts += [f"{volume.in_journal:,} are in the journal {journal}"]
    parts += [
        f"{volume.prompt_tokens:,} tokens of prompts",
        f"at most {volume.completion_tokens:,} of responses",
    ]
    if run.deliberator.is_local:
        parts += ["free"]
    else:
        usd = volume.usd
        parts += ["price unknown" if usd is None else f"at most {usd:,.2f} USD"]
    say(f"To ask of {run.deliberator.profile.name}: {', '.join(parts)}", console)


def show_deliberations(bar: Bar, tally: DeliberationTally, total: int) -> None:
    """Show how many caches a model has deliberated on."""
    note = f"{tally.usage.completion:,} tokens, "
    note += f"{tally.failed + tally.cut_off:,} failed or cut off"
    if tally.from_journal:
        note += f", {tally.from_journal:,} from the journal"
    bar.show("deliberating", tally.caches, total, note)


@contextlib.contextmanager
def ending_early(
    console: Console, out: Path, journal: Path | None, is_replaced: bool = False
) -> Iterator[None]:
    """Say what was kept if the budget ends or it is interrupted, also by SIGTERM, and exit.

    Args:
        console: Where to say it.
        out: Folder about to be written.
        journal: Folder of every response; None if no model is asked.
        is_replaced: Whether ``out`` holds something else until the new is whole.

    Raises:
        typer.Exit: With 1 where it was stopped, and 130 where it was interrupted.
    """
    with as_exceptions():
        try:
            yield
        except (KeyboardInterrupt, StoppedError) as end:
            kept = f"{out} was not written"
            if is_replaced:
                kept = f"{out} is as it was"
            elif out.is_dir() and any(out.iterdir()):
                kept = f"what was finished is in {out}"
            if journal:
                kept += f", and every response is in {journal}"
            if isinstance(end, StoppedError):
                say(f"Stopped: {end} For now {kept}.", console)
                raise typer.Exit(1) from None
            again = "The same command goes on from there." if journal else "Give the command again."
            say(f"Interrupted: {kept}. {again}", console)
            raise typer.Exit(130) from None

"""Shows the progress of a subcommand: bars on a terminal, otherwise a line every few seconds.

The texts for the status of a run are in ``report.status``.
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
from heavydistill.report.terminal import LINE_EVERY_S, say
from heavydistill.run.interrupts import as_exceptions
from heavydistill.store.redact import name_alone

if TYPE_CHECKING:
    from heavydistill.curate.redeliberation import DeliberationTally, RequestEstimate
    from heavydistill.models.resolve import ResolvedModel, ResolvedRun
    from heavydistill.problems import OnChecked
    from heavydistill.run.generate import Plan
    from heavydistill.run.status import Status

_PLAIN_LINE_EVERY_S = LINE_EVERY_S
_FIRST_TRAJECTORIES = 8  # trajectories without thinking before a warning is shown


def same_command(*more: str) -> list[str]:
    """Return this command without ``--dry-run``, followed by ``more``, which takes precedence."""
    return ["heavydistill", *(word for word in sys.argv[1:] if word != "--dry-run"), *more]


class Bar(rich_progress.Progress):
    """A progress bar for each stage of the work; without a terminal, a line every few seconds."""

    def __init__(self, console: Console) -> None:
        super().__init__(
            *rich_progress.Progress.get_default_columns(),
            rich_progress.TextColumn("{task.fields[note]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._stages: dict[str, rich_progress.TaskID] = {}
        self._last_line = time.monotonic()

    def show(self, what: str, done: int, total: int, note: str = "") -> None:
        """Show the progress of a stage; any thread may call it."""
        if what not in self._stages:
            self._stages[what] = self.add_task(what, total=total, note=note)
        self.update(self._stages[what], completed=done, total=total, note=note)
        due = time.monotonic() - self._last_line > _PLAIN_LINE_EVERY_S
        if due and not self.console.is_terminal:
            self._last_line = time.monotonic()
            say(f"{what}: {done:,} of {total:,}{f' ({note})' if note else ''}", self.console)


@contextlib.contextmanager
def checking(console: Console) -> Iterator[OnChecked]:
    """Show a bar for the check of the references as soon as the first reference is checked."""
    what = "checking problems and references"
    with Bar(console) as bar:

        def on_checked(done: int, total: int) -> None:
            if done == 1 and not console.is_terminal:
                say(what, console)
            bar.show(what, done, total)

        yield on_checked


class Progress:
    """Shows the status of a run; before the first status, shows what is being loaded or started."""

    def __init__(self, console: Console, plan: Plan) -> None:
        self._console = console
        self._without_thinking = remarks_without_thinking(plan.run)  # of those not yet printed
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        # Models in this process are loaded first.
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
        """Show a log line of a server that is starting."""
        self._draw(f"starting vLLM: {printable(line)}")

    def on_status(self, status: Status) -> None:
        """Show the status; warn, only once, if the first trajectories have no thinking."""
        from heavydistill.report.status import span

        with self._lock:
            self._last = status
            for stage in status.stages:
                answered = stage.finished - sum(stage.failures.values())
                is_enough = answered >= _FIRST_TRAJECTORIES and not stage.thoughts
                if is_enough and (remark := self._without_thinking.pop(stage.name, "")):
                    say(remark, self._console)
            lasts = status.at - status.began
            started = f"{self._starting}, {span(lasts)}" if lasts >= 1 else self._starting
            self._draw(status if status.loaded else started)

    def reused(self) -> str:
        """Return a line about the samples from the journal; empty if there are none."""
        stages = self._last.stages if self._last else []
        parts = [
            f"{stage.from_journal:,}{f' of {stage.finished:,}' if stage.per_problem else ''} in "
            f"{stage.name}"
            for stage in stages
            if stage.from_journal
        ]
        return f"From the journal, not requested again: {'; '.join(parts)}" if parts else ""

    def _draw(self, shown: Status | str, now: bool = False) -> None:
        from heavydistill.report.status import line_of, picture_of

        with self._lock:
            if self._live:
                drawn = Text(shown) if isinstance(shown, str) else picture_of("", shown)
                self._live.update(drawn, refresh=True)
            elif now or time.monotonic() - self._last_line > _PLAIN_LINE_EVERY_S:
                self._last_line = time.monotonic()
                line = printable(shown if isinstance(shown, str) else line_of(shown))
                try:
                    say(line, self._console)
                except SystemExit:  # from rich, if nobody reads the pipe any more
                    note = "The program that reads the output has ended; the run goes on."
                    print(note, file=sys.stderr)


def remarks_without_thinking(run: ResolvedRun) -> dict[str, str]:
    """Return, for each stage of thinking, the warning that no response of its model has thinking.

    There is none for a model with a profile.
    """
    from heavydistill.run.status import thinking_stages

    return {
        stage: _without_thinking(model)
        for stage, model in thinking_stages(run).items()
        if not model.profile.is_described
    }


def _without_thinking(thinker: ResolvedModel) -> str:
    text = f"No response of {thinker.profile.name} contained thinking, so a model trained on "
    text += "these traces learns answers without reasoning. If it is a thinking model, "
    if thinker.is_local:
        return f"{text}name the tags of its thinking in a profile (a YAML file)."
    return (
        f"{text}its server omits the thinking: start vLLM with --reasoning-parser, and run "
        "`heavydistill doctor` with the same flags to see what it returns."
    )


def print_volume(volume: RequestEstimate, run: ResolvedRun, console: Console) -> None:
    """Print the number of deliberations to request, with their tokens and cost."""
    from heavydistill.models.tokenizer import SERVER

    journal = run.config.journal
    if volume.skipped:
        from heavydistill.store.journal import skipped_note

        say(skipped_note(Path(journal or ""), volume.skipped), console)
    for context in run.contexts:
        if not context.is_known:
            say(str(context), console)
    name = run.deliberator.profile.name
    if run.deliberator.profile.tokenizer == SERVER:
        counted = "Prompts are counted with the tokenizer of the student"
        say(f"{counted}, because that of {name} is not known (--tokenizer names it)", console)
    left = volume.requests - volume.in_journal
    parts = [f"{left:,} of {volume.requests:,} deliberations on {volume.caches:,} caches"]
    parts += [f"{volume.in_journal:,} are in the journal {journal}"] if volume.in_journal else []
    parts += [f"{volume.prompt_tokens:,} tokens of prompts"]
    parts += [f"at most {volume.completion_tokens:,} of responses"]
    cost = "price unknown" if volume.usd is None else f"at most {volume.usd:,.2f} USD"
    parts += ["free" if run.deliberator.is_local else cost]
    say(f"Requests to {name}: {', '.join(parts)}", console)


def show_deliberations(bar: Bar, tally: DeliberationTally, total: int) -> None:
    """Show the number of caches with deliberations."""
    lost = f"{tally.failed + tally.cut_off:,} failed or cut off"
    known = f", {tally.from_journal:,} from the journal" if tally.from_journal else ""
    note = f"{tally.usage.completion:,} tokens, {lost}{known}"
    bar.show("deliberating", tally.caches, total, note)


@contextlib.contextmanager
def ending_early(
    console: Console, out: Path, journal: Path | None, is_replaced: bool = False
) -> Iterator[None]:
    """When the work is stopped (e.g. by the budget) or interrupted, print what was kept and exit.

    Args:
        console: Console of the command.
        out: Folder to write.
        journal: Folder with every response; None if no model is used.
        is_replaced: Whether ``out`` has another run until the new one is complete.

    Raises:
        typer.Exit: Exit code 1 if the work was stopped, 130 if it was interrupted.
    """
    with as_exceptions():
        try:
            yield
        except (KeyboardInterrupt, StoppedError) as end:
            kept = f"{out} was not written"
            if is_replaced:
                kept = f"{out} is unchanged"
            elif out.is_dir() and any(out.iterdir()):
                kept = f"what was finished is in {out}"
            if journal and not journal.is_dir():
                kept += ", because no response had arrived"
            elif journal:
                kept += f", and every response is in {journal}"
            if isinstance(end, StoppedError):
                say(f"Stopped: {end} Now {kept}.", console)
                raise typer.Exit(1) from None
            again = "The same command goes on from there." if journal else "Repeat the command."
            say(f"Interrupted: {kept}. {again}", console)
            raise typer.Exit(130) from None

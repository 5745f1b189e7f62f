"""Progress of a run and of its check: bars on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

from rich import progress as rich_progress
from rich.console import Console
from rich.markup import escape

from heavydistill.cli.remarks import thinking_remark
from heavydistill.config.run import RunConfig
from heavydistill.errors import printable
from heavydistill.models.contact import Contact
from heavydistill.models.request import Work
from heavydistill.models.resolve import ResolvedRun
from heavydistill.problems import OnChecked
from heavydistill.run.generate import Plan, check
from heavydistill.run.tally import THINKS, Stage, Tally
from heavydistill.store.redact import name_alone

_PLAIN_LINE_EVERY_S = 10.0
_NOTE = 80  # characters of a log that fit beside a bar


def checked(
    config: RunConfig, console: Console, asks: bool = True, contact: Contact | None = None
) -> Plan:
    """``run.generate.check``, which shows how far it is with the references."""
    with checking(console) as show:
        return check(config, asks, show, contact)


@contextlib.contextmanager
def checking(console: Console) -> Iterator[OnChecked]:
    """What shows how far a check is with the references, while this lasts.

    It shows at once that something happens: reading large files, or loading a verifier, takes time.
    """
    bar = rich_progress.Progress(
        rich_progress.TextColumn("checking problems and references"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
    task = bar.add_task("references", total=None)
    last_line = time.monotonic()
    if not console.is_terminal:
        console.print("checking problems and references", highlight=False)

    def show(done: int, total: int) -> None:
        nonlocal last_line
        bar.update(task, completed=done, total=total)
        if not console.is_terminal and time.monotonic() - last_line > _PLAIN_LINE_EVERY_S:
            last_line = time.monotonic()
            console.print(f"checked {done:,} of {total:,} references", highlight=False)

    with bar:
        yield show


class Progress:
    """Counts what the stages that ask have done: problems, samples, failed responses, tokens.

    Until the first problem enters the stages it shows what is loading. Elsewhere than on a terminal
    it prints a line at once, and one every ``_PLAIN_LINE_EVERY_S``, whether anything happened or
    not.
    """

    def __init__(self, console: Console, plan: Plan) -> None:
        self._bars = rich_progress.Progress(
            rich_progress.TextColumn("{task.description}"),
            rich_progress.BarColumn(),
            rich_progress.MofNCompleteColumn(),
            rich_progress.TimeElapsedColumn(),
            rich_progress.TextColumn("{task.fields[note]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._console = console
        self._run = plan.run
        self._is_remarked = False
        self._tally = Tally(plan.config, len(plan.problems))
        self._stages = self._tally.stages
        self._tasks = {
            step: self._bars.add_task(stage.name, total=stage.total, note="")
            for step, stage in self._stages.items()
        }
        self._starting = _starting(plan.run)
        self._loading = self._bars.add_task(escape(self._starting), total=None, note="")
        self._started = self._last_line = time.monotonic()
        self._lock = threading.RLock()
        self._ends = threading.Event()
        self._ticks = threading.Thread(target=self._tick, daemon=True)

    def __enter__(self) -> Progress:
        self._bars.start()
        if not self._console.is_terminal:
            self._print_line()
            self._ticks.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ends.set()
        self._bars.stop()
        if not self._console.is_terminal:
            self._ticks.join()
            self._print_line()

    def _tick(self) -> None:
        while not self._ends.wait(1.0):
            with self._lock:
                if time.monotonic() - self._last_line > _PLAIN_LINE_EVERY_S:
                    self._print_line()

    def on_start(self, seconds: float, line: str) -> None:
        """Take note of what a server says that is starting."""
        line = printable(line)
        with self._lock:
            self._starting = f"starting vLLM: {line}"
            self._bars.update(self._loading, description="starting vLLM", note=escape(line[:_NOTE]))

    def on_batch(self, step: str, rows: list[dict[str, Any]]) -> None:
        """Take note of a batch that left a step."""
        with self._lock:
            self._tally.add(step, rows)
            self._bars.update(self._loading, visible=False)
            self._show(step)
            if step == THINKS and not self._is_remarked:
                stage = self._stages[step]
                remark = thinking_remark(self._run, stage.asked - stage.failed, stage.thoughts)
                self._is_remarked = bool(remark)
                if remark:
                    self._say(remark)

    def on_work(self, step: str, replica: int, work: Work) -> None:
        """Take note of what the model of a step was asked so far in one of its processes."""
        with self._lock:
            self._tally.at_work(step, replica, work)
            self._show(step)

    def _show(self, step: str) -> None:
        if stage := self._stages.get(step):
            self._bars.update(self._tasks[step], completed=stage.done, note=_note(stage))

    def reused(self) -> list[tuple[str, int, int]]:
        """(stage, samples that the journal had, all samples), where it had any."""
        return [(s.name, s.from_journal, s.asked) for s in self._stages.values() if s.from_journal]

    def _print_line(self) -> None:
        stages = list(self._stages.values())
        begun = [s for s in stages if s.done or s.sent] or (stages[:1] if self._is_loaded else [])
        shown = "; ".join(f"{s.name} {s.done}/{s.total} ({_note(s)})" for s in begun)
        self._say(f"[{time.monotonic() - self._started:.0f} s] {shown or self._starting}")

    @property
    def _is_loaded(self) -> bool:
        """Whether all steps are at work: problems enter when every model has been loaded."""
        return self._tally.loaded > 0

    def _say(self, line: str) -> None:
        self._last_line = time.monotonic()
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def _note(stage: Stage) -> str:
    kept = f", {stage.from_journal:,} from the journal" if stage.from_journal else ""
    samples = f"{stage.ended:,} of {stage.sent:,} samples, " if stage.sent else ""
    return f"{samples}{stage.tokens:,} tokens, {stage.failed} failed or cut off{kept}"


def _starting(run: ResolvedRun) -> str:
    """What a run does first: models in this process are loaded, servers need nothing."""
    names = dict.fromkeys(model.name for model in run.models if model.is_local)
    loaded = [name_alone(name) for name in names]
    return f"loading {' and '.join(loaded)}" if loaded else "starting the steps of the run"

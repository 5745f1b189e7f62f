"""Progress of a run and of its check: bars on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from rich import progress as rich_progress
from rich.console import Console
from rich.markup import escape

from heavydistill.cli.remarks import thinking_remark
from heavydistill.config import RunConfig
from heavydistill.pipeline.run import Plan, check
from heavydistill.pipeline.tally import THINKS, Stage, Tally
from heavydistill.printable import printable
from heavydistill.problems import OnChecked
from heavydistill.teachers.contact import Contact

_PLAIN_LINE_EVERY_S = 10.0
_NOTE = 80  # characters of a log that fit beside a bar


def checked(
    config: RunConfig, console: Console, asks: bool = True, contact: Contact | None = None
) -> Plan:
    """``pipeline.run.check``, which shows how far it is with the references."""
    with checking(console) as show:
        return check(config, asks, show, contact)


@contextlib.contextmanager
def checking(console: Console) -> Iterator[OnChecked]:
    """What shows how far a check is with the references, while this lasts."""
    bar = rich_progress.Progress(
        rich_progress.TextColumn("checking references"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
    task = bar.add_task("references", total=None, visible=False)
    last_line = time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal last_line
        bar.update(task, completed=done, total=total, visible=True)
        if not console.is_terminal and time.monotonic() - last_line > _PLAIN_LINE_EVERY_S:
            last_line = time.monotonic()
            console.print(f"checked {done:,} of {total:,} references", highlight=False)

    with bar:
        yield show


class Progress:
    """Counts what leaves the stages that ask: problems done, failed responses, tokens."""

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
        self._config = plan.config
        self._is_remarked = False
        self._tally = Tally(plan.config, len(plan.problems))
        self._stages = self._tally.stages
        self._tasks = {
            step: self._bars.add_task(stage.name, total=stage.total, note="")
            for step, stage in self._stages.items()
        }
        self._loading = self._bars.add_task("starting vLLM", total=None, note="", visible=False)
        self._started = self._last_line = time.monotonic()

    def __enter__(self) -> Progress:
        self._bars.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._bars.stop()
        if not self._console.is_terminal:
            self._print_line()

    def on_start(self, seconds: float, line: str) -> None:
        """Take note of a server that is starting: how long it has been at it, and what it says."""
        line = printable(line)
        self._bars.update(self._loading, visible=True, note=escape(line[:_NOTE]))
        if not self._console.is_terminal and self._is_due():
            self._say(f"[{seconds:.0f} s] starting vLLM: {line}")

    def on_batch(self, step: str, rows: list[dict[str, Any]]) -> None:
        """Take note of a batch that left a step."""
        self._tally.add(step, rows)
        stage = self._stages.get(step)
        if not stage:
            return
        self._bars.update(self._loading, visible=False)
        self._bars.update(self._tasks[step], completed=stage.done, note=_note(stage))
        if not self._console.is_terminal and self._is_due():
            self._print_line()
        if step == THINKS and not self._is_remarked:
            remark = thinking_remark(self._config, stage.asked - stage.failed, stage.thoughts)
            self._is_remarked = bool(remark)
            if remark:
                self._say(remark)

    def _is_due(self) -> bool:
        return time.monotonic() - self._last_line > _PLAIN_LINE_EVERY_S

    def reused(self) -> list[tuple[str, int, int]]:
        """(stage, samples that the journal had, all samples), where it had any."""
        return [(s.name, s.from_journal, s.asked) for s in self._stages.values() if s.from_journal]

    def _print_line(self) -> None:
        stages = "; ".join(
            f"{s.name} {s.done}/{s.total} ({_note(s)})" for s in self._stages.values() if s.done
        )
        self._say(f"[{time.monotonic() - self._started:.0f} s] {stages or 'loading'}")

    def _say(self, line: str) -> None:
        self._last_line = time.monotonic()
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def _note(stage: Stage) -> str:
    kept = f", {stage.from_journal:,} from the journal" if stage.from_journal else ""
    return f"{stage.completion_tokens:,} tokens, {stage.failed} failed or cut off{kept}"

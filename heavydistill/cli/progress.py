"""Progress of a run and of its check: bars on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from rich import progress as rich_progress
from rich.console import Console
from rich.markup import escape

from heavydistill.config import RunConfig
from heavydistill.heavy.ballot import ballot_of
from heavydistill.pipeline.run import Plan, check
from heavydistill.problems import OnChecked
from heavydistill.schema import Verdict, from_row

_PLAIN_LINE_EVERY_S = 10.0
_NOTE = 80  # characters of a log that fit beside a bar
_THINK, _DELIBERATE = "sample_trajectories", "deliberate_"
_JUDGE = "judge_"
_JUDGE_POOL, _JUDGE_DELIBERATIONS = f"{_JUDGE}pool", f"{_JUDGE}deliberations_"


def checked(config: RunConfig, console: Console, asks: bool = True) -> Plan:
    """``pipeline.run.check``, which shows how far it is with the references."""
    with checking(console) as show:
        return check(config, asks, show)


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
        rounds = plan.config.deliberate.rounds
        total = len(plan.problems)
        stages = {} if plan.pools else {_THINK: "thinking"}
        if plan.config.judge:
            stages[_JUDGE_POOL] = "judging trajectories"
        for n in range(1, rounds + 1):
            number = "" if rounds == 1 else f", round {n}"
            stages[f"{_DELIBERATE}{n}"] = f"deliberating{number}"
            if plan.config.judge:
                stages[f"{_JUDGE_DELIBERATIONS}{n}"] = f"judging deliberations{number}"
        self._stages = {
            step: _Stage(name, total, self._bars.add_task(name, total=total, note=""))
            for step, name in stages.items()
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
        self._bars.update(self._loading, visible=True, note=escape(line[:_NOTE]))
        if not self._console.is_terminal and self._is_due():
            self._say(f"[{seconds:.0f} s] starting vLLM: {line}")

    def on_batch(self, step: str, rows: list[dict[str, Any]]) -> None:
        """Take note of a batch that left a step."""
        stage = self._stages.get(step)
        if not stage:
            return
        stage.add(rows, step)
        self._bars.update(self._loading, visible=False)
        self._bars.update(stage.task, completed=stage.done, note=stage.note)
        if not self._console.is_terminal and self._is_due():
            self._print_line()

    def _is_due(self) -> bool:
        return time.monotonic() - self._last_line > _PLAIN_LINE_EVERY_S

    def reused(self) -> list[tuple[str, int, int]]:
        """(stage, samples that the journal had, all samples), where it had any."""
        return [
            (s.name, s.from_journal, s.samples) for s in self._stages.values() if s.from_journal
        ]

    def _print_line(self) -> None:
        stages = "; ".join(
            f"{s.name} {s.done}/{s.total} ({s.note})" for s in self._stages.values() if s.done
        )
        self._say(f"[{time.monotonic() - self._started:.0f} s] {stages or 'loading'}")

    def _say(self, line: str) -> None:
        self._last_line = time.monotonic()
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


class _Stage:
    def __init__(self, name: str, total: int, task: rich_progress.TaskID) -> None:
        self.name, self.total, self.task = name, total, task
        self.done = self.samples = self.failed = self.tokens = self.from_journal = 0

    def add(self, rows: list[dict[str, Any]], step: str) -> None:
        column = "pool" if step in (_THINK, _JUDGE_POOL) else "deliberations"
        round = int(step.rpartition("_")[2]) if column == "deliberations" else None
        new = [g for row in rows for g in row[column] if g.get("round") == round]
        # (whether it can be used, tokens) of each sample
        samples = [(g["finish_reason"] == "stop", g["completion_tokens"]) for g in new]
        if step.startswith(_JUDGE):
            samples = [pair for g in new for pair in _votes(g)]
        self.done += len(rows)
        self.samples += len(samples)
        self.failed += sum(not usable for usable, _ in samples)
        self.tokens += sum(max(0, tokens) for _, tokens in samples)
        self.from_journal += sum(row.get("from_journal", 0) for row in rows)

    @property
    def note(self) -> str:
        kept = f", {self.from_journal:,} from the journal" if self.from_journal else ""
        return f"{self.tokens:,} tokens, {self.failed} failed or cut off{kept}"


def _votes(generation: dict[str, Any]) -> list[tuple[bool, int]]:
    """(whether it can be used, tokens) of the votes that were asked for this generation."""
    if generation["verdict"] is None:
        return []
    ballot = ballot_of(from_row(Verdict, generation["verdict"]))
    if ballot is None or ballot.same_as:
        return []
    return [(vote.is_valid, vote.completion_tokens) for vote in ballot.votes]

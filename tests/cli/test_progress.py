"""What is shown while a run lasts."""

import dataclasses
import io
import json
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from heavydistill.cli import progress
from heavydistill.config.models import Endpoint
from heavydistill.config.run import RunConfig
from heavydistill.models.resolve import resolve
from heavydistill.report import terminal
from heavydistill.run.status import Status, StatusWriter

SERVED = RunConfig(teacher="m", endpoint=Endpoint(base_url="http://h/v1"))


class Shown:
    """What a run prints when it says how far it is."""

    def __init__(self, tmp_path: Any, config: RunConfig = SERVED, is_terminal: bool = False):
        self.text = io.StringIO()
        self.run: Any = SimpleNamespace(run=resolve(config))
        self.status = StatusWriter(tmp_path / "x", self.run.run, 40, False).status()
        self.console = Console(
            file=self.text, force_terminal=is_terminal, color_system=None, width=200
        )

    def on(self, bars: progress.Progress, thoughts: int = 0, **changes: Any) -> None:
        thinking = dataclasses.replace(self.status.stages[0], **changes, thoughts=thoughts)
        stages = [thinking, *self.status.stages[1:]]
        loaded: Status = dataclasses.replace(self.status, stages=stages, loaded=16)
        bars.on_status(loaded)

    @property
    def lines(self) -> list[str]:
        return self.text.getvalue().splitlines()


def test_a_model_that_never_thinks_is_remarked_once_while_the_run_goes_on(tmp_path):
    shown = Shown(tmp_path)
    with progress.Progress(shown.console, shown.run) as bars:
        shown.on(bars, finished=7)
        assert "contained thinking" not in shown.text.getvalue()
        for finished in (8, 16, 24):
            shown.on(bars, finished=finished)
    assert shown.text.getvalue().count("No response of m contained thinking") == 1


def test_loading_is_shown_until_problems_enter_and_a_line_comes_now_and_then(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "_PLAIN_LINE_EVERY_S", -1.0)
    shown = Shown(tmp_path, RunConfig())
    with progress.Progress(shown.console, shown.run) as bars:
        assert shown.lines == ["loading micro"]
        bars.on_status(shown.status)
        assert shown.lines == ["loading micro"] * 2
        later = dataclasses.replace(shown.status, at=shown.status.began + 30)
        bars.on_status(later)
        assert shown.lines.pop() == "loading micro, 30 s"
        shown.on(bars, received=16, failures={"timeout": 2})
    assert shown.lines[3] == "0 s: 0/40 problems, 16/480 samples, 2 lost"
    assert len(shown.lines) == 5, "the last state is always shown"


def test_work_that_says_nothing_is_named_at_once_and_again(monkeypatch, capsys):
    monkeypatch.setattr(terminal, "LINE_EVERY_S", 0.05)
    lines: list[str] = []
    with terminal.going_on("loading"):
        assert capsys.readouterr().out == "loading\n"
        while len(lines) < 2:
            lines += capsys.readouterr().out.splitlines()
    assert set(lines) == {"loading, 0 s"}
    with terminal.going_on("loading", is_shown=False):
        assert capsys.readouterr().out == ""
    monkeypatch.setattr(terminal, "LINE_EVERY_S", 60.0)
    with terminal.going_on("training"):
        terminal.said()
    assert capsys.readouterr().out == "training\n"


def test_lines_are_not_printed_at_every_status(tmp_path):
    shown = Shown(tmp_path)
    with progress.Progress(shown.console, shown.run) as bars:
        for _ in range(5):
            shown.on(bars, thoughts=1)
    assert len(shown.lines) == 2


def test_what_the_journal_had_is_summed_up_at_the_end(tmp_path):
    shown = Shown(tmp_path)
    with progress.Progress(shown.console, shown.run) as bars:
        assert bars.reused() == ""
        shown.on(bars, thoughts=1, finished=1_200, from_journal=1_000)
    assert bars.reused() == "From the journal, not requested again: 1,000 of 1,200 in thinking"


FIRST_LINES = """
import json, sys
from rich.console import Console

HEAVY = {"torch", "transformers", "distilabel", "datasets"}
printed, show = [], Console.print

def noted(self, *texts, **options):
    printed.append((" ".join(map(str, texts)), sorted(HEAVY & sys.modules.keys())))

Console.print = noted
import heavydistill.run.generate as run

def begin(*_):
    print(json.dumps([printed, sorted(HEAVY & sys.modules.keys())]))
    raise KeyboardInterrupt

run.loading = begin  # the first that a run does
sys.argv = ["heavydistill", "generate", "--limit=2"]
from heavydistill.cli.app import main
main()
"""


def test_the_first_lines_come_before_anything_large_is_imported(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FIRST_LINES], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 130, done.stderr
    printed, loaded = json.loads(done.stdout)
    assert printed[0][0].startswith("2 problems, K=8 trajectories by micro") and not printed[0][1]
    assert printed[-1] == ["loading micro", []] and loaded == []


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_line_of_a_starting_server_does_not_act_on_the_terminal(
    tmp_path, monkeypatch, is_terminal
):
    monkeypatch.setattr(progress, "_PLAIN_LINE_EVERY_S", -1.0)
    shown = Shown(tmp_path, is_terminal=is_terminal)
    with progress.Progress(shown.console, shown.run) as bars:
        bars.on_start(1.0, "\x1b[32mINFO\x1b[0m [a] \x1b]0;title\x07loading\u202e")
    assert "INFO [a] loading" in shown.text.getvalue()
    assert "title" not in shown.text.getvalue() and "\u202e" not in shown.text.getvalue()

"""Lines of progress."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from heavydistill.cli import progress
from heavydistill.config.models import Endpoint
from heavydistill.config.run import RunConfig
from heavydistill.models.request import Work


def test_a_model_that_never_thinks_is_remarked_once_while_the_run_goes_on():
    shown = io.StringIO()
    console = Console(file=shown, color_system=None, width=200)
    config = RunConfig(teacher="m", endpoint=Endpoint(base_url="http://h/v1"))
    plan: Any = SimpleNamespace(config=config, problems=[])
    sample = {"finish_reason": "stop", "failure": None, "reasoning": ""}
    sample |= {"prompt_tokens": 1, "completion_tokens": 1}
    with progress.Progress(console, plan) as bars:
        for _ in range(3):
            bars.on_batch("sample_trajectories", [{"pool": [sample] * 8}])
    assert shown.getvalue().count("No response of m held thinking") == 1


def test_loading_is_shown_until_problems_enter_and_never_while_a_model_computes(monkeypatch):
    shown = io.StringIO()
    console = Console(file=shown, color_system=None, width=200)
    plan: Any = SimpleNamespace(config=RunConfig(), problems=[None] * 40)
    with progress.Progress(console, plan) as bars:
        assert shown.getvalue() == "[0 s] loading micro\n"
        bars._print_line()
        bars.on_batch("load_problems", [{}] * 16)
        bars._print_line()
        bars.on_work("sample_trajectories", 0, Work(128, 0, 900))
        bars.on_work("sample_trajectories", 1, Work(128, 3, 1_100))
        bars._print_line()
    lines = [line.partition("] ")[2] for line in shown.getvalue().splitlines()]
    assert lines[:2] == ["loading micro"] * 2
    assert lines[2] == "thinking 0/40 (0 tokens, 0 failed or cut off)"
    assert lines[3] == "thinking 0/40 (3 of 256 samples, 2,000 tokens, 0 failed or cut off)"
    assert lines[4:] == lines[3:4]


def test_a_line_comes_now_and_then_though_nothing_happens(monkeypatch):
    monkeypatch.setattr(progress, "_PLAIN_LINE_EVERY_S", 0.0)
    shown = io.StringIO()
    plan: Any = SimpleNamespace(config=RunConfig(), problems=[None])
    with progress.Progress(Console(file=shown, color_system=None), plan):
        latest = time.monotonic() + 60
        while shown.getvalue().count("loading micro") < 3 and time.monotonic() < latest:
            time.sleep(0.05)
    assert shown.getvalue().count("loading micro") > 2


FIRST_LINES = """
import json, sys
from rich.console import Console

HEAVY = {"torch", "transformers", "distilabel", "datasets"}
printed, show = [], Console.print

def noted(self, *texts, **options):
    printed.append((" ".join(map(str, texts)), sorted(HEAVY & sys.modules.keys())))

Console.print = noted
import heavydistill.run.generate as run

def begin():
    print(json.dumps([printed, sorted(HEAVY & sys.modules.keys())]))
    raise KeyboardInterrupt

run.start_server = begin  # the first that a run does
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
    assert printed[0] == ["checking problems and references", []]
    assert printed[-1] == ["[0 s] loading micro", []] and loaded == []


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_line_of_a_starting_server_does_not_act_on_the_terminal(monkeypatch, is_terminal):
    monkeypatch.setattr(progress, "_PLAIN_LINE_EVERY_S", -1.0)
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=is_terminal, color_system=None, width=200)
    plan: Any = SimpleNamespace(config=RunConfig(), problems=[])
    with progress.Progress(console, plan) as bars:
        bars.on_start(1.0, "\x1b[32mINFO\x1b[0m [a] \x1b]0;title\x07loading\u202e")
    assert "INFO [a] loading" in shown.getvalue()
    assert "title" not in shown.getvalue() and "\u202e" not in shown.getvalue()

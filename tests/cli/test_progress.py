"""Lines of progress."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from heavydistill.cli import progress
from heavydistill.config import Endpoint, RunConfig


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

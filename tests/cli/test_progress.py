"""Lines of progress."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from heavydistill.cli import progress
from heavydistill.config import RunConfig


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

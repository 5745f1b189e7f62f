"""The loop of docs/learn does what a run does."""

import runpy
from pathlib import Path

import pytest
from command_line import run_command
from documentation import ROOT
from samples import untimed

from heavydistill.store.traces import read_traces

LOOP = ROOT / "docs" / "learn" / "loop.py"
SIZE = 2


@pytest.mark.slow
def test_the_loop_writes_the_rows_of_a_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    traces = runpy.run_path(str(LOOP))["main"](SIZE)
    assert len(LOOP.read_text(encoding="utf-8").splitlines()) <= 150
    said = capsys.readouterr().out
    keys = {"problems.size": SIZE, "cache.budget_tokens": 1200}
    flags = [f"--set={key}={value}" for key, value in keys.items()]
    done = run_command("generate", *flags, "--k=8", "--d=4", "--out=runs/run")
    assert done.returncode == 0, done.stderr
    expected = list(read_traces(Path("runs/run")))
    assert untimed(traces) == untimed(expected), said
    assert "HM@4" in said and len(expected) == SIZE

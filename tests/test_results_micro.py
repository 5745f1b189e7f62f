"""The page of results, from runs as scripts/reproduce_micro.sh leaves them."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import runs

from heavydistill.metrics.summary import summarize
from heavydistill.storage import read_traces

SCRIPT = Path(__file__).parents[1] / "scripts" / "results_micro.py"


def written(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), str(folder), "--write", str(folder / "results.md")]
    return subprocess.run(command, capture_output=True, text=True, timeout=280)


def measured(folder: Path) -> None:
    runs.write_run(folder, 30, k=8, d=4)
    summary = dataclasses.asdict(summarize(list(read_traces(folder))))
    (folder / "summary.json").write_text(json.dumps(summary | {"missing": 0}), encoding="utf-8")


@pytest.fixture
def reproduced(tmp_path: Path) -> Path:
    """Two seeds, of which the second was broken off, and all runs with the same figures."""
    measured(tmp_path / "measured-base")
    for name in ("measured-teacher", "seed-1/measured-sft", "seed-1/measured-grpo"):
        shutil.copytree(tmp_path / "measured-base", tmp_path / name)
    (tmp_path / "seed-2").mkdir()
    times = "1\ttraces\t600\n1\tSFT\t90\n1\tSFT\t30\n2\tSFT\t120\n"
    (tmp_path / "seconds.tsv").write_text(times)
    return tmp_path


def test_each_model_and_each_stage_has_a_row(reproduced: Path) -> None:
    done = written(reproduced)
    assert done.returncode == 0, done.stderr
    lines = (reproduced / "results.md").read_text(encoding="utf-8").splitlines()
    names = [line.split("|")[1].strip() for line in lines if line.startswith("| ")]
    assert [name for name in names if "," in name or name in ("base", "teacher")] == [
        *("base", "SFT, seed 1", "GRPO, seed 1", "teacher"),
        *("SFT, seed 1", "GRPO, seed 1"),
    ]
    summary = json.loads((reproduced / "measured-base" / "summary.json").read_text("utf-8"))
    heavy = summary["heavy_mean_at_d"]
    told = f"{100 * heavy['mean']:.1f} ({100 * heavy['low']:.1f} to {100 * heavy['high']:.1f})"
    assert sum(told in line for line in lines) == 4
    assert any(re.match(r"\| GRPO, seed 1 \| \+0.0 \(\+0.0 to \+0.0\) \|", line) for line in lines)
    assert "| traces | 10.0 | - |" in lines and "| SFT | 2.0 | 2.0 |" in lines
    assert "| all | 12.0 | 2.0 |" in lines


def test_what_is_not_there_is_said(reproduced: Path) -> None:
    shutil.rmtree(reproduced / "seed-1")
    done = written(reproduced)
    assert done.returncode == 2 and "no seed that was measured" in done.stderr
    assert not (reproduced / "results.md").exists()

"""The benchmark runs, and checks itself that each client did the work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

THROUGHPUT = Path(__file__).parents[2] / "benchmarks" / "throughput.py"


@pytest.mark.slow
def test_ours_is_measured_with_its_journal_and_its_account():
    small = ["--problems=6", "--k=3", "--slots=4", "--mean-s=0.01", "--chunks=3"]
    done = subprocess.run(
        [sys.executable, str(THROUGHPUT), *small], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    rows = {line.split("  ")[0].strip() for line in done.stdout.splitlines()}
    assert {"bare", "ours", "ours, no journal", "ours, again"} <= rows
    assert "the journal's cost: " in done.stdout

"""The benchmark of the page runs, on a small run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from browsing import need_browser

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_the_page_is_measured() -> None:
    need_browser()
    command = [sys.executable, "page.py", "--traces", "12", "--k", "2", "--d", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=BENCHMARKS)
    # What a busy machine makes of the seconds is not asserted.
    assert not done.stderr or done.stderr.startswith("Not as promised"), done.stderr
    assert "12 traces, K=2, D=1" in done.stdout
    assert "0 found in 12 of 12 searched" in done.stdout and "during the search" in done.stdout
    assert "5 M of one character" in done.stdout and "5 M of base64" in done.stdout

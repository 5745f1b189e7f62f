"""The benchmark runs, and checks itself that each client did the work."""

import pytest
from command_line import benchmark


@pytest.mark.slow
def test_ours_is_measured_with_its_journal_and_its_account():
    small = ["--problems=6", "--k=3", "--slots=4", "--mean-s=0.01", "--chunks=3"]
    small += ["--refused", "0.2"]
    printed = benchmark("throughput.py", *small)
    rows = {line.split("  ")[0].strip() for line in printed.splitlines()}
    assert {"bare", "ours", "ours, no journal", "ours, again", "ours, 20% refused"} <= rows
    assert "throughput of ours, 20% refused: " in printed
    assert "the journal's cost: " in printed

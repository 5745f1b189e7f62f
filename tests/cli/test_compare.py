"""``heavydistill compare`` as a user runs it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import run_command
from runs import write_run

from heavydistill.metrics.comparison import read_comparison


@pytest.fixture
def runs(tmp_path: Path) -> tuple[str, str]:
    """Two runs on the same problems, asked alike."""
    first = write_run(tmp_path / "a", 40, k=4)
    second = write_run(tmp_path / "b", 40, k=4, thinker="other", words=20)
    return str(first), str(second)


def test_two_runs_are_compared_in_three_forms(runs: tuple[str, str], tmp_path: Path) -> None:
    files = [f"--markdown={tmp_path / 'x.md'}", f"--json={tmp_path / 'x.json'}"]
    command = ["compare", *runs, *files]
    done = run_command(*command)
    assert done.returncode == 0, done.stdout + done.stderr
    printed = " ".join(done.stdout.split())
    assert "40 problems, K=4 trajectories, D=2 deliberations, 1 round" in printed
    assert "Metric, 95% intervals A B Points" in printed
    assert "Problems right both only A only B neither" in printed
    told = read_comparison(tmp_path / "x.json")
    assert told.before and (told.before.name, told.after.name) == ("A", "B")
    assert told.vote_pairs and told.deliberation_pairs
    written = (tmp_path / "x.md").read_text(), (tmp_path / "x.json").read_text()
    assert "| Metric, 95% intervals | A | B | Points |" in written[0]
    assert str(tmp_path) not in "".join(written)
    assert json.loads(written[1])["problems"] == 40
    again = run_command(*command)
    assert again.stdout == done.stdout
    assert ((tmp_path / "x.md").read_text(), (tmp_path / "x.json").read_text()) == written
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "x.json", "x.md"]


def test_what_cannot_be_compared_ends_with_2_and_writes_nothing(
    runs: tuple[str, str],
    tmp_path: Path,
    call: Callable[..., tuple[int, str, str]],
) -> None:
    fewer, file = str(write_run(tmp_path / "c", 39, k=4)), tmp_path / "x.json"
    code, out, err = call("compare", runs[0], fewer, f"--json={file}")
    assert (code, out) == (2, "") and "sum:39 missing B" in err
    assert not file.exists()
    code, _, err = call("compare", runs[0], str(tmp_path))
    assert code == 2 and "is not the folder of a finished run" in err


@pytest.mark.parametrize("flag", ["--markdown", "--json"])
def test_a_file_that_cannot_be_is_refused_before_anything_is_read(
    tmp_path: Path,
    call: Callable[..., tuple[int, str, str]],
    flag: str,
) -> None:
    for file in (tmp_path, tmp_path / "nowhere" / "x"):
        code, _, err = call("compare", "a", "b", f"{flag}={file}")
        assert code == 2 and f"{flag}: {file} cannot be a file" in err

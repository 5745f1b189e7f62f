"""``heavydistill export`` as a user runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run_command
from set_folders import write_sets


def export(*words: object) -> subprocess.CompletedProcess[str]:
    return run_command("export", *words)


@pytest.fixture
def sets(tmp_path):
    return write_sets(tmp_path / "sets")


def test_the_rows_are_counted_and_what_is_left_out_is_said(sets, tmp_path):
    done = export(sets, "--to", "llamafactory", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    for name in ("sft_deliberator", "sft_thinker"):
        (line,) = [line for line in done.stdout.splitlines() if line.startswith(name)]
        assert line.split() == [name, "1", "1"]
    assert "Left out: rl, because LLaMA-Factory has no training" in done.stdout
    assert (tmp_path / "out" / "dataset_info.json").is_file()


def test_another_process_writes_the_same_bytes(sets, tmp_path):
    assert export(sets, "--to", "verl", "--out", tmp_path / "one").returncode == 0
    command = [str(Path(sys.executable).parent / "heavydistill"), "export", str(sets), "--to=verl"]
    subprocess.run([*command, f"--out={tmp_path / 'two'}"], check=True, timeout=240)
    files = [path for path in (tmp_path / "one").rglob("*") if path.is_file()]
    for path in files:
        other = tmp_path / "two" / path.relative_to(tmp_path / "one")
        assert path.read_bytes() == other.read_bytes()
    assert {path.name for path in files} >= {"README.md", "rl.yaml", "train.parquet"}


@pytest.mark.parametrize(
    "to, out, said",
    [("nemo", "out", "Name one of: trl"), ("trl", "sets", "Name another --out")],
)
def test_what_the_user_can_mend_is_said_with_the_fix(sets, tmp_path, to, out, said):
    before = sorted(tmp_path.rglob("*"))
    done = export(sets, "--to", to, "--out", tmp_path / out)
    assert done.returncode == 2
    assert said in done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_without_sets_is_refused(tmp_path):
    (tmp_path / "run").mkdir()
    done = export(tmp_path / "run", "--to", "trl", "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "holds no sets" in done.stderr
    assert not (tmp_path / "out").exists()

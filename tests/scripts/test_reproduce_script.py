"""When scripts/reproduce_micro.sh makes a stage, refuses it, and what time it writes down."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "reproduce_micro.sh"
AROUND = """
set -euo pipefail
out=. seed=1
say() { echo "made: $1"; }
fail() { echo "$*"; exit 1; }
train() { [ ! -e broken ] || { mkdir -p "$1"; return 3; }; mkdir -p "$1"; touch "$1/config.json"; }
build() { mkdir -p "$1"; touch "$1/manifest.json"; }
"""
STAGES = """
once sets sets "" build sets
once "S F T" "a model" sets:sets train "a model"
once GRPO grpo "a model:sets" train grpo
"""


def told(folder: Path) -> list[str]:
    """What the script's own functions say of three stages, each made from the one before."""
    text = SCRIPT.read_text(encoding="utf-8")
    own = text[text.index("# Whether a folder is") : text.index("generate() {")]
    command = ["bash", "-c", AROUND + own + STAGES]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.fixture
def done(tmp_path: Path) -> Path:
    assert told(tmp_path) == ["made: sets", "made: S F T", "made: GRPO"]
    # Folders of one second are told apart by more than it.
    for age, name in enumerate(("grpo", "a model", "sets")):
        os.utime(tmp_path / name, (10**9 - age, 10**9 - age))
    return tmp_path


def stages(folder: Path) -> list[str]:
    lines = (folder / "seconds.tsv").read_text(encoding="utf-8").splitlines()
    return [line.split("\t")[1] for line in lines]


def test_what_is_there_is_not_made_again(done):
    assert told(done) == []
    assert stages(done) == ["sets", "S F T", "GRPO"]


def test_what_is_older_than_what_it_is_made_from_is_refused_however_often_it_is_asked(done):
    (done / "sets" / "manifest.json").unlink()
    for _ in range(2):
        assert told(done)[-1].startswith("a model is older than sets, which it is made from")
    (done / "a model" / "config.json").unlink()
    assert told(done)[-1].startswith("grpo is older than a model, which it is made from")


def test_a_stage_that_breaks_says_so_and_its_time_counts(done):
    (done / "broken").touch()
    (done / "grpo" / "config.json").unlink()
    assert told(done) == ["made: GRPO", "GRPO ended with 3; give the same command again to go on."]
    assert stages(done).count("GRPO") == 2

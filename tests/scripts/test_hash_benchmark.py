"""The script that makes a file of hashes of a benchmark."""

import subprocess
from pathlib import Path

import pytest
from command_line import run_script
from import_files import lines

from heavydistill.curate.filters.contamination import BenchmarkHashes, read

SCRIPT = Path(__file__).parents[2] / "scripts" / "hash_benchmark.py"
TEXTS = ["How many of the nine hens that live behind the barn lay eggs?", "What is 3 + 4?"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rows = ({"nr": n, "task": text} for n, text in enumerate([*TEXTS, TEXTS[0]]))
    return lines(tmp_path / "tasks.jsonl", *rows)


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run_script(SCRIPT, *arguments)


def test_a_file_of_texts_becomes_a_file_of_hashes(file, tmp_path):
    outs = [tmp_path / "new" / "tasks.parquet", tmp_path / "again.parquet"]
    for out in outs:
        done = run("--from", file, "--column", "task", "--name", "tasks-2-of-9", "--out", out)
        assert done.returncode == 0, done.stderr
        assert "2 different texts in 3 rows" in done.stdout
    assert read(outs[0]) == BenchmarkHashes.of("tasks-2-of-9", TEXTS)
    assert outs[0].read_bytes() == outs[1].read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--from=tasks.jsonl --out=out.parquet", "Columns there: nr, task"),
        ("--from=absent.jsonl --out=out.parquet", "absent.jsonl: No such file"),
        ("--from=hub:nobody/nothing --out=out.parquet", "Check --from, --subset, --split"),
        ("--from=tasks.jsonl --column=task --out=x.bin", "must end in .parquet"),
        ("--from=tasks.jsonl --column=task --out=tasks.jsonl/x.parquet", "Error: "),
    ],
)
def test_what_cannot_be_done_is_an_error_that_says_why(file, monkeypatch, words, message):
    monkeypatch.chdir(file.parent)
    done = run("--name=tasks", *words.split())
    assert done.returncode == 2
    assert message in done.stderr and "Traceback" not in done.stderr
    assert [path.name for path in file.parent.iterdir()] == [file.name]

"""``heavydistill import`` as a user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from import_files import EGGS, document, heavyskill_row, lines, nemo_row, pacore_row

from heavydistill.cli.app import main
from heavydistill.storage import read_traces

COMMAND = str(Path(sys.executable).parent / "heavydistill")
GSM8K = Path(__file__).parents[2] / ".." / "shared" / "data" / "gsm8k_solutions_k4.jsonl"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("COLUMNS", "120")

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["heavydistill", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return call


def test_nemo_files_become_a_run_that_can_be_shown(run: Run, tmp_path: Path) -> None:
    for seed in range(3):
        rows = [nemo_row(f"{EGGS} ({n})", 42, 42 + seed % 2) for n in range(4 - seed)]
        lines(tmp_path / f"output-rs{seed}.jsonl", *rows)
    files, out = sorted(tmp_path.glob("*.jsonl")), tmp_path / "run"
    code, _, errors = run("import", *files, "--from=nemo", f"--out={out}")
    assert code == 2 and not out.exists()
    assert "output-rs0.jsonl:4: the problem has 1 answer" in errors
    leave_out = "--set=problems.unfit=leave_out"
    code, printed, errors = run(
        "import", *files, "--from=nemo", f"--out={out}", "--model=r1", leave_out
    )
    assert (code, errors) == (0, "")
    assert "Left out, too_few: 1 row(s)\n  output-rs0.jsonl:4: the problem has 1 answer" in printed
    assert "Problems without an answer in a file: output-rs2.jsonl 1" in printed
    assert "Both say the same of 8 of 8 labelled answers (100.0%)" in printed
    assert {each.model for trace in read_traces(out) for each in trace.pool} == {"r1"}
    code, printed, _ = run("show", out, "--problem=output-rs0:2")
    assert code == 0 and "model: r1" in printed


def test_heavyskill_and_pacore_and_plain_answers(run: Run, tmp_path: Path) -> None:
    result = document(tmp_path / "result.json", heavyskill_row())
    targets = document(tmp_path / "targets.json", [{"query": EGGS, "target": "42"}])
    code, printed, errors = run(
        "import", result, targets, "--from=heavyskill", f"--out={tmp_path / 'h'}"
    )
    assert (code, errors) == (0, "")
    assert "2 summaries are left out" in printed
    assert "No finish reason for 3 answers" in printed

    rows = lines(tmp_path / "rows.jsonl", pacore_row())
    code, _, errors = run("import", rows, "--from=pacore", f"--out={tmp_path / 'p'}")
    assert (code, errors) == (0, "")

    row = {"q": EGGS, "gold": "6 * 7\nA: 42", "by_a": "A: 42", "by_b": "A: 13"}
    code, printed, errors = run(
        "import",
        lines(tmp_path / "plain.jsonl", row),
        "--from=answers",
        "--columns=text=q,reference=gold,answers=by_*",
        "--verifier=exact",
        "--verifier-args={marker: 'A:'}",
        f"--out={tmp_path / 'a'}",
    )
    assert (code, errors) == (0, "")
    (trace,) = read_traces(tmp_path / "a")
    assert [each.is_correct for each in trace.pool] == [True, False]
    assert "labelled" not in printed and f"Traces: {tmp_path / 'a'}" in printed


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--from=pacore"], "It looks like nemo: give --from nemo."),
        (["--from=nvidia"], "format: Input should be 'heavyskill', 'pacore', 'nemo' or 'answers'"),
        (["--from=nemo", "--columns=text"], "is not of the form field=column"),
        (["--from=nemo", "--columns=txet=a"], "Did you mean text?"),
        (["--from=nemo", "--verifier-args=[1]"], "is no mapping"),
        (["--from=nemo", "--verifier-args={"], "is not YAML"),
        (["--from=nemo", "--verifier=exakt"], "There is no verifier 'exakt'"),
        (["--from=nemo", "--set=verify.wrokers=2"], "Did you mean verify.workers?"),
        (["--from=nemo", "--set=problems.unfit=drop"], "problems.unfit"),
        (["--from=nemo", "--limit=0"], "problems.limit"),
    ],
)
def test_bad_input_says_what_to_do_and_writes_nothing(
    arguments: list[str], says: str, run: Run, tmp_path: Path
) -> None:
    files = [lines(tmp_path / f"output-rs{seed}.jsonl", nemo_row()) for seed in range(2)]
    code, printed, errors = run("import", *files, f"--out={tmp_path / 'run'}", *arguments)
    assert code == 2 and errors.startswith("Error: ") and says in errors
    assert printed == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == [file.name for file in files]


def test_a_line_that_is_not_json_is_named(run: Run, tmp_path: Path) -> None:
    path = lines(tmp_path / "output-rs0.jsonl", nemo_row(), "{broken")
    code, _, errors = run("import", path, "--from=nemo", f"--out={tmp_path / 'run'}")
    assert code == 2 and "output-rs0.jsonl:2 is not JSON" in errors


def test_the_installed_command_imports_real_solutions(tmp_path: Path) -> None:
    if not GSM8K.is_file():
        pytest.skip("the GSM8K solutions are not here")
    arguments = ["--from=answers", "--verifier=exact", '--verifier-args={marker: "A:"}']
    done = subprocess.run(
        [COMMAND, "import", str(GSM8K), *arguments, "--limit=40", f"--out={tmp_path / 'run'}"],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "COLUMNS": "120"},
    )
    assert done.returncode == 0, done.stderr
    assert len(list(read_traces(tmp_path / "run"))) == 40
    record = json.loads((tmp_path / "run" / "import.json").read_text(encoding="utf-8"))
    assert record["left_out"]["over_limit"]["rows"] == 620
    assert "of 160 labelled answers" in done.stdout

"""``heavydistill import`` as a user runs it."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from import_files import EGGS, document, heavyskill_row, lines, nemo_row, pacore_row

from heavydistill.store.traces import read_traces

COMMAND = str(Path(sys.executable).parent / "heavydistill")
GSM8K = Path(__file__).parents[2] / ".." / "shared" / "data" / "gsm8k_solutions_k4.jsonl"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(call: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "120")
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
        (["--from=pacore"], "Give the --from of its format"),
        (["--from=nvidia"], "format: Input should be 'heavyskill', 'pacore', 'nemo' or 'answers'"),
        (["--from=nemo", "--columns=text"], "Write --columns KEY=VALUE,..."),
        (["--from=nemo", "--columns=txet=a"], "Did you mean text?"),
        (["--from=nemo", "--verifier-args=[1]"], "--verifier-args '[1]' is no mapping"),
        (["--from=nemo", "--verifier-args={"], "is no mapping"),
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


def test_a_marker_that_answers_share_is_proposed_and_the_proposal_works(
    run: Run, tmp_path: Path
) -> None:
    rows = [
        {"q": f"{EGGS} ({n})", "gold": str(n), "answers": [f"So.\nA: {n}", f"Or.\nA: {n + 1}"]}
        for n in range(10)
    ]
    command = ["import", lines(tmp_path / "plain.jsonl", *rows), "--from=answers"]
    command += ["--columns=text=q,reference=gold"]
    code, printed, errors = run(*command, f"--out={tmp_path / 'raw'}")
    assert (code, errors) == (0, "")
    (told,) = [line.split() for line in printed.splitlines() if line.startswith("trajectories")]
    assert told == ["trajectories", "20", "0", "0", "20", "0", "0"]
    assert r"100.0% of the finished trajectories hold no final answer (no \boxed{})." in printed
    assert "Of 20 that were judged with this marker, 20 give an answer and 10 are right." in printed
    (proposed,) = [line for line in printed.splitlines() if line.startswith("Import again")]
    flag = shlex.split(proposed.partition(": ")[2])
    assert flag == ["--verifier-args", '{marker: "A:"}']
    code, printed, _ = run(*command, f"--out={tmp_path / 'marked'}", *flag)
    assert code == 0 and "final answer" not in printed and "Import again" not in printed
    counts = [sum(t.is_correct for t in trace.pool) for trace in read_traces(tmp_path / "marked")]
    assert counts == [1] * 10


def test_answers_in_boxes_or_without_a_marker_get_no_proposal(run: Run, tmp_path: Path) -> None:
    kinds = {"boxed": r"It is \boxed{{{}}}.", "prose": "I am not sure.\nNote: look it up {}"}
    for kind, form in kinds.items():
        answers = [form.format(answer) for answer in ("again", "elsewhere")]
        rows = [{"q": f"{EGGS} ({n})", "gold": "4", "answers": answers} for n in range(4)]
        file = lines(tmp_path / f"{kind}.jsonl", *rows)
        columns = "--columns=text=q,reference=gold"
        code, printed, _ = run(
            "import", file, "--from=answers", columns, f"--out={tmp_path / kind}"
        )
        assert code == 0 and "Import again" not in printed
        assert ("hold no final answer" in printed) == (kind == "prose")


def test_real_solutions_without_a_box_get_their_marker(run: Run, tmp_path: Path) -> None:
    if not GSM8K.is_file():
        pytest.skip("the GSM8K solutions are not here")
    rows = [json.loads(line) for line in GSM8K.read_text(encoding="utf-8").splitlines()[:200]]
    file = tmp_path / "gsm8k.jsonl"
    columns = "--columns=text=question,reference=ground_truth"
    command = ["import", file, "--from=answers", columns, f"--out={tmp_path / 'run'}"]
    lines(file, *rows)
    code, _, errors = run(*command)
    assert code == 2 and """in verifier_args, e.g. {"marker": "A:"}""" in errors
    for row in rows:
        row["ground_truth"] = row["ground_truth"].rpartition("A:")[2].strip()
    lines(file, *rows)
    code, printed, _ = run(*command)
    assert code == 0 and "795 of the 800 unanswered answers that were read end in 'A:'" in printed
    assert """--verifier-args '{marker: "A:"}'""" in printed

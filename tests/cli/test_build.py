"""``heavydistill build`` as a user runs it, from runs to a folder that datasets reads."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from runs import STUDENT, write_run

from heavydistill.config.run import RunConfig, dump_config
from heavydistill.store.sets.folder import read_manifest, read_rows

Command = Callable[..., tuple[int, str]]


@pytest.fixture
def command(call: Callable[..., tuple[int, str, str]]) -> Command:
    def run(*arguments: object) -> tuple[int, str]:
        code, *printed = call(*arguments)
        return code, " ".join("".join(printed).split())

    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "sums", 30)


def test_a_run_becomes_sets_with_a_table_and_a_card(
    command: Command, run: Path, tmp_path: Path
) -> None:
    import datasets

    out = tmp_path / "sets"
    code, printed = command("build", run, "--out", out, "--seed", 3, "--set", "validation=0.2")
    assert code == 0
    assert "balanced mixture of sums (30 traces)" in printed
    assert "Stratum sets deliberated not admitted over bound sft rl" in printed
    assert f"heavydistill show {out} --tokens" in printed
    manifest = read_manifest(out)
    assert manifest.build["seed"] == 3
    assert manifest.guarded["sft_deliberator"] == sum(manifest.rows["sft_deliberator"].values())
    for name, splits in manifest.rows.items():
        there = datasets.load_dataset(str(out), name, cache_dir=str(tmp_path / "cache"))
        counted = {split: len(rows) for split, rows in there.items()}
        assert counted == {split: count for split, count in splits.items() if count}


def test_the_same_command_gives_the_same_folder_in_another_process(
    run: Path, tmp_path: Path
) -> None:
    import os
    import subprocess

    digests = []
    for seed in ("1", "2"):
        out = tmp_path / seed / "sets"
        installed = str(Path(sys.executable).parent / "heavydistill")
        subprocess.run(
            [installed, "build", str(run), "--out", str(out)],
            check=True,
            capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        files = sorted(path for path in out.rglob("*") if path.is_file())
        content = [(str(path.relative_to(out)), path.read_bytes()) for path in files]
        digests.append([(name, hashlib.sha256(data).hexdigest()) for name, data in content])
    assert digests[0] == digests[1]


def test_a_yaml_file_is_read_and_flags_win(command: Command, run: Path, tmp_path: Path) -> None:
    file = tmp_path / "build.yaml"
    file.write_text("preset: agglm\nretention: 0\nvalidation: 0\n", encoding="utf-8")
    code, _ = command(
        "build", run, "--config", file, "--preset", "heavyskill", "--out", tmp_path / "s"
    )
    assert code == 0
    manifest = read_manifest(tmp_path / "s")
    assert manifest.build["preset"] == "heavyskill"
    assert manifest.retention.part == 0


def test_a_dry_run_shows_the_tables_and_keeps_nothing(
    command: Command, run: Path, tmp_path: Path
) -> None:
    code, printed = command("build", run, "--out", tmp_path / "sets", "--dry-run")
    assert code == 0
    assert "Nothing was written, and no request was sent." in printed
    assert list(tmp_path.iterdir()) == []


def test_an_empty_result_shows_what_took_what(command: Command, run: Path, tmp_path: Path) -> None:
    code, printed = command("build", run, "--out", tmp_path / "sets", "--set", "max_tokens=64")
    assert code == 2
    assert "too_long_for_student" in printed
    assert "Nothing is left to learn from" in printed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "balansed"], "preset"),
        (["--set", "retenton=0.1"], "retention"),
        (["--student", "nobody"], "There is no model 'nobody'"),
        (["--against", "missing.jsonl"], "missing.jsonl"),
        (["--set", "max_tokens=4096"], "Set max_tokens to 2048 or less"),
    ],
)
def test_what_a_user_can_mend_is_said_and_leaves_nothing(
    command: Command, run: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    code, printed = command("build", run, "--out", tmp_path / "sets", *arguments)
    assert code == 2
    assert message in printed
    assert list(tmp_path.iterdir()) == []


def test_the_command_that_it_prints_last_shows_a_row_of_a_student_in_a_folder(
    run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[..., tuple[int, str, str]],
) -> None:
    shutil.copytree(STUDENT, tmp_path / "my models" / "mine")
    monkeypatch.chdir(tmp_path)
    built = ["build", run, "--student", "my models/mine", "--out", "new sets"]
    code, printed, _ = call(*built, "--set", "max_tokens=2048")
    assert code == 0
    printed_last = printed.splitlines()[-1].partition(": ")[2]
    code, shown, _ = call(*shlex.split(printed_last)[1:])
    assert code == 0 and "guard: all of it is learnt, and nothing else" in shown
    assert "my models" not in (tmp_path / "new sets" / "manifest.json").read_text(encoding="utf-8")
    code, shown, said = call("show", "new sets", "--tokens")
    assert (code, shown) == (2, "")
    assert "The student of the sets, mine, cannot be used" in said and "--student" in said


@pytest.mark.parametrize("of", ["glm-4.6", "an import", "pools"])
def test_the_toy_student_is_for_runs_of_the_toy_teacher_alone(
    command: Command, run: Path, tmp_path: Path, of: str
) -> None:
    other = Path(shutil.copytree(run, tmp_path / "runs" / "other"))
    pools = {"pools": "runs/x", "pools_sha256": "0"} if of == "pools" else {"teacher": of}
    (other / "config.yaml").write_text(dump_config(RunConfig(**pools, domain="brief")))
    if of == "an import":
        (other / "config.yaml").unlink()
    out = tmp_path / "my sets"
    code, printed = command("build", run, other, "--preset", "natural", "--out", out)
    assert code == 2 and "other is not a run of the bundled micro models" in printed
    repeated = ["heavydistill", "build", str(run), str(other), "--preset", "natural"]
    assert printed.endswith(f"{shlex.join([*repeated, '--out', str(out)])} --student MODEL")
    assert not out.exists()
    assert command(*repeated[1:], "--out", out, "--student", "micro-student")[0] == 0
    assert read_manifest(out).student.name == "micro-student"


def test_without_runs_or_out_it_says_what_is_missing(command: Command, run: Path) -> None:
    assert "out" in command("build", run)[1]
    code, printed = command("build", "--out", "sets")
    assert code == 2
    assert "runs" in printed


def test_a_student_without_a_chat_template_is_refused(
    command: Command, run: Path, tmp_path: Path
) -> None:
    student = tmp_path / "student"
    student.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(STUDENT / name, student)
    code, printed = command("build", run, "--student", student, "--out", tmp_path / "sets")
    assert code == 2
    assert "no chat template" in printed and "--chat-template" in printed
    assert not (tmp_path / "sets").exists()


@pytest.mark.slow
def test_sets_without_a_deliberation_are_asked_about_once(command: Command, tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs" / "pools", 6, d=0)
    asks = ["build", run, "--teacher", "micro", "--set", "redeliberate.d=2"]
    code, printed = command(*asks, "--out", tmp_path / "dry", "--dry-run")
    assert code == 0
    assert re.search(r"To ask of micro: (\d+) of \1 deliberations on \d+ caches", printed)
    code, printed = command(*asks, "--out", tmp_path / "sets")
    assert code == 0
    manifest = read_manifest(tmp_path / "sets")
    (asked,) = manifest.asked
    assert asked.model == "micro" and asked.sampling["temperature"] == 1.0
    readme = (tmp_path / "sets" / "README.md").read_text(encoding="utf-8")
    assert "| `micro` again | 2 | 1.0 | 0.95 | 10 |" in readme
    assert asked.deliberations == 2 * asked.sets > 0
    there = list(read_rows(tmp_path / "sets", "deliberations"))
    assert len(there) == asked.deliberations
    known = {row["id"] for row in read_rows(tmp_path / "sets", "caches")}
    assert {row["cache"] for row in there} <= known
    code, printed = command(*asks, "--out", tmp_path / "again")
    assert code == 0
    assert f"0 of {asked.deliberations:,} deliberations" in printed
    first, second = (
        json.loads((tmp_path / name / "manifest.json").read_text(encoding="utf-8"))["files"]
        for name in ("sets", "again")
    )
    assert first == second

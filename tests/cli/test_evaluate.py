"""``heavydistill evaluate`` as a user runs it: a model beside the one that it was trained from."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from command_line import run_command
from fake_server import completion, serving

import heavydistill
from heavydistill.metrics.comparison import COMPARISON, Comparison, read_comparison
from heavydistill.metrics.summary import summarize
from heavydistill.store.traces import read_traces

COMMAND = str(Path(sys.executable).parent / "heavydistill")
MICRO = Path(heavydistill.__file__).parent / "micro" / "teacher"
SIZES = ("--limit=6", "--k=4", "--d=2")


def arguments(model: Path, *more: str) -> list[str]:
    named = [f"--thinker={model}", f"--deliberator={model}", "--before=micro-student"]
    return [COMMAND, "evaluate", *named, *SIZES, f"--out={model / 'evaluation'}", *more]


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return run_command(*command[1:])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A checkpoint as training leaves one: a folder without a profile."""
    return Path(shutil.copytree(MICRO, tmp_path / "trained"))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_trained_model_is_shown_beside_its_base(model: Path) -> None:
    done = run(arguments(model))
    assert done.returncode == 0, done.stdout + done.stderr
    folder = model / "evaluation"
    told = read_comparison(folder / COMPARISON)
    assert (told.problems, told.after.summary.k, told.after.summary.d) == (6, 4, 2)
    assert told.before and told.before.thinker and told.after.thinker
    assert (told.before.thinker.name, told.after.thinker.name) == ("micro-student", "trained")
    for which in ("before", "after"):
        summary = summarize(read_traces(folder / which))
        assert getattr(told.mean_at_k, which) == summary.mean_at_k
        assert getattr(told.heavy_mean_at_d, which) == summary.heavy_mean_at_d
        assert getattr(told, which).summary.curve == summary.curve
        # Both were asked in the wording that the base knows, and no longer than it can.
        traces = list(read_traces(folder / which))
        assert all("brief" in trace.thinker_prompt_version for trace in traces)
        assert max(t.completion_tokens for trace in traces for t in trace.pool) <= 192
    assert "M@4" in done.stdout and "the thinker's own pass@1" in done.stdout
    assert "Thinker" in done.stdout and "micro-student" in done.stdout
    # Its two runs are runs as any others.
    again = run([COMMAND, "compare", str(folder / "before"), str(folder / "after")])
    assert again.returncode == 0, again.stdout + again.stderr
    assert str(folder) in done.stdout.replace("\n", "")
    assert {path.name for path in model.iterdir() if path.name.startswith(".")} == set()


def test_a_dry_run_shows_both_runs_and_writes_nothing(model: Path) -> None:
    there = sorted(model.parent.rglob("*"))
    done = run(arguments(model, "--dry-run"))
    assert done.returncode == 0
    printed = " ".join(done.stdout.split())
    assert "plan: before" in printed and "K=4 trajectories by micro-student" in printed
    assert "plan: after" in printed and "run:" not in printed
    assert sorted(model.parent.rglob("*")) == there


def test_the_bundled_teacher_takes_no_role_without_a_word(model: Path) -> None:
    given = ["evaluate", f"--thinker={model}", "--limit=6"]
    done = run([COMMAND, *given])
    said = done.stderr
    assert done.returncode == 2
    assert "No model is named as deliberator" in said and "--before BASE" in said
    assert said.endswith(f"The command: heavydistill {' '.join(given)} --deliberator MODEL\n")
    assert list(model.parent.iterdir()) == [model]


def test_what_can_be_mended_is_an_error_of_the_user(model: Path) -> None:
    same = run([COMMAND, "evaluate", "--before=micro-student"])
    assert same.returncode == 2 and "compared with itself" in same.stderr
    (model / "evaluation").mkdir()
    (model / "evaluation" / "mine.txt").touch()
    taken = run(arguments(model))
    assert taken.returncode == 2 and "exists and is not empty" in taken.stderr
    assert not (model / "journal").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
def test_what_was_broken_off_goes_on_from_the_journal(model: Path, by: signal.Signals) -> None:
    finished = model / ".evaluation.unfinished" / "new" / "before" / "summary.json"
    process = subprocess.Popen(
        arguments(model), stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    latest = time.monotonic() + 300
    while not finished.exists() and process.poll() is None and time.monotonic() < latest:
        time.sleep(0.05)
    assert finished.exists()
    if by == signal.SIGTERM:
        time.sleep(1)  # in the midst of the second run
        process.terminate()
    else:
        os.killpg(process.pid, by)
    printed, _ = process.communicate(timeout=60)
    assert not (model / "evaluation").exists()
    if by == signal.SIGTERM:
        assert process.returncode == 130 and "The same command goes on from there" in printed
        assert not finished.parents[2].exists()
    again = run(arguments(model))
    assert again.returncode == 0, again.stdout + again.stderr
    before = again.stdout.partition("run: before")[2].partition("run: after")[0]
    assert "24 of 24 in thinking, 12 of 12 in deliberating" in before
    assert sorted(path.name for path in (model / "evaluation").iterdir()) == [
        "after",
        "before",
        COMPARISON,
    ]
    assert not finished.parents[2].exists()


def test_requests_that_failed_count_as_wrong_and_are_said(tmp_path: Path) -> None:
    """The first problem is refused of the second model; the models are those of a server."""

    def answer(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if body["model"] == "adapter" and "What is 1 + 1?" in body["messages"][0]["content"]:
            return 400, {"error": {"message": "refused"}}
        return completion(r"\boxed{4}", reasoning_content="two and two")

    lines = [
        {"id": f"p{n}", "text": f"What is {n} + {n}?", "reference": f"{2 * n}"} for n in (1, 2)
    ]
    problems, out = tmp_path / "problems.jsonl", tmp_path / "x"
    problems.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    with serving(answer) as server:
        done = run(
            [
                *(COMMAND, "evaluate", "--teacher=adapter", "--before=base"),
                *(f"--endpoint={server.base_url}", f"--tokenizer={MICRO}"),
                *(f"--problems={problems}", f"--out={out}", "--k=2", "--d=1"),
                "--set=endpoint.retries=0",
            ]
        )
    assert done.returncode == 1, done.stdout + done.stderr
    told: Comparison = read_comparison(out / COMPARISON)
    assert told.problems == 2 and told.mean_at_k.after.mean == 0.5
    assert told.after.summary.trajectories.failed == 2
    assert told.before and told.before.summary.trajectories.failed == 0
    assert told.config["problems"]["source"] == "problems.jsonl"
    assert server.base_url not in (out / COMPARISON).read_text()
    printed = " ".join(done.stdout.split())
    assert "Of the run after, 2 request(s) and 0 row(s) failed, and count as wrong" in printed

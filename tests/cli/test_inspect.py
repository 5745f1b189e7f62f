"""``heavydistill show`` on a folder of sets, and ``report``, as a user runs them."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import runs
import set_folders
from command_line import run_command
from damaging import damage
from rich.console import Console
from set_folders import write_sets
from students import real_template

from heavydistill.chat.student import Student
from heavydistill.report.row import print_tokens
from heavydistill.store.traces import TRACES_FOLDER, read_traces, write_traces

COMMAND = str(Path(sys.executable).parent / "heavydistill")
LEARNT = """\
<|im_start|>assistant
[[<think>
Attempt 1 is right, attempt 2 is wrong: 2*3=6.
</think>
The product is \\boxed{6}.<|im_end|>]]
"""


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    return write_sets(tmp_path_factory.mktemp("built") / "sets")


@pytest.fixture
def show(call):
    """Runs the verb and gives what it prints."""

    def run(*arguments: object) -> str:
        code, printed, errors = call("show", *arguments)
        assert code == 0, errors
        return printed

    return run


@pytest.fixture
def refused(call):
    """Runs the verb, which must refuse, and gives its message."""

    def run(*arguments: object) -> str:
        code, printed, errors = call("show", *arguments)
        assert (code, printed) == (2, "")
        return errors

    return run


def test_tokens_marks_what_is_learnt(sets, show):
    shown = show(sets, "--tokens")
    assert LEARNT in shown and shown.count("[[") == shown.count("]]") == 1
    assert "== sft_deliberator, train: p_0, d_0" in shown
    read, learnt, both = map(
        int, re.search(r"(\d+) read \+ (\d+) learnt = (\d+) of at most 2,048", shown).groups()
    )
    assert read + learnt == both and learnt > 20
    assert "guard: all of it is learnt, and nothing else" in shown


def test_tokens_is_coloured_on_a_terminal_unless_colour_is_not_wanted(sets):
    def on_terminal(**environment: str) -> str:
        console = Console(
            file=io.StringIO(),
            force_terminal=True,
            width=100,
            _environ={"TERM": "xterm-256color", **environment},
        )
        print_tokens(sets, None, None, console)
        return str(console.file.getvalue())

    coloured = on_terminal()
    assert "[[" not in coloured
    assert "\x1b[2m<|im_start|>user\x1b[0m" in coloured
    assert "\x1b[32m<think>\x1b[0m" in coloured and "\x1b[1;7;32m<|im_end|>" in coloured
    plain = on_terminal(NO_COLOR="1")
    assert "[[" in plain and "\x1b[32m" not in plain
    assert "[[" in on_terminal(TERM="dumb")


def test_a_set_and_a_problem_can_be_chosen(sets, show):
    shown = show(sets, "--tokens", "--set=sft_thinker", "--problem=p_1")
    assert "== sft_thinker, validation: p_1, t_1r" in shown and "[[<think>\n2*3=6" in shown
    prompt = show(sets, "--tokens", "--set=rl")
    assert "0 learnt" in prompt and "[[" not in prompt and "guard" not in prompt


def test_without_tokens_the_fields_of_a_row_are_printed(sets, show):
    shown = show(sets, "--problem=p_1")
    assert "== sft_deliberator, validation: p_1, d_1" in shown
    assert "==== Attempt 2\nIt is 5.\n" in shown and "stratum: tie" in shown
    assert "reasoning: Attempt 1 is right, attempt 2 is wrong: 2*3=6." in shown
    problem = show(sets, "--set=problems")
    assert "text: What is 2 * 3? (0)" in problem and 'runs: ["run"]' in problem


def test_long_texts_are_folded_unless_in_full(tmp_path, show, monkeypatch):
    prompt = "\n".join(f"line {number}" for number in range(100))
    monkeypatch.setattr(set_folders, "PROMPT", prompt)
    folder = write_sets(tmp_path / "sets")
    for options in ([], ["--tokens"]):
        folded, full = show(folder, *options), show(folder, *options, "--full")
        assert "line 50\n" in full and "more lines" not in full
        assert "line 50\n" not in folded and "more lines; --full prints them" in folded
        assert "line 0\n" in folded and "line 99" in folded


def test_the_template_that_is_kept_with_the_sets_is_used(sets, tmp_path, show):
    folder = write_sets(tmp_path / "sets")
    assert "is not the one that the rows were made for" in show(folder, "--tokens")
    (folder / "chat_template.jinja").write_text(real_template("qwen3"), encoding="utf-8")
    manifest = json.loads((folder / "manifest.json").read_text())
    student = Student("micro-student", folder / "chat_template.jinja")
    manifest["student"]["template_sha256"] = student.template_sha256
    manifest["student"]["mended"] = ["its date is fixed"]
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    shown = show(folder, "--tokens")
    assert "is not the one" not in shown and "</think>\n\nThe product" in shown
    assert "template mended: its date is fixed" in shown


def test_what_is_lost_is_said(tmp_path, show):
    """The rows are in another form than the student of the manifest takes them in."""
    folder = write_sets(tmp_path / "sets")
    template = real_template("qwen2_5")
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    shown = " ".join(show(folder, "--tokens").split())
    assert "guard: reasoning_lost: 'Attempt 1 is right, attempt 2" in shown
    assert "all of it is learnt" not in shown


def test_what_cannot_be_shown_is_refused_with_the_fix(sets, tmp_path, refused):
    assert "`heavydistill build RUN --out FOLDER`" in refused(tmp_path, "--tokens")
    assert "`heavydistill build RUN --out FOLDER`" in refused(tmp_path, "--set=rl")
    assert "`heavydistill build RUN --out FOLDER`" in refused(tmp_path, "--student=x")
    assert "Give --tokens" in refused(sets, "--student=x")
    assert "There is no model 'x'" in refused(sets, "--tokens", "--student=x")
    assert "sft_deliberator, sft_thinker, rl" in refused(sets, "--tokens", "--set=problems")
    assert "There is no set 'sft'" in refused(sets, "--set=sft")
    assert "for instance p_0, p_1" in refused(sets, "--problem=p_9")


def report(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_command("report", *arguments)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return runs.write_run(tmp_path_factory.mktemp("runs") / "first", 6, k=4, d=2)


def test_the_page_lies_beside_the_run_unless_it_is_named(run):
    done = report(str(run))
    assert done.returncode == 0, done.stderr
    page = run.with_name("first.html")
    assert "first: 6 problems" in done.stdout and str(page) in done.stdout
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize("fault", ["no run", "version", "damaged", "no verdicts", "taken"])
def test_bad_input_is_refused_with_what_is_missing(run, tmp_path, fault):
    traces, folder = list(read_traces(run)), tmp_path / "bad"
    out, said = tmp_path / "page.html", ""
    if fault == "no run":
        folder.mkdir()
        said = "no traces/*.parquet"
    elif fault == "version":
        other = [dataclasses.replace(trace, schema_version="999") for trace in traces]
        write_traces(other, folder / TRACES_FOLDER)
        said = "schema version '999'"
    elif fault == "damaged":
        write_traces(traces, folder / TRACES_FOLDER)
        file = damage(next((folder / TRACES_FOLDER).iterdir()), "pool.list.element.reasoning")
        said = f"{file} cannot be read as parquet"
    elif fault == "no verdicts":
        pools = [[dataclasses.replace(t, verdict=None) for t in trace.pool] for trace in traces]
        bare = (
            dataclasses.replace(trace, pool=pool, deliberations=[])
            for trace, pool in zip(traces, pools, strict=True)
        )
        write_traces(bare, folder / TRACES_FOLDER)
        said = "has no verdicts"
    else:
        folder, said = run, "is no report"
        out.write_text("mine")
    done = report(str(run), str(folder), "--out", str(out))
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
    assert fault == "taken" or not out.exists()

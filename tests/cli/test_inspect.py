"""What only reads: ``show`` on a folder of sets, ``report``, and what is listed."""

import io
import json
import os
import re
from pathlib import Path

import messages
import pytest
import runs
import set_folders
import yaml
from command_line import run_command, started
from import_files import lines
from messages import message
from rich.console import Console
from set_folders import write_sets
from students import real_template

import heavydistill
from heavydistill.chat.student import Student
from heavydistill.config.run import load_config
from heavydistill.config.shipped import shipped
from heavydistill.report.training_row import print_tokens
from heavydistill.store.traces import read_traces

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
        return str(printed)

    return run


def test_tokens_marks_what_is_learnt(sets, show):
    shown = show(sets, "--tokens")
    assert LEARNT in shown and shown.count("[[") == shown.count("]]") == 1
    assert "== sft_deliberator, train: p_0, d_0" in shown
    read, learnt, both = map(
        int, re.search(r"(\d+) read \+ (\d+) learnt = (\d+) of at most 2,048", shown).groups()
    )
    assert read + learnt == both and learnt > 20
    assert messages.is_in(shown, "guard_whole")


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
    for options in (["--set=sft_deliberator"], ["--tokens"]):
        folded, full = show(folder, *options), show(folder, *options, "--full")
        assert "line 50\n" in full and "more lines" not in full
        assert "line 50\n" not in folded and "more lines; --full prints them" in folded
        assert "line 0\n" in folded and "line 99" in folded


def test_the_template_that_is_kept_with_the_sets_is_used(sets, tmp_path, show):
    folder = write_sets(tmp_path / "sets")
    assert "differs from the one that the rows" in show(folder, "--tokens")
    (folder / "chat_template.jinja").write_text(real_template("qwen3"), encoding="utf-8")
    manifest = json.loads((folder / "manifest.json").read_text())
    student = Student("micro-student", folder / "chat_template.jinja")
    manifest["student"]["template_sha256"] = student.template_sha256
    manifest["student"]["mended"] = ["its date is fixed"]
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    shown = show(folder, "--tokens")
    assert "is not the one" not in shown and "</think>\n\nThe product" in shown
    assert "template changed: its date is fixed" in shown


def test_what_is_lost_is_said(tmp_path, show):
    """The rows are in another form than the student of the manifest takes them in."""
    folder = write_sets(tmp_path / "sets")
    template = real_template("qwen2_5")
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    shown = " ".join(show(folder, "--tokens").split())
    assert "guard: reasoning_lost: 'Attempt 1 is right, attempt 2" in shown
    assert not messages.is_in(shown, "guard_whole")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("{none} --tokens", "`heavydistill build --out FOLDER`"),
        ("{none} --set=rl", "`heavydistill build --out FOLDER`"),
        ("{sets} --student=x", "Add --tokens"),
        ("{sets} --tokens --student=x", message("no_model", model="x")),
        ("{sets} --tokens --set=problems", "sft_deliberator, sft_thinker, rl"),
        ("{sets} --set=sft", "There is no set 'sft'"),
        ("{sets} --problem=p_9", "for example p_0, p_1"),
    ],
)
def test_what_cannot_be_shown_is_refused_with_the_fix(sets, tmp_path, call, flags, said):
    code, printed, errors = call("show", *flags.format(sets=sets, none=tmp_path).split())
    assert (code, printed) == (2, "") and said in errors


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return runs.write_run(tmp_path_factory.mktemp("runs") / "first", 6, k=4, d=2)


def test_the_page_lies_beside_the_run_unless_it_is_named(run):
    done = run_command("report", run)
    assert done.returncode == 0, done.stderr
    page = run.with_name("first.html")
    assert "first: 6 problems" in done.stdout and str(page) in done.stdout
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_what_cannot_be_reported_is_refused_and_nothing_is_written(run, tmp_path):
    done = run_command("report", run, tmp_path, "--out", tmp_path / "page.html")
    assert done.returncode == 2 and "neither a run, which has traces" in done.stderr
    assert "Traceback" not in done.stderr and not list(tmp_path.iterdir())


def listed(call, verb: str) -> dict[str, list[str]]:
    """The words of each line of a table, by its first word."""
    code, printed, _ = call(verb)
    assert code == 0 and printed.isascii()
    rows = [line.split() for line in printed.splitlines() if line.strip()][2:-1]
    return {row[0]: row[1:] for row in rows}


def test_every_benchmark_has_a_line_that_is_not_folded(call):
    rows = listed(call, "benchmarks")
    assert list(rows) == list(shipped("configs/benchmarks"))
    assert rows["gsm8k"] == ["1,319", "8", "x", "4", "math", "MIT", "no"]
    assert rows["gpqa-diamond"][4:] == ["choice", "CC-BY-4.0", "needed"]


def test_every_teacher_has_a_line_that_is_not_folded(call):
    rows = listed(call, "teachers")
    assert list(rows) == list(shipped("configs/teachers"))
    assert rows["glm-4.6"] == ["202,752", "MIT", "allowed", "8"]
    assert rows["kimi-k2-thinking"][-4:] == ["allowed", "more", "than", "8"]
    assert rows["gpt-5"] == ["400,000", "proprietary", "restricted", "hosted", "only"]
    assert rows["micro"][-2:] == ["none", "needed"]


@pytest.mark.parametrize(
    ("verb", "name"),
    [(verb, name) for verb in ("benchmarks", "teachers") for name in shipped(f"configs/{verb}")],
)
def test_each_benchmark_and_teacher_can_be_printed(verb, name, call):
    code, printed, _ = call(verb, name)
    assert code == 0 and printed.isascii() and yaml.safe_load(printed)["name"] == name


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("benchmarks gpqa-diamond", 0, "accept its terms on the Hub and set HF_TOKEN"),
        ("evaluate --benchmark=aime2025", 2, "Did you mean aime25"),
        ("generate --benchmark=aime2025", 2, "Did you mean aime25"),
        (
            "generate --dry-run --benchmark=gsm8k --problems=micro",
            2,
            message("key_without_effect", key="problems.columns") + " micro",
        ),
        ("teachers glm-4.6", 0, "# 8 GPU(s): vllm serve "),
        ("teachers deepseek-v3.2", 0, "# 8 GPU(s): does not fit"),
        ("teachers deepseek-v3.2", 0, "# openrouter: https://openrouter.ai/api/v1, key in OPEN"),
        ("teachers glm4.6", 2, "There is no profile 'glm4.6'. Did you mean glm-4.6?"),
        ("teachers bad.yaml", 2, "bad.yaml, line 4: unknown key hubb. Did you mean hub?"),
    ],
)
def test_what_is_needed_or_misspelt_is_said(words, code, said, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("bad.yaml").write_text("name: mine\ntokenizer: null\ncontext: 4096\nhubb: org/mine\n")
    ended, *printed = call(*words.split())
    assert ended == code and said in "".join(printed)


def test_rows_outside_the_window_are_counted(tmp_path, call):
    common = {"question_content": "Print 4.", "starter_code": "", "metadata": "{}"}
    common |= {"public_test_cases": json.dumps([{"input": "", "output": "4"}])}
    common |= {"private_test_cases": "[]"}
    rows = [
        {"question_id": date, "contest_date": date, **common}
        for date in ("2024-01-01T00:00:00", "2025-01-01T00:00:00")
    ]
    path = lines(tmp_path / "rows.jsonl", *rows)
    code, printed, told = call(
        "generate", "--dry-run", "--benchmark=livecodebench", f"--problems={path}", "--k=2"
    )
    assert code == 0, told
    assert "1 problem, K=2" in printed
    assert "Left out: 1 row(s) outside contest_date 2024-08-01 to 2025-05-31" in printed


def test_the_micro_model_is_evaluated_on_a_file_of_a_benchmarks_shape(tmp_path):
    rows = [{"question": f"How much is {n} + 1?", "answer": f"#### {n + 1}"} for n in range(4)]
    path, out = lines(tmp_path / "rows.jsonl", *rows), tmp_path / "evaluation"
    asked = ["--thinker=micro", "--deliberator=micro", "--k=4", "--set=deliberate.d=2"]
    files = ["--benchmark=gsm8k", f"--problems={path}", "--limit=3", f"--out={out}"]
    done = run_command("evaluate", *files, *asked)
    assert done.returncode == 0, done.stdout + done.stderr
    saved = load_config(out / "after" / "config.yaml")
    assert (saved.problems.split, saved.think.k, saved.deliberate.d) == ("test", 4, 2)
    traces = list(read_traces(out / "after"))
    assert len(traces) == 3 and all(len(trace.pool) == 4 for trace in traces)
    for trace in traces:
        for each in (*trace.pool, *trace.deliberations):
            assert each.verdict and each.verdict.verifier.startswith("math")


def test_no_name_is_folded_in_a_narrow_terminal():
    # In a process of its own, for rich keeps what it once thought of a terminal.
    terminal = {"FORCE_COLOR": "1", "TTY_COMPATIBLE": "1", "COLUMNS": "80"}
    printed, _ = started("teachers", env={**os.environ, **terminal}).communicate(timeout=300)
    for name in shipped("configs/teachers"):
        assert f"\n{name} " in printed
    assert "Hub id" not in printed


def test_a_file_of_ones_own_is_printed_too(call, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\ntokenizer: null\ncontext: 4096\nhub: org/mine\n", encoding="utf-8")
    code, printed, _ = call("teachers", file)
    assert code == 0 and printed == file.read_text(encoding="utf-8")


def test_the_version_is_that_of_the_package(call):
    assert call("--version") == (0, f"heavydistill {heavydistill.__version__}\n", "")

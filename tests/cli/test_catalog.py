"""What is listed: ``--version``, ``--help``, ``heavydistill benchmarks`` and ``teachers``."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import run_command

import heavydistill
from heavydistill.config.run import load_config
from heavydistill.models.profiles import ProfileFile
from heavydistill.models.registry import names, profile_of
from heavydistill.problems.benchmarks import shipped
from heavydistill.store.traces import read_traces


def test_every_benchmark_has_a_line_that_is_not_folded(call):
    code, printed, _ = call("benchmarks")
    assert code == 0 and printed.isascii()
    lines = [line.split() for line in printed.splitlines() if line.strip()][2:]
    assert [line[0] for line in lines] == list(shipped())
    by_name = {line[0]: line[1:] for line in lines}
    assert by_name["gsm8k"] == ["1,319", "8", "x", "4", "math", "MIT", "no", "openai/gsm8k"]
    assert by_name["gpqa-diamond"][4:] == ["choice", "CC-BY-4.0", "needed", "Idavidrein/gpqa"]


@pytest.mark.parametrize("name", shipped())
def test_everything_is_told_of_one(name, call):
    code, printed, _ = call("benchmarks", name)
    assert code == 0 and printed.isascii()
    assert f"name: {name}\n" in printed and "\nsource: " in printed


def test_what_a_gated_one_needs_is_told(call):
    assert "accept its terms on the Hub and set HF_TOKEN" in call("benchmarks", "gpqa-diamond")[1]


@pytest.mark.parametrize("verb", ["evaluate", "generate"])
def test_an_unknown_name_is_refused(verb, call):
    code, _, told = call(verb, "--benchmark=aime2025")
    assert code == 2 and "Did you mean aime25" in told


def test_problems_that_no_benchmark_can_be_read_from_are_refused(call):
    code, _, told = call("generate", "--dry-run", "--benchmark=gsm8k", "--problems=micro")
    assert code == 2 and "problems.columns has no effect on the source micro" in told


def test_rows_outside_the_window_are_counted(tmp_path, call):
    rows = [
        {
            "question_id": date,
            "question_content": "Print 4.",
            "starter_code": "",
            "contest_date": date,
            "metadata": "{}",
            "public_test_cases": json.dumps([{"input": "", "output": "4"}]),
            "private_test_cases": "[]",
        }
        for date in ("2024-01-01T00:00:00", "2025-01-01T00:00:00")
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    code, printed, told = call(
        "generate", "--dry-run", "--benchmark=livecodebench", f"--problems={path}", "--k=2"
    )
    assert code == 0, told
    assert "1 problems, K=2" in printed
    assert "Not asked for: 1 row(s) outside contest_date 2024-08-01 to 2025-05-31" in printed


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["gsm8k", "gpqa-diamond"])
def test_the_micro_model_is_evaluated_on_a_file_of_a_benchmarks_shape(name, tmp_path):
    rows: list[dict[str, Any]] = [
        {
            "question": f"How much is {n} + {n + 1}?",
            "answer": f"{n}+{n + 1}={2 * n + 1}\n#### {2 * n + 1}",
        }
        for n in range(21, 25)
    ]
    if name == "gpqa-diamond":
        rows = [
            {
                "Record ID": f"own{n}",
                "Question": f"How much is {n} + {n + 1}?",
                "Correct Answer": str(2 * n + 1),
                **{f"Incorrect Answer {k}": str(2 * n + 1 + k) for k in (1, 2, 3)},
            }
            for n in range(21, 25)
        ]
    path, out = tmp_path / "rows.jsonl", tmp_path / "evaluation"
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    asked = ["--thinker=micro", "--deliberator=micro", "--k=4", "--set=deliberate.d=2"]
    done = run_command(
        *("evaluate", f"--benchmark={name}", f"--problems={path}", "--limit=3"),
        *(*asked, f"--out={out}"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    saved = load_config(out / "after" / "config.yaml")
    assert saved.problems.split == ("test" if name == "gsm8k" else "train")
    assert (saved.think.k, saved.deliberate.d) == (4, 2)
    traces = list(read_traces(out / "after"))
    assert len(traces) == 3 and all(len(trace.pool) == 4 for trace in traces)
    kinds = {trace.problem.verifier for trace in traces}
    assert kinds == {"math" if name == "gsm8k" else "choice"}
    for trace in traces:
        for each in (*trace.pool, *trace.deliberations):
            assert each.verdict and each.verdict.verifier.startswith(trace.problem.verifier)


@pytest.fixture
def teachers(call):
    return functools.partial(call, "teachers")


def test_every_teacher_has_a_line_that_is_not_folded(teachers):
    code, printed, _ = teachers()
    assert code == 0 and printed.isascii()
    lines = [line.split() for line in printed.splitlines() if line.strip()]
    assert [line[0] for line in lines[2:]] == names()
    by_name = {line[0]: line[1:] for line in lines[2:]}
    assert by_name["glm-4.6"] == ["202,752", "MIT", "allowed", "8", "zai-org/GLM-4.6"]
    assert by_name["kimi-k2-thinking"][-5:-1] == ["allowed", "more", "than", "8"]
    assert by_name["gpt-5"] == ["400,000", "proprietary", "restricted", "hosted", "only", "-"]
    assert by_name["micro"][-3:] == ["none", "needed", "-"]


def test_no_name_is_folded_in_a_narrow_terminal():
    # In a process of its own, for rich keeps what it once thought of a terminal.
    done = subprocess.run(
        [sys.executable, "-c", "from heavydistill.cli.app import main; main()", "teachers"],
        env={**os.environ, "FORCE_COLOR": "1", "TTY_COMPATIBLE": "1", "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=True,
    )
    for name in names():
        assert f"\n{name} " in done.stdout
    assert "Hub id" not in done.stdout


def test_one_teacher_is_printed_as_a_profile_with_its_sources(teachers):
    code, printed, _ = teachers("deepseek-v3.2")
    assert code == 0
    assert ProfileFile.model_validate(yaml.safe_load(printed)) == profile_of("deepseek-v3.2")
    for part in (
        "# the card gives no length",
        "# openrouter: https://openrouter.ai/api/v1, key in OPENROUTER_API_KEY",
        "# 8 GPU(s): does not fit",
        "model card of deepseek-ai/DeepSeek-V3.2",
        "arXiv 2605.02396",
    ):
        assert part in printed, part
    assert "# 8 GPU(s): vllm serve " in teachers("glm-4.6")[1]


@pytest.mark.parametrize("name", names())
def test_each_can_be_printed(teachers, name):
    code, printed, _ = teachers(name)
    assert code == 0
    assert yaml.safe_load(printed)["name"] == name


def test_a_file_of_ones_own_is_printed_too(teachers, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("name: mine\ntokenizer: null\ncontext: 4096\nhub: org/mine\n", encoding="utf-8")
    code, printed, _ = teachers(str(file))
    assert code == 0
    assert printed == file.read_text(encoding="utf-8")


def test_an_unknown_name_names_the_nearest(teachers):
    code, _, said = teachers("glm4.6")
    assert code == 2
    assert "There is no profile 'glm4.6'. Did you mean glm-4.6?" in said


def test_a_bad_file_is_refused_with_its_key(teachers, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: mine\ntokenizer: null\ncontext: 4096\nhubb: org/mine\n", encoding="utf-8"
    )
    code, _, said = teachers(str(file))
    assert code == 2
    assert f"{file}: unknown key hubb. Did you mean hub?" in said


COMMAND = str(Path(sys.executable).parent / "heavydistill")


def told(*flags: str) -> tuple[int, str]:
    done = subprocess.run([COMMAND, *flags], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_the_version_is_that_of_the_package():
    assert told("--version") == (0, f"heavydistill {heavydistill.__version__}\n")


def test_the_help_lists_the_verbs_and_a_wrong_one_is_refused():
    code, said = told("--help")
    assert code == 0 and "small models that deliberate" in said
    assert all(f" {verb} " in said for verb in ("generate", "build", "evaluate", "report"))
    code, said = told("generat")
    assert code == 2 and "generat" in said

"""``--benchmark`` and ``heavydistill benchmarks`` as a user sees them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import run_command

from heavydistill.config.run import load_config
from heavydistill.problems.benchmarks import shipped
from heavydistill.store.traces import read_traces


def test_every_benchmark_has_a_line_that_is_not_folded(call: Any) -> None:
    code, printed, _ = call("benchmarks")
    assert code == 0 and printed.isascii()
    lines = [line.split() for line in printed.splitlines() if line.strip()][2:]
    assert [line[0] for line in lines] == list(shipped())
    by_name = {line[0]: line[1:] for line in lines}
    assert by_name["gsm8k"] == ["1,319", "8", "x", "4", "math", "MIT", "no", "openai/gsm8k"]
    assert by_name["gpqa-diamond"][4:] == ["choice", "CC-BY-4.0", "needed", "Idavidrein/gpqa"]


@pytest.mark.parametrize("name", shipped())
def test_everything_is_told_of_one(name: str, call: Any) -> None:
    code, printed, _ = call("benchmarks", name)
    assert code == 0 and printed.isascii()
    assert f"name: {name}\n" in printed and "\nsource: " in printed


def test_what_a_gated_one_needs_is_told(call: Any) -> None:
    assert "accept its terms on the Hub and set HF_TOKEN" in call("benchmarks", "gpqa-diamond")[1]


@pytest.mark.parametrize("verb", ["evaluate", "generate"])
def test_an_unknown_name_is_refused(verb: str, call: Any) -> None:
    code, _, told = call(verb, "--benchmark=aime2025")
    assert code == 2 and "Did you mean aime25" in told


def test_problems_that_no_benchmark_can_be_read_from_are_refused(call: Any) -> None:
    code, _, told = call("generate", "--dry-run", "--benchmark=gsm8k", "--problems=micro")
    assert code == 2 and "problems.columns has no effect on the source micro" in told


def test_rows_outside_the_window_are_counted(tmp_path: Path, call: Any) -> None:
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
def test_the_micro_model_is_evaluated_on_a_file_of_a_benchmarks_shape(
    name: str, tmp_path: Path
) -> None:
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

"""The shipped benchmarks: their files, and rows of their shapes from the file to the verdict."""

import base64
import json
import pickle
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import messages
import pytest
from command_line import run_command
from import_files import lines
from judging import judged
from sandboxing import need_sandbox

from heavydistill.config.run import Problems, RunConfig, load_config
from heavydistill.config.shipped import shipped
from heavydistill.errors import ConfigError
from heavydistill.problems import load_fit
from heavydistill.problems.benchmarks import benchmark, preset_of
from heavydistill.schema import Problem
from heavydistill.store.traces import read_traces

CONFIGS = Path(__file__).parents[2] / "configs"
DATA = Path(__file__).parents[2] / ".." / "shared" / "data"

# For each a row of its documented shape, in our own words; a right answer and a wrong one.
COMPETITION = {"problem_idx": 1, "problem_type": ["Algebra"]}
MATHS = {
    "aime24": (
        {
            "id": 61,
            "problem": "How many days have eleven weeks?",
            "solution": "Seven times eleven.",
            "answer": "077",
            "url": "",
            "year": "2024",
        },
        "77",
        "78",
    ),
    "aime25": ({**COMPETITION, "problem": "How much is $6^3$?", "answer": 216}, "216", "36"),
    "aime26": ({**COMPETITION, "problem": "How much is $2^3$?", "answer": 8}, "8", "9"),
    **dict.fromkeys(
        ("hmmt-feb-2025", "hmmt-nov-2025", "hmmt-feb-2026"),
        (
            {**COMPETITION, "problem": "Solve $x^2 = 8$, $x > 0$.", "answer": "2\\sqrt{2}"},
            r"\sqrt{8}",
            r"\sqrt{6}",
        ),
    ),
    "beyond-aime": ({"problem": "How much is $2^{20}$?", "answer": 1048576}, "1048576", "524288"),
    "imo-answerbench": (
        {
            "Problem ID": "own-001",
            "Problem": "Which $x$ solve $x^2 = 1$?",
            "Short Answer": "$-1, 1$",
            "Category": "Algebra",
            "Subcategory": "Equation",
            "Source": "own",
        },
        r"1, -1",
        "1",
    ),
    "math-500": (
        {
            "problem": "Add a half and a third.",
            "solution": "It is $\\boxed{5/6}$.",
            "answer": "\\frac{5}{6}",
            "subject": "Prealgebra",
            "level": 1,
            "unique_id": "test/own/1.json",
        },
        "5/6",
        "0.8",
    ),
    "gsm8k": (
        {"question": "Two hens lay three eggs each. How many?", "answer": "2*3=6\n#### 6"},
        "6",
        "5",
    ),
}
GPQA = {
    "Record ID": "own1",
    "Question": "Which gas do plants take in to grow?",
    "Correct Answer": "Carbon dioxide",
    "Incorrect Answer 1": "Helium",
    "Incorrect Answer 2": "Neon",
    "Incorrect Answer 3": "Argon\n",
    "Subdomain": "Biology",
}
LIVECODEBENCH = {
    "question_title": "Square",
    "question_content": "Read a number and print its square.",
    "platform": "atcoder",
    "question_id": "own_a",
    "contest_id": "own",
    "contest_date": "2024-08-01T00:00:00",
    "starter_code": "",
    "difficulty": "easy",
    "public_test_cases": json.dumps([{"input": "2\n", "output": "4\n", "testtype": "stdin"}]),
    "metadata": "{}",
}
IFEVAL = {
    "key": 1,
    "prompt": "Name a river. Use no comma and at least 3 words.",
    "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
    # On the Hub every object has all keys, most of them null.
    "kwargs": [{"num_words": None, "relation": None}, {"num_words": 3, "relation": "at least"}],
}


def packed(tests: list[dict[str, str]]) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


@pytest.fixture
def loaded(tmp_path: Path) -> Any:
    """What is loaded of a benchmark from a file with these rows."""

    def read(name: str, *rows: dict[str, Any], **keys: Any) -> Any:
        path = lines(tmp_path / "rows.jsonl", *rows)
        return load_fit(configured(name, path, **keys).problems)

    return read


@pytest.fixture
def problems_of(loaded: Any) -> Any:
    return lambda *rows, **keys: loaded(*rows, **keys).problems


def configured(name: str, path: Path, **keys: Any) -> RunConfig:
    dotted = {f"problems.{key}": value for key, value in keys.items()}
    return load_config(None, {"problems.source": str(path), **dotted}, benchmark(name).preset)


def label(problem: Problem, answer: str) -> str:
    return judged(problem, f"So it is $\\boxed{{{answer}}}$.").label


@pytest.mark.parametrize("name", shipped("configs/benchmarks"))
def test_a_file_is_valid_and_listed(name):
    known = benchmark(name)
    assert known.name == name
    run = load_config(preset=known.preset)
    assert run.problems.source.startswith("hub:")
    assert (run.think.k, run.deliberate.d, run.deliberate.rounds) == (8, 4, 1)
    assert f"(benchmarks/{name}.yaml)" in (CONFIGS / "README.md").read_text(encoding="utf-8")


def test_all_that_the_paper_measures_and_rules_can_judge_are_there():
    wanted = {"aime25", "beyond-aime", "hmmt-feb-2025", "gpqa-diamond"}
    wanted |= {"livecodebench", "ifeval", "imo-answerbench"}
    wanted |= {"aime24", "aime26", "hmmt-nov-2025", "hmmt-feb-2026", "math-500", "gsm8k"}
    assert {*shipped("configs/benchmarks")} == wanted


@pytest.mark.parametrize("name", MATHS)
def test_an_answer_to_a_row_of_its_shape_is_judged_by_value(name, problems_of):
    row, right, wrong = MATHS[name]
    (problem,) = problems_of(name, row)
    assert problem.verifier == "math" and problem.text in row.values()
    assert (label(problem, right), label(problem, wrong)) == ("correct", "incorrect")


def test_answers_that_no_rule_compares_are_left_out_of_imo_answerbench(loaded):
    row = MATHS["imo-answerbench"][0]
    other = {**row, "Problem ID": "own-002", "Short Answer": "$1, 2, \\ldots, 9$"}
    found = loaded("imo-answerbench", row, other)
    assert [problem.id for problem in found.problems] == ["own-001"]
    assert "ellipsis" in found.unfit[2]


def test_the_options_of_gpqa_are_shuffled_and_one_is_right(problems_of):
    rows = [GPQA | {"Record ID": f"own{n}", "Question": f"Gas number {n}?"} for n in range(200)]
    problems = problems_of("gpqa-diamond", *rows)
    letters = Counter(problem.reference for problem in problems)
    assert letters.keys() == set("ABCD") and min(letters.values()) > 25
    for problem in problems[:5]:
        (line,) = [text for text in problem.text.splitlines() if text.endswith("Carbon dioxide")]
        assert line.startswith(f"{problem.reference})")
        wrong = "B" if problem.reference == "A" else "A"
        assert label(problem, problem.reference) == "correct"
        assert label(problem, wrong) == "incorrect"


def test_a_kept_order_of_gpqa_does_not_tell_the_right_option(problems_of):
    speaking = GPQA | {"Incorrect Answer 3": "None of the above"}
    rows = [speaking | {"Record ID": f"own{n}", "Question": f"Gas {n}?"} for n in range(200)]
    problems = problems_of("gpqa-diamond", *rows)
    assert all(json.loads(problem.verifier_args)["order_kept"] for problem in problems)
    assert min(Counter(problem.reference for problem in problems).values()) > 25


def test_a_row_of_gpqa_without_an_answer_is_refused(problems_of):
    lacking = {key: value for key, value in GPQA.items() if key != "Incorrect Answer 2"}
    with messages.raises("no_column", row="rows.jsonl:1", column="'Incorrect Answer 2'"):
        problems_of("gpqa-diamond", lacking)
    other = lacking | {"Record ID": "own2"}
    assert [p.id for p in problems_of("gpqa-diamond", GPQA, other, unfit="leave_out")] == ["own1"]


def test_a_program_of_livecodebench_is_run_against_all_tests(problems_of):
    need_sandbox()
    row = LIVECODEBENCH | {"private_test_cases": packed([{"input": "5\n", "output": "25\n"}])}
    (problem,) = problems_of("livecodebench", row)
    assert (problem.id, problem.domain) == ("own_a", "code")
    assert "standard input" in problem.text
    programs = {"print(int(input()) ** 2)": "correct", "print(4)": "incorrect"}
    programs["print(float(sys.stdin.read()) ** 2)\nexit(1)"] = "correct"  # by its grader's rules
    for program, told in programs.items():
        assert judged(problem, f"```python\n{program}\n```").label == told


def test_a_method_of_livecodebench_is_called(problems_of):
    need_sandbox()
    starter = "class Solution:\n    def area(self, a: int, b: int) -> int:\n        "
    row = LIVECODEBENCH | {
        "question_content": "Give the area of a rectangle.",
        "starter_code": starter,
        "public_test_cases": json.dumps(
            [{"input": "2\n3", "output": "6", "testtype": "functional"}]
        ),
        "private_test_cases": "[]",
        "metadata": json.dumps({"func_name": "area"}),
    }
    (problem,) = problems_of("livecodebench", row)
    assert starter.strip() in problem.text
    for body, told in (("a * b", "correct"), ("a + b", "incorrect")):
        answer = f"```python\n{starter}return {body}\n```"
        assert judged(problem, answer).label == told


def test_contests_outside_the_months_are_not_asked_for(loaded):
    dates = ["2024-07-31T23:00:00", "2024-08-01T00:00:00", "2025-05-31T09:30:00", "2025-06-01"]
    row = LIVECODEBENCH | {"private_test_cases": "[]"}
    rows = [row | {"question_id": date, "contest_date": date} for date in dates]
    found = loaded("livecodebench", *rows)
    assert [problem.id for problem in found.problems] == dates[1:3]
    assert found.outside == 2 and not found.unfit
    late = {"contest_date": ("2026-01-01", "2026-12-31")}
    with messages.raises("none_within", file="rows.jsonl"):
        loaded("livecodebench", *rows, within=late)
    other = {"contest_day": ("2024-01-01", "2024-12-31")}
    with messages.raises("no_range_of_column", column="'contest_day'", nearest="contest_date"):
        loaded("livecodebench", *rows, within=other)


def test_every_instruction_of_ifeval_has_to_be_followed(problems_of):
    (problem,) = problems_of("ifeval", IFEVAL)
    assert json.loads(problem.verifier_args)["mode"] == "strict"
    assert judged(problem, "It is the Nile").label == "correct"
    assert judged(problem, "Well, the Nile").label == "incorrect"


def test_flags_win_over_a_file_and_a_file_wins_over_a_benchmark(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("think: {k: 4}\nproblems: {limit: 3}\ndeliberate:\n", encoding="utf-8")
    run = load_config(file, {"problems.source": "own.jsonl"}, benchmark("gsm8k").preset)
    assert (run.think.k, run.deliberate.d, run.problems.limit) == (4, 4, 3)
    assert run.problems.source == "own.jsonl"
    assert run.problems.verifier_args == {"marker": "####"}
    assert load_config(file, {"think.k": 5}, benchmark("gsm8k").preset).think.k == 5


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("aime2025", "aime25"),
        ("GSM8K", "gsm8k"),
        ("hmmt", "hmmt-"),
        ("math500", "math-500"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(wrong, near):
    with pytest.raises(ConfigError) as refused:
        benchmark(wrong)
    assert near in refused.value.fix.partition("?")[0]
    with messages.raises("no_benchmark", name="zzz", known="aime24, aime25"):
        benchmark("zzz")


@pytest.fixture
def copies(tmp_path, monkeypatch):
    """A folder where the library finds copies of two datasets in place of the Hub's."""
    idx = ({"problem_idx": n, "problem": f"How much is {n} + 3?", "answer": n + 3} for n in (1, 2))
    for name, rows in {
        "aime_2026": [*idx, {"problem_idx": 3, "problem": "Why?", "answer": "1, \\ldots, 9"}],
        "hmmt_feb_2026": [MATHS["hmmt-feb-2026"][0]],
    }.items():
        folder = tmp_path / "MathArena" / name
        folder.mkdir(parents=True)
        rows = [row | {"answer": str(row["answer"])} for row in rows]
        lines(folder / "train.jsonl", *rows)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_check_prints_what_a_benchmark_has_today(copies):
    done = run_command("benchmarks", "--check", "aime26")
    assert done.returncode == 1  # 30 in its file
    said = " ".join(done.stdout.split())
    assert "aime26: 3 rows; its file says 30; 1 cannot be judged; columns problem_idx" in said
    assert "ellipsis" in said
    missing = run_command("benchmarks", "--check", "aime25")
    assert missing.returncode == 1 and "hub:MathArena/aime_2025" in missing.stdout
    assert "Traceback" not in missing.stderr


def test_a_run_on_two_benchmarks_takes_their_problems_in_turn(copies):
    two = "aime26,hmmt-feb-2026"
    refused = run_command("generate", "--benchmark", two, "--dry-run")
    assert refused.returncode == 2 and "MathArena/aime_2026, row 3: no rule" in refused.stderr
    keys = ["--set", "problems.unfit=leave_out", "--k", 2, "--d", 1, "--out", "run"]
    done = run_command("generate", "--benchmark", two, *keys)
    assert done.returncode == 0, done.stderr
    problems = [trace.problem for trace in read_traces(copies / "run")]
    assert [problem.id for problem in problems] == ["aime26:1", "hmmt-feb-2026:1", "aime26:2"]
    assert problems[2].source == "hub:MathArena/aime_2026/train:2"
    full = run_command("show", "run", "--full").stdout
    assert "hub:MathArena/aime_2026" in full and "hub:MathArena/hmmt_feb_2026" in full
    first = load_fit(Problems(source=f"benchmark:{two}", limit=2, unfit="leave_out")).problems
    assert [problem.id for problem in first] == ["aime26:1", "hmmt-feb-2026:1"]
    with messages.raises("key_without_effect", key="problems.columns"):
        load_fit(Problems(source=f"benchmark:{two}", columns={"text": "problem"}))
    with messages.raises("benchmark_twice"):
        preset_of("aime26,aime26")


@pytest.mark.skipif(not DATA.is_dir(), reason="the real data are not here")
def test_real_rows_of_gsm8k_and_ifeval_are_problems():
    gsm8k = load_fit(configured("gsm8k", DATA / "gsm8k_train_1000.jsonl").problems).problems
    assert len(gsm8k) == 1000 and all(judged(one, one.reference).is_correct for one in gsm8k)
    assert label(gsm8k[0], "72") == "correct" and label(gsm8k[0], "73") == "incorrect"
    ifeval = load_fit(configured("ifeval", DATA / "ifeval_prompts.jsonl").problems).problems
    assert len(ifeval) == 541 and ifeval[0].id == "1000"
    assert judged(ifeval[1], "Go thee to Kyoto and Osaka.").label == "correct"
    assert judged(ifeval[1], "Go to Kyoto, then Osaka.").label == "incorrect"

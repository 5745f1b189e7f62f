"""The benchmark runs, and its figures are of verdicts that agree with what is right."""

import importlib
import re
from collections import Counter, defaultdict
from importlib.util import find_spec
from pathlib import Path

import pytest
from command_line import benchmark
from import_files import lines
from judging import judged
from sandboxing import need_sandbox

from heavydistill.schema import Problem

DATA = Path(__file__).parents[2] / ".." / "shared" / "data"
SOLUTIONS, RESPONSES = DATA / "math_solutions_2500.jsonl", DATA / "model_solutions_sky.jsonl"


def printed(*arguments: str) -> str:
    patience = [] if "--storm" in arguments else ["--timeout-s=60"]  # for a busy machine
    return benchmark("verdicts.py", "--workers=2", *patience, *arguments)


def test_an_undecided_verdict_on_a_wrong_answer_is_not_counted_as_right(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    verdicts = importlib.import_module("verdicts")
    posed = Problem(id="p", text="?", reference="5", verifier="math")
    answers = [(r"\boxed{5}", True), (r"\boxed{6}", False), (r"\boxed{5 fifths}", False)]
    pairs = [verdicts.Pair(posed, text, right) for text, right in answers]
    verdicts.timed("ours", pairs, lambda p: [verdicts.said(judged(posed, x.response)) for x in p])
    assert "right 2 of 3, undecided 1" in capsys.readouterr().out


@pytest.mark.slow
def test_ours_is_measured_and_math_verify_on_the_same_texts_where_it_is_installed():
    lines = [line for line in printed().splitlines() if " right " in line]
    names = [re.split(r"\s{2,}", line)[0] for line in lines]
    all_of_them = ["bare", "bare, processes", "ours", "bare, in our workers"]
    assert names == (all_of_them if find_spec("math_verify") else ["ours"])
    assert all(line.endswith("right 2,640 of 2,640, undecided 0") for line in lines)


@pytest.mark.slow
def test_the_worst_cost_themselves_alone():
    storms = re.findall(r"storm, (\w+): ([\d.]+) s, right 2,000 of 2,000", printed("--storm"))
    assert [name for name, _ in storms][1:] == ["bare"] * (find_spec("math_verify") is not None)
    assert float(storms[0][1]) < 60


def test_undecided_right_answers_and_accepted_wrong_references_are_counted(tmp_path):
    rows = [
        (r"So $x = \boxed{3}$.", "3"),
        (r"So $-\boxed{3}$.", "3"),
        (r"It is $\boxed{(1, 2)}$.", "(1, 2)"),
        (r"It is $\boxed{\frac{1}{2}}$.", r"\frac{1}{2}"),
        (r"It is $\boxed{3}$ cm.", "3"),
        ("A sum.", r"\sum_{k=1}^n k"),
    ]
    solved = ({"question": "?", "solution": s, "answer": a} for s, a in rows)
    file = lines(tmp_path / "rows.jsonl", *solved)
    told = printed("--solutions", str(file), "--show=1")
    assert "6 solutions, 1 references refused, 1 undecided (20.00%)" in told
    assert "undecided outside_box" in told
    # Each change of a reference is made where it can be.
    for change in ("3 one more", "3 one less", "4 sign", "1 inverted", "2 component", "1 unit"):
        assert change in told
    assert re.search(r"^0 of 14 wrong references accepted", told, re.MULTILINE)


def test_undecided_and_false_verdicts_are_counted_by_kind_of_text(tmp_path):
    need_sandbox()

    claims = [("5", True), ("5", False), ("6", True), ("6", False), ("five fifths", False)]
    solutions = {
        str(n): {"solution": f"So\nA: {answer}", "is_correct": right}
        for n, (answer, right) in enumerate(claims)
    }
    lines(
        tmp_path / "gsm8k_solutions_k4.jsonl",
        {"question": "2+3?", "ground_truth": "A: 5"} | solutions,
    )
    ids = {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
    lines(tmp_path / "ifeval_prompts.jsonl", {"prompt": "No commas."} | ids)
    followed = [("a b", True), ("a, b", False), ("a, c", True)]
    lines(
        tmp_path / "ifeval_m_strict.jsonl",
        *(
            {"prompt": "No commas.", "response": text, "follow_all_instructions": right}
            for text, right in followed
        ),
    )
    test = "def check(candidate):\n    assert candidate(2) == 4\n"
    prompt = "def f(x):\n"
    task = {"task_id": "T/0", "prompt": prompt, "test": test, "entry_point": "f"}
    lines(tmp_path / "humaneval_20.jsonl", task)
    bodies = ["    return x * x\n", "    return x\n", "    import absent_module\n    return 4\n"]
    lines(
        tmp_path / "humaneval_20_samples_k20.jsonl",
        {"task_id": "T/0", "prompt": prompt, "samples": bodies},
    )
    told = printed("--agreement", str(tmp_path))
    for line in (
        "GSM8K, math: 5 answers, 2 right; 1 undecided (20.00%), 0 of them right; "
        "1 false accepts, 1 false rejects",
        "IFEval, instructions: 3 answers, 2 right; 0 undecided (0.00%), 0 of them right; "
        "0 false accepts, 1 false rejects",
        "HumanEval, code: 3 answers, 1 right; 1 undecided (33.33%), 0 of them right; "
        "0 false accepts, 0 false rejects",
        "1 missing_module",
    ):
        assert line in told


def test_labelled_responses_are_counted_by_model_and_label_and_what_contradicts_is_listed(tmp_path):
    rows = [
        ("m", r"So $\boxed{5}$.", "5", True),
        ("m", r"So $\boxed{6}$.", "5", True),
        ("m", r"So $-\boxed{5}$.", "5", True),
        ("m", "The sum.", r"\sum_{k=1}^n k", True),
        ("n", r"So $\boxed{5}$.", "5", False),
        ("n", r"So $\boxed{7}$.", "5", False),
    ]
    keys = ("model", "response", "reference", "is_correct")
    same = {"benchmark": "b", "question": "?"}
    named = (
        same | {"id": f"r{n}"} | dict(zip(keys, row, strict=True)) for n, row in enumerate(rows)
    )
    file = lines(tmp_path / "rows.jsonl", *named)
    told = printed("--responses", str(file), "--show=9")
    for line in (
        "m, b\n  labelled right: n 4, correct 1 (25.0%, 4.6% to 69.9%), incorrect 1 ",
        "refused 1 (25.0%",
        "n, b\n  labelled wrong: n 2, correct 1 (50.0%",
        "undecided, labelled right: 1 outside_box\nundecided, labelled wrong: none",
        "first 3 boxed, labelled right: accepted 1",
        "correct, labelled wrong: r4 equal, '5': ",
        "incorrect, labelled right: r1 different",
        "undecided, labelled right: r2 outside_box",
        "refused, labelled right: r3 ",
    ):
        assert line in told
    assert re.search(r"processor time per verdict: [\d.]+ ms", told)


@pytest.mark.slow
def test_responses_of_models_are_decided():
    if not RESPONSES.is_file():
        pytest.skip(f"{RESPONSES.name} is not here")
    told = printed("--responses", str(RESPONSES))
    shares = defaultdict(Counter)
    group = ""
    for line in told.splitlines():
        if label := re.match(r"  labelled (right|wrong): n (\d+)", line):
            kind = "physics" if "minerva" in group else "mathematics"
            of = shares["all" if group == "all" else kind, label[1]]
            of["n"] += int(label[2])
            for what, count in re.findall(r"(\w+) (\d+) \(", line):
                of[what] += int(count)
        else:
            group = line

    def share(kind: str, label: str) -> float:
        counts = shares[kind, label]
        return counts["undecided"] / (counts["n"] - counts["refused"])

    assert share("mathematics", "right") <= 0.015
    assert share("physics", "right") <= 0.04
    assert share("all", "wrong") <= 0.13
    # The labels are wrong there: a reader agrees with the verdicts.
    assert shares["all", "right"]["incorrect"] <= 8
    assert shares["all", "wrong"]["correct"] <= 32


@pytest.mark.slow
def test_human_solutions_are_decided_and_no_wrong_reference_is_accepted():
    if not SOLUTIONS.is_file():
        pytest.skip(f"{SOLUTIONS.name} is not here")
    told = printed("--solutions", str(SOLUTIONS))
    undecided = re.search(r"([\d.]+)%\)", told)
    assert undecided and float(undecided[1]) <= 0.6
    assert re.search(r"^0 of 5,\d{3} wrong references accepted", told, re.MULTILINE)

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from judging import judged

from heavydistill.schema import Problem
from heavydistill.verifiers.exact import Exact

DATA = Path(__file__).parents[2] / ".." / "shared" / "data"


def rows(name: str) -> list[dict]:
    if not (DATA / name).is_file():
        pytest.skip(f"{name} is not here")
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


def problem(reference: str, marker: str) -> Problem:
    return Problem(
        id="p",
        text="?",
        reference=reference,
        verifier="exact",
        verifier_args=json.dumps({"marker": marker}),
    )


def test_every_reference_verifies_against_itself():
    for row in rows("gsm8k_train_1000.jsonl"):
        posed = problem(row["answer"], "####")
        assert Exact().check_reference(posed) is None
        assert judged(posed, row["answer"]).is_correct


def test_verdicts_agree_with_the_recorded_ones():
    seen: Counter[tuple[bool, str]] = Counter()
    for row in rows("gsm8k_solutions_k4.jsonl"):
        posed = problem(row["ground_truth"], "A:")
        for solution in (value for value in row.values() if isinstance(value, dict)):
            verdict = judged(posed, solution["solution"])
            seen[solution["is_correct"], verdict.label] += 1
    total = sum(seen.values())
    assert total == 2640
    assert seen[True, "correct"] + seen[False, "incorrect"] >= 0.99 * total


def test_real_sentences_are_decided_on_their_box():
    seen: Counter[str] = Counter()
    for row in rows("gsm8k_solutions_k4.jsonl"):
        for solution in (value["solution"] for value in row.values() if isinstance(value, dict)):
            body, _, answer = re.sub(r"<<[^>]*>>", "", solution).rpartition("\nA:")
            number = rf"(?<![\w.,/])\$?{re.escape(answer.strip())}(?![\d.,]*\d)"
            places = list(re.finditer(number, body))
            if places and "\n" not in body[places[-1].end() :]:
                last = places[-1]
                inside = last[0].replace("$", r"\$")
                text = rf"{body[: last.start()]}$\boxed{{{inside}}}${body[last.end() :]}"
                posed = Problem(
                    id="p", text=row["question"], reference=answer.strip(), verifier="math"
                )
                seen[judged(posed, text).reason] += 1
    assert seen.total() > 2000
    assert seen["outside_box"] + seen["retracted"] < 0.012 * seen.total()
    assert seen["different"] == seen["hedged"] == 0

"""Real references and solutions of GSM8K, judged by ``math`` and ``exact``."""

import re
from collections import Counter
from collections.abc import Iterator

import pytest
from generations import problem
from judging import judged
from recorded_rows import rows

from heavydistill.schema import Problem
from heavydistill.verifiers import registry


def solutions() -> Iterator[tuple[dict, dict]]:
    """Problems and their solutions, each with what is recorded of it."""
    for row in rows("gsm8k_solutions_k4.jsonl"):
        for value in row.values():
            if isinstance(value, dict):
                yield row, value


def posed_as(verifier: str, reference: str, text: str, **args: str) -> Problem:
    return problem(text, verifier, reference=reference, args=args)


@pytest.mark.parametrize("verifier", ["exact", "math"])
def test_every_reference_is_fit_and_right_for_itself(verifier):
    for row in rows("gsm8k_train_1000.jsonl"):
        posed = posed_as(verifier, row["answer"], row["question"], marker="####")
        assert registry.get(verifier).check_reference(posed) is None
        assert judged(posed, row["answer"]).is_correct


@pytest.mark.parametrize(("verifier", "share"), [("exact", 0.99), ("math", 0.999)])
def test_verdicts_agree_with_the_recorded_ones(verifier, share):
    seen: Counter[tuple[bool, str]] = Counter()
    for row, solution in solutions():
        posed = posed_as(verifier, row["ground_truth"], row["question"], marker="A:")
        seen[solution["is_correct"], judged(posed, solution["solution"]).label] += 1
    assert seen.total() == 2640
    assert seen[False, "correct"] == 0
    assert seen[True, "correct"] + seen[False, "incorrect"] >= share * seen.total()


def test_a_box_in_place_of_the_marker_is_judged_alike():
    boxed: Counter[tuple[str, str]] = Counter()
    for row, solution in solutions():
        posed = posed_as("math", row["ground_truth"], row["question"], marker="A:")
        text = solution["solution"]
        said = re.sub(r"\nA: ([^\n]{1,40})$", r"\nThe answer is $\\boxed{\1}$.", text)
        if said != text:
            boxed[judged(posed, text).label, judged(posed, said).label] += 1
    assert boxed.total() > 0.97 * 2640
    assert sum(count for (a, b), count in boxed.items() if a == b) >= 0.995 * boxed.total()


def test_real_sentences_are_decided_on_their_box():
    seen: Counter[str] = Counter()
    for row, solution in solutions():
        body, _, answer = re.sub(r"<<[^>]*>>", "", solution["solution"]).rpartition("\nA:")
        number = rf"(?<![\w.,/])\$?{re.escape(answer.strip())}(?![\d.,]*\d)"
        places = list(re.finditer(number, body))
        if places and "\n" not in body[places[-1].end() :]:
            last = places[-1]
            inside = last[0].replace("$", r"\$")
            text = rf"{body[: last.start()]}$\boxed{{{inside}}}${body[last.end() :]}"
            seen[judged(posed_as("math", answer.strip(), row["question"]), text).reason] += 1
    assert seen.total() > 2000
    assert seen["outside_box"] + seen["retracted"] < 0.012 * seen.total()
    assert seen["different"] == seen["hedged"] == 0

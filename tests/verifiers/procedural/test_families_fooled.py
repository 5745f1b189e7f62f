"""Wrong and hedged answers to which reasoning-gym itself gives 1.0 are incorrect here."""

from __future__ import annotations

import json
import re

import pytest
from families import label, problems

from heavydistill.verifiers.procedural.verifier import Spec, dataset, entry

pytest.importorskip("reasoning_gym")


def shifted(right: str, by: float) -> str:
    return str([str(float(number) + by) for number in json.loads(right.replace("'", '"'))])


# Wrong or hedged answers to which reasoning-gym itself gives 1.0: family, settings, the answer
# made of the right one and of the metadata.
FOOLED = [
    ("advanced_geometry", {"task_types": ["orthocenter"]}, lambda r, m: f"{r}, (1, 2)"),
    (
        "advanced_geometry",
        {"task_types": ["angle_measure"]},
        lambda r, m: str(
            float(r[:-1]) + (0.004 if m["angle_ABC_degrees"] < float(r[:-1]) else -0.004)
        ),
    ),
    ("coin_flip", {}, lambda r, m: str(float(r) + 0.0001)),
    ("complex_arithmetic", {}, lambda r, m: "nan"),
    ("game_of_life_halting", {}, lambda r, m: "asdf"),
    ("gsm_symbolic", {}, lambda r, m: f"{r} or 5"),
    ("chain_sum", {"min_digits": 3}, lambda r, m: re.sub("(?<=[0-9])(?=[0-9])", ",", r)),
    ("cryptarithm", {}, lambda r, m: f"{r[0]}=7,{r}"),
    ("decimal_arithmetic", {}, lambda r, m: str(float(r) + 0.0004)),
    ("figlet_font", {"min_word_len": 11, "max_word_len": 12}, lambda r, m: r[:-1] + "Q"),
    ("fraction_simplification", {"styles": ["latex_frac"]}, lambda r, m: f"{r} or 5"),
    ("game_of_life", {}, lambda r, m: f"{r[:-1]},[1,1,1]]"),
    ("jugs", {}, lambda r, m: r.replace('fill A"', 'fill A or B"', 1)),
    ("kakurasu", {}, lambda r, m: f"{r} or not"),
    ("knights_knaves", {}, lambda r, m: f"It is false that {r}"),
    ("letter_jumble", {"min_words": 4, "max_words": 4}, lambda r, m: f"{r} or else"),
    (
        "number_format",
        {"max_delta": 0.0101},
        lambda r, m: str(next(c for c in m["candidates"] if c != m["solution"])),
    ),
    ("number_sorting", {}, lambda r, m: shifted(r, 0.4)),
    ("number_sorting", {}, lambda r, m: shifted(r, float("nan"))),
    (
        "palindrome_partitioning",
        {},
        lambda r, m: json.dumps([*json.loads(r)[1:], "".join(json.loads(r)[0])]),
    ),
    ("polynomial_equations", {}, lambda r, m: f"{r}, or 5 apples"),
    ("pool_matrix", {}, lambda r, m: re.sub(r"9(\.0)?", "9.05", r)),
    ("puzzle24", {}, lambda r, m: "6*4*1*1"), ("quantum_lock", {}, lambda r, m: f"{r} or not"),
    ("sokoban", {}, lambda r, m: f"MOVE {r} or not"), ("survo", {}, lambda r, m: f"{r} or not"),
    ("time_intervals", {"task_types": ["date"]}, lambda r, m: f"{r} or 7 days"),
    ("time_intervals", {"task_types": ["datetime"]}, lambda r, m: f"{r}, or 4 days, 01:00"),
    ("tower_of_hanoi", {}, lambda r, m: r.replace("Move disk", "NeverMove disk")),
    ("word_sorting", {}, lambda r, m: f"{r}, junk"),
]  # fmt: skip


@pytest.mark.parametrize(("family", "chosen", "wrong"), FOOLED)
def test_an_answer_that_fools_reasoning_gym_is_incorrect(family, chosen, wrong):
    problem = problems(family, 1, 0, json.dumps(chosen))[0]
    spec = Spec.from_args(problem.verifier_args)
    answer = wrong(problem.reference, entry(spec)["metadata"])
    made = dataset(spec.family, spec.seed, spec.size, spec.settings)
    assert made.score_answer(answer, entry(spec)) == 1, "reasoning-gym is no longer fooled"
    assert label(problem, answer) == "incorrect"

"""Text that would run, hang or blow up where reasoning-gym executes what a model writes."""

from __future__ import annotations

import dataclasses
import json
import time

import pytest
from judging import judged

from heavydistill.config.run import Problems
from heavydistill.problems import load

pytest.importorskip("reasoning_gym")

EXECUTING = [
    "binary_matrix", "countdown", "intermediate_integration", "n_queens",
    "polynomial_multiplication", "puzzle24", "simple_integration", "spiral_matrix",
    "string_insertion",
]  # fmt: skip
RUNNING = [
    "open('{mark}', 'w')", "__import__('os').system('touch {mark}')", "[[open('{mark}', 'w')]]",
    "(lambda: open('{mark}', 'w'))()", 'f\'{{open("{mark}", "w")}}\'', "(y := open('{mark}', 'w'))",
    'exec(\'open("{mark}", "w")\')',
    "().__class__.__base__.__subclasses__()[0] or open('{mark}', 'w')",
    "x.__class__.__init__.__globals__['__builtins__']['open']('{mark}', 'w')",
    'a="open"; eval(a)("{mark}", "w")', "1 if open('{mark}', 'w') else 2",
    "[c for c in open('{mark}', 'w')]", "sin(open('{mark}', 'w'))",
]  # fmt: skip
COSTLY = [
    "9**9**9**9", "9^{9^{9^9}}", "((9**99)**99)**99", "x**(9**9)", "(x+1)**99*(x+2)**99*(x+3)**99",
    "exp(exp(exp(exp(99))))", "E**E**E**E**x", "(" * 3000 + "x" + ")" * 3000, "[" * 4000,
    "-" * 9000 + "1", "x*" * 4000 + "x", "9" * 9000, "1/" * 400 + "3", "99999!!!!!",
    "factorial(10**9)", "1" + " " * 9000 + "x", "\\frac{" * 300 + "1" + "}{2}" * 300,
    "\N{ARABIC-INDIC DIGIT SIX}*\N{ARABIC-INDIC DIGIT FOUR}", "\N{FULLWIDTH DIGIT ONE}",
    "x\N{COMBINING ACUTE ACCENT}",
]  # fmt: skip


def problem_of(family: str):
    if family != "polynomial_multiplication":
        return load(Problems(source=f"gym:{family}", size=1))[0]
    made = load(Problems(source="gym:chain_sum", size=1))[0]
    args = json.loads(made.verifier_args) | {"family": family}
    return dataclasses.replace(made, verifier_args=json.dumps(args))


@pytest.mark.parametrize("family", EXECUTING)
def test_no_text_of_a_model_is_run(family, tmp_path):
    problem, mark = problem_of(family), tmp_path / "mark"
    for text in RUNNING:
        payload = text.format(mark=mark)
        answers = (payload, f"{problem.reference} + {payload}", f"{payload} or 1")
        for answer in answers:
            assert judged(problem, f"\\boxed{{{answer}}}").label != "correct", answer
    assert not mark.exists()


@pytest.mark.parametrize("family", EXECUTING)
def test_no_answer_keeps_the_verifier_busy(family):
    problem = problem_of(family)
    began = time.process_time()
    for answer in COSTLY:
        verdict = judged(problem, f"\\boxed{{{answer}}}")
        assert verdict.label != "correct", answer
        assert not verdict.reason.startswith("verifier_error"), answer
    assert time.process_time() - began < 5

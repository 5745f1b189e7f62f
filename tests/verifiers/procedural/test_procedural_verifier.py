import dataclasses
import functools
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judging import judged

from heavydistill.config.run import Problems
from heavydistill.problems import load
from heavydistill.schema import Problem
from heavydistill.verifiers import registry
from heavydistill.verifiers.procedural.verifier import Procedural

pytest.importorskip("reasoning_gym")

FORMED = [
    "advanced_geometry", "base_conversion", "coin_flip", "complex_arithmetic", "countdown",
    "decimal_arithmetic", "futoshiki", "game_of_life", "gsm_symbolic", "jugs", "knights_knaves",
    "n_queens", "number_format", "number_sorting", "polynomial_equations", "pool_matrix",
    "power_function", "simple_integration", "sokoban", "survo", "time_intervals", "tower_of_hanoi",
    "word_sorting",
]  # fmt: skip


@functools.cache
def one(family: str) -> Problem:
    return made(family)


def made(family: str, index: int = 0, **chosen) -> Problem:
    config = Problems(source=f"gym:{family}", size=index + 1, gym={family: chosen})
    return load(config)[index]


def outcome(problem: Problem, answer: str) -> tuple[str, str]:
    verdict = judged(problem, f"So \\boxed{{{answer}}}")
    return verdict.label, verdict.reason


def with_args(problem: Problem, **changes) -> Problem:
    args = json.loads(problem.verifier_args) | changes
    return dataclasses.replace(problem, verifier_args=json.dumps(args))


def test_an_equal_decimal_is_correct_where_the_family_compares_spellings():
    problem = made("leg_counting", min_animals=8, min_instances=15)
    assert int(problem.reference) < 10_000
    for answer in (f"{problem.reference}.0", f"+{problem.reference}", f"${problem.reference}$"):
        assert outcome(problem, answer) == ("correct", "scored")


def test_equal_decimals_are_extracted_alike():
    problem = made("decimal_chain_sum")
    texts = (f"\\boxed{{{answer}}}" for answer in ("7.140", "7.14", r"\text{7.14}"))
    assert {judged(problem, text).extracted for text in texts} == {"7.14"}


def test_nothing_but_a_box_is_an_answer():
    problem = made("chain_sum")
    verdict = judged(problem, f"The answer is {problem.reference}")
    assert (verdict.label, verdict.reason, verdict.extracted) == ("incorrect", "no_answer", None)


def test_a_family_that_is_refused_is_not_judged():
    problem = with_args(made("chain_sum"), family="rush_hour", settings={})
    assert outcome(problem, "asdf") == ("undecided", "unfit_family")


@pytest.mark.parametrize("change", [{"text": "2 + 2 ="}, {"reference": "4"}])
def test_a_problem_that_is_not_made_again_is_undecided(change):
    problem = dataclasses.replace(made("chain_sum"), **change)
    assert outcome(problem, "4") == ("undecided", "not_reproduced")
    assert "another problem" in (Procedural().check_reference(problem) or "")


def test_a_scorer_that_breaks_is_undecided_and_the_answer_is_kept(monkeypatch):
    def broken(*_):
        raise KeyError("metadata")

    monkeypatch.setattr("heavydistill.verifiers.procedural.families.judge", broken)
    verdict = judged(made("gcd"), r"\boxed{asdf}")
    assert (verdict.label, verdict.reason) == ("undecided", "verifier_error:KeyError")
    assert verdict.extracted == "asdf"


def test_an_answer_of_any_length_is_bounded():
    assert outcome(made("chain_sum"), "9" * 10_001) == ("undecided", "too_complex")
    assert outcome(made("spell_backward"), "9" * 9_999) == ("incorrect", "scored_below_1")


@pytest.mark.parametrize("changes", [{"index": 5}, {"seed": "0"}, {"extra": 1}, {"family": "sums"}])
def test_broken_verifier_args_are_told_before_a_run(changes):
    assert Procedural().check_reference(with_args(made("chain_sum"), **changes))


@settings(deadline=None, max_examples=300)
@given(
    st.text() | st.text(alphabet="0123456789[]()+-*/x^.,→×= \n"),
    st.sampled_from(["chain_sum", "leg_counting", "prime_factorization", "gcd", *FORMED]),
)
def test_any_answer_text_gets_a_verdict(text, family):
    verdict = judged(one(family), f"\\boxed{{{text}}}")
    assert verdict.verifier == f"procedural@{registry.get('procedural').version}"
    assert verdict.verifier.startswith("procedural@reasoning-gym-")
    assert not verdict.reason.startswith("verifier_error")


# Text that would run, hang or blow up where reasoning-gym executes what a model writes.
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


def problem_of(family: str) -> Problem:
    if family != "polynomial_multiplication":
        return made(family)
    return with_args(made("chain_sum"), family=family)


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

"""The verifier ``judged``: equal texts are correct, and a judge reads everything else."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judging import judged
from linear import assert_linear
from text_tables import pairs

from heavydistill.config.run import Verifying
from heavydistill.schema import Problem
from heavydistill.verifiers import registry
from heavydistill.verifiers.final_answers import final_answers
from heavydistill.verifiers.free_form import MOST_CHARACTERS
from heavydistill.verifiers.judge import answer_for_judge, is_comparable
from heavydistill.verifiers.pool import VerdictPool

# Reference ‖ content of the box.
EQUAL = pairs(r"""
    photosynthesis ‖ \text{photosynthesis}  ¦  Marie Curie ‖ Marie  Curie.  ¦  H_2O ‖ $H_2O$
    CH_3COOH + C_2H_5OH \rightarrow ester ‖ CH_3COOH+C_2H_5OH \rightarrow ester
    It is void, because no consideration was given. ‖ It is void, because no consideration was given
    42 ‖ 42.0
""")
UNEQUAL = pairs(r"""
    photosynthesis ‖ \text{Photosynthesis}  ¦  Marie Curie ‖ Curie, Marie  ¦  Co ‖ CO
    It is void. ‖ The contract has no legal force.  ¦  42 ‖ 43  ¦  Tuesday ‖ Wednesday
    5 m ‖ 500 cm  ¦  a ‖ x = 4
""")


def problem(reference: str, **args: str) -> Problem:
    return Problem(
        id="p", text="?", reference=reference, verifier="judged", verifier_args=json.dumps(args)
    )


@pytest.mark.parametrize(("reference", "answer"), EQUAL)
def test_an_equal_text_is_correct(reference, answer):
    verdict = judged(problem(reference), f"Hence \\boxed{{{answer}}}.")
    assert (verdict.label, verdict.reason) == ("correct", "equal")


@pytest.mark.parametrize(("reference", "answer"), UNEQUAL)
def test_any_other_answer_is_put_to_a_judge_and_never_incorrect(reference, answer):
    text = f"Hence \\boxed{{{answer}}}."
    verdict = judged(problem(reference), text)
    assert (verdict.label, verdict.reason) == ("undecided", "unequal")
    assert answer_for_judge(problem(reference), verdict, text, None) == answer


def test_without_a_box_the_judge_reads_the_whole_answer():
    text = "<think>Two?</think> The contract is void."
    verdict = judged(problem("It is void."), text)
    assert (verdict.label, verdict.reason) == ("undecided", "no_answer")
    assert answer_for_judge(problem("It is void."), verdict, text, None) == "The contract is void."
    assert judged(problem("It is void."), "\\boxed{ }").reason == "no_answer"


def test_a_marker_stands_for_a_box_in_answer_and_reference():
    marked = problem("Because of it.\nANSWER: void", marker="ANSWER:")
    assert judged(marked, "Well.\nANSWER: void").label == "correct"
    assert judged(marked, "Well.\nANSWER: valid").reason == "unequal"


LONG = "The court held that " + "it was so and " * 200 + "nothing else.\nSecond paragraph."


@pytest.mark.parametrize(
    "reference",
    ["Photosynthesis turns light, water and carbon dioxide into sugar and oxygen.", LONG, "x^2"],
)
def test_every_reference_in_words_is_fit_and_correct_against_itself(reference):
    with VerdictPool(Verifying(workers=1)) as pool:
        assert pool.check_references([problem(reference)]) == [None]
    assert judged(problem(reference), f"\\boxed{{{reference}}}").label == "correct"


@given(st.text(st.characters(exclude_characters="\\{}", codec="utf-8"), min_size=1))
def test_a_reference_without_braces_is_right_against_itself(reference):
    if registry.get("judged").check_reference(problem(reference)) is None:
        boxed = judged(problem(reference), f"\\boxed{{{reference}}}")
        assert boxed.label == "correct" or boxed.reason in ("open_thinking", "empty")


@pytest.mark.parametrize(
    ("reference", "args", "told"),
    [
        (" . ", {}, "the reference holds no answer"),
        ("void", {"tolerance": "1"}, "verifier_args of judged"),
    ],
)
def test_a_reference_without_an_answer_is_refused(reference, args, told):
    assert told in (registry.get("judged").check_reference(problem(reference, **args)) or "")


def test_a_long_answer_is_compared_in_linear_time():
    def decide(text: str) -> None:
        judged(problem("void"), f"\\boxed{{{text}}}")

    assert_linear(decide, lambda size: "\\text x" * size)
    assert judged(problem("void"), f"\\boxed{{{'x' * (MOST_CHARACTERS + 1)}}}").reason == "unequal"


def test_several_boxes_are_several_answers_and_the_reference_may_be_compared():
    assert final_answers(problem("void"), "\\boxed{void} or \\boxed{valid}") == 2
    assert final_answers(problem("void"), "It is void.") == 0
    assert is_comparable(problem("void"))


def test_what_mathematics_cannot_compare_names_this_verifier():
    sentence = "The contract is void because no consideration was given."
    of_math = Problem(id="p", text="?", reference=sentence, verifier="math")
    told = registry.get("math").check_reference(of_math) or ""
    assert "verifier judged" in told and "--judge MODEL" in told and "leave the row" not in told

import pytest
from generations import problem
from linear import assert_linear

from heavydistill.verifiers.final_answers import final_answers

MARKED = {"marker": "####"}
OPTIONS = {"options": ["Mars", "Venus", "Earth"]}
SQUARE = {"asserts": ["assert f(2) == 4"]}
PROGRAM = "```python\ndef f(x):\n    return x * x\n```"


@pytest.mark.parametrize(
    ("text", "many"),
    [
        (r"So it is \boxed{5}.", 1), (r"So \boxed{5}. Hence the answer is \boxed{5}.", 1),
        (r"So \boxed{\frac{1}{2}}, that is $\boxed{0.5}$.", 1),
        (r"First \boxed{4}. No: the answer is \boxed{5}.", 2),
        (r"\fbox{4} and later on we find \boxed{5}", 2),
        (r"The roots are \boxed{2} and \boxed{3}.", 1),
        (r"The roots are \boxed{2} and \boxed{3}. Their sum is \boxed{5}.", 2),
        (r"Put it in \boxed{}. The answer is \boxed{5}.", 1), (r"\boxed{\boxed{5}}", 1),
        (r"\boxed 5", 1), ("```\n\\boxed{4}\n```\nso \\boxed{5}", 1), ("```\n\\boxed{4}\n```", 0),
        (r"So \boxed{x = 5}, that is \boxed{5}.", 1),
        (r"So \boxed{5\text{ cm}}; the length is \boxed{5} cm.", 1),
        (r"So \boxed{50\%} and at last \boxed{50}.", 1),
        (r"So \boxed{x = 4}, that is \boxed{5\text{ cm}}.", 2), (r"\boxed{5", 0), ("It is 5.", 0),
        (r"<think>\boxed{4}</think>So \boxed{5}.", 1),
    ],
)  # fmt: skip
def test_a_box_of_math_counts_once(text, many):
    assert final_answers(problem(), text) == many


@pytest.mark.parametrize("verifier", ["math", "exact"])
@pytest.mark.parametrize(
    ("text", "many"),
    [
        ("So 2 + 3 = 5.\n#### 5", 1), ("#### 5\nAgain:\n#### 5.0", 1), ("#### 4\nNo:\n#### 5", 2),
        ("#### 4\nNo: \\boxed{5}", 1), ("It is 5.", 0),
    ],
)  # fmt: skip
def test_without_a_box_what_follows_the_marker_counts(verifier, text, many):
    assert final_answers(problem(verifier=verifier, args=MARKED), text) == many


@pytest.mark.parametrize("verifier", ["exact", "procedural"])
def test_boxes_are_all_that_counts_without_a_marker(verifier):
    asked = problem(verifier=verifier)
    assert final_answers(asked, r"\boxed{5} or \boxed{5 }") == 1
    assert final_answers(asked, r"\boxed{4}, no, \boxed{5}") == 2
    assert final_answers(asked, r"\boxed{}") == 0
    assert final_answers(asked, r"\boxed{" + "7" * 5000 + "}") == 1
    assert final_answers(asked, "#### 5") == 0


CLAIMS = [
    ("The answer is C.", 1), ("The answer is **C**. So \\boxed{C}.", 1),
    ("The answer is B. Wait, that is wrong. The answer is C.", 2), ("C) Earth", 1),
    ("C) Earth\n\nIt has one moon.", 0), ("It is the third planet from the sun.", 0),
]  # fmt: skip
PROGRAMS = [
    (f"Here:\n{PROGRAM}", 1), (f"Draft:\n{PROGRAM}\nAgain:\n{PROGRAM}", 1),
    (f"Draft:\n```python\ndef f(x): pass\n```\nFinally:\n{PROGRAM}", 2),
    (f"Run it:\n```bash\npython f.py\n```\n{PROGRAM}\nprints\n```\n4\n```", 1),
    ("```\ndef f(x):\n    return x * x\n```", 1), ("def f(x):\n    return x * x", 1),
    (f"{PROGRAM}\nUse it:\n```python\nprint(f(2))\n```", 1),
    (f"```python\nimport math\n```\n{PROGRAM}\n```python\nassert f(2) == 4\n```", 1),
    ("Square it.", 0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("verifier", "args", "text", "many"),
    [
        *(("choice", OPTIONS, *pair) for pair in CLAIMS),
        *(("code", SQUARE, *pair) for pair in PROGRAMS),
    ],
)
def test_claims_of_options_count_even_if_they_are_taken_back_and_programs(
    verifier, args, text, many
):
    assert final_answers(problem(verifier=verifier, args=args), text) == many


def test_other_verifiers_have_no_form_for_a_final_answer():
    assert final_answers(problem(verifier="instructions"), r"\boxed{1} \boxed{2}") is None
    assert final_answers(problem(verifier="my_own"), "") is None


@pytest.mark.parametrize("piece", ["\\boxed{5} ", "\\boxed{", "{", "#### 5\n", "```python\nx\n"])
@pytest.mark.parametrize("verifier", ["math", "exact", "code"])
def test_answers_are_counted_in_linear_time(verifier, piece):
    args = SQUARE if verifier == "code" else MARKED
    asked = problem(verifier=verifier, args=args)
    assert_linear(
        lambda text: final_answers(asked, text), lambda size: piece * (size // len(piece))
    )

"""References: worked solutions are read as responses are, and each is right for itself."""

import pytest
from reckoning import boxed, outcome, problem
from recorded_rows import rows
from text_tables import pairs

from heavydistill.verifiers.mathematics.verifier import Math

# Worked solution ‖ right answer ‖ right answer ...
WORKED = pairs(r"""
    The value must be $\boxed{3}$ or $\boxed{\frac{2}{5}}$. ‖ 3,\frac25 ‖ x=0.4, x=3
    We get $\boxed{3}$ and $\boxed{-3}$. ‖ -3, 3 ‖ \pm 3
    So $x=\boxed{4}$, $y=\boxed{5}$. ‖ x=4, y=5 ‖ y=5, x=4
    It is $\frac{6}{2}$, so $\boxed{\frac62}$.⏎⏎Simplified, $\boxed{3}$. ‖ 3
    The sum of the lengths is $\boxed{12}$ cm. ‖ 12 ‖ 12\text{ cm} ‖ 120\text{ mm}
    So the answer is □. ‖ 5
""")
# Worked solution ‖ half or wrong answer ‖ ...
HALF = pairs(r"""
    The value must be $\boxed{3}$ or $\boxed{\frac{2}{5}}$. ‖ \frac{2}{5} ‖ 3 ‖ 3, \frac{2}{7}
    We get $\boxed{3}$ and $\boxed{-3}$. ‖ 3 ‖ -3 ‖ \pm 4
    So $x=\boxed{4}$, $y=\boxed{5}$. ‖ 5 ‖ x=5, y=4 ‖ y=5
    The sum of the lengths is $\boxed{12}$ cm. ‖ 12\text{ mm} ‖ 12\text{ kg} ‖ 1.2\text{ cm}
""")
# Worked solution ‖ what the preflight says of it.
REFUSED = pairs(r"""
    If $r=1$, then $b = \boxed{-9}$. If $r=-1$, then $b = \boxed{9}$. ‖ different contents
    (a) $\boxed{3}$⏎⏎(b) and then, by symmetry, $\boxed{7}$ ‖ different contents
    The third angle is $180 - \boxed{30} - \boxed{45} = \boxed{105}$. ‖ several_boxes
    $-□$ ‖ outside_box  ¦  $=□x^3$ ‖ outside_box  ¦  □. No wait, it is 6. ‖ retracted
""")


@pytest.mark.parametrize(
    ("is_whole", "row"), [*((True, row) for row in WORKED), *((False, row) for row in HALF)]
)
def test_a_worked_solution_is_read_as_a_response_is_and_one_of_its_answers_is_not_all(
    is_whole, row
):
    solution, *answers = row
    assert Math().check_reference(problem(solution)) is None
    assert outcome(solution, solution) == ("correct", "equal")
    for answer in answers:
        assert (outcome(solution, boxed(answer))[0] == "correct") == is_whole, answer


@pytest.mark.parametrize(("solution", "says"), REFUSED)
def test_a_worked_solution_whose_boxes_contradict_is_told_before_a_run(solution, says):
    assert says in (Math().check_reference(problem(solution)) or "")


def _fit(reference, text, **args):
    return Math().check_reference(problem(reference, text, **args)) is None


def test_every_recorded_reference_is_right_for_itself():
    recorded = [(row["question"], row["answer"]) for row in rows("math_solutions_2500.jsonl")]
    recorded += {(r["question"], r["reference"]) for r in rows("model_solutions_sky.jsonl")}
    wrong = [
        reference
        for text, reference in recorded
        if _fit(reference, text)
        and outcome(reference, boxed(reference), text) != ("correct", "equal")
    ]
    assert not wrong


def test_every_recorded_solution_is_right_for_itself_or_refused():
    recorded = [(row["question"], row["solution"]) for row in rows("math_solutions_2500.jsonl")]
    fit = [(text, solution) for text, solution in recorded if _fit(solution, text)]
    wrong = [
        solution for text, solution in fit if outcome(solution, solution, text)[0] != "correct"
    ]
    assert not wrong
    assert len(fit) > 0.98 * len(recorded)

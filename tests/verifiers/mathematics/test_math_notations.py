"""Tuples by names, matrices in other brackets, and numbers with other marks."""

import pytest
from reckoning import boxed, outcome
from text_tables import pairs

# Problem ‖ reference ‖ equal answers.
NAMED = pairs(r"""
    Solve the system. ‖ (3,-4) ‖ y=-4, x=3 ‖ x=3,y=-4 ‖ y = -4 \text{ and } x = 3 ‖ (x,y)=(3,-4)
    Solve the system. ‖ (x,y)=(3,-4) ‖ y=-4, x=3 ‖ x=3, y=-4 ‖ (3,-4)
    Solve the system. ‖ x=3, y=-4 ‖ (3,-4) ‖ y=-4, x=3 ‖ (x,y)=(3,-4)
    Solve the system. ‖ (1,2,\frac13) ‖ z=\frac13, x=1, y=2 ‖ x=1, z=\frac26, y=2
    Find $(b, a)$. ‖ (3,-4) ‖ a=-4, b=3 ‖ b=3, a=-4
    Find $\left(r,\,\theta\right)$. ‖ (3,\pi) ‖ \theta=\pi, r=3
""")
NAMED_WRONG = pairs(r"""
    Solve the system. ‖ (3,-4) ‖ y=3, x=-4 ‖ x=-4, y=3 ‖ x=3, y=4 ‖ x=3, x=-4 ‖ y=-4
    Solve the system. ‖ (3,-4) ‖ x=3 \text{ or } y=-4 ‖ q=-4, a=3 ‖ x=3, y=-4, z=0
    Solve the system. ‖ x=3, y=-4 ‖ (-4,3) ‖ x=-4, y=3 ‖ [3,-4] ‖ (y,x)=(3,-4)
    Find $(b, a)$. ‖ (3,-4) ‖ a=3, b=-4 ‖ x=3, y=-5
    Find $(x,y)$, and then $(y,x)$. ‖ (3,-4) ‖ x=3, y=-4 ‖ x=-4, y=3
    Find the range. ‖ (-4,3) ‖ [x=-4, y=3] ‖ -4 \le x \le 3
""")
MATRICES = (
    r"\begin{bmatrix}0&-1\\1&0\end{bmatrix}", "[[0,-1],[1,0]]", "((0,-1),(1,0))", "[0 -1; 1 0]",
    "[0, -1; 1, 0]",
)  # fmt: skip
OTHER_MATRICES = (
    r"\begin{bmatrix}0&1\\-1&0\end{bmatrix}", "[[0,1],[-1,0]]", "((0,-1,1,0))", "[0 - 1; 1 0]",
    "[[0,-1],[1]]", "[0 -1 1 0]", "([0,-1],[1,0])", "[[-1,0],[0,1]]",
    r"\begin{vmatrix}0&-1\\1&0\end{vmatrix}",
)  # fmt: skip
# Reference ‖ the same number with other marks.
MARKED = pairs(r"""
    1234.5 ‖ 1.234,5 ‖ 1 234.5 ‖ 1 234,5 ‖ 1234,5  ¦  12345.67 ‖ 12.345,67
    0.5 ‖ 0,5 ‖ 0{,}5  ¦  -0.5 ‖ -0,5  ¦  \frac{1}{2} ‖ 0,5  ¦  1000 ‖ 1 000 ‖ 1\,000 ‖ 1 000,0
    1234567 ‖ 1.234.567 ‖ 12,34,567 ‖ 1 234 567 ‖ 1'234'567 ‖ 1.234.567,0 ‖ 1,234,567
    1.234,5 ‖ 1234.5 ‖ 1.234,5 ‖ 1,234.5 ‖ 1234,5  ¦  12,34,567 ‖ 1234567 ‖ 1,234,567
    1 234 ‖ 1234 ‖ 1,234 ‖ 1\,234  ¦  1.234.567 ‖ 1234567 ‖ 12,34,567
""")
MARKED_WRONG = pairs(r"""
    1234.5 ‖ 1.234,6 ‖ 1.2345 ‖ 12.34,5 ‖ 1.234 ‖ 1.234.5 ‖ 123,45  ¦  0.5 ‖ 0,6 ‖ 0,05 ‖ 5,0
    1000 ‖ 1 001 ‖ 10 00 ‖ 1.000 ‖ 1 0000  ¦  1.234 ‖ 1,234 ‖ 1 234 ‖ 12,34
    1234567 ‖ 1.234.568 ‖ 12,34,568 ‖ 1,23,4567 ‖ 12 34 567 ‖ 1234,567
    1.234,5 ‖ 1.234 ‖ 1.2345 ‖ 12345 ‖ 5  ¦  1/3 ‖ 0,333 ‖ 0,3  ¦  56 ‖ 5,6  ¦  5 ‖ 0,5 ‖ 5,6
    1, 234 ‖ 1,234  ¦  100, 200 ‖ 100,200  ¦  1, 2 ‖ 1.2  ¦  1,2 ‖ 1.2
""")


@pytest.mark.parametrize(
    ("is_right", "row"), [*((True, row) for row in NAMED), *((False, row) for row in NAMED_WRONG)]
)
def test_values_by_names_are_a_tuple_in_the_order_of_the_names(is_right, row):
    text, reference, *answers = row
    for answer in answers:
        assert (outcome(reference, boxed(answer), text)[0] == "correct") == is_right, answer


@pytest.mark.parametrize("reference", MATRICES)
def test_a_matrix_is_the_same_in_each_notation(reference):
    for answer in MATRICES:
        assert outcome(reference, boxed(answer)) == ("correct", "equal"), answer
    for answer in OTHER_MATRICES:
        assert outcome(reference, boxed(answer))[0] != "correct", answer


@pytest.mark.parametrize(
    ("is_right", "row"), [*((True, row) for row in MARKED), *((False, row) for row in MARKED_WRONG)]
)
def test_the_marks_of_a_number_are_read_where_the_reference_is_one(is_right, row):
    reference, *answers = row
    for answer in answers:
        assert (outcome(reference, boxed(answer))[0] == "correct") == is_right, answer

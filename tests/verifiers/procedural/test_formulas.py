from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavydistill.verifiers.procedural.families import judge
from heavydistill.verifiers.procedural.formulas import NotAFormula, rational, read


@st.composite
def formulas(draw, depth=4):
    """A formula and its value; None where it divides by zero."""
    if depth == 0 or draw(st.booleans()):
        number = draw(st.integers(0, 99))
        return str(number), Fraction(number)
    (left, a), (right, b) = draw(formulas(depth - 1)), draw(formulas(depth - 1))
    operator = draw(st.sampled_from("+-*/"))
    text = f"({left} {operator} {right})"
    if a is None or b is None or (operator == "/" and b == 0):
        return text, None
    return text, {"+": a + b, "-": a - b, "*": a * b, "/": a / (b or 1)}[operator]


@given(formulas())
def test_a_formula_is_worth_what_it_says(formula):
    text, value = formula
    if value is None:
        with pytest.raises(NotAFormula, match="unsafe_answer"):
            rational(text)
    else:
        assert rational(text) == value


@pytest.mark.parametrize(
    ("text", "target", "label"),
    [
        ("3*4", 12, "correct"), ("3 × 4", 12, "correct"), (r"3 \times 4", 12, "correct"),
        ("3(4)", 12, "correct"), ("[3]*{4}", 12, "correct"), ("3 ÷ 4", Fraction(3, 4), "correct"),
        (r"\frac{3}{4}", Fraction(3, 4), "correct"), ("-3+4", 1, "correct"),
        ("3*4", 13, "incorrect"), ("3^4", 81, "undecided"), ("3**4", 81, "undecided"),
        ("3+4!", 27, "undecided"), ("3 4", 34, "undecided"), ("3.4", 3, "undecided"),
        (r"\sqrt{4}+3", 5, "undecided"), ("3*4 or 12", 12, "incorrect"), ("3x4", 12, "undecided"),
        ("34", 34, "incorrect"), (r"\frac34", 1, "incorrect"), ("3/(4-4)", 1, "incorrect"),
        ("3*4=", 12, "undecided"), ("3*4 + \u0663", 15, "undecided"),
    ],
)  # fmt: skip
def test_a_target_is_reached_with_each_number_once_and_nothing_but_arithmetic(text, target, label):
    item = {"answer": "", "metadata": {"numbers": [3, 4], "target": target}}
    assert judge("countdown", None, item, text).label == label


@pytest.mark.parametrize("text", ["(" * 999, "-" * 999 + "1", "9" * 101])
def test_formulas_are_bounded(text):
    with pytest.raises(NotAFormula):
        read(text)


@given(st.text() | st.text(alphabet="0123456789x+-*/^(){}\\. "))
def test_any_text_is_a_formula_or_none(text):
    try:
        read(text)
    except NotAFormula as error:
        assert str(error) in ("unsafe_answer", "too_complex")

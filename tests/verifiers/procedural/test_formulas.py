from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heavydistill.verifiers.mathematics.formula import FormulaParseError
from heavydistill.verifiers.procedural.families import judge
from heavydistill.verifiers.procedural.formulas import judge_antiderivative, rational, read


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
        with pytest.raises(FormulaParseError, match="unsafe_answer"):
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
    with pytest.raises(FormulaParseError):
        read(text)


@given(st.text() | st.text(alphabet="0123456789x+-*/^(){}\\. "))
def test_any_text_is_a_formula_or_none(text):
    try:
        read(text)
    except FormulaParseError as error:
        assert str(error) in ("unsafe_answer", "too_complex")


CORRECT, INCORRECT = ("correct", "scored"), ("incorrect", "scored_below_1")


RIGHT = [
    ("2*x", "x**2 + C"), ("2*x", "x^2"), ("2*x", "x²"), ("1/sqrt(1 - x**2)", r"\sin^{-1}(x)"),
    ("2*x", "X**2 + c"), ("2*x", "x**2 + 7"), ("2*x", "(x+1)**2 - 2x"),
    ("x**2", r"\frac{1}{3}x^3 + C"), ("x**2", r"\frac{x^{3}}{3}"),
    ("-8*sqrt(2 - 8*x)", "2*(2 - 8*x)**(3/2)/3 + C"),
    ("-8*sqrt(2 - 8*x)", r"\frac{2}{3}\left(2-8x\right)^{1.5} + C"),
    ("-12*sqrt(4*x - 7)", "-2*(4*x - 7)**(3/2) + C"),
    ("3*x**3*cos(3*x)", "x**3*sin(3*x)+x**2*cos(3*x)-2*x*sin(3*x)/3-2*cos(3*x)/9 + C"),
    ("sin(x)*cos(x)", "sin(x)**2/2"), ("sin(x)*cos(x)", "-cos(2*x)/4 + C"),
    ("sin(x)*cos(x)", r"\frac{\sin^{2}{\left(x \right)}}{2} + C"),
    ("-2*atan(2*x)", r"-2x\operatorname{atan}(2x) + \frac{\log(4x^{2}+1)}{2}"),
    ("exp(x)*sin(x)", "exp(x)*(sin(x) - cos(x))/2 + C"), ("exp(2*x)", "E**(2*x)/2"),
    ("exp(2*x)", r"\frac{e^{2x}}{2} + C"), ("log(x)", "x*log(x) - x + C"),
    ("log(x**2)", r"2x\ln(x) - 2x + C"), ("asin(3*x)", r"x\arcsin(3x) + \sqrt{1-9x^2}/3"),
    ("atan(2*x)", "x*atan(2*x) - log(1 + 4*x**2)/4 + C"), ("1/cos(x)**2", "tan(x)"),
    ("2*x", "x**2 + (exp(x) + exp(-x))**2/4 - (exp(x) - exp(-x))**2/4"),
    ("2*x", "x**2*(sin(x)**2 + cos(x)**2)"), ("0", "C"),
]  # fmt: skip
WRONG = [
    ("2*x", "2*x"), ("2*x", "x**2 + C*x"), ("2*x", "x**3"), ("2*x", "0"), ("x**2", "x**3"),
    ("-8*sqrt(2 - 8*x)", "-2*(2 - 8*x)**(3/2)/3 + C"), ("log(x)", "x*log(x) + x"),
    ("exp(2*x)", "2*exp(2*x)"), ("atan(2*x)", "x*atan(2*x) - log(1 + 4*x**2)/2"),
    ("asin(3*x)", "x*asin(3*x) + sqrt(1-9*x**2)"), ("x**2", "x**3/3 + x/1000"),
    ("x**2", "x**3/3 + x/10**12"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("integrand", "answer", "said"),
    [*((*pair, CORRECT) for pair in RIGHT), *((*pair, INCORRECT) for pair in WRONG)],
)
def test_an_antiderivative_in_any_form_is_correct_and_no_other_function(integrand, answer, said):
    assert judge_antiderivative(answer, integrand, "x") == said


@pytest.mark.parametrize("extra", ["x*exp(-99)", "x/10**99/10**99", "x*2**(-99)"])
def test_an_error_too_small_for_numbers_is_never_correct(extra):
    assert judge_antiderivative(f"x**2 + {extra}", "2*x", "x")[0] == "undecided"


@pytest.mark.parametrize(
    "text",
    [
        "Integral(2*x, x) + C", "x**2 or x**3", "y**2", "x**2 + diff(x)", "x**2; C",
        "x**2 + x**(1/0)", "x**2 + 1/2x", "x**2 + i", "x**2 + |x|", "",
    ],
)  # fmt: skip
def test_what_is_no_formula_is_undecided(text):
    assert judge_antiderivative(text, "2*x", "x") == ("undecided", "unsafe_answer")


@pytest.mark.parametrize(
    "text",
    [
        "x**2 + 9**9**9", "x**2 + x*exp(exp(exp(99)))", "x**2 + x**exp(exp(exp(99)))",
        "x**2 + exp(exp(exp(99)))**x", "x**2 + sin(exp(exp(9**30)))", "x**2 + 9^{9999}*pi",
        "x^2 + e^{e^{e^{99}}}", "x**2 + (x+1)**99*((x+2)**99)**99",
    ],
)  # fmt: skip
def test_what_would_keep_sympy_busy_never_reaches_it(text, monkeypatch):
    def refuse(*_):
        raise AssertionError("sympy was asked")

    monkeypatch.setattr("heavydistill.verifiers.procedural.formulas._is_zero", refuse)
    assert judge_antiderivative(text, "2*x", "x")[0] in ("undecided", "incorrect")


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(-9, 9), min_size=1, max_size=6), st.integers(-9, 9))
def test_a_polynomial_is_told_from_one_that_differs(coefficients, added):
    integrand = "+".join(f"({(n + 1) * c})*x**{n}" for n, c in enumerate(coefficients))
    answer = "+".join(f"({c})*x**{n + 1}" for n, c in enumerate(coefficients))
    assert judge_antiderivative(answer, integrand, "x") == CORRECT
    other = judge_antiderivative(f"{answer}+({added})*x", integrand, "x")
    assert other == (INCORRECT if added else CORRECT)


@settings(deadline=None, max_examples=200)
@given(st.text(alphabet="x19+-*/^().Ce", max_size=30))
def test_any_text_gets_a_verdict(text):
    assert judge_antiderivative(text, "2*x", "x")[0] in ("correct", "incorrect", "undecided")

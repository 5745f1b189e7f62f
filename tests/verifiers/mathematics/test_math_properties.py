from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judging import judged
from linear import assert_linear
from reckoning import problem
from text_tables import spellings

from heavydistill.verifiers.mathematics.verifier import Math
from heavydistill.verifiers.screening import screen

fractions = st.fractions(min_value=-10_000, max_value=10_000, max_denominator=500)
PIECES = [
    *"0123456789xyzABine+-*/^_=<>()[]{}|!,.;:%$'& ",
    *(r"\frac", r"\sqrt", r"\pi", r"\pm", r"\text{", r"\{", r"\}", r"\le", r"\cup", r"\in"),
    *(r"\infty", r"\ln", r"\sin", r"\cdot", r"\boxed{", "\\\\", " or ", " and ", "cm", "²"),
    *(r"\begin{pmatrix}", r"\end{pmatrix}", r"\frac{1}{2}", "x=", "(1,2)", r"^\circ", "10^"),
]
latex = st.lists(st.sampled_from(PIECES), max_size=10).map("".join)


def formulas(value: Fraction) -> list[str]:
    sign, top, bottom = "-" if value < 0 else "", abs(value.numerator), value.denominator
    whole, rest = divmod(top, bottom)
    found = [
        *spellings(value),
        rf"x = {sign}\frac{{{top}}}{{{bottom}}}",
        rf"\left({sign}\frac{{{top}}}{{{bottom}}}\right)",
        rf"{sign}{top} \cdot {bottom}^{{-1}}",
        rf"{sign}\sqrt{{{top * top}}} \div {bottom}",
    ]
    if bottom == 1:
        found.append(f"{sign}{top} \\text{{ cm}}")
    if whole and rest:
        found.append(rf"{sign}{whole}\frac{{{rest}}}{{{bottom}}}")
    return found


@settings(deadline=None, max_examples=60)
@given(fractions, st.data())
def test_a_number_is_correct_in_each_of_its_spellings(value, data):
    reference, answer = (data.draw(st.sampled_from(formulas(value))) for _ in range(2))
    verdict = judged(problem(reference), rf"So $\boxed{{{answer}}}$.")
    assert verdict.label == "correct"


@settings(deadline=None, max_examples=60)
@given(fractions, st.data())
def test_another_number_is_never_correct(value, data):
    off = data.draw(fractions.filter(bool) | st.just(Fraction(1, 10**40)))
    reference = data.draw(st.sampled_from(formulas(value)))
    answer = data.draw(st.sampled_from(formulas(value + off)))
    assert judged(problem(reference), rf"So $\boxed{{{answer}}}$.").label != "correct"


@settings(deadline=None, max_examples=200)
@given(latex, latex)
def test_any_answer_to_any_reference_gets_a_verdict_of_its_own(reference, answer):
    posed = problem(reference)
    verdict = judged(posed, rf"So $\boxed{{{answer}}}$.")
    fault = Math().check_reference(posed)
    # Only a reference that is refused before a run may raise.
    assert not verdict.reason.startswith("verifier_error") or fault


@settings(deadline=None, max_examples=100)
@given(latex)
def test_a_fit_reference_is_correct_for_itself(reference):
    posed = problem(reference)
    if Math().check_reference(posed) is None and "boxed" not in reference:
        verdict = judged(posed, f"\\boxed{{{reference}}}")
        assert verdict.label != "incorrect" or not verdict.extracted


@settings(deadline=None, max_examples=100)
@given(st.text(max_size=300))
def test_any_text_is_read(text):
    judged(problem("5"), text)
    judged(problem("5", marker="A:"), f"A: {text}")
    judged(problem("5"), rf"{text}\boxed{{5}}{text}")


@pytest.mark.parametrize(
    "answers",
    [
        ("0.5", "1/2", r"\frac{1}{2}", r"x = \frac12", r"\left(\frac{1}{2}\right)"),
        (r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt{2}}", r"x=\frac{\sqrt2}{2}"),
        ("1, 2", "2, 1", r"\{1, 2\}", r"x=1 \text{ or } x=2"),
        ("5 cm", r"5 \text{ cm}", r"5\,\mathrm{cm}", "5"), (r"(1, \frac{1}{2})", "(1, 0.5)"),
        ("Tuesday", r"\text{tuesday}"),
    ],
)  # fmt: skip
def test_equal_answers_have_one_text_so_that_votes_meet(answers):
    verdicts = [judged(problem("nothing"), rf"\boxed{{{answer}}}") for answer in answers]
    assert len({verdict.extracted for verdict in verdicts}) == 1
    assert verdicts[0].extracted


# Texts with a long stretch of one piece at each ~.
LONG = [
    ("~", r"\boxed{5} "), ("~", r"\boxed{"), ("~", r"\boxed{5}, "), (r"~\boxed{5}", "{"),
    (r"\boxed{5}~", "}"), (r"~\boxed{5}", " "), (r"\boxed{5}~", " "), (r"\boxed{5}~", "\n"),
    (r"~\boxed{5}~", "$"), (r"~ \boxed{5}~", "\\"), (r"\boxed{~}", "1+"), (r"\boxed{~}", "("),
    (r"~\boxed{5}", "```\n"), (r"\boxed{5}~", " the answer is 5"), (r"\boxed{5} answer is~", " "),
    (r"\boxed{5}~", " wai"), (r"\boxed{~}", "1"), ("~", "A: "), (r"\boxed{5}~", "*"),
    (r"\boxed{5}~\text{cm}", r"\,"), (r"\boxed{5~}", r"\text{cm}"), (r"\boxed{5~}", " m"),
    (r"~\boxed{5}", "is not the answer to be "), (r"~\boxed{5}", r"\text{"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "piece"), LONG)
def test_finding_the_answer_is_linear_in_the_text(text, piece):
    posed = problem("5", marker="A:")
    assert_linear(
        lambda text: screen(posed, text),
        lambda size: text.replace("~", piece * (size // len(piece))),
    )


def test_finding_the_answer_is_linear_in_the_depth_of_boxes_and_brackets():
    posed = problem("5", marker="A:")
    for opened, core, closed in ((r"\boxed{", "5", "}"), ("(", r"\boxed{5}", ")")):
        assert_linear(
            lambda text: screen(posed, text),
            lambda size, o=opened, x=core, c=closed: o * (size // 20) + x + c * (size // 20),
        )

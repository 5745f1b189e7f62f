from __future__ import annotations

import pytest
from reckoning import boxed, outcome, problem

from heavydistill.verifiers.mathematics.verifier import Math

# (reference, content of the box)
CORRECT = [
    # typography
    ("18", "１８"),
    ("1000", r"1\,000"),
    ("1000", "1,000"),
    ("1000", "1{,}000"),
    ("10000", r"10{,}000"),
    ("11111111100", r"11,\! 111,\! 111,\! 100"),
    ("1/3", r"0.\overline{3}"),
    ("1/6", r"0.1\overline{6}"),
    ("10^{-5}", "10⁻⁵"),
    ("10^{12}", "10¹²"),
    ("5", "5."),
    ("5", "x=5"),
    ("5", r"x = 5."),
    ("x=5", "5"),
    ("-5", "\u22125"),
    ("5", r"\text{5}"),
    ("5", r"{5}"),
    ("5", r"(5)"),
    ("2\\sqrt{3}", "2√3"),
    ("\\sqrt{13}", "√13"),
    (r"\frac{\pi}{2}", "π/2"),
    (r"\frac{\pi}{2}", r"\dfrac{\pi}{2}"),
    # fractions, mixed numbers, decimals
    ("3/2", "1 1/2"),
    ("3/2", r"1\frac{1}{2}"),
    (r"\frac{1}{2}", "0.5"),
    ("0.5", r"\frac12"),
    (r"\frac{3}{4}", r"\frac34"),
    (r"-\frac{3}{4}", r"\frac{-3}{4}"),
    (r"-\frac{3}{4}", r"\frac{3}{-4}"),
    # radicals, powers, logarithms
    (r"2\sqrt{2}", r"\sqrt{8}"),
    (r"\frac{\sqrt{2}}{2}", r"\frac{1}{\sqrt{2}}"),
    (r"\sqrt[3]{8}", "2"),
    (r"1+\sqrt{2}", r"\sqrt{3+2\sqrt{2}}"),
    ("1024", "2^{10}"),
    ("1024", "2^10"),
    (r"3\ln 2", r"\ln 8"),
    (r"\log_2 8", "3"),
    (r"2\log 10", r"\log 100"),
    ("e^2", r"\exp(2)"),
    ("120", "5!"),
    ("10", r"\binom{5}{2}"),
    # tiny and huge numbers
    (r"1.6\times 10^{-19}", r"16 \cdot 10^{-20}"),
    (r"10^{-30}", r"\frac{1}{10^{30}}"),
    (r"2^{99}", "633825300114114700748351602688"),
    # expressions
    ("2(1-m)", "2-2m"),
    ("2-2m", "2(1-m)"),
    ("x^2+2x+1", "(x+1)^2"),
    (r"\frac{x^2-1}{x-1}", "x+1"),
    ("2xy", "2yx"),
    ("n(n+1)/2", r"\frac{n^2+n}{2}"),
    (r"\binom{n}{2}", r"\frac{n(n-1)}{2}"),
    (r"1-\cos^2 x", r"\sin^2 x"),
    ("|x-1|", "|1-x|"),
    ("f(x)=2x+3", "2x+3"),
    ("y=2x+3", "y=3+2x"),
    ("2x-y+3=0", "y=2x+3"),
    ("x^2+y^2=4", "4=x^2+y^2"),
    ("y>x^2", "x^2<y"),
    ("a_1+2", "2+a_1"),
    # complex numbers
    ("3+4i", "4i+3"),
    ("-1", "i^2"),
    ("-1", r"e^{i\pi}"),
    # parameters and constants
    ("x^2+C", "C+x^2"),
    # several values
    ("1, 2", "2, 1"),
    ("1, 2", "1,2"),
    ("1, 2", r"1 \text{ and } 2"),
    ("1, 2", r"1 \text{ or } 2"),
    ("1, 2", r"\{1, 2\}"),
    (r"\{1,2\}", "2, 1"),
    ("1, 2, 3", "1, 2, and 3"),
    ("1, 2", "x=1, x=2"),
    (r"x=1 \text{ or } x=2", "1, 2"),
    (r"x=1 \text{ or } x=2", "x=2, x=1"),
    ("x=1, y=2", "y=2, x=1"),
    ("2, -2", r"\pm 2"),
    (r"\pm 2", "-2, 2"),
    (r"1\pm\sqrt{2}", r"1-\sqrt{2}, 1+\sqrt{2}"),
    (r"x = \pm 2", "2, -2"),
    (r"\{5\}", "5"),
    ("1,000, 2,000", "2000, 1000"),
    # tuples, intervals, sets
    ("(1, 2)", "(1,2)"),
    ("(1, 2)", r"\left(1,\, \frac{4}{2}\right)"),
    ("(1, 2, 3)", "(1,2,3)"),
    (r"[0, \infty)", r"[0,\infty)"),
    (r"[0, \infty)", r"x \ge 0"),
    (r"x \ge 0", r"[0, +\infty)"),
    (r"(-1, 3]", r"-1 < x \le 3"),
    (r"-1 \le x \le 3", r"[-1, 3]"),
    (r"-1 \le x \le 3", r"3 \ge x \ge -1"),
    (r"x \in (-1, 3]", "(-1,3]"),
    (r"(-\infty,1)\cup(2,\infty)", r"x<1 \text{ or } x>2"),
    (r"(-\infty,1)\cup(2,\infty)", r"(2,\infty)\cup(-\infty,1)"),
    (r"(-\infty,3)\cup(3,\infty)", r"x \ne 3"),
    (r"(-\infty,3)\cup(3,\infty)", r"\mathbb{R}\setminus\{3\}"),
    (r"[-2\sqrt{2}, 2\sqrt{2}]", r"[-\sqrt{8}, \sqrt{8}]"),
    (r"\emptyset", r"\varnothing"),
    ("x < 3", "3 > x"),
    # matrices and vectors
    (
        r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}",
        r"\begin{bmatrix}1&2\\3&4\end{bmatrix}",
    ),
    (r"\begin{pmatrix} 1/2 \\ 3 \end{pmatrix}", r"\begin{pmatrix}\frac{1}{2}\\3\end{pmatrix}"),
    (r"\langle 1, 2 \rangle", "(1,2)"),
    # units, money, percent, angles, times
    ("5", "5 cm"),
    ("5", r"5 \text{ cm}"),
    ("5", r"5\,\mathrm{cm}^2"),
    ("5 cm", "5"),
    ("5 cm", "5 centimeters"),
    (r"5 \text{ m}", "500 cm"),
    ("18", r"\$18"),
    ("18", "$18$"),
    ("18", "18 dollars"),
    (r"\$18", "18 dollars"),
    (r"50\%", r"50 \%"),
    (r"50\%", r"50 \text{ percent}"),
    (r"30^\circ", "30"),
    ("30", r"30^{\circ}"),
    (r"30^\circ", r"30 \text{ degrees}"),
    # words and letters
    ("Tuesday", r"\text{Tuesday}"),
    ("Tuesday", "tuesday"),
    ("no solution", r"\text{No solution}"),
    ("A", r"\text{A}"),
    ("A", "(A)"),
    (r"\text{(A)}", "A"),
    ("3:4", "3:4"),
    ("120_3", "120_{3}"),
    ("1, 2, \\ldots, n", "1,2,\\ldots,n"),
]
# (reference, content of the box, reason)
INCORRECT = [
    ("18", "17", "different"),
    ("18", "-18", "different"),
    ("18", "1.8", "different"),
    ("1000", "1.000", "different"),
    ("1.6e-19", "3.2e-19", "different"),
    (r"1.6\times 10^{-19}", r"3.2\times 10^{-19}", "different"),
    (r"\frac{1}{2^{99}}", r"\frac{1}{2^{98}}", "different"),
    (r"10^{-20}", r"10^{-30}", "different"),
    (r"10^{30}", r"10^{30}+1", "different"),
    (r"\sqrt{2}", r"\sqrt{2}+10^{-60}", "different"),
    (r"1-\frac{1}{e}", r"1+\frac{1}{e}", "different"),
    (r"\sqrt{2}", r"\sqrt{3}", "different"),
    (r"\frac{\pi}{3}", r"\frac{\pi}{6}", "different"),
    ("x^2+1", "x^2-1", "different"),
    ("(x+1)^2", "x^2+1", "different"),
    ("3+4i", "3-4i", "different"),
    ("y=2x+3", "y=2x+4", "different"),
    ("x=5", "x=6", "different"),
    ("5", "4 or 5", "hedged"),
    ("5", r"4 \text{ or } 5", "hedged"),
    ("5", "5, 6", "hedged"),
    ("5", "5 and 6", "hedged"),
    ("5", r"\pm 5", "hedged"),
    ("5", "maybe 5, maybe 6", "hedged"),
    ("5", r"x=5 \text{ or } x=-5", "hedged"),
    ("5", "5,6", "hedged"),
    ("3,5,7", "5", "different"),
    ("1,2", "5", "different"),
    ("1, 2", "1, 3", "different"),
    ("1, 2", "1, 2, 3", "different"),
    ("1, 2", "1", "different"),
    ("1, 2, 3", "1, 2", "different"),
    ("x=1, y=2", "x=3, y=4", "different"),
    ("(1, 2)", "(2, 1)", "different"),
    ("(1, 2)", "(1, 2, 3)", "different"),
    ("[0, 1)", "(0, 1)", "different"),
    ("[0, 1)", "[0, 1]", "different"),
    (r"[0, \infty)", r"(0, \infty)", "different"),
    (r"x > 5", "x < 5", "different"),
    (r"x > 5", r"x \ge 5", "different"),
    (r"(-\infty, 2)", r"(2, \infty)", "different"),
    (r"(-\infty,1)\cup(2,\infty)", r"(1,2)", "different"),
    (r"\{1, 2\}", r"\{1, 3\}", "different"),
    (
        r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}",
        r"\begin{pmatrix} 1 & 3 \\ 2 & 4 \end{pmatrix}",
        "different",
    ),
    (
        r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}",
        r"\begin{pmatrix} 1 & 2 \end{pmatrix}",
        "different",
    ),
    ("Tuesday", "Wednesday", "different"),
    (r"\text{listen}", r"\text{silent}", "different"),
    ("A", "B", "different"),
    ("18", r"\text{no solution}", "different"),
    ("120_3", "121_3", "different"),
    ("3:4", "4:3", "different"),
    ("5 cm", "6 cm", "different"),
    ("5 cm", r"5 \text{ m}", "different"),
    ("5", "6 cm", "different"),
    (r"50\%", r"40\%", "different"),
    (r"50\%", "40", "different"),
    (r"30^\circ", "60", "needs_units") if False else (r"30^\circ", r"60^\circ", "different"),
    (r"\infty", r"-\infty", "different"),
    ("5", r"\infty", "different"),
]
# (problem, reference, content of the box, arguments, label)
WITH_PROBLEM = [
    ("What is 12 * 13?", "156", r"12 \cdot 13", {}, "undecided"),
    (r"What is $12 \times 13$?", "156", r"12 \times 13", {}, "undecided"),
    (r"Simplify $\sqrt{8}$.", r"2\sqrt{2}", r"\sqrt{8}", {}, "undecided"),
    ("Simplify 2/4.", "1/2", "2/4", {}, "undecided"),
    (r"Factor $x^2-1$.", "(x-1)(x+1)", "x^2 - 1", {}, "undecided"),
    (r"Factor $x^2-1$.", "(x-1)(x+1)", "(x+1)(x-1)", {}, "correct"),
    ("Is 1/2 more than 1/3?", "1/2", "1/2", {}, "correct"),
    ("Add -5 and 0.", "-5", "-5", {}, "correct"),
    ("How many apples?", "5", "5 apples", {}, "correct"),
    ("How many pears?", "5", "5 apples", {}, "undecided"),
    ("How many pairs of socks?", "5", "5 pairs of socks", {}, "undecided"),
    ("How many hours?", "12", "12 hours", {}, "correct"),
    ("How many hours?", "12", "12 minutes", {}, "undecided"),
    ("What percent of the 10 are red?", "50", r"50\%", {}, "correct"),
    ("What percent of the 10 are red?", r"50\%", "50", {}, "correct"),
    ("What percent of the 10 are red?", "50", r"40\%", {}, "incorrect"),
    ("It costs 50 percent less. How much is that?", "50", r"50\%", {}, "undecided"),
    ("?", "50", r"50\%", {"percent": "number"}, "correct"),
    ("?", "0.5", r"50\%", {"percent": "number"}, "incorrect"),
    ("?", "0.5", r"50\%", {"percent": "fraction"}, "correct"),
    ("?", r"50\%", "0.5", {"percent": "fraction"}, "correct"),
    ("?", "50", r"50\%", {"percent": "fraction"}, "incorrect"),
    ("?", "5 cm", "5", {"units": "required"}, "incorrect"),
    ("?", "5 cm", "5 cm", {"units": "required"}, "correct"),
    ("?", "5", "5 cm", {"units": "required"}, "correct"),
    ("?", "1, 2", "2, 1", {"ordered": True}, "incorrect"),
    ("?", "1, 2", "1, 2", {"ordered": True}, "correct"),
]
# (reference, whole text, marker, label, reason)
WHOLE_TEXTS = [
    ("5", r"\boxed{4} wait, actually \boxed{5}", None, "correct", "equal"),
    ("4", r"\boxed{4} wait, actually \boxed{5}", None, "incorrect", "different"),
    ("9", r"\boxed{4} \boxed{5}", None, "undecided", "outside_box"),
    ("4, 5", r"$\boxed{4}$ and $\boxed{5}$", None, "correct", "equal"),
    ("4, 5", r"$\boxed{4}, \boxed{5}$", None, "correct", "equal"),
    ("4, 5", r"$x = \boxed{4}$ or $x = \boxed{5}$", None, "correct", "equal"),
    ("4, 5", r"$\boxed{4} \quad \boxed{5}$", None, "correct", "equal"),
    ("x=4, y=5", r"$x = \boxed{4}$ and $y = \boxed{5}$", None, "correct", "equal"),
    ("x=5, y=4", r"$x = \boxed{4}$ and $y = \boxed{5}$", None, "undecided", "other_names"),
    ("5", r"$\boxed{4}$ or $\boxed{5}$", None, "incorrect", "hedged"),
    ("5", r"$\boxed{4}$ and $\boxed{5}$", None, "incorrect", "hedged"),
    ("4, 5", r"One is $\boxed{4}$. The other is $\boxed{5}$.", None, "undecided", "several_boxes"),
    ("5", r"First $\boxed{4}$. Then $\boxed{5}$.", None, "correct", "equal"),
    ("5", r"<think>\boxed{5}</think> I do not know.", None, "incorrect", "no_answer"),
    ("5", r"<think>\boxed{5}", None, "undecided", "open_thinking"),
    ("5", r"<think>\boxed{6}</think> $\boxed{5}$", None, "correct", "equal"),
    ("17", "see step 17", None, "incorrect", "no_answer"),
    ("18", "The answer is 18.", None, "incorrect", "no_answer"),
    ("18", r"\boxed{}", None, "incorrect", "no_answer"),
    ("5", "```\n\\boxed{6}\n```\nSo $\\boxed{5}$.", None, "correct", "equal"),
    ("5", "$\\boxed{5}$\n```python\nprint(r'\\boxed{6}')\n```", None, "correct", "equal"),
    ("18", "A: 18", None, "incorrect", "no_answer"),
    ("18", "A: 18", "A:", "correct", "equal"),
    ("18", "A: 17\nA: 18", "A:", "correct", "equal"),
    ("9 * 2 = 18\n#### 18", "#### 18", "####", "correct", "equal"),
    ("18", "#### $18", "####", "correct", "equal"),
    ("18", "#### 18 or 19", "####", "incorrect", "hedged"),
    ("5", "答案：5", "答案", "correct", "equal"),
    ("5", "答案是5", "答案", "correct", "equal"),
    ("5", "答案是6", "答案", "incorrect", "different"),
    ("5", r"$\boxed{x = \boxed{5}}$", None, "correct", "equal"),
    ("[0, 5)", r"$\boxed{[0, 5\}}$", None, "undecided", "not_understood"),
    ("[0, 5]", r"$\boxed{\left\{0\right. }$. So $\boxed{[0,5]}$", None, "correct", "equal"),
    (r"\$5", r"\$\boxed{5}", None, "correct", "equal"),
    (r"50\%", r"$\boxed{50}\%$", None, "correct", "equal"),
    ("50", r"$\boxed{50}\%$", None, "undecided", "needs_percent"),
    ("50", r"\boxed{50} percent", None, "undecided", "needs_percent"),
    (r"5\text{ m}", r"$\boxed{5}$ cm.", None, "incorrect", "different"),
    (r"5\text{ m}", r"$\boxed{500}$ cm.", None, "correct", "equal"),
    ("5", "\\boxed{" * 40 + "5" + "}" * 40, None, "undecided", "too_complex"),
]


@pytest.mark.parametrize(("reference", "answer"), CORRECT)
def test_equal_answers_are_correct(reference, answer):
    assert outcome(reference, boxed(answer)) == ("correct", "equal")


@pytest.mark.parametrize(("reference", "answer", "reason"), INCORRECT)
def test_other_values_are_incorrect(reference, answer, reason):
    assert outcome(reference, boxed(answer)) == ("incorrect", reason)


@pytest.mark.parametrize(("text", "reference", "answer", "args", "label"), WITH_PROBLEM)
def test_the_problem_and_its_arguments_say_what_counts(text, reference, answer, args, label):
    assert outcome(reference, boxed(answer), text, **args)[0] == label


@pytest.mark.parametrize(
    ("text", "reference", "answer"),
    [
        ("One of them has probability 1/3. Which one has p?", r"\frac{1}{3}", r"\dfrac{1}{3}"),
        ("Find the derivative of $e^{x}$.", "e^x", "e^{x}"),
        (r"Which of $\sqrt{2}$ and $2$ is irrational?", r"\sqrt{2}", r"\sqrt 2"),
    ],
)
def test_an_answer_may_repeat_the_problem_where_the_reference_does(text, reference, answer):
    assert outcome(reference, boxed(answer), text)[0] == "correct"


@pytest.mark.parametrize(("reference", "text", "marker", "label", "reason"), WHOLE_TEXTS)
def test_the_final_answer_is_the_last_group_of_boxes_or_follows_the_marker(
    reference, text, marker, label, reason
):
    args = {} if marker is None else {"marker": marker}
    assert outcome(reference, text, **args) == (label, reason)


@pytest.mark.parametrize("reference", [row[0] for row in CORRECT + INCORRECT])
def test_every_reference_is_correct_for_itself(reference):
    assert outcome(reference, boxed(reference))[0] == "correct"
    if r"\ldots" not in reference:
        assert Math().check_reference(problem(reference)) is None


@pytest.mark.parametrize(
    ("reference", "args", "says"),
    [
        ("two\nlines", {}, "several lines"),
        ("two\nlines", {"marker": "####"}, "several lines"),
        ("9" * 1001, {}, "1000 characters"),
        (r"\boxed{}", {}, "no answer"),
        ("all powers of 2", {}, "not understood"),
        ("all positive even integers", {}, "more than 3 words"),
        ("1, 2, \\ldots, n", {}, "ellipsis"),
        (r"\{x : x = 3k\}", {}, "condition"),
        ("1/2x", {}, "two ways"),
        ("5 5", {}, "two numbers"),
        (r"\sum_{k=1}^{n} k", {}, "a sum"),
        ("maybe 5", {}, "open which"),
        ("18", {"maker": "####"}, "maker"),
        ("18", {"marker": 4}, "not 4"),
        ("18", {"marker": " "}, "marker"),
        ("18", {"units": "some"}, "optional or required"),
        ("18", {"percent": 5}, "number or fraction"),
        ("1, 2", {"ordered": "yes"}, "true or false"),
        ("two\nlines\n#### 5", {"marker": "####"}, None),
        ("\\begin{pmatrix}\n1 \\\\\n2\n\\end{pmatrix}", {}, None),
        ("no solution", {}, None),
        ("18", {"units": "required", "percent": "number", "ordered": False}, None),
    ],
)
def test_unfit_references_are_told_before_a_run(reference, args, says):
    fault = Math().check_reference(problem(reference, **args))
    assert (says is None and fault is None) or (says and fault and says in fault)

from __future__ import annotations

import json

import pytest
from judging import judged

from heavydistill.schema import Problem
from heavydistill.verifiers.mathematics.verifier import Math

# (reference, content of the box): as references and models write them
CORRECT = [
    # names on the left
    (r"\left( 3, \frac{\pi}{2} \right)", r"(r,\theta) = \left(3, \dfrac{\pi}{2}\right)"),
    ("(6,31,-1)", "(p, q, r) = (6, 31, -1)"),
    ("(x,y)=(1,2)", "(1,2)"),
    ("(2,1),(3,1)", "(x,y)=(3,1),(2,1)"),
    ("(p,q) = (3,2), (2,3)", "(2,3),(3,2)"),
    ("a_{n} =2 n    +1", "2n+1"),
    (r"C=\frac{def}{de+df+ef}", r"\frac{def}{de+df+ef}"),
    (r"I_{\max }=\frac{q_{0}}{\sqrt{2 L C}}", r"\frac{ q_{0} }{ \sqrt{2 C L} }"),
    (r"\Delta p\approx -\frac{\hbar \omega_{L}}{c}", r"-\frac{\omega_{L} \hbar}{c}"),
    ("7", "3 + 4 = 7"),
    ("2, -2, \\frac{1}{2}, -\\frac{1}{2}", r"m = \pm 2 \text{ or } m = \pm \frac{1}{2}"),
    (r"m = 2, m = -2, m = 3", r"m = \pm 2, m = 3"),
    # notation
    (
        r"\begin{pmatrix} -1/3 \\ 2/3 \end{pmatrix}",
        r"\begin{bmatrix} -\frac13 \\[4pt] \frac23 \end{bmatrix}",
    ),
    (r"\binom{2n}{n}", r"\dbinom{2n}{n}"),
    (r"\binom{12}{6}", r"{12 \choose 6}"),
    (r"\frac{v^2_0}{5\pi g}", r"\frac{v_0^2}{5g\pi}"),
    ("204", r"{\color{red}204}"),
    (r"33\frac{1}{3}\%", r"\frac{100}{3}\%"),
    ("BEE_{16}", r"\text{BEE}_{16}"),
    (r"\text{Yes}", "yes"),
    (r"\frac{9!}{2!3!}", "30240"),
    (r"\mathbb{Z}", r"\mathbb Z"),
    # angles
    (r"\cos 60^\circ + i \sin 60^\circ", r"\frac{1}{2}+\frac{\sqrt{3}}{2}i"),
    (r"2-\sqrt{3}", r"\tan(15°)"),
    (r"2\sin 40^\circ", r"2\cos 50^{\circ}"),
    # units
    (r"864 \mbox{ inches}^2", r"864 \text{ sq. in.}"),
    (r"5.4 \text{ cents}", "5.4¢"),
    (r"12\text{ m/s}", "12 m/s"),
    (r"12\text{ m/s}", r"12 \text{ meters per second}"),
    (r"9.8 \text{ m/s}^2", r"9.8\,\mathrm{m/s^2}"),
    (r"9.8 \text{ m/s}^2", "9.8"),
    (r"12\pi", r"12\pi \text{ inches per second}"),
    (r"36 \text{ km/h}", r"10\text{ m/s}"),
    ("0.64N", r"\frac{16}{25}\text{ N}"),
    # sets
    (r"\{x|-2\leq x < 1\}", "[-2,1)"),
    ("(1,3)", r"\{x \mid 1<x<3\}"),
    (r"\{x \in \mathbb{R} : x > 2\}", "x > 2"),
    (r"(-\infty,1)\cup(2,\infty)", r"\{x \mid x<1 \text{ or } x>2\}"),
    (
        r"\left[ \frac{\pi^2}{8}, \frac{5 \pi^2}{4} \right]",
        r"\frac{\pi^2}{8} \le f(x) \le \frac{5\pi^2}{4}",
    ),
]

INCORRECT = [
    ("(x,y)=(1,2)", "(x,y)=(2,1)"),
    ("7", "3 + 5 = 8"),
    ("ABC_{16}", "BAC_{16}"),
    (r"2\sin 40^\circ", r"2\cos 40^\circ"),
    (r"\sin 30^\circ", r"\sin 30"),
    ("a_n=2n+1", "2n-1"),
    (r"12\text{ m/s}", r"12\text{ km/h}"),
    (r"[-2,1)", r"\{x \mid -2 \le x \le 1\}"),
    # curves
]

# Each was or could be taken for the reference by a careless rule.
NEVER_CORRECT = [
    (r"5\text{ m}", r"5\text{ ms}"),
    (r"5\text{ MW}", r"5\text{ mW}"),
    (r"5\text{ Pa}", r"5\text{ pa}"),
    (r"\emptyset", "(3,1)"),
    (r"\emptyset", "[2,1)"),
    (r"(-\infty,5)", "x_1+3<5"),
    (r"\{1,2\}", r"\{\{1,2\}\}"),
    (r"\begin{pmatrix}3\\4\end{pmatrix}", r"2+\begin{pmatrix}1\\2\end{pmatrix}"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"A\begin{pmatrix}1\\2\end{pmatrix}"),
    (r"\mathbb{R}", r"\mathbb{Z}"),
    ("23", "2!3"),
    ("7", "4 = 7"),
    ("7", "x + 4 = 7"),
    ("y = 2x + 3", "2x + 3"),
    (r"r=2\cos\theta", r"2\cos\theta"),
    (r"\{x \mid x > 2\}", r"\{x \in \mathbb{Z} \mid x > 2\}"),
    (r"\{x \mid 0 < x < 5\}", r"\{x \mid 0 < x < 5, x \ne 2\}"),
    (r"\{x \mid x > 2\}", r"\{y \mid x > 2\}"),
    (r"12\text{ m/s}", r"12\text{ m/s}^2"),
    (r"12\text{ m/s}", r"12\text{ m}"),
]

# (problem, reference, content of the box, label)
ASKED = [
    ("Find $m + n$.", "13", "m+n = 13", "undecided"),
    (r"Find $\left( a,b \right)$ and $|x+y|$.", "3", "|x + y| = 3", "undecided"),
    ("Given $2x = 10$, find $x$.", "10", "2x = 10", "undecided"),
    ("Find $m + n$.", "13", "m+n = 14", "undecided"),
    ("How fast, in feet per second?", "12", r"12\text{ ft/s}", "correct"),
    ("How fast, in feet per second?", "12", r"12\text{ m/s}", "undecided"),
    ("How fast, in km/h?", "36", r"10\text{ m/s}", "undecided"),
    ("Is it true?", "yes", "true", "undecided"),
]

UNFIT = [
    r"\{x|x=3k,k\in \mathbb{Z}\}",
    r"2+\begin{pmatrix}1\\2\end{pmatrix}",
    "3, 5, 7, \\ldots",
    r"n \equiv 1 \pmod{3}",
]


def problem(reference: str, text: str = "?") -> Problem:
    return Problem(
        id="p", text=text, reference=reference, verifier="math", verifier_args=json.dumps({})
    )


def label(reference: str, answer: str, text: str = "?") -> str:
    return judged(problem(reference, text), rf"So the answer is $\boxed{{{answer}}}$.").label


@pytest.mark.parametrize(("reference", "answer"), CORRECT)
def test_usual_spellings_of_one_answer_are_equal(reference, answer):
    assert label(reference, answer) == "correct"
    assert Math().check_reference(problem(reference)) is None


@pytest.mark.parametrize(("reference", "answer"), INCORRECT)
def test_another_answer_in_such_a_spelling_is_incorrect(reference, answer):
    assert label(reference, answer) == "incorrect"


@pytest.mark.parametrize(("reference", "answer"), NEVER_CORRECT)
def test_what_only_looks_alike_is_never_correct(reference, answer):
    assert label(reference, answer) != "correct"


@pytest.mark.parametrize(("text", "reference", "answer", "wanted"), ASKED)
def test_the_problem_says_what_is_asked_for_and_in_which_unit(text, reference, answer, wanted):
    assert label(reference, answer, text) == wanted


@pytest.mark.parametrize("reference", UNFIT)
def test_notation_that_nothing_can_be_compared_with_is_unfit(reference):
    assert Math().check_reference(problem(reference))


def test_equations_of_many_terms_are_not_multiplied_out():
    reference, answer = "(x+y+z)^{50}(x-y)^{50}=1", "(x+y+z)^{50}(x+y)^{50}=1"
    assert label(reference, answer) == "undecided"

"""Answers that rules cannot tell, and such as could blow up."""

from __future__ import annotations

import pytest
from reckoning import boxed, outcome, problem

from heavydistill.verifiers.mathematics.verifier import Math

# Never correct, and nothing that rules could call wrong: (reference, content of the box)
UNDECIDED = [
    # what bare Math-Verify accepts
    ("5", "4=5"),
    ("5", "n=4=5"),
    ("0", "25x^2-1=0"),
    ("9", r"5 \quad 4"),
    ("10", "5 5"),
    ("cat", "act"),
    (r"\text{CBA}", r"\text{ABC}"),
    ("AB", "BA"),
    ("27", r"26.67 \approx 27"),
    ("11111111100", "11, 111, 111, 100"),
    ("1,3,5,\\ldots,2n-1", "1,2,\\ldots,n"),
    ("3:4", "6:8"),
    ("3/4", "3:4"),
    # rounding
    ("1/3", "0.333"),
    (r"\sqrt{2}", "1.414"),
    ("3.14", r"\pi"),
    ("3.14", "3.1416"),
    ("5", "5.0000001"),
    # two readings
    ("2x", "x/2y"),
    (r"\frac{x}{2}", "1/2x"),
    (r"\frac{1}{2x}", "1/2x"),
    ("2", r"\log 100"),
    (r"\ln 5", r"\log 5"),
    ("0.5", "0,5"),
    ("1.5", "1,5"),
    ("1, 234", "1,234"),
    ("100, 200", "100,200"),
    ("1234", "1 234"),
    (r"2\frac{1}{2}\pi", r"\pi"),
    # names
    ("x", "X"),
    ("2x", "2y"),
    ("a+B", "A+b"),
    ("f(x)", "f'(x)"),
    ("f", "f'"),
    ("x=5", "y=5"),
    ("x > 5", "y > 5"),
    ("x_1", "x_2"),
    ("x^2+C", "x^2"),
    ("x^2+y^2=1", "x^2-y^2=1"),
    ("x^2+y^2=1", "x^2+y^2=2"),
    ("x^2+y^2=4", "x^2+y^2=4y"),
    ("5x - 7y + 11z + 4 = 0", "5x-7y+11z-4=0"),
    ("y = 2x", "x = 2y"),
    (r"2\pi n", r"2\pi k"),
    (r"\vec{a}+b", r"b+\vec{a}"),
    (r"\frac{\pi}{4}+k\pi", r"\pi n + \frac{\pi}{4}"),
    ("x^2+C", "x^2+K"),
    (r"\sqrt{x^2}", "x"),
    ("5", "n"),
    # brackets
    ("(0, 1)", "[0, 1]"),
    ("(1, 2)", "1, 2"),
    ("1, 2", "(1, 2)"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", "(1,2)"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}1&2\end{pmatrix}"),
    (
        r"\begin{pmatrix}1&2\\3&4\end{pmatrix}",
        r"\begin{vmatrix}1&2\\3&4\end{vmatrix}",
    ),
    # percent, units, number words
    ("5", r"5\%"),
    ("0.05", r"5\%"),
    (r"5\%", "5"),
    (r"5\%", "0.05"),
    ("5", "500 cm"),
    ("5", "5 fifths"),
    ("12", "12 factorial"),
    ("5", "5 pairs"),
    ("5", "5 squared"),
    ("5", "5 thousand"),
    ("5000", "5 thousand"),
    ("5", r"5 \text{ million}"),
    ("5", "5 dozen"),
    ("5", "5 flurbs"),
    ("5 cm", "5 kg"),
    ("5 apples", "5 pears"),
    (r"\frac{\pi}{6}", r"30^\circ"),
    (r"30^\circ + x", "30+x"),
    ("5", "maybe 5"),
    ("4:30 p.m.", "4:30"),
    ("4:30 p.m.", "4:30 a.m."),
    ("120_3", "120_4"),
    (r"2\begin{pmatrix}1\\2\end{pmatrix}", r"\begin{pmatrix}2\\2\end{pmatrix}"),
    (r"5\ \mu\mathrm{m}", r"5\ \mathrm{mm}"),
    # several values
    ("x=1, y=2", "x=2, y=1"),
    ("x=1, y=2", "2, 1"),
    ("1, 2", "1, 1, 2"),
    ("5", r"x=5, y=6"),
    (r"\{x : x = 3k\}", r"x = 3k"),
    (r"1, \{x : x = 2k\}", r"1, \{x : x = 3k\}"),
    (r"\infty + 1", r"\infty + 2"),
    (r"x\infty", r"2x\infty"),
    # equations
    ("y=2x+3", "2x+3"),
    ("x^2=4", "x=2"),
    ("x^2=4", r"x=\pm 2"),
    # words
    ("five", "5"),
    ("no solution", "infinitely many"),
    ("no solution", r"\emptyset"),
    ("1011", "1011_2"),
    # notation that is not read
    ("7", r"\sum_{k=1}^{7} 1"),
    ("1", r"\int_0^1 1 \, dx"),
    ("1", r"\lim_{x \to 0} \frac{\sin x}{x}"),
    ("2", r"\frac{dy}{dx}"),
    ("15", "5!!"),
    ("1", r"\frac{0}{0}"),
    ("0", r"\frac{1}{0}"),
    ("1", "0^0"),
]
# Never evaluated: (reference, content of the box)
TOO_COMPLEX = [
    ("1", "9^{9^{9^{9}}}"),
    ("1", "10^{10^{10}}"),
    ("1", "((9!)!)!"),
    ("1", "1000000!"),
    ("1", r"\binom{1000000}{500000}"),
    ("1", "2^{10000000}"),
    ("1", "(10^{9999})^{9999}"),
    ("1", "x^{99999999}"),
    ("1", r"\sum_{k=1}^{10^9} k"),
    ("1", r"\prod_{k=1}^{10^9} k"),
    ("1", "(" * 30 + "1" + ")" * 30),
    ("1", "{" * 500 + "1" + "}" * 500),
    ("1", "1" * 1001),
    ("1", "+".join(["x"] * 300)),
    ("1", r"\frac{1}{" * 26 + "2" + "}" * 26),
    ("1", r"\sqrt{2}^{99999}"),
]


@pytest.mark.parametrize(("reference", "answer"), UNDECIDED)
def test_what_rules_cannot_tell_is_undecided(reference, answer):
    assert outcome(reference, boxed(answer))[0] == "undecided"


@pytest.mark.parametrize(("reference", "answer"), TOO_COMPLEX)
def test_what_could_blow_up_is_never_evaluated(reference, answer):
    assert outcome(reference, boxed(answer)) == ("undecided", "too_complex")
    assert Math().check_reference(problem(answer))

"""Texts around a box as humans write them, units that are set as LaTeX, and such references."""

from __future__ import annotations

import pytest
from reckoning import boxed, outcome, problem

from heavydistill.verifiers.mathematics.verifier import Math

EQUAL = ("correct", "equal")

# (reference, response)
DECIDED = [
    ("5", "\n\\boxed{5}"),
    ("5", "\n\n$\\boxed{5}$\n"),
    ("240", r"That is $2\cdot 5!=\boxed{240}$ ways."),
    ("5", r"$$\begin{aligned} x &= 2+3 \\ &= \boxed{5} \end{aligned}$$"),
    ("5", r"$$\begin{array}{rcl} x &=& 2+3 \\ &=& \boxed{5} \end{array} $$"),
    ("(1,4)", r"The lines intersect at the point $\boxed{(1,4)}$."),
    ("14", r"This simplifies to $28 = 2x$ or $x=\boxed{14}$."),
    ("2015", r"We see that $b+1=2016$ or $b=\boxed{2015}$."),
    ("600", r"It equals $50 \cdot 12$, or $\boxed{600}$."),
    ("26", r"The values $0,3,4,5,6,8,$ add up to $\boxed{26}$."),
    ("6290000", r"We round up to $\boxed{6290000}$."),
    ("3(x-2)", r"Thus $\boxed{3(x-2)} = 3x-6$."),
    ("18", r"$$36 = 2x, \quad \boxed{18} = x$$"),
    ("6", r"There are $\boxed{6} = 3\cdot 2\cdot 1$ cubes."),
    ("3", r"Thus $29^{13} \equiv 1+2 \equiv \boxed{3}$ modulo 7."),
    ("625", r"There are $5\times 125=\boxed{625}$ such 4-digit numbers."),
    ("3", r"The value of the square is $\boxed{3}$."),
    ("44", r"It is $\boxed{44}$. We check our answer: $17\cdot 44 = 748$."),
    ("8", r"The polygon has $\boxed{8}$ sides. With 9 sides this is impossible."),
    ("300", r"$v = \boxed{300} \mathrm{~km} / \mathrm{s}$"),
    ("300 km/s", r"$v = \boxed{300} \mathrm{~km} / \mathrm{s}$"),
    ("5", r"共有$\boxed{5\text{ 个}}$。"),
    ("5", r"\boxed{5个}"),
    ("5个", r"一共\boxed{5}个。"),
    ("5元", r"一共\boxed{5}元。"),
    ("5平方米", r"面积是\boxed{5}平方米"),
]
# A bound, a value or a unit beside the box that makes another answer of it.
NOT_CORRECT = [
    ("240", r"It is clear that $n != \boxed{240}$"),
    ("5", r"$x = 4$ or $x = \boxed{5}$"),
    ("5", r"$7\text{ or }\boxed{5}$"),
    ("5", r"The cost is up to $\boxed{5}$."),
    ("5", r"$\boxed{5} = 3\cdot 2$"),
    ("3", r"$\boxed{3} = \pi$"),
    ("3", r"$\boxed{3} = e$"),
    ("x+5", r"$\boxed{x+5} = 7$"),
    ("x", r"$\boxed{x} = 5$"),
    ("300 m/s", r"$v = \boxed{300} \mathrm{~km} / \mathrm{s}$"),
    (r"5\ \Omega", r"$R = \boxed{5}\ \mathrm{V}$"),
    (r"5\ \mu\mathrm{m}", r"$d = \boxed{5}\ \mathrm{mm}$"),
    ("5元", r"一共\boxed{5}米。"),
    ("5", r"一共\boxed{5}万元。"),
    ("5", r"\boxed{5万元}"),
    ("$5$;$10$", r"\boxed{5, 11}"),
    ("$x=0$ or $x=2$", r"\boxed{x=0}"),
]
# (reference, content of the box)
WITH_DOLLARS = [
    (r"$1$,$\frac{3+\sqrt{21}}{2}$", r"1, \frac{3+\sqrt{21}}{2}"),
    ("$5$;$10$", "10, 5"),
    ("$x=0$ or $x=2$", "x=0, x=2"),
    ("$4 and $5", r"\$4 \text{ and } \$5"),
    ("3, 4", "$3$, $4$"),
]
ROUNDED_ENDS = [
    ("[1/3, 2]", "[0.333, 2]"),
    (r"(-\infty, \frac13) \cup (2, \infty)", r"(-\infty, 0.333) \cup (2, \infty)"),
    (r"[\frac13, 2]", r"0.333 \le x \le 2"),
]


@pytest.mark.parametrize(("reference", "response"), DECIDED)
def test_what_humans_write_around_a_box_is_decided(reference, response):
    assert Math().check_reference(problem(reference)) is None
    assert outcome(reference, response) == EQUAL


@pytest.mark.parametrize(("reference", "response"), NOT_CORRECT)
def test_another_value_or_unit_beside_the_box_is_never_accepted(reference, response):
    assert outcome(reference, response)[0] != "correct"


@pytest.mark.parametrize(("reference", "answer"), WITH_DOLLARS)
def test_dollars_inside_an_answer_only_set_type(reference, answer):
    assert Math().check_reference(problem(reference)) is None
    assert outcome(reference, boxed(answer)) == EQUAL


@pytest.mark.parametrize(("reference", "answer"), ROUNDED_ENDS)
def test_a_rounded_end_of_an_interval_is_undecided_as_a_rounded_number_is(reference, answer):
    assert outcome(reference, boxed(answer)) == ("undecided", "rounded")
    assert outcome(reference, boxed(answer.replace("2", "3", 1)))[0] == "incorrect"


def test_a_chinese_full_stop_ends_an_answer():
    assert outcome("18", "所以一共是18个。\n答案：18。", marker="答案：") == EQUAL

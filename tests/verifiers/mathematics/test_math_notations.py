"""Tuples by names, matrices in other brackets, numbers with other marks, and other notations."""

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
# Problem ‖ reference ‖ the same in another notation.
OTHERWISE = pairs(r"""
    ? ‖ 7-2i ‖ 7+-2i ‖ 7.0 + -2.0i  ¦  ? ‖ x-5 ‖ x+-5 ‖ -5+x
    ? ‖ \frac{3}{4} ‖ {3\over4} ‖ {3 \over 4}
    ? ‖ 3:30\text{ p.m.} ‖ 3:30 PM ‖ 3:30\text{ pm} ‖ 03:30 p.m. ‖ 3:30\,\mathrm{PM}
    Write 5 in base 2. ‖ 101_2 ‖ 101 ‖ 101_{2}  ¦  Write 5 in base $2$. ‖ 101 ‖ 101_2
    Write 83 as an octal number. ‖ 123_8 ‖ 123 ‖ (123)_8
    What is the ratio? ‖ 3:2 ‖ 3/2 ‖ \frac{3}{2}
    ? ‖ (-\infty,-1)\cup(1,\infty) ‖ |x|>1 ‖ |x| > 1 ‖ x<-1 \text{ or } x>1  ¦  ? ‖ [-2,2] ‖ |x|\le2
    ? ‖ (1,5) ‖ |x-3|<2 ‖ |3-x| < 2  ¦  ? ‖ (-\sqrt{2},\sqrt{2}) ‖ |x|<\sqrt2
    ? ‖ |x-3|<2 ‖ (1,5)
    ? ‖ x\ne0 ‖ \mathbb R\setminus\{0\} ‖ \mathbb{R} \setminus \{0\} ‖ (-\infty,0)\cup(0,\infty)
    ? ‖ \mathbb{R}\setminus\{-1,1\} ‖ (-\infty,-1)\cup(-1,1)\cup(1,\infty)
    Integrate $2x$. ‖ x^2+C ‖ x^2+c ‖ x^2+K ‖ x^2 + k ‖ c + x^2 ‖ x^2+C_1
    Integrate $1/x$. ‖ \ln|x|+C ‖ \ln|x|+K ‖ c+\ln|x|
    ? ‖ \max(a,b) ‖ \max\{b,a\} ‖ \frac{a+b+|a-b|}{2}  ¦  ? ‖ 6 ‖ \gcd(12,18) ‖ \min(6,7)
    ? ‖ \frac{mn}{\gcd(m,n)} ‖ \frac{nm}{\text{gcd}(n,m)}  ¦  ? ‖ 36 ‖ \mathrm{lcm}(12,18)
""")
OTHERWISE_WRONG = pairs(r"""
    ? ‖ 7-2i ‖ 7+2i ‖ 7--2i ‖ 7+-3i  ¦  ? ‖ x-5 ‖ x--5 ‖ x+5 ‖ x+-6  ¦  ? ‖ \frac{3}{4} ‖ {4\over3}
    ? ‖ 3:30\text{ p.m.} ‖ 3:30 AM ‖ 3:31 PM ‖ 4:30 PM ‖ 3:30 ‖ 3.30  ¦  ? ‖ 10:30 ‖ 2:30 ‖ 10:31
    Write 5 in base 2. ‖ 101_2 ‖ 111 ‖ 5 ‖ 101_3 ‖ 1010  ¦  Write 101 in base 7. ‖ 101_2 ‖ 101
    What is the ratio? ‖ 3:2 ‖ 2/3 ‖ 3/5 ‖ 3/4 ‖ 5  ¦  What is the ratio? ‖ 3:2:1 ‖ 3/2
    ? ‖ (-\infty,-1)\cup(1,\infty) ‖ |x|<1 ‖ |x|\ge1 ‖ |x|>2 ‖ |x+1|>1 ‖ x>1  ¦  ? ‖ [-2,2] ‖ |x|<2
    ? ‖ (1,5) ‖ |x-3|\le2 ‖ |x+3|<2 ‖ |x-2|<3 ‖ |x-3|<-2 ‖ |x-y|<2 ‖ |x|<5
    ? ‖ x\ne0 ‖ \mathbb{R}\setminus\{1\} ‖ \mathbb{R} ‖ \mathbb{Z}\setminus\{0\} ‖ x=0 ‖ \{0\}
    ? ‖ \mathbb{R}\setminus\{-1,1\} ‖ \mathbb{R}\setminus\{1\} ‖ \mathbb R\setminus(-1,1) ‖ (-1,1)
    Integrate $2x$. ‖ x^2+C ‖ x^2 ‖ x^3+K ‖ x^2+2 ‖ Kx^2 ‖ x^2-x_1  ¦  Let $k>0$. ‖ x^2+C ‖ x^2+k
    Integrate $1/x$. ‖ \ln|x|+C ‖ \ln|x| ‖ \ln|2x|+x ‖ K\ln|x|
    ? ‖ \max(a,b) ‖ \min(a,b) ‖ a ‖ \max(a,2b)  ¦  ? ‖ 6 ‖ \gcd(12,20) ‖ \gcd(12,6,2) ‖ \max(6,7)
    ? ‖ \frac{mn}{\gcd(m,n)} ‖ mn ‖ \frac{mn}{\gcd(m,2n)} ‖ \gcd(m,n) ‖ \text{lcm}(m,n,1)
""")
# Reference ‖ answers that are wrong, not only other.
PROVABLY_WRONG = pairs(r"""
    x^2+y^2=1 ‖ x^2-y^2=1 ‖ x^2+y^2=2 ‖ x^2+y^2=x  ¦  y = 2x ‖ x = 2y ‖ y-2x=1 ‖ 2y-x=0
    5x-7y+11z+4=0 ‖ 5x-7y+11z-4=0 ‖ 5x-7y+10z+4=0 ‖ 5x+7y+11z+4=0  ¦  x^2+y^2=4 ‖ x^2+y^2=4y
    10:30 ‖ 2:30 ‖ 10:20 ‖ 1:30  ¦  3:4 ‖ 3:5 ‖ 2:3 ‖ 1:2:3  ¦  4:30 p.m. ‖ 4:30 a.m. ‖ 5:30 p.m.
""")
# Reference ‖ answers that may be the same in another form.
PERHAPS_RIGHT = pairs(r"""
    (x+y)(x^2+1)=0 ‖ x+y=0  ¦  x+y=0 ‖ (x+y)(x-y)=0  ¦  PV=nRT ‖ P=\frac{nRT}{2V}
    3:4 ‖ 6:8 ‖ 4:3 ‖ 8:6  ¦  x^2+y^2=1 ‖ a^2+b^2=2  ¦  x^2=4 ‖ x=2
""")


@pytest.mark.parametrize("reference", MATRICES)
def test_a_matrix_is_the_same_in_each_notation(reference):
    for answer in MATRICES:
        assert outcome(reference, boxed(answer)) == ("correct", "equal"), answer
    for answer in OTHER_MATRICES:
        assert outcome(reference, boxed(answer))[0] != "correct", answer


@pytest.mark.parametrize("row", [*NAMED, *OTHERWISE, *(("?", *row) for row in MARKED)])
def test_other_notations_of_tuples_numbers_and_others_are_read(row):
    text, reference, *answers = row
    for answer in answers:
        assert outcome(reference, boxed(answer), text)[0] == "correct", answer


@pytest.mark.parametrize(
    "row", [*NAMED_WRONG, *OTHERWISE_WRONG, *(("?", *row) for row in MARKED_WRONG)]
)
def test_what_another_notation_does_not_say_is_never_correct(row):
    text, reference, *answers = row
    for answer in answers:
        assert outcome(reference, boxed(answer), text)[0] != "correct", answer


@pytest.mark.parametrize(
    ("label", "row"),
    [
        *(("incorrect", row) for row in PROVABLY_WRONG),
        *(("undecided", row) for row in PERHAPS_RIGHT),
    ],
)
def test_an_equation_or_ratio_is_incorrect_if_a_point_or_quotient_proves_it(label, row):
    reference, *answers = row
    for answer in answers:
        assert outcome(reference, boxed(answer))[0] == label, answer

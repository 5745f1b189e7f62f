"""The verdict on a final answer, by what kind of answer it is."""

import pytest
from judging import judged
from reckoning import boxed, outcome, problem
from text_tables import pairs, texts

from heavydistill.verifiers.mathematics.verifier import Math

# Reference ‖ content of the box; then as references and models write them.
CORRECT = pairs(r"""
    18 ‖ １８  ¦  1000 ‖ 1\,000  ¦  1000 ‖ 1,000  ¦  1000 ‖ 1{,}000  ¦  10000 ‖ 10{,}000
    11111111100 ‖ 11,\! 111,\! 111,\! 100  ¦  1/3 ‖ 0.\overline{3}  ¦  1/6 ‖ 0.1\overline{6}
    10^{-5} ‖ 10⁻⁵  ¦  10^{12} ‖ 10¹²  ¦  5 ‖ 5.  ¦  5 ‖ x=5  ¦  5 ‖ x = 5.  ¦  x=5 ‖ 5  ¦  -5 ‖ −5
    5 ‖ \text{5}  ¦  5 ‖ {5}  ¦  5 ‖ (5)  ¦  2\sqrt{3} ‖ 2√3  ¦  \sqrt{13} ‖ √13
    \frac{\pi}{2} ‖ π/2  ¦  \frac{\pi}{2} ‖ \dfrac{\pi}{2}  ¦  3/2 ‖ 1 1/2  ¦  3/2 ‖ 1\frac{1}{2}
    \frac{1}{2} ‖ 0.5  ¦  0.5 ‖ \frac12  ¦  \frac{3}{4} ‖ \frac34  ¦  -\frac{3}{4} ‖ \frac{-3}{4}
    -\frac{3}{4} ‖ \frac{3}{-4}  ¦  2\sqrt{2} ‖ \sqrt{8}
    \frac{\sqrt{2}}{2} ‖ \frac{1}{\sqrt{2}}  ¦  \sqrt[3]{8} ‖ 2  ¦  1+\sqrt{2} ‖ \sqrt{3+2\sqrt{2}}
    1024 ‖ 2^{10}  ¦  1024 ‖ 2^10  ¦  3\ln 2 ‖ \ln 8  ¦  \log_2 8 ‖ 3  ¦  2\log 10 ‖ \log 100
    e^2 ‖ \exp(2)  ¦  120 ‖ 5!  ¦  10 ‖ \binom{5}{2}  ¦  1.6\times 10^{-19} ‖ 16 \cdot 10^{-20}
    10^{-30} ‖ \frac{1}{10^{30}}  ¦  2^{99} ‖ 633825300114114700748351602688  ¦  2(1-m) ‖ 2-2m
    2-2m ‖ 2(1-m)  ¦  x^2+2x+1 ‖ (x+1)^2  ¦  \frac{x^2-1}{x-1} ‖ x+1  ¦  2xy ‖ 2yx
    n(n+1)/2 ‖ \frac{n^2+n}{2}  ¦  \binom{n}{2} ‖ \frac{n(n-1)}{2}  ¦  1-\cos^2 x ‖ \sin^2 x
    |x-1| ‖ |1-x|  ¦  f(x)=2x+3 ‖ 2x+3  ¦  y=2x+3 ‖ y=3+2x  ¦  2x-y+3=0 ‖ y=2x+3
    x^2+y^2=4 ‖ 4=x^2+y^2  ¦  y>x^2 ‖ x^2<y  ¦  a_1+2 ‖ 2+a_1  ¦  3+4i ‖ 4i+3  ¦  -1 ‖ i^2
    -1 ‖ e^{i\pi}  ¦  x^2+C ‖ C+x^2  ¦  1, 2 ‖ 2, 1  ¦  1, 2 ‖ 1,2  ¦  1, 2 ‖ 1 \text{ and } 2
    1, 2 ‖ 1 \text{ or } 2  ¦  1, 2 ‖ \{1, 2\}  ¦  \{1,2\} ‖ 2, 1  ¦  1, 2, 3 ‖ 1, 2, and 3
    1, 2 ‖ x=1, x=2  ¦  x=1 \text{ or } x=2 ‖ 1, 2  ¦  x=1 \text{ or } x=2 ‖ x=2, x=1
    x=1, y=2 ‖ y=2, x=1  ¦  2, -2 ‖ \pm 2  ¦  \pm 2 ‖ -2, 2
    1\pm\sqrt{2} ‖ 1-\sqrt{2}, 1+\sqrt{2}  ¦  x = \pm 2 ‖ 2, -2  ¦  \{5\} ‖ 5
    1,000, 2,000 ‖ 2000, 1000  ¦  (1, 2) ‖ (1,2)  ¦  (1, 2) ‖ \left(1,\, \frac{4}{2}\right)
    (1, 2, 3) ‖ (1,2,3)  ¦  [0, \infty) ‖ [0,\infty)  ¦  [0, \infty) ‖ x \ge 0
    x \ge 0 ‖ [0, +\infty)  ¦  (-1, 3] ‖ -1 < x \le 3  ¦  -1 \le x \le 3 ‖ [-1, 3]
    -1 \le x \le 3 ‖ 3 \ge x \ge -1  ¦  x \in (-1, 3] ‖ (-1,3]
    (-\infty,1)\cup(2,\infty) ‖ x<1 \text{ or } x>2
    (-\infty,1)\cup(2,\infty) ‖ (2,\infty)\cup(-\infty,1)  ¦  (-\infty,3)\cup(3,\infty) ‖ x \ne 3
    [-2\sqrt{2}, 2\sqrt{2}] ‖ [-\sqrt{8}, \sqrt{8}]  ¦  \emptyset ‖ \varnothing  ¦  x < 3 ‖ 3 > x
    \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} ‖ \begin{bmatrix}1&2\\3&4\end{bmatrix}
    \begin{pmatrix} 1/2 \\ 3 \end{pmatrix} ‖ \begin{pmatrix}\frac{1}{2}\\3\end{pmatrix}
    \langle 1, 2 \rangle ‖ (1,2)  ¦  5 ‖ 5 cm  ¦  5 ‖ 5 \text{ cm}  ¦  5 ‖ 5\,\mathrm{cm}^2
    5 cm ‖ 5  ¦  5 cm ‖ 5 centimeters  ¦  5 \text{ m} ‖ 500 cm  ¦  18 ‖ \$18  ¦  18 ‖ $18$
    18 ‖ 18 dollars  ¦  \$18 ‖ 18 dollars  ¦  50\% ‖ 50 \%  ¦  50\% ‖ 50 \text{ percent}
    30^\circ ‖ 30  ¦  30 ‖ 30^{\circ}  ¦  30^\circ ‖ 30 \text{ degrees}
    Tuesday ‖ \text{Tuesday}  ¦  Tuesday ‖ tuesday  ¦  no solution ‖ \text{No solution}
    A ‖ \text{A}  ¦  A ‖ (A)  ¦  \text{(A)} ‖ A  ¦  3:4 ‖ 3:4  ¦  120_3 ‖ 120_{3}
    1, 2, \ldots, n ‖ 1,2,\ldots,n
    \left( 3, \frac{\pi}{2} \right) ‖ (r,\theta) = \left(3, \dfrac{\pi}{2}\right)
    (6,31,-1) ‖ (p, q, r) = (6, 31, -1)  ¦  (x,y)=(1,2) ‖ (1,2)  ¦  (2,1),(3,1) ‖ (x,y)=(3,1),(2,1)
    (p,q) = (3,2), (2,3) ‖ (2,3),(3,2)  ¦  a_{n} =2 n    +1 ‖ 2n+1
    C=\frac{def}{de+df+ef} ‖ \frac{def}{de+df+ef}
    I_{\max }=\frac{q_{0}}{\sqrt{2 L C}} ‖ \frac{ q_{0} }{ \sqrt{2 C L} }
    \Delta p\approx -\frac{\hbar \omega_{L}}{c} ‖ -\frac{\omega_{L} \hbar}{c}  ¦  7 ‖ 3 + 4 = 7
    2, -2, \frac{1}{2}, -\frac{1}{2} ‖ m = \pm 2 \text{ or } m = \pm \frac{1}{2}
    m = 2, m = -2, m = 3 ‖ m = \pm 2, m = 3
    \begin{pmatrix}-1/3\\2/3\end{pmatrix} ‖ \begin{bmatrix} -\frac13 \\[4pt] \frac23 \end{bmatrix}
    \binom{2n}{n} ‖ \dbinom{2n}{n}  ¦  \binom{12}{6} ‖ {12 \choose 6}
    \frac{v^2_0}{5\pi g} ‖ \frac{v_0^2}{5g\pi}  ¦  204 ‖ {\color{red}204}
    33\frac{1}{3}\% ‖ \frac{100}{3}\%  ¦  BEE_{16} ‖ \text{BEE}_{16}  ¦  \text{Yes} ‖ yes
    \frac{9!}{2!3!} ‖ 30240  ¦  \mathbb{Z} ‖ \mathbb Z
    864 \mbox{ inches}^2 ‖ 864 \text{ sq. in.}
    5.4 \text{ cents} ‖ 5.4¢  ¦  12\text{ m/s} ‖ 12 \text{ meters per second}
    9.8 \text{ m/s}^2 ‖ 9.8\,\mathrm{m/s^2}
    9.8 \text{ m/s}^2 ‖ 9.8  ¦  12\pi ‖ 12\pi \text{ inches per second}
    36 \text{ km/h} ‖ 10\text{ m/s}
    \{x|-2\leq x < 1\} ‖ [-2,1)  ¦  (1,3) ‖ \{x \mid 1<x<3\}
    \left[\frac{\pi^2}{8}, \frac{5\pi^2}{4}\right] ‖ \frac{\pi^2}{8} \le f(x) \le \frac{5\pi^2}{4}
""")
DIFFERENT = pairs(r"""
    6630 ‖ 6631  ¦  6630 ‖ 6636.5  ¦  6631 ‖ 6630.65  ¦  20 ‖ 20.5
    18 ‖ 17  ¦  18 ‖ -18  ¦  18 ‖ 1.8  ¦  1000 ‖ 1.000  ¦  1.6e-19 ‖ 3.2e-19
    1.6\times 10^{-19} ‖ 3.2\times 10^{-19}  ¦  \frac{1}{2^{99}} ‖ \frac{1}{2^{98}}
    10^{-20} ‖ 10^{-30}  ¦  10^{30} ‖ 10^{30}+1  ¦  \sqrt{2} ‖ \sqrt{2}+10^{-60}
    1-\frac{1}{e} ‖ 1+\frac{1}{e}  ¦  \sqrt{2} ‖ \sqrt{3}  ¦  \frac{\pi}{3} ‖ \frac{\pi}{6}
    x^2+1 ‖ x^2-1  ¦  (x+1)^2 ‖ x^2+1  ¦  3+4i ‖ 3-4i  ¦  y=2x+3 ‖ y=2x+4  ¦  x=5 ‖ x=6
    3,5,7 ‖ 5  ¦  1,2 ‖ 5  ¦  1, 2 ‖ 1, 3  ¦  1, 2 ‖ 1, 2, 3  ¦  1, 2 ‖ 1  ¦  1, 2, 3 ‖ 1, 2
    x=1, y=2 ‖ x=3, y=4  ¦  (1, 2) ‖ (2, 1)  ¦  (1, 2) ‖ (1, 2, 3)  ¦  [0, 1) ‖ (0, 1)
    [0, 1) ‖ [0, 1]  ¦  [0, \infty) ‖ (0, \infty)  ¦  x > 5 ‖ x < 5  ¦  x > 5 ‖ x \ge 5
    (-\infty, 2) ‖ (2, \infty)  ¦  \{1, 2\} ‖ \{1, 3\}
    \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} ‖ \begin{pmatrix} 1 & 3 \\ 2 & 4 \end{pmatrix}
    \begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix} ‖ \begin{pmatrix} 1 & 2 \end{pmatrix}
    Tuesday ‖ Wednesday  ¦  \text{listen} ‖ \text{silent}  ¦  A ‖ B  ¦  18 ‖ \text{no solution}
    120_3 ‖ 121_3  ¦  5 cm ‖ 6 cm  ¦  5 cm ‖ 5 \text{ m}  ¦  5 ‖ 6 cm  ¦  50\% ‖ 40\%
    50\% ‖ 40  ¦  30^\circ ‖ 60^\circ  ¦  \infty ‖ -\infty  ¦  5 ‖ \infty
    (x,y)=(1,2) ‖ (x,y)=(2,1)  ¦  7 ‖ 3 + 5 = 8  ¦  ABC_{16} ‖ BAC_{16}
    a_n=2n+1 ‖ 2n-1  ¦  5 cm ‖ 5 kg  ¦  5\ \mu\mathrm{m} ‖ 5\ \mathrm{mm}
    12\text{ m/s} ‖ 12\text{ km/h}  ¦  [-2,1) ‖ \{x \mid -2 \le x \le 1\}
""")
HEDGED = pairs(r"""
    5 ‖ 4 or 5  ¦  5 ‖ 4 \text{ or } 5  ¦  5 ‖ 5, 6  ¦  5 ‖ 5 and 6  ¦  5 ‖ \pm 5
    5 ‖ maybe 5, maybe 6  ¦  5 ‖ x=5 \text{ or } x=-5  ¦  5 ‖ 5,6
""")
# Reference ‖ right answers ‖ wrong ones, with more digits than Python prints.
LONG = [
    (r"10^{5000}", (r"100^{2500}", r"10 \cdot 10^{4999}"), (r"10^{4999}", "5000", r"10^{5000}+1")),
    (
        r"\frac{1}{1998!}",
        (r"\frac{1999}{1999!}", r"\frac{1}{1998 \cdot 1997!}"),
        (r"\frac{1}{1996!}", "1998!", "0", r"-\frac{1}{1998!}"),
    ),
    ("2000!", (r"2000\cdot1999!", r"2000 \cdot 1999 \cdot 1998!"), ("1999!", "2000!+1", "-2000!")),
    ("[0, 10^{5000}]", ("[0, 100^{2500}]",), ("[0, 10^{4999}]", "(0, 10^{5000}]")),
]
# Reference ‖ an approximation after the right value, rounded or cut.
APPROXIMATED = pairs(r"""
    \sqrt{2} ‖ \sqrt2\approx 1.41  ¦  \sqrt{2} ‖ \sqrt2\approx 1.4142
    10/3 ‖ \frac{10}{3}\approx 3.33
    10/3 ‖ \frac{10}{3} ≈ 3  ¦  \pi ‖ \pi\approx3.14  ¦  2/3 ‖ x=\frac23\approx 0.667
    5 ‖ x\approx5
    2/3 ‖ \frac23=\frac46\approx 0.66  ¦  123456 ‖ 123456\approx1.23\times10^5  ¦  5 ‖ 5\approx5.0
    2\sqrt{3}\text{ cm} ‖ 2\sqrt3\text{ cm}\approx 3.46\text{ cm}  ¦  e^{10} ‖ e^{10}\approx 22026
    2\sqrt{3}\text{ cm} ‖ 2\sqrt3\approx 3.46\text{ cm}  ¦  -\sqrt{2} ‖ -\sqrt2\approx -1.41
    \pi ‖ \pi\approx 3.1\approx 3.14  ¦  1-\frac{1}{e} ‖ 1-\frac1e\approx0.632
""")
# Reference ‖ its value, and after it what does not round it.
MISROUNDED = pairs(r"""
    5 ‖ 5\approx6  ¦  \pi ‖ \pi\approx100  ¦  \sqrt{2} ‖ \sqrt2\approx 1.73  ¦  x^2 ‖ x^2\approx x^3
    (1,2) ‖ (1,2)\approx(3,4)  ¦  5 ‖ x=5\approx 6  ¦  10/3 ‖ \frac{10}{3}\approx 4
    10/3 ‖ \frac{10}{3}\approx 3.34  ¦  \sqrt{2} ‖ \sqrt2\approx 1.415  ¦  \pi ‖ \pi \approx 3.15
    123456 ‖ 123456\approx1.24\times10^5  ¦  5 ‖ 5\approx 6\approx 5
    1000! ‖ 1000!\approx 10^{2567}
    -\sqrt{2} ‖ -\sqrt2\approx 1.41  ¦  1/3 ‖ \frac13\approx 33\%  ¦  5 ‖ 5 \approx 10
    95 ‖ 95\approx 90
    2\sqrt{3}\text{ cm} ‖ 2\sqrt3\approx 3.46\text{ m}  ¦  \sqrt{2} ‖ \sqrt2\approx x
    2\sqrt{3}\text{ cm} ‖ 2\sqrt3\text{ cm}\approx 3.46\text{ m}  ¦  5 ‖ 5 \approx 5 \ne 6
""")
# Each was or could be taken for the reference by a careless rule.
NEVER_CORRECT = pairs(r"""
    5\text{ m} ‖ 5\text{ ms}  ¦  5\text{ MW} ‖ 5\text{ mW}  ¦  5\text{ Pa} ‖ 5\text{ pa}
    \emptyset ‖ (3,1)  ¦  \emptyset ‖ [2,1)  ¦  (-\infty,5) ‖ x_1+3<5  ¦  \{1,2\} ‖ \{\{1,2\}\}
    \begin{pmatrix}3\\4\end{pmatrix} ‖ 2+\begin{pmatrix}1\\2\end{pmatrix}
    \begin{pmatrix}1\\2\end{pmatrix} ‖ A\begin{pmatrix}1\\2\end{pmatrix}
    \mathbb{R} ‖ \mathbb{Z}  ¦  23 ‖ 2!3  ¦  7 ‖ 4 = 7  ¦  7 ‖ x + 4 = 7  ¦  y = 2x + 3 ‖ 2x + 3
    r=2\cos\theta ‖ 2\cos\theta  ¦  \{x \mid x > 2\} ‖ \{x \in \mathbb{Z} \mid x > 2\}
    \{x \mid 0 < x < 5\} ‖ \{x \mid 0 < x < 5, x \ne 2\}  ¦  \{x \mid x > 2\} ‖ \{y \mid x > 2\}
    x<0 \text{ or } x>2 ‖ x<0 \text{ or } y>2  ¦  (1,3) ‖ 1=x \text{ or } x>3
    12\text{ m/s} ‖ 12\text{ m/s}^2  ¦  12\text{ m/s} ‖ 12\text{ m}
""")
# Never correct, and nothing that rules could call wrong.
UNDECIDED = pairs(r"""
    5 ‖ 4=5  ¦  5 ‖ n=4=5  ¦  0 ‖ 25x^2-1=0  ¦  9 ‖ 5 \quad 4  ¦  10 ‖ 5 5  ¦  cat ‖ act
    \text{CBA} ‖ \text{ABC}  ¦  AB ‖ BA  ¦  27 ‖ 26.67 \approx 27
    11111111100 ‖ 11, 111, 111, 100  ¦  1,3,5,\ldots,2n-1 ‖ 1,2,\ldots,n  ¦  3:4 ‖ 6:8
    3:4 ‖ 4:3
    (-\infty,1)\cup(2,\infty) ‖ (1,2)  ¦  2\sin 40^\circ ‖ 2\cos 40^\circ
    \sin 30^\circ ‖ \sin 30  ¦  x > 2 ‖ \{x \in \mathbb{R} : x > 2\}
    (-\infty,1)\cup(2,\infty) ‖ \{x \mid x<1 \text{ or } x>2\}
    6630 ‖ 6630.65  ¦  6630 ‖ 6630.65 \text{ cm}
    3/4 ‖ 3:4  ¦  1/3 ‖ 0.333  ¦  \sqrt{2} ‖ 1.414  ¦  3.14 ‖ \pi  ¦  3.14 ‖ 3.1416
    5 ‖ 5.0000001  ¦  2x ‖ x/2y  ¦  \frac{x}{2} ‖ 1/2x  ¦  \frac{1}{2x} ‖ 1/2x  ¦  2 ‖ \log 100
    \ln 5 ‖ \log 5  ¦  1, 234 ‖ 1,234  ¦  100, 200 ‖ 100,200
    2\frac{1}{2}\pi ‖ \pi  ¦  x ‖ X  ¦  2x ‖ 2y  ¦  a+B ‖ A+b  ¦  f(x) ‖ f'(x)
    f ‖ f'  ¦  x=5 ‖ y=5  ¦  x > 5 ‖ y > 5  ¦  x_1 ‖ x_2  ¦  x^2+C ‖ x^2
    2\pi n ‖ 2\pi k  ¦  \vec{a}+b ‖ b+\vec{a}
    \frac{\pi}{4}+k\pi ‖ \pi n + \frac{\pi}{4}  ¦  \sqrt{x^2} ‖ x  ¦  5 ‖ n
    (0, 1) ‖ [0, 1]  ¦  (1, 2) ‖ 1, 2  ¦  1, 2 ‖ (1, 2)
    \begin{pmatrix}1\\2\end{pmatrix} ‖ (1,2)
    \begin{pmatrix}1\\2\end{pmatrix} ‖ \begin{pmatrix}1&2\end{pmatrix}
    \begin{pmatrix}1&2\\3&4\end{pmatrix} ‖ \begin{vmatrix}1&2\\3&4\end{vmatrix}  ¦  5 ‖ 5\%
    0.05 ‖ 5\%  ¦  5\% ‖ 5  ¦  5\% ‖ 0.05  ¦  5 ‖ 500 cm  ¦  5 ‖ 5 fifths  ¦  12 ‖ 12 factorial
    5 ‖ 5 pairs  ¦  5 ‖ 5 squared  ¦  5 ‖ 5 thousand  ¦  5000 ‖ 5 thousand
    5 ‖ 5 \text{ million}  ¦  5 ‖ 5 dozen  ¦  5 ‖ 5 flurbs  ¦  5 apples ‖ 5 pears
    \frac{\pi}{6} ‖ 30^\circ  ¦  30^\circ + x ‖ 30+x  ¦  5 ‖ maybe 5  ¦  4:30 p.m. ‖ 4:30
    120_3 ‖ 120_4
    2\begin{pmatrix}1\\2\end{pmatrix} ‖ \begin{pmatrix}2\\2\end{pmatrix}
    x=1, y=2 ‖ x=2, y=1  ¦  x=1, y=2 ‖ 2, 1
    1, 2 ‖ 1, 1, 2  ¦  5 ‖ x=5, y=6  ¦  \{x : x = 3k\} ‖ x = 3k
    1, \{x : x = 2k\} ‖ 1, \{x : x = 3k\}  ¦  \infty + 1 ‖ \infty + 2  ¦  x\infty ‖ 2x\infty
    y=2x+3 ‖ 2x+3  ¦  x^2=4 ‖ x=2  ¦  x^2=4 ‖ x=\pm 2  ¦  five ‖ 5
    no solution ‖ infinitely many  ¦  no solution ‖ \emptyset  ¦  1011 ‖ 1011_2
    7 ‖ \sum_{k=1}^{7} 1  ¦  1 ‖ \int_0^1 1 \, dx  ¦  1 ‖ \lim_{x \to 0} \frac{\sin x}{x}
    2 ‖ \frac{dy}{dx}  ¦  15 ‖ 5!!  ¦  1 ‖ \frac{0}{0}  ¦  0 ‖ \frac{1}{0}  ¦  1 ‖ 0^0
    (x+y+z)^{50}(x-y)^{50}=1 ‖ (x+y+z)^{50}(x+y)^{50}=1
""")
# Never evaluated.
TOO_COMPLEX = [
    *texts(r"""
        9^{9^{9^{9}}}  ¦  10^{10^{10}}  ¦  ((9!)!)!  ¦  1000000!  ¦  \binom{1000000}{500000}
        2^{10000000}  ¦  (10^{9999})^{9999}  ¦  x^{99999999}  ¦  x^{e^{e^{e^{99}}}}
        \sqrt{2}^{99999}  ¦  \sum_{k=1}^{10^9} k  ¦  \prod_{k=1}^{10^9} k
    """),
    *("(" * 30 + "1" + ")" * 30, "{" * 500 + "1" + "}" * 500, r"\frac{1}{" * 26 + "2" + "}" * 26),
    *("1" * 1001, "+".join(["x"] * 300)),
]
# Problem ‖ reference ‖ content of the box.
WITH_PROBLEM = {
    "correct": pairs(r"""
        Factor $x^2-1$. ‖ (x-1)(x+1) ‖ (x+1)(x-1)  ¦  Is 1/2 more than 1/3? ‖ 1/2 ‖ 1/2
        Add -5 and 0. ‖ -5 ‖ -5  ¦  How many apples? ‖ 5 ‖ 5 apples
        How many hours? ‖ 12 ‖ 12 hours  ¦  What percent of the 10 are red? ‖ 50 ‖ 50\%
        What percent of the 10 are red? ‖ 50\% ‖ 50
        How fast, in feet per second? ‖ 12 ‖ 12\text{ ft/s}
        Which has probability 1/3, and which p? ‖ \frac{1}{3} ‖ \dfrac{1}{3}
        Find the derivative of $e^{x}$. ‖ e^x ‖ e^{x}
        Is $\sqrt{2}$ or $2$ irrational? ‖ \sqrt{2} ‖ \sqrt 2
    """),
    "incorrect": pairs(r"What percent of the 10 are red? ‖ 50 ‖ 40\%"),
    "undecided": pairs(r"""
        What is 12 * 13? ‖ 156 ‖ 12 \cdot 13  ¦  What is $12 \times 13$? ‖ 156 ‖ 12 \times 13
        Simplify $\sqrt{8}$. ‖ 2\sqrt{2} ‖ \sqrt{8}  ¦  Simplify 2/4. ‖ 1/2 ‖ 2/4
        Factor $x^2-1$. ‖ (x-1)(x+1) ‖ x^2 - 1  ¦  How many pears? ‖ 5 ‖ 5 apples
        How many pairs of socks? ‖ 5 ‖ 5 pairs of socks  ¦  How many hours? ‖ 12 ‖ 12 minutes
        It costs 50 percent less. How much is that? ‖ 50 ‖ 50\%  ¦  Find $m + n$. ‖ 13 ‖ m+n = 13
        Find $\left( a,b \right)$ and $|x+y|$. ‖ 3 ‖ |x + y| = 3
        Given $2x = 10$, find $x$. ‖ 10 ‖ 2x = 10  ¦  Find $m + n$. ‖ 13 ‖ m+n = 14
        How fast, in feet per second? ‖ 12 ‖ 12\text{ m/s}
        How fast, in km/h? ‖ 36 ‖ 10\text{ m/s}  ¦  Is it true? ‖ yes ‖ true
    """),
}
# By what is said of it: reference ‖ whole text ‖ marker, if there is one.
WHOLE_TEXTS = {
    ("correct", "equal"): pairs(r"""
        5 ‖ \boxed{4} wait, actually □  ¦  4, 5 ‖ $\boxed{4}$ and $□$  ¦  4, 5 ‖ $\boxed{4}, □$
        4, 5 ‖ $x = \boxed{4}$ or $x = □$  ¦  4, 5 ‖ $\boxed{4} \quad □$
        x=4, y=5 ‖ $x = \boxed{4}$ and $y = □$  ¦  5 ‖ First $\boxed{4}$. Then $□$.
        5 ‖ <think>\boxed{6}</think> $□$  ¦  5 ‖ ```⏎\boxed{6}⏎```⏎So $□$.
        3, 5 ‖ (a) $\boxed{3}$⏎⏎(b) $□$  ¦  3, 5 ‖ **(a)** \(\boxed{3}\)⏎**(b)** \(□\)
        5 ‖ $□$⏎```python⏎print(r'\boxed{6}')⏎```  ¦  18 ‖ A: 18 ‖ A:  ¦  18 ‖ A: 17⏎A: 18 ‖ A:
        9 * 2 = 18⏎#### 18 ‖ #### 18 ‖ ####  ¦  18 ‖ #### $18 ‖ ####  ¦  5 ‖ 答案：5 ‖ 答案
        5 ‖ 答案是5 ‖ 答案  ¦  18 ‖ 所以一共是18个。⏎答案：18。 ‖ 答案：  ¦  5 ‖ $\boxed{x = □}$
        [0, 5] ‖ $\boxed{\left\{0\right. }$. So $\boxed{[0,5]}$  ¦  \$5 ‖ \$□
        50\% ‖ $\boxed{50}\%$  ¦  5\text{ m} ‖ $\boxed{500}$ cm.
    """),
    ("incorrect", "different"): pairs(r"""
        4 ‖ \boxed{4} wait, actually □  ¦  5 ‖ 答案是6 ‖ 答案  ¦  5\text{ m} ‖ $□$ cm.
    """),
    ("undecided", "outside_box"): pairs(r"9 ‖ \boxed{4} □"),
    ("undecided", "other_names"): pairs(r"x=5, y=4 ‖ $x = \boxed{4}$ and $y = □$"),
    ("incorrect", "hedged"): pairs(r"""
        5 ‖ $\boxed{4}$ or $□$  ¦  5 ‖ $\boxed{4}$ and $□$  ¦  18 ‖ #### 18 or 19 ‖ ####
    """),
    ("undecided", "several_boxes"): pairs(
        r"3, 6 ‖ (a) $\boxed{3}$⏎(b) $□$  ¦  4, 5 ‖ One is $\boxed{4}$. The other is $□$."
    ),
    ("incorrect", "no_answer"): pairs(r"""
        5 ‖ <think>□</think> I do not know.  ¦  17 ‖ see step 17  ¦  18 ‖ The answer is 18.
        18 ‖ \boxed{}  ¦  18 ‖ A: 18
    """),
    ("undecided", "open_thinking"): pairs(r"5 ‖ <think>□"),
    ("undecided", "not_understood"): pairs(r"[0, 5) ‖ $\boxed{[0, 5\}}$"),
    ("undecided", "needs_percent"): pairs(r"50 ‖ $\boxed{50}\%$  ¦  50 ‖ \boxed{50} percent"),
}


@pytest.mark.parametrize(("reference", "answer"), CORRECT + APPROXIMATED)
def test_equal_answers_are_correct_and_an_approximation_that_rounds_one_adds_nothing(
    reference, answer
):
    assert outcome(reference, boxed(answer)) == ("correct", "equal")


@pytest.mark.parametrize(
    ("pair", "reason"),
    [*((pair, "different") for pair in DIFFERENT), *((pair, "hedged") for pair in HEDGED)],
)
def test_other_values_and_several_for_one_are_incorrect(pair, reason):
    assert outcome(pair[0], boxed(pair[1])) == ("incorrect", reason)


@pytest.mark.parametrize(("reference", "right", "wrong"), LONG)
def test_integers_of_any_length_are_compared(reference, right, wrong):
    verdicts = [judged(problem(reference), boxed(answer)) for answer in right]
    assert {verdict.label for verdict in verdicts} == {"correct"}
    assert len({verdict.extracted for verdict in verdicts}) == 1
    for answer in wrong:
        assert outcome(reference, boxed(answer)) == ("incorrect", "different"), answer


@pytest.mark.parametrize(("reference", "answer"), NEVER_CORRECT + MISROUNDED)
def test_what_only_looks_alike_or_stands_beside_another_value_is_never_correct(reference, answer):
    assert outcome(reference, boxed(answer))[0] != "correct"


@pytest.mark.parametrize(("reference", "answer"), UNDECIDED)
def test_what_rules_cannot_tell_is_undecided(reference, answer):
    assert outcome(reference, boxed(answer))[0] == "undecided"


@pytest.mark.parametrize("answer", TOO_COMPLEX)
def test_what_could_blow_up_is_never_evaluated(answer):
    assert outcome("1", boxed(answer)) == ("undecided", "too_complex")
    assert Math().check_reference(problem(answer))


@pytest.mark.parametrize("label", WITH_PROBLEM)
def test_the_problem_says_what_counts(label):
    for text, reference, answer in WITH_PROBLEM[label]:
        assert outcome(reference, boxed(answer), text)[0] == label, (text, answer)


@pytest.mark.parametrize("said", WHOLE_TEXTS, ids="-".join)
def test_the_final_answer_is_the_last_group_of_boxes_or_follows_the_marker(said):
    for reference, text, *marker in WHOLE_TEXTS[said]:
        args = {"marker": marker[0]} if marker else {}
        assert outcome(reference, text, **args) == said, text
    deep = "\\boxed{" * 40 + "5" + "}" * 40
    assert outcome("5", deep) == ("undecided", "too_complex")


@pytest.mark.parametrize("reference", sorted({row[0] for row in CORRECT + DIFFERENT}))
def test_every_reference_is_correct_for_itself(reference):
    assert outcome(reference, boxed(reference))[0] == "correct"
    if r"\ldots" not in reference:
        assert Math().check_reference(problem(reference)) is None


@pytest.mark.parametrize(
    ("reference", "args", "says"),
    [
        ("two\nlines", {}, "several lines"), ("two\nlines", {"marker": "####"}, "several lines"),
        ("9" * 1001, {}, "1000 characters"), (r"\boxed{}", {}, "no answer"),
        ("all powers of 2", {}, "not understood"),
        ("all positive even integers", {}, "more than 3 words"),
        ("1, 2, \\ldots, n", {}, "ellipsis"), (r"\{x : x = 3k\}", {}, "condition"),
        ("1/2x", {}, "two ways"), ("5 5", {}, "two numbers"), (r"\sum_{k=1}^{n} k", {}, "a sum"),
        ("maybe 5", {}, "open which"), (r"\{x|x=3k,k\in \mathbb{Z}\}", {}, "condition"),
        (r"2+\begin{pmatrix}1\\2\end{pmatrix}", {}, "not understood"),
        (r"n \equiv 1 \pmod{3}", {}, "not understood"), ("18", {"maker": "####"}, "maker"),
        ("18", {"marker": 4}, "not 4"), ("18", {"marker": " "}, "marker"),
        ("18", {"units": "required"}, "nothing else"),
        ("two\nlines\n#### 5", {"marker": "####"}, None),
        ("\\begin{pmatrix}\n1 \\\\\n2\n\\end{pmatrix}", {}, None), ("no solution", {}, None),
    ],
)  # fmt: skip
def test_unfit_references_are_told_before_a_run(reference, args, says):
    fault = Math().check_reference(problem(reference, **args))
    assert (says is None and fault is None) or (says and fault and says in fault)

"""Other values, operators and denials beside a box, as far from those of ``test_math_beside``."""

from __future__ import annotations

import pytest
from reckoning import outcome

# Their plain reading is another value than 5, or that 5 is wrong.
NEVER_CORRECT = [
    r"3 less than \boxed{5}",
    r"the negative of \boxed{5}",
    r"five hundred \boxed{5}",
    r"3 hours and $\boxed{5}$ minutes",
    r"\$3 and \boxed{5} cents",
    r"10 times \boxed{5}",
    r"3 per \boxed{5}",
    r"neither 4 nor \boxed{5}",
    r"sqrt \boxed{5}",
    r"the square root $\boxed{5}$",
    r"½\boxed{5}",
    r"3 out of \boxed{5}",
    r"3–\boxed{5}",
    r"3 – $\boxed{5}$",
    r"±\boxed{5}",
    r"−$\boxed{5}$",
    r"$x - \boxed{5}$",
    r"x²\boxed{5}",
    "x = -\n\\boxed{5}",
    "$$x = 3 +\n\\boxed{5}$$",
    "The answer is not:\n- $\\boxed{5}$",
    "The following is wrong:\n\n$$\\boxed{5}$$",
    r"The answer can't be $\boxed{5}$.",
    r"So the answer is definitely not $\boxed{5}$.",
    r"We get $x = 3$ or $\boxed{5}$.",
    r"The answers are 4 and \boxed{5}",
    r"The solutions are $x=\boxed{5}$ and $x=7$.",
    r"\boxed{5} or \$7",
    r"$\boxed{5} \text{ and } 7$",
    r"$x = \boxed{5}, 7$",
    r"ratio \boxed{5} to 7",
    r"between $\boxed{5}$ and $7$",
    r"$\boxed{5}$–$7$",
    r"\boxed{5}-7",
    r"$\boxed{5}$ out of $7$",
    r"$\boxed{5}$ per $7$",
    r"$\boxed{5}$ in 7",
    r"\boxed{5} hundredths",
    r"\boxed{5} halves",
    r"\boxed{5} and one half",
    r"\boxed{5} 1/2",
    r"\boxed{5}½",
    r"\boxed{5}²",
    r"$\boxed{5}\sqrt{2}$",
    r"$\boxed{5} \times 10^{-3}$",
    r"$\boxed{5}{,}000$",
    r"\boxed{5}.000.000",
    r"$\boxed{5} \pm 2$",
    r"$\boxed{5} < x$",
    r"$x \in [\boxed{5}, 7]$",
    r"$\boxed{5} = 2 + 7$",
    r"$\boxed{5} \equiv 7$",
    "$$\\boxed{5}\n+ 3$$",
    "\\[\\boxed{5}\n- 3\\]",
    "\\boxed{5}\n\\cdot 3",
    r"$\boxed{5}$ minutes and $30$ seconds",
    r"\boxed{5} times 2",
    r"$\boxed{5} \bmod 3$",
    r"\boxed{5} mod 3",
    "is not\n$$\n\\boxed{5}\n$$",
    r"$\boxed{5}$ when $x>0$, else $7$",
    r"$\boxed{5}$ is not the answer.",
    r"\boxed{5} isn't right",
    "\\boxed{5}\n\nOops, it is 7.",
    "\\boxed{5}\n\nActually, it's 7",
    r"\boxed{5}. Sorry, I made an error; it is 7.",
    "\\boxed{5}\n\nHowever, the answer must be $7$.",
    "\\boxed{5}\n\nSo the result is 7.",
    "\\boxed{5}\n\nThis answer is wrong.",
    "\\boxed{5}\n\nI was wrong.",
    r"\boxed{5}. I meant 7.",
    r"$\boxed{5}$ is too small",
    "\\boxed{5}\n\nLet me recalculate. It should be 7.",
    "\\boxed{5}\n\nThe answer isn't right.",
    r"\boxed{5}。不对，是7",
]
CORRECT = [
    r"Step 3: \boxed{5}",
    r"Question 1: \boxed{5}",
    r"3) $\boxed{5}$",
    r"✅ $\boxed{5}$",
    r"which is not 7 but $\boxed{5}$",
    r"The other root, $-7$, is not valid, so $x = \boxed{5}$.",
    r"We cannot do better, so the maximum is $\boxed{5}$.",
    r"That leaves $\boxed{5}$ of the 7 apples.",
    r"$\boxed{5}$ is not a multiple of 3",
    r"2 boys and 3 girls make \boxed{5}",
    r"$$2 + 3 = 5.$$Since $\boxed{5}$ is prime, we are done.",
    r"$\boxed{5}\tag{1}$",
    r"$\boxed{5}$ ✅",
    "\\boxed{5}\n\nNo other values work.",
    "\\boxed{5}\n\nIt is 2 more than 3.",
    r"so it is $\boxed{5}$ (mod 7)",
    "\\boxed{5}\n\nLet me know if you need more help!",
]


@pytest.mark.parametrize("text", NEVER_CORRECT)
def test_another_value_beside_the_box_is_never_accepted(text):
    assert outcome("5", text)[0] != "correct"


@pytest.mark.parametrize("text", CORRECT)
def test_other_words_leave_the_answer_alone(text):
    assert outcome("5", text) == ("correct", "equal")

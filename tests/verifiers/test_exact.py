import json

import pytest
from generations import problem
from hypothesis import given
from hypothesis import strategies as st
from judging import judged
from text_tables import pairs

from heavydistill.schema import Problem
from heavydistill.verifiers.exact import Exact

BOX = r"Working ... so \boxed{%s}."
# Reference ‖ content of the box.
EQUAL = pairs(r"""
    18 ‖ 18  ¦  18 ‖ $18$  ¦  18 ‖ $18.$  ¦  18 ‖ \(18\)  ¦  18 ‖ +18  ¦  18 ‖ 18.000
    18 ‖ \text{18}  ¦  18 ‖ １８  ¦  18 ‖ ١٨  ¦  -18 ‖ −18  ¦  -18 ‖ –18  ¦  -18 ‖ - 18  ¦  0 ‖ -0
    0 ‖ -0.00  ¦  1234 ‖ 1,234  ¦  1234 ‖ 1{,}234  ¦  1234 ‖ 1\,234  ¦  1234 ‖ 1,\!234
    1,234,567 ‖ 1234567.0  ¦  0.5 ‖ 1/2  ¦  0.50 ‖ \frac{1}{2}  ¦  1/2 ‖ \dfrac12
    1/2 ‖ \frac{ 2 }{ 4 }  ¦  1/2 ‖ ½  ¦  1/2 ‖ .5  ¦  -1/2 ‖ \frac{-1}{2}  ¦  -1/2 ‖ -\tfrac{1}{2}
    3/2 ‖ 1 1/2  ¦  3/2 ‖ 1½  ¦  3/2 ‖ 1\frac{1}{2}  ¦  1000 ‖ 1e3  ¦  1/3 ‖ 2/6
    \frac{\sqrt{3}}{2} ‖ \frac{\sqrt{3}}{2}  ¦  \frac{\sqrt{3}}{2} ‖ \dfrac{ \sqrt{3} }{2}
    \left(1, 2\right) ‖ (1,2)  ¦  the sum is \boxed{7} ‖ 7  ¦  Tuesday ‖ \text{Tuesday}
    Tuesday ‖ \textbf{Tuesday}.  ¦  two  words ‖ two words  ¦  x + 1 ‖ x+1  ¦  50% ‖ 50\%
    10² ‖ 10²  ¦  4:30 p.m. ‖ 4:30 p.m.
""")
DIFFERENT = pairs(r"""
    18 ‖ 17  ¦  18 ‖ -18  ¦  18 ‖ 1.8  ¦  18 ‖ 18.0000001  ¦  1/3 ‖ 0.333333333333
    1.6e-19 ‖ 3.2e-19  ¦  1/2 ‖ \frac{2}{1}  ¦  1/2 ‖ 1\frac{1}{2}  ¦  11/2 ‖ 1½
    18 ‖ see step 17  ¦  18 ‖ 5 or 18  ¦  18 ‖ no solution  ¦  Tuesday ‖ Wednesday
    Tuesday ‖ tuesday  ¦  cat ‖ act  ¦  A ‖ B  ¦  Tuesday ‖ 18
""")
NEEDS_UNITS = pairs(r"""
    18 ‖ 18%  ¦  18 ‖ \$18  ¦  18 ‖ 18 dollars  ¦  0.5 ‖ 50\%  ¦  18 cm ‖ 18
    5 apples ‖ 6 apples  ¦  2x ‖ 2y
""")
NEEDS_SYMBOLIC = pairs(r"""
    \sqrt{8} ‖ 2\sqrt{2}  ¦  102 ‖ 10²  ¦  100 ‖ 10^2  ¦  5 ‖ x = 5  ¦  5 ‖ n=4=5  ¦  10 ‖ 5 5
    55 ‖ 5\,5  ¦  1234 ‖ 1, 234  ¦  1234 ‖ 1 234  ¦  0.5 ‖ 0,5  ¦  1,2 ‖ 2,1  ¦  3:4 ‖ 6:8
    x-1 ‖ 1-x  ¦  120_3 ‖ 120_4  ¦  1/3 ‖ 0.333...  ¦  0 ‖ 1/0  ¦  [0,1] ‖ (0,1)
    18 ‖ 1e99999999
""")
# (reference, whole answer text, marker, label, reason)
WHOLE_TEXTS = [
    ("18", r"\boxed{17} wait, \boxed{18}", None, "correct", "equal"),
    ("17", r"\boxed{17} wait, \boxed{18}", None, "incorrect", "different"),
    ("18", r"\boxed{18} and \boxed{17", None, "correct", "equal"),
    ("18", r"\boxed{18", None, "incorrect", "no_answer"),
    ("5", r"} \boxed {5} }", None, "correct", "equal"),
    ("5", r"\boxed{ \boxed{5}", None, "correct", "equal"),
    ("5", r"\boxed{\boxed{5}}", None, "correct", "equal"),
    ("5", "A: 4\nno\nA: 5 \nmore", "A:", "correct", "equal"),
    ("18", r"\boxed{}", None, "incorrect", "no_answer"),
    ("18", r"\boxed{ . }", None, "incorrect", "no_answer"),
    ("17", "see step 17", None, "incorrect", "no_answer"),
    ("18", "The answer is 18.", None, "incorrect", "no_answer"),
    ("18", "#### 18", None, "incorrect", "no_answer"),
    ("9 * 2 = 18\n#### 18", "#### 18", "####", "correct", "equal"),
    ("9 * 2 = 18\n#### 1,800", "so\nA: 3\n#### 1800\nbye", "####", "correct", "equal"),
    ("9 * 2 = 18\n#### 18", r"it is \boxed{18}", "####", "correct", "equal"),
    ("#### 18", "#### 18\n" + r"\boxed{17}", "####", "incorrect", "different"),
    ("18", "18", "A:", "incorrect", "no_answer"),
    ("18", "A:\n18", "A:", "incorrect", "no_answer"),
]  # fmt: skip


def exact(reference: str, **fields: str) -> Problem:
    return problem("?", "exact", reference=reference, **fields)


def outcome(reference: str, text: str, marker: str | None = None) -> tuple[str, str]:
    args = "{}" if marker is None else json.dumps({"marker": marker})
    verdict = judged(exact(reference, verifier_args=args), text)
    return verdict.label, verdict.reason


@pytest.mark.parametrize(
    ("reference", "answer", "said"),
    [
        *((*pair, ("correct", "equal")) for pair in [*EQUAL, ("18", " 18. ")]),
        *((*pair, ("incorrect", "different")) for pair in DIFFERENT),
        *((*pair, ("undecided", "needs_units")) for pair in NEEDS_UNITS),
        *((*pair, ("undecided", "needs_symbolic")) for pair in NEEDS_SYMBOLIC),
        ("23", "2\u20623", ("undecided", "needs_symbolic")),
        ("18", "1" * 1001, ("undecided", "too_complex")),
    ],
)
def test_what_this_kind_can_tell_is_decided_and_nothing_else(reference, answer, said):
    assert outcome(reference, BOX % answer) == said


@pytest.mark.parametrize(("reference", "text", "marker", "label", "reason"), WHOLE_TEXTS)
def test_the_final_answer_is_the_last_box_or_follows_the_marker(
    reference, text, marker, label, reason
):
    assert outcome(reference, text, marker) == (label, reason)


def test_equal_answers_are_extracted_alike_so_that_votes_meet():
    verdicts = [judged(exact("2"), BOX % answer) for answer in ("0.50", "1/2", r"\frac12")]
    assert {verdict.extracted for verdict in verdicts} == {"0.5"}
    assert verdicts[0].verifier == "exact@2"


@given(st.text(), st.text(min_size=1).filter(lambda text: "\n" not in text))
def test_any_answer_text_gets_a_verdict(text, reference):
    judged(exact(reference), text)
    judged(exact(reference), BOX % text)


@given(st.text(alphabet="0123456789.,/-+ e½²{}\\$", min_size=1, max_size=12))
def test_an_answer_equal_to_its_reference_is_never_wrong(text):
    verdict = judged(exact(f"\\boxed{{{text}}}"), f"\\boxed{{{text}}}")
    assert verdict.label == "correct" or verdict.reason == "no_answer"


@pytest.mark.parametrize(
    ("reference", "args", "says"),
    [
        ("two\nlines", "{}", "several lines"),
        ("two\nlines", '{"marker": "####"}', "several lines"),
        ("9" * 1001, "{}", "1000 characters"), (r"\boxed{}", "{}", "no answer"),
        ("18", '{"maker": "####"}', "maker"), ("18", '{"marker": 4}', "not 4"),
        (r"$\boxed{3}$ or $\boxed{5}$", "{}", "different contents"),
        (r"$\boxed{5}$, so $\boxed{ 5 }$", "{}", None),
        ("two\nlines\n#### 5", '{"marker": "####"}', None), ("18", "{}", None),
    ],
)  # fmt: skip
def test_unfit_references_are_told_before_a_run(reference, args, says):
    fault = Exact().check_reference(exact(reference, verifier_args=args))
    assert (says is None and fault is None) or (says and says in fault)

from __future__ import annotations

import pytest
from linear import assert_linear

from heavydistill.verifiers.extraction import boxed, final_answer


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"so \boxed{4} wait, \boxed{5}", "5"),
        (r"\boxed{\frac{\sqrt{3}}{2}}", r"\frac{\sqrt{3}}{2}"), (r"\boxed {\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\boxed{5}}", "5"), (r"\boxed{ \boxed{5}", "5"), (r"} \boxed{5} }", "5"),
        (r"\boxed{4} and then \boxed{\frac{1}{2}", "4"), (r"\boxed{}", ""), (r"\boxed{5", None),
        ("the answer is 5", None),
    ],
)  # fmt: skip
def test_boxed_takes_the_last_complete_box(text, content):
    assert boxed(text) == content


def test_boxed_takes_linear_time_on_a_text_of_open_boxes():
    assert boxed(r"\boxed{" * 50_000) is None
    assert_linear(boxed, lambda size: r"\boxed{" * (size // 7))


def test_a_box_wins_over_the_last_marker_whose_line_counts():
    assert final_answer("\\boxed{4}\n#### 5", "####") == "4"
    assert final_answer("A: 4\nno\nA: 5 \nmore", "A:") == "5"
    assert final_answer("#### 5", None) is final_answer("5", "A:") is None

"""Which attempts a text names; ``tests/curate/test_labels`` has several, and one's own."""

import pytest

from heavydistill.text.mentions import named


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("Attempt 3 drops a sign.", {3}),
        ("Attempts 1, 4 and 7 agree; attempt #2 does not.", {1, 2, 4, 7}),
        ("Compare attempts 2-5.", {2, 3, 4, 5}), ("attempts 2–5", {2, 3, 4, 5}),
        ("attempts 1 through 4", {1, 2, 3, 4}), ("Attempts 1,3,5 get 12.", {1, 3, 5}),
        ("Thinker 12 (and thinkers 3 & 4)", {3, 4, 12}),
        ("**Attempt 3** and Attempt **4**, `attempt 5`, Attempt_6", {3, 4, 5, 6}),
        ("Attempts #1, #4 and #7", {1, 4, 7}),
        ("attempt (3), attempt no. 4, attempt number 5", {3, 4, 5}), ("\\text{Attempt } 3", {3}),
        ("Attempt 1 - 42\nAttempt 2 - 43", {1, 2}), ("In attempt 3, 12 is added.", {3}),
        ("The second attempt and the first, third and fifth thinkers", {1, 2, 3, 5}),
        ("The 1st and 3rd attempts", {1, 3}), ("The first two attempts", {1, 2}),
        ("Solution 2 forgets a case. In solution 4 it is there.", {2, 4}),
        ("The third response overlooks zero.", {3}),
        ("Candidate 2 miscounts; reference 5 claims 7", {2, 5}),
        ("尝试3、5和8都得到4，第2个尝试漏了一项", {2, 3, 5, 8}),
        ("尝试一得到5，尝试十二得到7，尝试②也是", {1, 2, 12}),
        ("第一个和第三个解答的结果相同", {1, 3}), ("前两个尝试，尝试4到6", {1, 2, 4, 5, 6}),
        ("方案2忽略了边界", {2}), ("An attempt at 3 o'clock", set()),
        ("solution: 42 is not it", set()), ("Step 2 of the first step", set()),
        ("attempts 3 shots, attempt 1.5", set()), ("", set()),
    ],
)  # fmt: skip
def test_attempts_are_named_by_number(text, numbers):
    assert named(text).numbers == numbers

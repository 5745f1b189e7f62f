"""Which attempts a text names; ``tests/curate/test_labels`` has several, and one's own."""

import pytest

from heavydistill.text.mentions import named, speaks_of_attempts


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


@pytest.mark.parametrize(
    ("answer", "is_leak"),
    [
        ("Based on the attempts, the sum is 7.", True), ("Attempt 2 is right: 7", True),
        ("All of the given attempts get 7, and so do I.", True),
        ("Remark on the attempts: the first and second give 7.", True),
        ("The candidate answers differ; it is 7.", True), ("Most attempts agree on 7.", True),
        ("综合给出的尝试，答案是7", True), ("根据这些候选答案，结果为7", True),
        ("The sum is 7.", False), ("After two attempts I get 7.", False),
        ("All my attempts gave 7.", False), ("The candidates for x are 2 and 7.", False),
        ("The best programmers write 7.", False), ("我尝试了几次，答案是7", False), ("", False),
    ],
)  # fmt: skip
def test_an_answer_leaks_if_it_speaks_of_attempts_that_its_reader_never_saw(answer, is_leak):
    assert speaks_of_attempts(answer) == is_leak


def test_attempts_of_the_problem_are_no_leak():
    problem = "Ann throws 9 times. Of her attempts, two thirds score. How many do not?"
    assert not speaks_of_attempts("Of the attempts, 6 score, so 3 do not.", problem)
    assert speaks_of_attempts("Attempt 2 is right: 3.", problem)

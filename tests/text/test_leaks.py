import json
from pathlib import Path

import pytest
from generations import problem
from linear import assert_linear

from heavydistill.text.leaks import leaks_reference

ROOT = Path(__file__).parents[2]
SOLUTIONS = ROOT / ".." / "shared" / "data" / "gsm8k_solutions_k4.jsonl"
WORKED = (
    "Janet sells the eggs that are left over after breakfast and baking, which makes 16 - 3 - 4 = "
    "9 of them every single day of the week.\n#### 18"
)
IN_CHINESE = (
    "小明先把全部的苹果平均分给三个同学，然后把剩下来的苹果一个不留地送给了他的妹妹。\n#### 18"
)


@pytest.mark.parametrize(
    "text",
    [
        "According to the answer key, it is 5.", "The answer key says 5.",
        "This matches the ground truth.", "The reference answer is 5, so attempt 2 is wrong.",
        "**Reference answer:** 5", "As per the provided reference solution, x = 5.",
        "Comparing with the reference solution, the second step is wrong.",
        "I recall the official answer: 5.", "Let me work backwards from the reference answer.",
        "this agrees with the ground-truth answer",
        "Checking my answer against the answer key shows that they agree.",
        "The expected answer is 5.", "which matches the expected answer",
        "I was given the correct answer, 5.", "We were told that the answer is 5.",
        "Knowing that the correct answer is 5, I choose attempt 1.",
        "The correct answer is known to be 5.", "The hint says the correct answer is 5.",
        "根据参考答案，结果是5。", "参考答案是5", "**标准答案**：5", "这与标准答案一致",
        "已知正确答案是5", "题目给出了正确答案", "给定的正确答案是5，所以尝试2对",
    ],
)  # fmt: skip
def test_who_speaks_of_the_reference_as_of_something_seen_knows_it(text):
    assert leaks_reference(problem(), [text])
    assert leaks_reference(problem(), ["", f"First, 2 + 3 = 5. {text} So we are done."])


@pytest.mark.parametrize(
    "text",
    [
        "The correct answer is 5.", "Let me verify with the expected value.",
        "In the reference frame of the train, by reference to theorem 3.",
        "Without the answer key, I check it myself.", "I don't have access to the ground truth.",
        "No reference answer is given.",
        "If the reference answer were 6, attempt 1 would be right.",
        "The expected answer is probably an integer.", "The expected answer is an integer.",
        "So the expected answer is 42.", "Our target answer is 24.",
        "We are given the answer choices (A) 5 and (B) 6.",
        "We are told that the answer is of the form m/n.", "We're told the answer is an integer.",
        "Given that the correct answer is a multiple of 3, it is 6.",
        "Attempt 2 claims that the reference answer is 6.", "按照标准答案的格式给出",
        "预期答案是一个整数", "已知正确答案只有一个", "I think the expected answer is 12.",
        "This matches the expected answer format.", "The final answer is given by x = 5.",
        "The answer is given in simplest form.",
        "The prompt says the final answer should be in \\boxed{}.",
        "Reference answer 3 and reference solution #2 agree.", "The reference solutions agree.",
        "I was given three apples; we know that the answer is positive.",
        "Given that the answer must be an integer, it is 5.", "正确答案是5", "标准答案应该是5",
        "没有参考答案，可能参考答案是6", "参考系，标准差是2",
    ],
)  # fmt: skip
def test_what_is_merely_right_supposed_or_denied_is_no_leak(text):
    assert not leaks_reference(problem(), [text, text])


def test_words_that_the_problem_uses_itself_are_no_leak():
    text = "The ground truth is 1 and the prediction is 0.9."
    assert leaks_reference(problem(), [text])
    assert not leaks_reference(problem("The ground truth is 1. What is the loss?"), [text])
    assert not leaks_reference(problem("标准答案是B的概率是多少？"), ["标准答案是B的概率是1/4"])


def test_a_test_of_a_program_expects_an_answer_that_everybody_may_know():
    text = "For 2 we get 4, which matches the expected answer."
    assert leaks_reference(problem(), [text])
    assert not leaks_reference(problem(verifier="code"), [text])


@pytest.mark.parametrize("reference", [WORKED, IN_CHINESE])
def test_a_worked_solution_that_nobody_showed_is_no_coincidence(reference):
    asked = problem(reference=reference, args={"marker": "####"})
    repeated = reference.partition("\n")[0]
    assert leaks_reference(asked, ["", f"So: {repeated} It is 18."])
    assert leaks_reference(asked, [repeated.upper()])
    assert not leaks_reference(asked, ["", repeated], shown=["Nothing.", f"I say: {repeated}"])
    told = problem(f"{repeated} How many?", reference=reference, args={"marker": "####"})
    assert not leaks_reference(told, [repeated])
    assert not leaks_reference(asked, [repeated[: len(repeated) // 3]])


def test_numbers_alone_do_not_repeat_a_solution():
    numbers = " = ".join(str(number) for number in range(30))
    asked = problem(reference=f"We have {numbers} = x\n#### 5", args={"marker": "####"})
    assert not leaks_reference(asked, [f"We have {numbers} = x"])


def test_a_reference_that_is_the_answer_itself_may_be_given():
    words = " ".join(f"word{number}" for number in range(40))
    for verifier in ("choice", "code", "procedural", "exact", "math", "my_own"):
        assert not leaks_reference(problem(verifier=verifier, reference=words), [words])
    boxed = f"\\boxed{{{words}}}"
    assert not leaks_reference(problem(reference=boxed), [boxed])
    assert leaks_reference(problem(verifier="instructions", reference=words), [words])


@pytest.mark.skipif(not SOLUTIONS.is_file(), reason="the real data is not here")
def test_of_real_solutions_that_were_written_alone_hardly_any_seems_to_know_the_reference():
    rows = [json.loads(line) for line in SOLUTIONS.read_text(encoding="utf-8").splitlines()]
    leaks = [
        leaks_reference(
            problem(row["question"], reference=row["ground_truth"], args={"marker": "A:"}),
            [one["solution"]],
        )
        for row in rows
        for one in row.values()
        if isinstance(one, dict)
    ]
    # Their writers were trained on solutions of the same hand.
    assert sum(leaks) < 0.015 * len(leaks)


@pytest.mark.parametrize(
    "piece",
    [
        "answer ", "the answer key is ", "given the correct answer ", "参考答案", "题目已经给出",
        "a, ", "   ", "The quick brown fox jumps over the lazy dog and ",
    ],
)  # fmt: skip
def test_searching_takes_linear_time(piece):
    asked = problem(reference=WORKED, args={"marker": "####"})
    assert_linear(
        lambda text: leaks_reference(asked, [text]), lambda size: piece * (size // len(piece))
    )

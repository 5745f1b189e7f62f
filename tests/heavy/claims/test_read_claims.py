"""The reader of claims: precision and recall on the labelled files, and clauses easily misread.

Messages about the labelled files show counts only.
"""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavydistill.heavy.claims import read_claims

HERE = Path(__file__).parent
CACHE = ["12", "15", "12", "20", "7"]
CLAUSES = [
    # Names of attempts
    ("Attempts 1 and 3 are both correct, while attempts 2, 4 and 5 are wrong.", "1R 2W 3R 4W 5W"),
    ("Both attempt 1 and attempt 3 arrive at the correct answer of 12.", "1R 3R"),
    ("Neither attempt 2 nor attempt 4 is correct.", "2W 4W"),
    ("Attempts 2 (15), 4 (20), and 5 (7) are incorrect.", "2W 4W 5W"),
    ("All attempts except attempt 4 are wrong.", "1W 2W 3W 4R 5W"),
    ("Attempt 5 is the only correct one.", "1W 2W 3W 4W 5R"),
    ("So attempts 1 and 3 are correct and the others are wrong.", "1R 2W 3R 4W 5W"),
    ("The attempts differ: the first is right, the second is wrong.", "1R 2W"),
    ("The attempts disagree. None of them is right.", "1W 2W 3W 4W 5W"),
    ("#3 is right and #2 is wrong.", "2W 3R"),
    ("Correct attempts: 1, 3", "1R 3R"),
    ("Attempt 6 is wrong.", ""),
    ("My first attempt was wrong.", ""),
    ("On the second attempt, I get 12, which is right.", ""),
    ("Unlike attempt 1, attempt 2 is wrong.", "2W"),
    ("Attempt 3 has three equations. The first two are right.", ""),
    ("Attempt 3 solves a cubic. One root is right, the other two are wrong.", ""),
    ("Attempt 1's method and attempt 2's method differ. Both are right.", ""),
    ("One of attempts 1 and 2 is wrong.", ""),
    ("Not all attempts are right.", ""),
    # Answers
    ("Attempts 1 and 3 say 12. Attempt 2 says 15. 15 is wrong. 12 is correct.", "1R 2W 3R"),
    ("Attempts 1 and 3 got 12. The attempts that got 12 are correct.", "1R 3R"),
    ("The attempts that got 12 are correct.", ""),
    ("So the answer is 12.", ""),
    ("Attempt 4 arrives at 20, which is incorrect.", "4W"),
    ("Attempt 4 uses the formula n(n-1), which is wrong.", ""),
    ("The first factor, 12, is correct.", ""),
    # Lists, titles and tables
    ("### Attempt 2\n\nIt double counts.\n\n**Verdict:** Incorrect", "2W"),
    ("Calculating.\nAttempt 2: 15 wrong\nAttempt 3: 12 right\n3+4=7", "2W 3R"),
    ("| Attempt | Answer | Verdict |\n|---|---|---|\n| 1 | 12 | ✓ |\n| 2 | 15 | wrong |", "1R 2W"),
    ("✅ Attempt 1: 12\n❌ Attempt 2: 15", "1R 2W"),
    ("- Attempt 1 (12) ✓\n- Attempt 2 (15): incorrect, forgets zero", "1R 2W"),
    # Steps and parts
    ("Attempt 4 makes an arithmetic mistake.", ""),
    ("In attempt 2 the first line is wrong, the rest is correct.", ""),
    ("Attempt 2's formula is wrong. In attempt 3, the formula is right.", ""),
    ("The formula of attempt 2 gives 0, wrong.", ""),
    ("Attempt 3 is correct about the sign.", ""),
    ("Attempt 2 is right until the last line.", ""),
    ("Attempt 2: right idea, wrong execution.", ""),
    ("Attempt 2 says that 13 is prime. Right.", ""),
    ("Attempt 1: 3·5 = 15, correct. Then it adds 1. Then it goes on.", ""),
    ("Attempt 3: Right triangle with legs 3 and 4.", ""),
    ("Attempt 2 finds the right value of x. Attempt 4 gives a correct list of divisors.", ""),
    ("Attempt 1 is correct as a lower bound. Attempt 2 is right modulo 7.", ""),
    ("Attempt 2 computes 7·8 = 54. That is wrong.", ""),
    ("Attempt 1 goes wrong in the third line, but recovers.", ""),
    ("Attempt 2 breaks the problem into two cases. Attempt 1 exceeds the others in length.", ""),
    ("Attempt 3 passes from sums to integrals. Attempt 4 is out of ideas.", ""),
    ("Attempt 1 breaks the length limit.", "1W"),
    # Hedges, cases and what others say
    ("If attempt 2 is right, then attempt 1 is wrong.", ""),
    ("Is attempt 2 right? Attempt 2 seems right.", ""),
    ("Let me verify that attempt 2 is correct.", ""),
    ("There's no reason to think attempt 2 is wrong. I doubt attempt 1 is right.", ""),
    ("When order matters, attempt 1 is right. Attempt 2 is right as long as n is even.", ""),
    ("When I count again, attempt 2 is wrong.", "2W"),
    ("Attempts 1 and 3 give 12. Attempt 2 concludes that 12 is incorrect and gives 15.", ""),
    ("Attempt 3 is not quite right.", ""),
    ("Attempt 2 is not completely correct.", ""),
    ("Attempt 2 is correct, but only for positive x.", ""),
    ("Attempt 2 is right, or so it seems.", ""),
    ("At first sight, attempt 2 is wrong.", ""),
    ("Attempt 2 claims that attempt 1 is wrong and attempt 3 is right.", ""),
    ('The note says: "attempt 2 is wrong, attempt 1 is right".', ""),
    ("> Attempt 2 is wrong.", ""),
    ("I'd say attempt 2 is wrong.", "2W"),
    # The last word
    ("Attempt 2 is correct. Wait, no. It forgot zero. So attempt 2 is wrong.", "2W"),
    ("Attempt 2 is wrong. I take that back.", ""),
    ("尝试1、3正确，其余尝试错误。", "1R 2W 3R 4W 5W"),
    ("除了尝试4，其他尝试都是正确的。", "1R 2R 3R 4W 5R"),
    ("前两个尝试错误，后三个正确。", "1W 2W 3R 4R 5R"),
    ("尝试4看起来是对的，但是漏了一种情况，所以不对。", "4W"),
    ("- **尝试1**：答案 12 ✅\n- **尝试2**：答案 15 ❌", "1R 2W"),
    ("尝试2的思路正确，但计算有误。", ""),
    ("如果尝试2是正确的，那么尝试1就错了。", ""),
    ("尝试3认为，尝试2是错的。", ""),
    # Sentences in the manner of real models
    ("Attempt 5's answer of 7 is definitely wrong. Attempt 4's 20 also doesn't hold up.", "4W 5W"),
    (
        "Thinker 2's approach is clever, but the final answer is wrong. Thinker 1's approach "
        "is straightforward and the answer is right.",
        "1R 2W",
    ),
    ("So both attempt 1 and attempt 3 are right, and everything else is wrong.", "1R 2W 3R 4W 5W"),
    ("I'm pretty sure that attempt 1 is correct. Attempt 4, on the other hand, is not.", "1R 4W"),
    (
        "Looking at Attempt 1: It correctly applies the formula and gets 12. Attempt 2: It "
        "made an arithmetic error and gets 15, so it's wrong. Attempt 3: Gets 12. "
        "Correct. Attempt 4: wrong. Attempt 5: wrong.",
        "2W 3R 4W 5W",
    ),
    (
        "The answer 12 appears in attempts 1 and 3. I've verified it, so 12 is correct. The "
        "15 from attempt 2 is wrong, as is the 20 from attempt 4.",
        "1R 2W 3R 4W",
    ),
    (
        "After working it out I get 12. So attempts with 12 (attempts 1 and 3) are right, and "
        "15, 20, 7 are wrong.",
        "1R 3R",
    ),
    ("Attempt 2 and attempt 4 are wrong because they both assume a > b.", "2W 4W"),
    ("Since 12 is even, attempt 2 (15) and attempt 5 (7) must be wrong.", "2W 5W"),
    (
        "Hmm, attempt 4 got 20. That would need n = 5, but n is 4. So that can't be right. "
        "Attempt 4 is incorrect then.",
        "4W",
    ),
    (
        "The first and third attempts arrive at the right answer. The remaining three don't.",
        "1R 2W 3R 4W 5W",
    ),
    ("The second and fourth attempts are wrong; the fifth is too.", "2W 4W 5W"),
    (
        "Thinkers 1 and 3 have the correct answer; thinker 2, thinker 4 and thinker 5 do not.",
        "1R 2W 3R 4W 5W",
    ),
    ("Attempt 2's value of 15 cannot be correct because the sum must be even.", "2W"),
    ("Attempt 5 is the only one that passes all the constraints.", "1W 2W 3W 4W 5R"),
    ("Attempt 3 has the right answer for the wrong reason.", "3R"),
    ("Attempt 1's proof is incomplete, but the answer 12 is right.", "1R"),
    ("There is no error in attempt 1. I can find nothing wrong with attempt 3.", "1R 3R"),
    ("So we can rule out attempts 2 and 4. That leaves 12 and 7.", "2W 4W"),
    ("Attempt 1 passes the check, attempt 2 does not.", "1R 2W"),
    ("No attempt gets it right.", "1W 2W 3W 4W 5W"),
    ("Everything but attempt 1 and attempt 3 is wrong.", "1R 2W 3R 4W 5W"),
    ("Attempts 1, 2 and 3 are wrong; only 4 and 5 are right.", "1W 2W 3W 4R 5R"),
    ("Of the five attempts, only the first and third are correct.", "1R 2W 3R 4W 5W"),
    ("So 12 it is; attempts 2, 4, and 5 got it wrong.", "2W 4W 5W"),
    ("Now attempt 3. The base case is right. The inductive step is right. So it's right.", "3R"),
    (
        "Solution 1 is O(n^2), which exceeds the time limit for n = 10^6. So it fails. "
        "Solution 2 runs in O(n log n) and is correct.",
        "1W 2R",
    ),
    (
        "Response 2 violates the word limit. Response 3 satisfies all the constraints. "
        "Response 4 uses a comma, so it is not valid.",
        "2W 3R 4W",
    ),
    (
        "Program 2 fails for an empty list, so it's incorrect. Program 3 handles the empty "
        "list, and it also handles duplicates; I think it's correct. Program 1 is "
        "correct but slow: O(n^2) is fine for n = 1000.",
        "1R 2W 3R",
    ),
    (
        "This shows that attempt 2's answer is incorrect and that attempt 1's answer is correct.",
        "1R 2W",
    ),
    (
        "Attempt 4 would be right if the roots were distinct. They aren't, so attempt 4 is wrong.",
        "4W",
    ),
    # Short notes and lists
    ("Attempt1: 12 correct. Attempt2: 15 wrong. Attempt4: 20 wrong.", "1R 2W 4W"),
    (
        "We have 5 attempts. Compute: 3*4=12. So attempts 1,3 correct. Others wrong.",
        "1R 2W 3R 4W 5W",
    ),
    ("Need to decide. #2 wrong because of sign. #4 wrong. #1 ok.", "1R 2W 4W"),
    ("Evaluate: A1 right. A2 wrong (sign). A3 right. A4 wrong. A5 wrong.", "1R 2W 3R 4W 5W"),
    ("Answers: 12,15,12,20,7. True is 12. So 1 and 3 are right, rest wrong.", "1R 2W 3R 4W 5W"),
    ("Verdict:\n- Attempts 1, 3: ✅\n- Attempts 2, 4, 5: ❌", "1R 2W 3R 4W 5W"),
    (
        "| # | Answer | Assessment |\n|--|--|--|\n| 1 | 12 | Correct |\n| 2 | 15 | Incorrect: "
        "double counts |\n| 5 | 7 | Incorrect |",
        "1R 2W 5W",
    ),
    (
        "1. Attempt 1 (12): The reasoning is sound and the answer is correct.\n2. Attempt 2 "
        "(15): The setup is right but the arithmetic is wrong, so the result is "
        "wrong.\n3. Attempt 4 (20): Wrong from the first line.",
        "1R 2W 4W",
    ),
    (
        "Attempt 1 (correct), Attempt 2 (incorrect), Attempt 3 (correct), Attempt 4 (incorrect).",
        "1R 2W 3R 4W",
    ),
    ("Attempt 2 → 15 → ✗\nAttempt 3 → 12 → ✓", "2W 3R"),
    (
        "### Evaluation\n\n* Attempt 1 → correct\n* Attempt 2 → wrong\n* Attempt 3 → correct",
        "1R 2W 3R",
    ),
    ("Attempt 1: answer 12, matches.\nAttempt 2: answer 15, does not match.", ""),
    # No claims
    ("In attempt 2 the formula is right, but the last step is wrong.", ""),
    ("Attempt 2's first two steps are correct. The last one is wrong.", ""),
    ("Attempt 4's derivation is correct up to the last line.", ""),
    ("Attempt 2 is right that the sum is even.", ""),
    ("Suppose attempt 2 is right. Then n = 5, and attempt 1 is wrong. But n = 4.", ""),
    ("If the die is fair, attempt 2 is wrong; otherwise it's right.", ""),
    ("I need to check whether attempt 4 is correct. Let me check whether attempt 5 is wrong.", ""),
    (
        "My first approach was wrong. The formula I used is incorrect. Attempt 2 uses the "
        "same formula.",
        "",
    ),
    ("12 is the right answer to part (a), and that's not what is asked.", ""),
    ("Attempt 2 is the right idea. Attempt 4 is the wrong direction.", ""),
    ("It's not clear that attempt 2 is wrong. I can't say attempt 2 is wrong.", ""),
    ("Attempt 2 isn't necessarily wrong. Attempt 3 is not entirely correct.", ""),
    ("Most attempts are right. Some of the attempts are wrong.", ""),
    ("Either attempt 1 or attempt 2 is wrong.", ""),
    ("The equation x+1 = 2 in attempt 3 is correct. The second equation is wrong.", ""),
    ("Attempt 2 assumes independence. This is wrong.", ""),
    ("I trust attempt 1. It looks right. I'd go with attempt 1's answer.", ""),
    ("Attempt 1 is right about n = 3, but wrong about n = 4.", ""),
    ("The step 3·4 = 12 in attempt 2 is right.", ""),
    ("Checking attempt 2's recursion: a_2 = 3, correct. a_3 = 7, wrong! It should be 6.", ""),
    ("For attempt 2 to be correct, n must be odd.", ""),
    ("It would be wrong to discard attempt 2.", ""),
    ("Attempt 2 is wrong or the problem has a typo.", ""),
    ("Attempt 5 is correct in spirit. Attempt 3 is partly correct. Attempt 2 is half right.", ""),
    ("Attempt 2 fails to carry the one and gets 15.", ""),
    ("Attempt 1's approach is right and so is its answer.", ""),
    # Chinese
    ("尝试1和尝试3的答案相同，都是12，我算出来也是12，所以它们是对的。", "1R 3R"),
    ("让我检查一下尝试2：3×5=15，这一步正确。但是题目要求的是3×4，所以尝试2错了。", "2W"),
    ("尝试4得到20，显然太大了，不正确。", "4W"),
    ("思考者2的结果15是错误的，思考者1的结果12是对的。", "1R 2W"),
    ("只有尝试1和尝试3是对的。", "1R 2W 3R 4W 5W"),
    ("五个尝试都错了，没有一个是正确的。", "1W 2W 3W 4W 5W"),
    ("尝试2可能是对的。尝试4应该是错的。", ""),
    ("尝试2认为尝试1是错的。", ""),
    ("等等，尝试2是不是对的？再算一遍，3×4=12，所以尝试2不对。", "2W"),
    ("程序员2的代码会超时，不能通过。程序员3的代码是正确的。", "2W 3R"),
    ("尝试2违反了字数要求，不合格。尝试3满足所有要求。", "2W 3R"),
    (
        "| 尝试 | 答案 | 是否正确 |\n|---|---|---|\n| 1 | 12 | ✓ |\n| 2 | 15 | ✗ |\n| 3 | "
        "12 | 正确 |",
        "1R 2W 3R",
    ),
    ("尝试2的思路正确，但最后的结果错误。", "2W"),
    ("综上所述，尝试1和尝试3给出了正确答案，其余三个尝试的答案错误。", "1R 2W 3R 4W 5W"),
    ("正确的是尝试1和尝试3。", "1R 3R"),
    ("错误的尝试：2、4、5。", "2W 4W 5W"),
    ("尝试4的思路对吗？不对，它忽略了n=0的情况。", ""),
    ("对于n=3，尝试2是对的，但n=4时不成立。", ""),
    ("尝试4得20，偏大，错误。尝试5得7，偏小，也错误。", "4W 5W"),
    ("尝试1：思路对，计算对，结果对。\n尝试2：思路对，计算错，结果错。", "1R 2W"),
    ("尝试1（正确）、尝试2（错误）、尝试3（正确）。", "1R 2W 3R"),
    ("尝试4几乎是对的。尝试5部分正确。", ""),
    ("尝试4把条件看错了，答案自然也就错了。", "4W"),
    ("尝试2和尝试4都错了，其他三个尝试都对。", "1R 2W 3R 4W 5R"),
]


def _counts(name):
    """Claims made, labelled, and made as labelled, for each kind and language of a file."""
    counts = {}
    for line in (HERE / f"{name}.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        read = read_claims(row["reasoning_text"], row["answer_text"], row["attempts"])
        made = {(claim.attempt, claim.says) for claim in read}
        labelled = {(claim["attempt"], claim["says"]) for claim in row["claims"]}
        group = counts.setdefault((row["kind"], row["language"]), Counter())
        group.update(made=len(made), labelled=len(labelled), same=len(made & labelled))
    return {group: (n["made"], n["labelled"], n["same"]) for group, n in counts.items()}


@pytest.mark.parametrize(
    ("name", "kind", "language", "precision", "recall"),
    [
        ("seen", "micro", "en", 1.0, 1.0),
        ("seen", "prose", "en", 0.97, 0.9),
        ("seen", "prose", "zh", 0.97, 0.9),
        ("fresh", "prose", "en", 0.97, 0.9),
        ("unseen", "micro", "en", 1.0, 1.0),
        ("unseen", "prose", "en", 0.95, 0.6),
        ("unseen", "prose", "zh", 0.95, 0.6),
        ("heldout", "prose", "en", 0.95, 0.6),
        ("heldout", "prose", "zh", 0.95, 0.6),
        ("hard", "prose", "en", 0.97, 0.8),
        ("hard", "prose", "zh", 0.97, 0.9),
    ],
)
def test_precision_and_recall(name, kind, language, precision, recall):
    made, labelled, same = _counts(name)[kind, language]
    print(name, kind, language, made, labelled, same)
    assert same / made >= precision
    assert same / labelled >= recall


@pytest.mark.parametrize(("text", "expected"), CLAUSES)
def test_clauses(text, expected):
    claims = read_claims(text, "", CACHE)
    assert " ".join(f"{c.attempt}{c.says[0].upper()}" for c in claims) == expected


MICRO = {
    "0.1": ["Attempt {}: 250 right", "Attempt {}: -1.5 wrong", "Attempt {}: 1/2 wrong"],
    "with differences": [
        "Attempt {}: 134 -144=-10 wrong",
        "Attempt {}: -12.5 +12.5=0.0 right",
        "Attempt {}: 7 -7=0 right",
        "Attempt {}: none wrong",
    ],
}


@pytest.mark.parametrize("forms", MICRO.values(), ids=MICRO.keys())
def test_each_line_of_the_micro_teachers_is_a_claim_on_the_attempt_of_its_number(forms):
    lines = [form.format(number) for number, form in enumerate(forms * 3, 1)]
    text = "\n".join(["Given: 3*4", "3*4=12", *lines])
    claims = read_claims(text, "Values: 12\nAnswer: \\boxed{12}", ["12"] * len(lines))
    assert [claim.quote for claim in claims] == lines
    assert [claim.attempt for claim in claims] == [*range(1, len(lines) + 1)]
    assert [claim.says for claim in claims] == [line.split()[-1] for line in lines]


VOCABULARY = (
    "attempt attempts Attempt 1 2 3 9 12 and , . : ? ( ) | \n is are not right wrong correct the"
    " all both other it which so 尝试 第 个 正确 错误 都 的 ， 。 ✓ ❌ « » ‹ › `` * # if none only"
)
WORDS = st.lists(st.sampled_from(VOCABULARY.split(" ")), max_size=40)


@given(st.one_of(st.text(), WORDS.map(" ".join), WORDS.map("".join)), st.lists(st.text()))
def test_each_attempt_of_the_cache_has_at_most_one_claim(text, answers):
    claims = read_claims(text, text, answers)
    numbers = [claim.attempt for claim in claims]
    assert numbers == sorted(set(numbers) & set(range(1, len(answers) + 1)))
    assert all(claim.quote for claim in claims)


@pytest.mark.parametrize(
    "part",
    [
        "hence ",
        "of course ",
        "all of the ",
        "the answer of ",
        "1, 2, 3 ",
        "attempts 1, 2, ",
        "it is not ",
        "(",
        "‹1› «1» ",
        "尝试1、2",
        "是的",
        "| 1 ",
        "a" * 9,
        "✓ ",
        " ",
    ],
)
def test_long_repetitive_texts_are_read_in_bounded_time(part):
    assert read_claims(part * (100_000 // len(part)), "", CACHE) == []


def test_the_last_word_counts_and_the_quote_is_its_sentence():
    (claim,) = read_claims("Attempt 2 is right.", "No: attempt 2 is **wrong**.", CACHE)
    assert (claim.attempt, claim.says, claim.quote) == (2, "wrong", "No: attempt 2 is wrong.")

"""The reader of claims: precision and recall on both labelled files, and tricky clauses.

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
    ("Attempts 1 and 3 are both correct, while attempts 2, 4 and 5 are wrong.", "1R 2W 3R 4W 5W"),
    ("### Attempt 2\n\nIt double counts.\n\n**Verdict:** Incorrect", "2W"),
    ("Attempt 4 arrives at 20, which is incorrect.", "4W"),
    ("Attempt 4 uses the formula n(n-1), which is wrong.", ""),
    ("Attempt 4 makes an arithmetic mistake.", ""),
    ("Attempt 4 makes an arithmetic mistake, leading to the wrong answer 20.", "4W"),
    ("If attempt 2 is right, then attempt 1 is wrong.", ""),
    ("Let me verify that attempt 2 is correct.", ""),
    ("Attempt 3 is correct about the sign.", ""),
    ("Attempt 3 is not quite right.", ""),
    ("All attempts except attempt 4 are wrong.", "1W 2W 3W 4R 5W"),
    (
        "The correct answer is 12, so attempts 1 and 3 are correct and the others are wrong.",
        "1R 2W 3R 4W 5W",
    ),
    ("So the answer is 12.", ""),
    ("Attempts 1 and 3 got 12. The attempts that got 12 are correct.", "1R 3R"),
    ("On the second attempt, I get 12, which is right.", ""),
    ("Attempt 2 claims that attempt 1 is wrong.", ""),
    ("Correct attempts: 1, 3", "1R 3R"),
    ("Attempt 2 is correct. Wait, no. It forgot zero. So attempt 2 is wrong.", "2W"),
    ("That makes attempts 2 and 4 wrong.", "2W 4W"),
    ("Attempt 1 correctly computes 3+4 = 7 and then gets 12.", ""),
    ("Thus attempt 3's result of 12 is right, whereas attempt 4's is not.", "3R"),
    ("There's no reason to think attempt 2 is wrong.", ""),
    ("Neither attempt 2 nor attempt 4 is correct.", "2W 4W"),
    ("Attempts 2 (15), 4 (20), and 5 (7) are incorrect.", "2W 4W 5W"),
    ("In attempt 2, the formula is wrong.", ""),
    ("Attempt 3: Right triangle with legs 3 and 4.", ""),
    ("| Attempt | Answer | Correct? |\n|---|---|---|\n| 1 | 12 | Yes |\n| 2 | 15 | No |", "1R 2W"),
    ("In attempt 2 the first line is wrong, the rest is correct.", ""),
    ("Not all attempts are right.", ""),
    ("Attempt 2 is right until the last line.", ""),
    ("Attempt 2 was right to use induction.", ""),
    ("尝试1、3正确，其余尝试错误。", "1R 2W 3R 4W 5W"),
    ("尝试2的思路正确，但计算有误。", ""),
    ("如果尝试2是正确的，那么尝试1就错了。", ""),
    ("除了尝试4，其他尝试都是正确的。", "1R 2R 3R 4W 5R"),
    ("尝试4看起来是对的，但是漏了一种情况，所以不对。", "4W"),
    ("前两个尝试错误，后三个正确。", "1W 2W 3R 4R 5R"),
    ("- **尝试1**：答案 12 ✅\n- **尝试2**：答案 15 ❌", "1R 2W"),
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


@pytest.mark.parametrize("name", ["seen", "unseen"])
@pytest.mark.parametrize(("kind", "least"), [("micro", 0.9), ("prose", 0.6)])
def test_precision_and_recall(name, kind, least):
    counts = _counts(name)
    print(name, counts)  # By language
    made, labelled, same = map(
        sum, zip(*(n for group, n in counts.items() if group[0] == kind), strict=True)
    )
    assert same / made >= 0.95
    assert same / labelled >= least


@pytest.mark.parametrize(("text", "expected"), CLAUSES)
def test_clauses(text, expected):
    claims = read_claims(text, "", CACHE)
    assert " ".join(f"{c.attempt}{c.says[0].upper()}" for c in claims) == expected


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
    assert read_claims(part * (200_000 // len(part)), "", CACHE) == []


def test_the_last_word_counts_and_the_quote_is_its_sentence():
    (claim,) = read_claims("Attempt 2 is right.", "No: attempt 2 is **wrong**.", CACHE)
    assert (claim.attempt, claim.says, claim.quote) == (2, "wrong", "No: attempt 2 is wrong.")

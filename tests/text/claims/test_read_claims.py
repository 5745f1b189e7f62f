"""The reader of claims: precision and recall on the labelled files, and clauses easily misread.

Messages about the labelled files show counts only.
"""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavydistill.text.claims import read_claims

HERE = Path(__file__).parent
CACHE = ["12", "15", "12", "20", "7"]
CLAUSES = [
    line.replace("\\n", "\n").split("\t")
    for line in (HERE / "clauses.tsv").read_text("utf-8").splitlines()
    if not line.startswith("#")
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
        ("seen", "micro", "en", 1.0, 1.0), ("seen", "prose", "en", 0.97, 0.9),
        ("seen", "prose", "zh", 0.97, 0.9), ("fresh", "prose", "en", 0.97, 0.9),
        ("unseen", "micro", "en", 1.0, 1.0), ("unseen", "prose", "en", 0.95, 0.6),
        ("unseen", "prose", "zh", 0.95, 0.6), ("heldout", "prose", "en", 0.95, 0.6),
        ("heldout", "prose", "zh", 0.95, 0.6), ("hard", "prose", "en", 0.97, 0.8),
        ("hard", "prose", "zh", 0.97, 0.9),
    ],
)  # fmt: skip
def test_precision_and_recall(name, kind, language, precision, recall):
    made, labelled, same = _counts(name)[kind, language]
    print(name, kind, language, made, labelled, same)
    assert same / made >= precision
    assert same / labelled >= recall


@pytest.mark.parametrize(("expected", "text"), CLAUSES)
def test_clauses(expected, text):
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
        "hence ", "of course ", "all of the ", "the answer of ", "1, 2, 3 ", "attempts 1, 2, ",
        "it is not ", "(", "‹1› «1» ", "尝试1、2", "是的", "| 1 ", "a" * 9, "✓ ", " ",
    ],
)  # fmt: skip
def test_long_repetitive_texts_are_read_in_bounded_time(part):
    assert read_claims(part * (100_000 // len(part)), "", CACHE) == []


def test_the_last_word_counts_and_the_quote_is_its_sentence():
    (claim,) = read_claims("Attempt 2 is right.", "No: attempt 2 is **wrong**.", CACHE)
    assert (claim.attempt, claim.says, claim.quote) == (2, "wrong", "No: attempt 2 is wrong.")

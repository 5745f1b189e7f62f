"""Texts are compared by their words, and ordered by how different they are."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavydistill.text.words import masked, most_different, parts_at, tokens_of


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (
            "He pays $1,250.50 for 2x+3, i.e. 120-page (BIG) books!",
            "he pays 1250.50 for 2 x + 3 i e 120 - page big books",
        ),
        ("Ｗｈａｔ is\n１２?", "what is 12"),
        ("what IS 12", "what is 12"),
        ("1,2,3", "1 2 3"),
        ("12,3456", "12 3456"),
        ("1,234,567", "1234567"),
        ("小明有12个", "小 明 有 12 个"),
        ("りんごは3個", "り ん ご は 3 個"),
    ],
)
def test_words_numbers_signs_and_characters_are_told_apart(text, tokens):
    assert tokens_of(text) == tokens.split()


def test_numbers_in_a_row_are_one_mask_and_signs_are_gone():
    assert masked(tokens_of("Sort 3, 1, 4, 1.5 and 9 - 2.")) == ["sort", "0", "and", "0"]
    assert masked(tokens_of("[1, 2, 3]")) == masked(tokens_of("17 + 4")) == ["0"]


SUM = "First we add the two numbers and then we divide the sum by three to get the answer"
ROOTS = "Let the roots of the polynomial be p and q so that Vieta tells us what their product is"
CHINESE = "设这个三角形的三条边分别为三、四、五，由勾股定理可知它是直角三角形。"


def test_texts_part_where_they_first_differ_or_the_shorter_ends():
    assert parts_at("abcd", "abxd") == 2
    assert parts_at([1, 2], [1, 2, 3]) == parts_at([1, 2, 3], [1, 2]) == 2


def order(texts, seed=0):
    return most_different(texts, random.Random(seed))


def test_chinese_texts_are_compared_by_characters():
    texts = [CHINESE, CHINESE.replace("三角形", "四边形"), "令函数的导数等于零，解得极值点。"]
    assert all(2 in order(texts, seed)[:2] for seed in range(20))


def test_the_first_is_drawn_and_the_same_seed_draws_the_same():
    texts = [SUM, ROOTS, CHINESE]
    assert {order(texts, seed)[0] for seed in range(40)} == {0, 1, 2}
    assert order(texts, 7) == order(texts, 7)


@given(st.lists(st.text(max_size=60), max_size=12), st.integers(0, 99))
def test_every_text_stands_once_in_the_order(texts, seed):
    assert sorted(order(texts, seed)) == list(range(len(texts)))


@given(st.lists(st.text("ab ", max_size=30), min_size=2, max_size=8), st.integers(0, 99))
def test_the_order_is_that_of_exact_similarities(texts, seed):
    def alike(one, other):
        runs = []
        for words in (one.split(), other.split()):
            many = {tuple(words[at : at + 3]) for at in range(len(words) - 2)}
            runs.append(many or {tuple(words)})
        return len(runs[0] & runs[1]) / len(runs[0] | runs[1])

    found = order(texts, seed)
    for at in range(1, len(found)):
        nearest = {
            other: max(alike(texts[other], texts[taken]) for taken in found[:at])
            for other in found[at:]
        }
        assert nearest[found[at]] == min(nearest.values())

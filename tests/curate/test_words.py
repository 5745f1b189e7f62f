from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heavydistill.curate.filters.words import digest, masked, tokens_of


def test_words_numbers_and_signs_are_told_apart():
    tokens = tokens_of("He pays $1,250.50 for 2x+3, i.e. 120-page (BIG) books!")
    assert " ".join(tokens) == "he pays 1250.50 for 2 x + 3 i e 120 - page big books"


def test_writing_does_not_matter():
    assert tokens_of("Ｗｈａｔ is\n１２?") == tokens_of("what IS 12")


def test_lists_and_large_numbers_are_different():
    assert tokens_of("1,2,3") == ["1", "2", "3"]
    assert tokens_of("12,3456") == ["12", "3456"]
    assert tokens_of("1,234,567") == ["1234567"]


def test_scripts_without_blanks_are_read_by_characters():
    assert tokens_of("小明有12个") == ["小", "明", "有", "12", "个"]
    assert tokens_of("りんごは3個") == ["り", "ん", "ご", "は", "3", "個"]


def test_numbers_in_a_row_are_one_mask_and_signs_are_gone():
    assert masked(tokens_of("Sort 3, 1, 4, 1.5 and 9 - 2.")) == ["sort", "0", "and", "0"]
    assert masked(tokens_of("[1, 2, 3]")) == masked(tokens_of("17 + 4")) == ["0"]


@given(st.text(st.characters()))
def test_any_text_has_tokens_that_are_texts_without_blanks(text):
    tokens = tokens_of(text)
    assert all(token and not token.isspace() for token in tokens)
    assert 0 <= digest(tokens) < 2**64 and 0 <= digest([text]) < 2**64
    assert len(masked(tokens)) <= len(tokens)

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import heavydistill
from heavydistill.models.http.completion import decoded, split_reasoning
from heavydistill.models.local.engine import load_tokenizer

MICRO = Path(heavydistill.__file__).parent / "micro" / "teacher"

TAGS = ("<think>", "</think>")
# No half of a tag can come about where two of these meet.
plain = st.text(st.characters(codec="utf-8", exclude_characters="<>"))


@pytest.mark.parametrize(
    ("text", "reasoning", "answer_text"),
    [
        ("<think>a b</think>c", "a b", "c"),
        ("<think>\na\n</think>\n\nc\n", "a", "c"),
        ("a</think>c", "a", "c"),
        ("<think></think>c", "", "c"),
        ("<think>a</think>", "a", ""),
        ("so <think>a</think>c", "so a", "c"),
        # The answer follows the last closing tag.
        ("<think>a</think>b</think>c", "a</think>b", "c"),
        ("<think>a</think>b<think>c</think>d", "a</think>b<think>c", "d"),
        # Thinking that was cut off: nothing of it is an answer.
        ("<think>a, the answer is 7", "a, the answer is 7", ""),
        ("so <think>a", "so a", ""),
        (" only an answer ", "", "only an answer"),
        ("", "", ""),
    ],
)
def test_splits_at_the_tags(text, reasoning, answer_text):
    assert split_reasoning(text, TAGS) == (reasoning, answer_text)


def test_other_tags_are_text_like_any():
    assert split_reasoning("<think>a</think>c", ("[T]", "[/T]")) == ("", "<think>a</think>c")
    assert split_reasoning("[T]a[/T]c", ("[T]", "[/T]")) == ("a", "c")


def test_without_tags_all_is_answer():
    assert split_reasoning(" <think>a</think>c\n", None) == ("", "<think>a</think>c")


@given(thinking=plain, answer=plain, opened=st.booleans())
def test_what_a_model_wrote_around_the_closing_tag_comes_back(thinking, answer, opened):
    text = f"{'<think>' if opened else ''}{thinking}</think>{answer}"
    assert split_reasoning(text, TAGS) == (thinking.strip(), answer.strip())


def test_a_tokenizer_that_would_tidy_up_spaces_neither_alters_text_nor_warns():
    tokenizer = load_tokenizer(str(MICRO))
    tokenizer.clean_up_tokenization_spaces = True
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("transformers.tokenization_utils_tokenizers")
    logger.addHandler(handler)
    try:
        text = "it is 4 , not 5 ."
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert decoded(tokenizer, ids, TAGS) == text
    finally:
        logger.removeHandler(handler)
    assert not said

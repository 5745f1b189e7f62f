from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from heavydistill.errors import TeacherError
from heavydistill.models.tokenizer import ReaderTokenizer

CONTROL_TOKENS = ("<|start|>", "<|end|>")
LEARNT_FROM = [
    "the answer is forty two and the attempt is right",
    "那么答案是四十二",
    "naïve café",
] * 3
# Characters of one to four bytes, so that a token can be a part of a character.
texts = st.text("theansr w42é那答🙂\n", max_size=60)


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[],
        show_progress=False,
    )
    tokenizer.train_from_iterator(LEARNT_FROM, trainer)
    tokenizer.add_special_tokens(list(CONTROL_TOKENS))
    tokenizer.add_tokens(["<think>"])
    folder = tmp_path_factory.mktemp("reader")
    tokenizer.save(str(folder / "tokenizer.json"))
    return ReaderTokenizer(str(folder))


def test_special_tokens_alone_are_control_tokens(reader):
    assert sorted(reader.control_tokens) == sorted(CONTROL_TOKENS)


def test_counts_tokens_and_not_characters(reader):
    assert reader.count("") == 0
    assert reader.count("<|end|>") == 1
    assert reader.count("the answer") < len("the answer")
    assert reader.count("🙂") == 4


@settings(max_examples=100, deadline=None)
@given(text=texts, tokens=st.integers(0, 70))
def test_a_head_is_a_prefix_that_uses_up_the_count(reader, text, tokens):
    head = reader.head(text, tokens)
    assert text.startswith(head)
    assert reader.count(head) <= tokens
    # Only a character of up to four tokens that does not fit may leave some of it unused.
    assert head == text or reader.count(head) > tokens - 4


@settings(max_examples=100, deadline=None)
@given(text=texts, tokens=st.integers(0, 70))
def test_a_tail_is_a_suffix_that_uses_up_the_count(reader, text, tokens):
    tail = reader.tail(text, tokens)
    assert text.endswith(tail)
    assert reader.count(tail) <= tokens
    assert tail == text or reader.count(tail) > tokens - 4


def test_what_fits_is_not_cut(reader):
    text = "the attempt is right 🙂"
    assert reader.head(text, reader.count(text)) == text
    assert reader.tail(text, reader.count(text)) == text


@pytest.mark.parametrize("content", [None, "", "{}", "no json"])
def test_a_folder_without_a_readable_tokenizer_is_named(tmp_path, content):
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content, encoding="utf-8")
    with pytest.raises(TeacherError) as caught:
        ReaderTokenizer(str(tmp_path))
    assert str(tmp_path) in str(caught.value)
    assert "tokenizer.json" in caught.value.fix

"""How the thinking in a text is told from the answer."""

import itertools
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from students import MICRO

from heavydistill.models.local.engine import load_tokenizer
from heavydistill.models.thinking import COMMON_TAGS, LiveText, decoded, split_reasoning


@pytest.mark.parametrize(
    ("text", "reasoning", "answer_text"),
    [
        ("<think>\na\n</think>\n\nc\n", "a", "c"),
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
    assert split_reasoning(text, COMMON_TAGS) == (reasoning, answer_text)


@pytest.mark.parametrize(
    "text",
    [
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>c<|return|>",
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>c",
        "analysisaassistantfinalc",
        "[THINK]a[/THINK]c",
        "a[/THINK]c",
        "<seed:think>a</seed:think>c",
        "<|channel>thought\na\n<channel|>c<turn|>",
        "◁think▷a◁/think▷c",
        "<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>c<|END_RESPONSE|>",
        "<|begin_of_thought|>a<|end_of_thought|>\n<|begin_of_solution|>c<|end_of_solution|>",
        "<thought>a</thought>c",
    ],
)
def test_the_tags_of_another_family_are_found_if_the_model_has_no_profile(text):
    assert split_reasoning(text, COMMON_TAGS) == ("a", "c")
    assert split_reasoning(text, ("[T]", "[/T]")) == ("", text)
    assert split_reasoning(text, None) == ("", text)


@pytest.mark.parametrize(
    ("text", "reasoning", "answer_text"),
    [
        ("[THINK]so it is 7", "so it is 7", ""),  # cut off
        ("Mistral writes [THINK] and the like.", "", "Mistral writes [THINK] and the like."),
        ("It writes [THINK]a[/THINK]c.", "", "It writes [THINK]a[/THINK]c."),
        ("analysis of it is hard", "", "analysis of it is hard"),
        ("<think>a</think>[THINK]b[/THINK]c", "a", "[THINK]b[/THINK]c"),
    ],
)
def test_tags_of_another_family_in_an_answer_are_text(text, reasoning, answer_text):
    assert split_reasoning(text, COMMON_TAGS) == (reasoning, answer_text)


def test_other_tags_are_text_like_any():
    assert split_reasoning("<think>a</think>c", ("[T]", "[/T]")) == ("", "<think>a</think>c")
    assert split_reasoning("[T]a[/T]c", ("[T]", "[/T]")) == ("a", "c")
    assert split_reasoning(" <think>a</think>c\n", None) == ("", "<think>a</think>c")


# No half of a tag can come about where two of these meet.
plain = st.text(st.characters(codec="utf-8", exclude_characters="<>"))


@given(thinking=plain, answer=plain, opened=st.booleans())
def test_what_a_model_wrote_around_the_closing_tag_comes_back(thinking, answer, opened):
    text = f"{'<think>' if opened else ''}{thinking}</think>{answer}"
    assert split_reasoning(text, COMMON_TAGS) == (thinking.strip(), answer.strip())


def test_a_tokenizer_that_would_tidy_up_spaces_neither_alters_text_nor_warns(monkeypatch):
    tokenizer = load_tokenizer(str(MICRO))
    tokenizer.clean_up_tokenization_spaces = True
    said: list[str] = []
    logger = logging.getLogger("transformers.tokenization_utils_tokenizers")
    monkeypatch.setattr(logger, "warning", lambda *words: said.append(words))
    text = "it is 4 , not 5 ."
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert decoded(tokenizer, ids, COMMON_TAGS) == text and not said


def _live(parts: list[str], whole: str, is_plain: bool = False) -> list[tuple[str, str]]:
    """What is passed on of a response that comes in these parts, at its end too."""
    passed: list[tuple[str, str]] = []
    live = LiveText(COMMON_TAGS, lambda *new: passed.append(new), is_plain)
    for part in parts:
        live.add("", part)
    live.end(*split_reasoning(whole, COMMON_TAGS))
    return passed


@given(
    st.sampled_from(
        [
            "<think>\na < b\n</think>\n\nIt is <b>7</b>.\n",
            "opened by the prompt</th </think> c \n d ",
            "only an answer",
            "  <think>a</think>",
            "<think>never closed",
            "[THINK]another family[/THINK]c",
            "<thinker> is no tag",
            "",
        ]
    ),
    st.lists(st.integers(0, 60)),
    st.booleans(),
)
def test_what_is_passed_on_live_is_the_whole_response(whole, cuts, is_plain):
    places = [0, *sorted(min(cut, len(whole)) for cut in cuts), len(whole)]
    parts = [whole[a:b] for a, b in itertools.pairwise(places)]
    if is_plain and whole.startswith("opened"):
        return  # not the text of a model whose responses without tags are answers
    passed = _live(parts, whole, is_plain=is_plain)
    texts = tuple("".join(each[part] for each in passed).strip() for part in (0, 1))
    assert texts == split_reasoning(whole, COMMON_TAGS)


def test_thinking_and_answer_are_passed_on_as_soon_as_they_are_certain():
    parts = ["<th", "ink>so", " 7</thi", "nk>\nThe", " answer"]
    assert _live(parts, "".join(parts)) == [
        *[("so", ""), (" 7", ""), ("", "The"), ("", " answer")],
    ]
    assert _live(["an", " answer"], "an answer") == [
        ("", "an answer")
    ]  # maybe thinking, till its end
    assert _live(["an", " answer"], "an answer", is_plain=True) == [("", "an"), ("", " answer")]


def test_a_tag_before_thinking_that_comes_apart_is_not_passed_on():
    heard: list[tuple[str, str]] = []
    live = LiveText(None, lambda *new: heard.append(new))
    live.add("<think>\n3 +", "")
    live.add(" 4 <think>", "")
    live.add("", "7")
    live.end("\n3 + 4 <think>", "7")
    assert heard == [("\n3 +", ""), (" 4 <think>", ""), ("", "7")]

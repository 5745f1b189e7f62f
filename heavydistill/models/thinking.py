"""Splits a completion into its thinking and its answer, by the tags that a model writes.

Models without a profile are assumed to write ``<think>``. If a text has no such tag, the tags of
other families are looked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer

Tags = tuple[str, str]

COMMON_TAGS: Tags = ("<think>", "</think>")
# gpt-oss (harmony), Magistral and Ministral, Seed-OSS, Gemma 4, Kimi-VL, Command A Reasoning,
# OpenThinker and Sky-T1, Gemini's OpenAI-compatible API.
_HARMONY: Tags = ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>")
_OTHER_FAMILIES: tuple[Tags, ...] = (
    _HARMONY,
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("<|channel>thought", "<channel|>"),
    ("◁think▷", "◁/think▷"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<thought>", "</thought>"),
)
_BARE_HARMONY: Tags = ("analysis", "assistantfinal")  # as of a server that drops control tokens
# Control tokens that frame an answer, and what stands between harmony's channels.
_STARTS = ("<|START_RESPONSE|>", "<|begin_of_solution|>")
_ENDS = ("<|return|>", "<|end|>", "<|END_RESPONSE|>", "<|end_of_solution|>", "<turn|>")
_BETWEEN_CHANNELS = ("assistant", "<|start|>", "<|end|>")


def split_reasoning(text: str, tags: Tags | None) -> tuple[str, str]:
    """Split a whole completion into (reasoning, answer text), both stripped.

    The thinking is the text before the last closing tag. If there is none, the whole text is
    thinking if it contains an opening tag. The opening tag may be missing, because some chat
    templates put it into the prompt. With ``COMMON_TAGS``, a text that contains neither of them is
    searched for the tags of other families; an opening tag must then begin the text.
    """
    text = text.strip()
    if tags is None:
        return "", text
    if tags != COMMON_TAGS or any(tag in text for tag in tags):
        return _split(text, tags)
    for family in _OTHER_FAMILIES:
        opening, closing = family
        if text.startswith(opening) or (closing in text and opening not in text):
            thinking, answer = _split(text, family)
            if family == _HARMONY:
                thinking = _without(thinking, ends=_BETWEEN_CHANNELS)
            return thinking, _without(answer, _STARTS, _ENDS)
    opening, closing = _BARE_HARMONY
    is_harmony = text.startswith(opening) and closing in text
    return _split(text, _BARE_HARMONY) if is_harmony else ("", text)


def _split(text: str, tags: Tags) -> tuple[str, str]:
    opening, closing = tags
    thinking, tag, answer = text.rpartition(closing)
    if tag:
        return thinking.replace(opening, "", 1).strip(), answer.strip()
    before, tag, thinking = text.partition(opening)
    if tag:
        return f"{before}{thinking}".strip(), ""
    return "", text


def _without(text: str, starts: Sequence[str] = (), ends: Sequence[str] = ()) -> str:
    """The text without these tokens at its start and its end."""
    for token in starts:
        text = text.removeprefix(token).lstrip()
    for token in ends:
        text = text.removesuffix(token).rstrip()
    return text


def decoded(tokenizer: Tokenizer, ids: Sequence[int], tags: Tags | None) -> str:
    """Decode a completion without control tokens, but keep the tags of the thinking.

    In some tokenizers these tags are control tokens.
    """
    kept_tags = [*(tags or ()), *(sum(_OTHER_FAMILIES, ()) if tags == COMMON_TAGS else ())]
    control = {
        id
        for id, token in tokenizer.added_tokens_decoder.items()
        if token.special and not any(token.content in tag for tag in kept_tags)
    }
    kept = [id for id in ids if id not in control]
    # The configuration of a tokenizer may ask to clean up spaces, which would change the text.
    return str(tokenizer.decode(kept, clean_up_tokenization_spaces=False))

"""Splits a completion into its thinking and its answer, by the tags that a model writes.

Models without a profile are assumed to write ``<think>``. If a text has no such tag, the tags of
other families are looked for. ``LiveText`` does the same while the text is being written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase as Tokenizer

Tags = tuple[str, str]
Listen = Callable[[str, str], None]
"""Called with new text of a response, in order: (thinking, answer)."""

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


def without_opening(thinking: str, tags: Tags | None) -> str:
    """Thinking that came apart from the answer, without an opening tag at its beginning.

    vLLM leaves the tag there if it sends several tokens in one event, as it does under load.
    """
    return thinking.removeprefix((tags or COMMON_TAGS)[0])


class LiveText:
    """Passes on the text of one response while it is written, as thinking and as answer.

    What was passed on is never taken back, and all of it together is what the whole response has.
    So a text that begins without an opening tag is held back until the closing tag or the end of
    the response, unless ``is_plain``: it may be thinking that the prompt has opened.

    Args:
        tags: Tags of the model's thinking.
        listen: Called with new text; None if nobody reads the response before its end.
        is_plain: Whether such a text is known to be an answer.

    Not covered: a text with several closing tags, whose answer begins after the last one; here it
    begins after the first one.
    """

    def __init__(self, tags: Tags | None, listen: Listen | None, is_plain: bool = False) -> None:
        self._tags, self._listen, self._is_plain = tags, listen, is_plain
        self._place: Literal["start", "thinking", "held", "answer"] = "start" if tags else "answer"
        self._waiting = ""  # text that was not passed on yet
        self._answer: list[str] = []
        self._has_thought = False

    @property
    def is_heard(self) -> bool:
        """Whether anybody listens."""
        return self._listen is not None

    @property
    def has_begun(self) -> bool:
        return self._has_thought or bool(self._answer)

    def add(self, thinking: str, text: str) -> None:
        """Take new text: thinking that came apart from the answer, and all other text."""
        if thinking:
            self._place = "answer"
            whole = thinking if self._has_thought else without_opening(thinking, self._tags)
            self._pass_on(whole, "")
        self._waiting += text
        if self._place == "start":
            self._begin()
        if self._tags and self._place in ("thinking", "held"):
            self._think(self._tags[1])
        if self._place == "answer":
            whole = self._waiting if self._answer else self._waiting.lstrip()
            new = whole.rstrip()
            self._waiting = whole[len(new) :]
            self._pass_on("", new)

    def end(self, reasoning: str, answer_text: str) -> None:
        """Pass on what is missing of the whole response, split by ``split_reasoning``."""
        answered = "".join(self._answer)
        missing = answer_text[len(answered) :] if answer_text.startswith(answered) else ""
        self._pass_on("" if self._has_thought else reasoning, missing)

    def _begin(self) -> None:
        """Find out what the beginning of the text is."""
        assert self._tags
        text = self._waiting.lstrip()
        others = [opening for opening, _ in _OTHER_FAMILIES] if self._tags == COMMON_TAGS else []
        if text.startswith(self._tags[0]):
            self._place, self._waiting = "thinking", text.removeprefix(self._tags[0]).lstrip()
        elif not any(opening.startswith(text) for opening in (self._tags[0], *others)):
            is_plain = self._is_plain and not text.startswith(tuple(others))
            self._place = "answer" if is_plain else "held"

    def _think(self, closing: str) -> None:
        """Pass on the thinking up to its closing tag."""
        thinking, tag, rest = self._waiting.partition(closing)
        if tag:
            self._place, self._waiting = "answer", rest
            self._pass_on(thinking.rstrip(), "")
        elif self._place == "thinking":
            # The end may be the beginning of the tag, or of the space before it.
            begun = (n for n in range(len(closing) - 1, 0, -1) if thinking.endswith(closing[:n]))
            new = thinking[: len(thinking) - next(begun, 0)].rstrip()
            self._waiting = thinking[len(new) :]
            self._pass_on(new, "")

    def _pass_on(self, thinking: str, answer: str) -> None:
        if self._listen and (thinking or answer):
            self._has_thought |= bool(thinking)
            self._answer += [answer] * bool(answer)
            self._listen(thinking, answer)


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

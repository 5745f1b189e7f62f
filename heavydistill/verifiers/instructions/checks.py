"""The 25 instructions of IFEval: how each is checked, and which arguments it accepts.

A check returns True if the text follows the instruction, False if not, and None if that cannot be
determined: no language is recognised, or JSON is nested too deeply. Every check accepts any text
and takes time proportional to its length. It counts as the benchmark does, so that results can be
compared with published ones: keywords may be parts of longer words, and case matters only if the
instruction is about it.

Stricter than the benchmark's own program: ``NaN`` is not JSON; ``，`` and similar characters are
commas; a response with two of the three constrained answers fails; a text whose language is not
recognised does not pass for every language; a forbidden word is found even if it ends in a symbol
(``C++``) or is written in a script without blanks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from heavydistill.text.languages import is_in
from heavydistill.verifiers.instructions.arguments import (
    Check,
    Kind,
    language,
    letter,
    number,
    phrase,
    phrases,
    relation,
    word,
)
from heavydistill.verifiers.instructions.counts import (
    bullets,
    capital_words,
    first_word,
    highlights,
    parts,
    placeholders,
    sentences,
    words,
)

_FENCES = ("```json", "```Json", "```JSON", "```")
_COMMAS = ",，、،﹐､"
# Scripts that do not separate words: Thai, Lao, Burmese, Khmer, Chinese and Japanese.
_NO_BLANKS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_CONSTRAINED = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_POSTSCRIPTS = {"P.S.": r"(?<!\w)p\.\s?s\.", "P.P.S": r"(?<!\w)p\.\s?p\.\s?s"}


def _compared(count: Callable[..., int]) -> Check:
    """A check of a count; the last two arguments are a number and "at least" or "less than"."""

    def check(text: str, *arguments: Any) -> bool:
        *counted, bound, relation = arguments
        is_reached: bool = count(text, *counted) >= bound
        return is_reached if relation == "at least" else not is_reached

    return check


def _matches(text: str, word: str) -> int:
    return len(re.findall(re.escape(word), text, re.IGNORECASE))


def _stands_alone(word: str, text: str) -> bool:
    """Whether ``word`` occurs as a whole word."""
    before = r"\b" if re.match(r"\w", word) and not _NO_BLANKS.match(word[0]) else ""
    after = r"\b" if re.search(r"\w\Z", word) and not _NO_BLANKS.match(word[-1]) else ""
    return bool(re.search(before + re.escape(word) + after, text, re.IGNORECASE))


def _begins_paragraph(text: str, count: int, nth: int, word: str) -> bool:
    paragraphs = [part for part in text.split("\n\n") if part.strip()]
    return len(paragraphs) == count and first_word(paragraphs[nth - 1]) == word


def _is_json(text: str) -> bool | None:
    body = text.strip()
    for fence in _FENCES:
        body = body.removeprefix(fence)

    def refuse(word: str) -> None:
        raise ValueError(word)

    try:
        # JSON allows numbers of any length, and their values are not needed.
        body = body.removesuffix("```").strip()
        json.loads(body, parse_constant=refuse, parse_int=len, parse_float=len)
    except RecursionError:
        return None
    except ValueError:
        return False
    return True


def _is_title(line: str) -> bool:
    begin, end = line.find("<<"), line.rfind(">>")
    return 0 <= begin < end - 2 and bool(line[begin:end].lstrip("<").rstrip(">").strip())


def _is_two_responses(text: str) -> bool:
    responses = parts(text, "******") or []
    return len(responses) == 2 and responses[0] != responses[1]


KINDS: dict[str, Kind] = {
    "keywords:existence": Kind(
        lambda text, words: all(_matches(text, word) for word in words), {"keywords": phrases}
    ),
    "keywords:frequency": Kind(
        _compared(_matches), {"keyword": phrase, "frequency": number, "relation": relation}
    ),
    "keywords:forbidden_words": Kind(
        lambda text, words: not any(_stands_alone(word, text) for word in words),
        {"forbidden_words": phrases},
    ),
    "keywords:letter_frequency": Kind(
        _compared(lambda text, letter: text.lower().count(letter.lower())),
        {"letter": letter, "let_frequency": number, "let_relation": relation},
    ),
    "language:response_language": Kind(is_in, {"language": language}),
    "length_constraints:number_sentences": Kind(
        _compared(sentences), {"num_sentences": number, "relation": relation}
    ),
    "length_constraints:number_paragraphs": Kind(
        lambda text, count: len(parts(text, "***") or []) == count, {"num_paragraphs": number}
    ),
    "length_constraints:number_words": Kind(
        _compared(words), {"num_words": number, "relation": relation}
    ),
    "length_constraints:nth_paragraph_first_word": Kind(
        _begins_paragraph,
        {"num_paragraphs": number, "nth_paragraph": number, "first_word": word},
    ),
    "detectable_content:number_placeholders": Kind(
        lambda text, count: placeholders(text) >= count, {"num_placeholders": number}
    ),
    "detectable_content:postscript": Kind(
        lambda text, mark: bool(
            re.search(_POSTSCRIPTS.get(mark, re.escape(mark)), text, re.IGNORECASE)
        ),
        {"postscript_marker": phrase},
    ),
    "detectable_format:number_bullet_lists": Kind(
        lambda text, count: bullets(text) == count, {"num_bullets": number}
    ),
    "detectable_format:constrained_response": Kind(
        lambda text: sum(choice in text for choice in _CONSTRAINED) == 1, {}
    ),
    "detectable_format:number_highlighted_sections": Kind(
        lambda text, count: highlights(text) >= count, {"num_highlights": number}
    ),
    "detectable_format:multiple_sections": Kind(
        lambda text, heading, count: len(re.findall(rf"{re.escape(heading)}\s?\d+", text)) >= count,
        {"section_spliter": phrase, "num_sections": number},
    ),
    "detectable_format:json_format": Kind(_is_json, {}),
    "detectable_format:title": Kind(lambda text: any(map(_is_title, text.split("\n"))), {}),
    "combination:two_responses": Kind(_is_two_responses, {}),
    "combination:repeat_prompt": Kind(
        lambda text, prompt: text.strip().lower().startswith(prompt.lower()),
        {"prompt_to_repeat": phrase},
    ),
    "startend:end_checker": Kind(
        lambda text, phrase: text.strip().strip('"').lower().endswith(phrase.lower()),
        {"end_phrase": phrase},
    ),
    "startend:quotation": Kind(
        lambda text: bool(re.fullmatch('".*"', text.strip(), re.DOTALL)), {}
    ),
    "change_case:capital_word_frequency": Kind(
        _compared(capital_words), {"capital_frequency": number, "capital_relation": relation}
    ),
    "change_case:english_capital": Kind(lambda text: text.isupper() and is_in(text, "en"), {}),
    "change_case:english_lowercase": Kind(lambda text: text.islower() and is_in(text, "en"), {}),
    "punctuation:no_comma": Kind(lambda text: not any(mark in text for mark in _COMMAS), {}),
}
"""The 25 instructions by their ids in google/IFEval."""

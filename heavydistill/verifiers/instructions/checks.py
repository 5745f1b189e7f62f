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

Sentences end by rules, without a trained model: after ``.``, ``!`` or ``?`` and a blank, except
after common abbreviations and initials. As in the benchmark, a line end alone does not separate
sentences, and the number of a list item (``1.``) is a sentence.

Not covered: words in scripts without blanks (Chinese, Thai): an unbroken run of characters is one
word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from heavydistill.verifiers.instructions.language import CODES, is_in

# --- Counts in a text.
# Abbreviations that precede a name or a word and never end a sentence.
_ABBREVIATION = re.compile(
    r"mr|mrs|ms|dr|prof|rev|hon|st|gen|gov|sen|rep|capt|col|lt|sgt|maj|cmdr|messrs|mme|vs?|cf|viz"
    r"|ca|e\.g|i\.e"
)
# Abbreviations only before a number; otherwise words (``He said no.``) or the end of a sentence.
_BEFORE_NUMBER = re.compile(
    r"nos?|vol|pp?|fig|eq|sec|ch|est|approx|jan|feb|mar|apr|aug|sept?|oct|nov|dec"
)
# Abbreviations that end a sentence unless a small letter follows.
_OPEN_ABBREVIATION = re.compile(
    r"etc|al|inc|ltd|co|corp|bros|jr|sr|ave|blvd|u\.s|u\.k|u\.n|a\.m|p\.m|ph\.d|b\.a|m\.a|d\.c"
)
_AROUND = "\"'()[]{}*_`“”‘’«»<>#~"
_QUOTES = "\"'“”‘’«»"
_FULL_WIDTH_ENDS = "。！？।۔؟"
_APART = re.compile(f"([{_FULL_WIDTH_ENDS}])")
_BETWEEN_CAPITALS = re.compile(r"[\s,;:@#$%&?!\[\](){}<>\"“”…—]+|--")
_ENDING = re.compile(r"['’](?:s|m|d|ll|re|ve|t)$", re.IGNORECASE)


def words(text: str) -> int:
    """Number of runs of letters, digits and underscores; ``don't`` and ``well-known`` count as
    two."""
    return len(re.findall(r"\w+", text))


def sentences(text: str) -> int:
    count, is_open = 0, False
    tokens = _APART.sub(r"\1 ", text).split()
    for token, following in pairwise([*tokens, ""]):
        is_open = is_open or any(map(str.isalnum, token))
        if is_open:
            bare = token.rstrip(_AROUND)
            is_quoted = any(mark in _QUOTES for mark in token[len(bare) :])
            if _ends_sentence(bare, following.lstrip(_AROUND), is_quoted):
                count, is_open = count + 1, False
    return count + is_open


def _ends_sentence(token: str, following: str, is_quoted: bool) -> bool:
    begins_anew = not following[:1].islower()
    if token.endswith(("!", "?", *_FULL_WIDTH_ENDS)):
        return begins_anew or not is_quoted
    if token.endswith(("..", "…")):
        return begins_anew
    if not token.endswith("."):
        return False
    word = token[:-1].lstrip(_AROUND)
    small = word.lower()
    if _ABBREVIATION.fullmatch(small):
        return False
    if _BEFORE_NUMBER.fullmatch(small):
        return not following[:1].isdigit()
    if _OPEN_ABBREVIATION.fullmatch(small) or word.isdigit():
        return begins_anew
    is_initial = len(word) == 1 and word.isupper() and word != "I"
    return not is_initial


def capital_words(text: str) -> int:
    """Number of words without a small letter, including ``I``, ``A`` and ``U.S.``."""
    parts = (_ENDING.sub("", part.strip("'’")) for part in _BETWEEN_CAPITALS.split(text) if part)
    return sum(1 for part in parts if part.isupper())


def bullets(text: str) -> int:
    """Number of lines beginning with ``*`` or ``-``; lines of dashes count, ``**bold**`` does
    not."""
    lines = (line.lstrip() for line in text.split("\n"))
    return sum(1 for line in lines if line[:1] == "-" or (line[:1] == "*" and line[1:2] != "*"))


def highlights(text: str) -> int:
    """Number of passages ``*like this*`` or ``**like this**`` that are in one line, not blank."""
    single = re.findall(r"\*([^\n*]*)\*", text)
    double = re.findall(r"\*\*([^\n*]*)\*\*", text)
    return sum(1 for passage in single + double if passage.strip())


def placeholders(text: str) -> int:
    """Number of pairs ``[...]`` within one line; empty pairs count."""
    lines = text.split("\n")
    return sum("[" in part for line in lines for part in line.split("]")[:-1])


def parts(text: str, mark: str) -> list[str] | None:
    """Split the text at the marks and strip the parts; None if an inner part is blank.

    A blank first or last part is left out, so that a mark may begin or end the text.
    """
    found = [part.strip() for part in text.split(mark)]
    if not all(found[1:-1]):
        return None
    return [part for part in found if part]


def first_word(text: str) -> str:
    """The first word, in lower case, without leading quotes and trailing punctuation."""
    word = text.split(maxsplit=1)[0] if text.strip() else ""
    return re.split(r"[.,?!'\"]", word.lstrip("'").lstrip('"'), maxsplit=1)[0].lower()


# --- Arguments. A reader converts the value in a dataset to the value that a check uses. It raises
# ``ValueError`` with the accepted values.
RELATIONS = ("at least", "less than")


def _number(value: Any) -> int:
    """An integer of at least 1; also ``3.0``, because some table readers turn 3 into 3.0."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or value < 1:
        raise ValueError("a whole number from 1")
    return value


def _relation(value: Any) -> str:
    if value not in RELATIONS:
        raise ValueError(" or ".join(f'"{choice}"' for choice in RELATIONS))
    return str(value)


def _phrase(value: Any) -> str:
    r"""Text without surrounding blanks, with line ends converted to ``\n``."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("text")
    return value.replace("\r\n", "\n").strip()


def _word(value: Any) -> str:
    text = _phrase(value)
    if len(text.split()) > 1 or not first_word(text):
        raise ValueError("one word")
    return first_word(text)


def _phrases(value: Any) -> tuple[str, ...]:
    entries = value if isinstance(value, list | tuple) else ()
    if not entries or not all(isinstance(entry, str) and entry.strip() for entry in entries):
        raise ValueError("a list of texts")
    return tuple(map(_phrase, entries))


def _letter(value: Any) -> str:
    """One character, not necessarily a letter."""
    if not isinstance(value, str) or len(value.strip()) != 1:
        raise ValueError("one character")
    return value.strip()


def _language(value: Any) -> str:
    code = value.strip().lower() if isinstance(value, str) else ""
    if code not in CODES:
        raise ValueError(f"one of the codes {', '.join(sorted(CODES))}")
    return code


# --- The checks. Each takes the text, then its arguments in order.
Check = Callable[..., bool | None]
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


def _has_no_forbidden_word(text: str, words: tuple[str, ...]) -> bool:
    return not any(_stands_alone(word, text) for word in words)


def _stands_alone(word: str, text: str) -> bool:
    """Whether ``word`` occurs as a whole word."""
    before = r"\b" if re.match(r"\w", word) and not _NO_BLANKS.match(word[0]) else ""
    after = r"\b" if re.search(r"\w\Z", word) and not _NO_BLANKS.match(word[-1]) else ""
    return bool(re.search(before + re.escape(word) + after, text, re.IGNORECASE))


def _begins_paragraph(text: str, count: int, nth: int, word: str) -> bool:
    paragraphs = [part for part in text.split("\n\n") if part.strip()]
    return len(paragraphs) == count and first_word(paragraphs[nth - 1]) == word


def _has_postscript(text: str, marker: str) -> bool:
    return bool(re.search(_POSTSCRIPTS.get(marker, re.escape(marker)), text, re.IGNORECASE))


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
    found = parts(text, "******") or []
    return len(found) == 2 and found[0] != found[1]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of instruction: its check, and the arguments that the check takes."""

    check: Check
    arguments: dict[str, Callable[[Any], Any]]
    """Maps the name of each argument (all are required) to the function that reads its value."""


KINDS: dict[str, Kind] = {
    "keywords:existence": Kind(
        lambda text, words: all(_matches(text, word) for word in words), {"keywords": _phrases}
    ),
    "keywords:frequency": Kind(
        _compared(_matches), {"keyword": _phrase, "frequency": _number, "relation": _relation}
    ),
    "keywords:forbidden_words": Kind(_has_no_forbidden_word, {"forbidden_words": _phrases}),
    "keywords:letter_frequency": Kind(
        _compared(lambda text, letter: text.lower().count(letter.lower())),
        {"letter": _letter, "let_frequency": _number, "let_relation": _relation},
    ),
    "language:response_language": Kind(is_in, {"language": _language}),
    "length_constraints:number_sentences": Kind(
        _compared(sentences), {"num_sentences": _number, "relation": _relation}
    ),
    "length_constraints:number_paragraphs": Kind(
        lambda text, count: len(parts(text, "***") or []) == count, {"num_paragraphs": _number}
    ),
    "length_constraints:number_words": Kind(
        _compared(words), {"num_words": _number, "relation": _relation}
    ),
    "length_constraints:nth_paragraph_first_word": Kind(
        _begins_paragraph,
        {"num_paragraphs": _number, "nth_paragraph": _number, "first_word": _word},
    ),
    "detectable_content:number_placeholders": Kind(
        lambda text, count: placeholders(text) >= count, {"num_placeholders": _number}
    ),
    "detectable_content:postscript": Kind(_has_postscript, {"postscript_marker": _phrase}),
    "detectable_format:number_bullet_lists": Kind(
        lambda text, count: bullets(text) == count, {"num_bullets": _number}
    ),
    "detectable_format:constrained_response": Kind(
        lambda text: sum(choice in text for choice in _CONSTRAINED) == 1, {}
    ),
    "detectable_format:number_highlighted_sections": Kind(
        lambda text, count: highlights(text) >= count, {"num_highlights": _number}
    ),
    "detectable_format:multiple_sections": Kind(
        lambda text, heading, count: len(re.findall(rf"{re.escape(heading)}\s?\d+", text)) >= count,
        {"section_spliter": _phrase, "num_sections": _number},
    ),
    "detectable_format:json_format": Kind(_is_json, {}),
    "detectable_format:title": Kind(lambda text: any(map(_is_title, text.split("\n"))), {}),
    "combination:two_responses": Kind(_is_two_responses, {}),
    "combination:repeat_prompt": Kind(
        lambda text, prompt: text.strip().lower().startswith(prompt.lower()),
        {"prompt_to_repeat": _phrase},
    ),
    "startend:end_checker": Kind(
        lambda text, phrase: text.strip().strip('"').lower().endswith(phrase.lower()),
        {"end_phrase": _phrase},
    ),
    "startend:quotation": Kind(
        lambda text: bool(re.fullmatch('".*"', text.strip(), re.DOTALL)), {}
    ),
    "change_case:capital_word_frequency": Kind(
        _compared(capital_words), {"capital_frequency": _number, "capital_relation": _relation}
    ),
    "change_case:english_capital": Kind(lambda text: text.isupper() and is_in(text, "en"), {}),
    "change_case:english_lowercase": Kind(lambda text: text.islower() and is_in(text, "en"), {}),
    "punctuation:no_comma": Kind(lambda text: not any(mark in text for mark in _COMMAS), {}),
}
"""The 25 instructions by their ids in google/IFEval."""

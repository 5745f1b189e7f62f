"""The 25 instructions of IFEval: how each is checked, and which arguments it takes.

A check gives True where the text follows the instruction, False where it does not, and None where
the rules cannot tell: no language can be recognised, or JSON is nested too deeply to be read.
Every check takes any text. What the benchmark counts as following is followed here too, so that
figures can be compared with published ones: keywords may be parts of longer words, and case does
not count unless the instruction is about it.

Stricter than the benchmark's own program: ``NaN`` is no JSON; ``，`` and the like are commas; two
of the three constrained answers are none; text without a recognisable language is not of every
language; a forbidden word that ends in a symbol (``C++``) or is written in a script without blanks
is found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heavydistill.verifiers.instructions import measures
from heavydistill.verifiers.instructions.language import CODES, is_in
from heavydistill.verifiers.instructions.measures import first_word

# --- What the arguments may be. A reader takes what stands in a dataset and gives the value that a
# check works with; it raises ``ValueError`` with what the argument takes where that is another.
Reader = Callable[[Any], Any]
RELATIONS = ("at least", "less than")


def read_number(value: Any) -> int:
    """A whole number from 1; ``3.0``, which some table readers make of 3, is one too."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or value < 1:
        raise ValueError("a whole number from 1")
    return value


def read_relation(value: Any) -> str:
    """One of ``RELATIONS``."""
    if value not in RELATIONS:
        raise ValueError(" or ".join(f'"{choice}"' for choice in RELATIONS))
    return str(value)


def read_phrase(value: Any) -> str:
    """Text that is not blank, without the blanks around it, its line ends as ``\\n``."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("text")
    return value.replace("\r\n", "\n").strip()


def read_word(value: Any) -> str:
    """One word, as ``measures.first_word`` gives it."""
    text = read_phrase(value)
    if len(text.split()) > 1 or not first_word(text):
        raise ValueError("one word")
    return first_word(text)


def read_phrases(value: Any) -> tuple[str, ...]:
    """At least one text, none of them blank."""
    if not isinstance(value, list | tuple) or not value:
        raise ValueError("a list of texts")
    try:
        return tuple(read_phrase(entry) for entry in value)
    except ValueError:
        raise ValueError("a list of texts") from None


def read_letter(value: Any) -> str:
    """One character; it need not be a letter."""
    if not isinstance(value, str) or len(value.strip()) != 1:
        raise ValueError("one character")
    return value.strip()


def read_language(value: Any) -> str:
    """A code of ``language.CODES``."""
    code = value.strip().lower() if isinstance(value, str) else ""
    if code not in CODES:
        raise ValueError(f"one of the codes {', '.join(sorted(CODES))}")
    return code


# --- The checks.
Check = Callable[..., bool | None]
_FENCES = ("```json", "```Json", "```JSON", "```")
_COMMAS = ",，、،﹐､"
# Scripts that write no blanks between words: Thai, Lao, Burmese, Khmer, Chinese and Japanese.
_NO_BLANKS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
_CONSTRAINED = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


@dataclass(frozen=True, slots=True)
class Kind:
    """One of the 25 instructions.

    Attributes:
        check: Takes the text and the arguments by name.
        arguments: Names of the arguments, all of them needed, and what reads each.
    """

    check: Check
    arguments: dict[str, Reader]


def _holds(count: int, relation: str, bound: int) -> bool:
    return count >= bound if relation == "at least" else count < bound


def _matches(word: str, text: str) -> int:
    return len(re.findall(re.escape(word), text, re.IGNORECASE))


def _has_keywords(text: str, *, keywords: tuple[str, ...]) -> bool:
    return all(_matches(word, text) for word in keywords)


def _has_keyword_often(text: str, *, keyword: str, frequency: int, relation: str) -> bool:
    return _holds(_matches(keyword, text), relation, frequency)


def _has_no_forbidden_word(text: str, *, forbidden_words: tuple[str, ...]) -> bool:
    return not any(_stands_alone(word, text) for word in forbidden_words)


def _stands_alone(word: str, text: str) -> bool:
    """Whether ``word`` is there and no letter or digit goes on where it begins or ends with one."""
    before = r"\b" if re.match(r"\w", word) and not _NO_BLANKS.match(word[0]) else ""
    after = r"\b" if re.search(r"\w\Z", word) and not _NO_BLANKS.match(word[-1]) else ""
    return bool(re.search(before + re.escape(word) + after, text, re.IGNORECASE))


def _has_letter_often(text: str, *, letter: str, let_frequency: int, let_relation: str) -> bool:
    return _holds(text.lower().count(letter.lower()), let_relation, let_frequency)


def _is_in_language(text: str, *, language: str) -> bool | None:
    return is_in(text, language)


def _has_sentences(text: str, *, num_sentences: int, relation: str) -> bool:
    return _holds(measures.sentences(text), relation, num_sentences)


def _has_words(text: str, *, num_words: int, relation: str) -> bool:
    return _holds(measures.words(text), relation, num_words)


def _has_paragraphs(text: str, *, num_paragraphs: int) -> bool:
    found = measures.parts(text, "***")
    return found is not None and len(found) == num_paragraphs


def _begins_paragraph(
    text: str, *, num_paragraphs: int, nth_paragraph: int, first_word: str
) -> bool:
    found = [part for part in text.split("\n\n") if part.strip()]
    has_all = len(found) == num_paragraphs
    return has_all and measures.first_word(found[nth_paragraph - 1]) == first_word


def _has_placeholders(text: str, *, num_placeholders: int) -> bool:
    return measures.placeholders(text) >= num_placeholders


def _has_postscript(text: str, *, postscript_marker: str) -> bool:
    known = {"P.S.": r"(?<!\w)p\.\s?s\.", "P.P.S": r"(?<!\w)p\.\s?p\.\s?s"}
    pattern = known.get(postscript_marker, re.escape(postscript_marker))
    return bool(re.search(pattern, text, re.IGNORECASE))


def _has_bullets(text: str, *, num_bullets: int) -> bool:
    return measures.bullets(text) == num_bullets


def _is_constrained(text: str) -> bool:
    return sum(choice in text for choice in _CONSTRAINED) == 1


def _has_highlights(text: str, *, num_highlights: int) -> bool:
    return measures.highlights(text) >= num_highlights


def _has_sections(text: str, *, section_spliter: str, num_sections: int) -> bool:
    return measures.sections(text, section_spliter) >= num_sections


def _is_json(text: str) -> bool | None:
    body = text.strip()
    for fence in _FENCES:
        body = body.removeprefix(fence)
    try:
        json.loads(
            body.removesuffix("```").strip(),
            parse_constant=_no_json,
            # Numbers of any length are JSON, and their value does not matter.
            parse_int=len,
            parse_float=len,
        )
    except RecursionError:
        return None
    except ValueError:
        return False
    return True


def _no_json(word: str) -> None:
    raise ValueError(word)


def _has_title(text: str) -> bool:
    return any(map(_title, text.split("\n")))


def _title(line: str) -> str:
    begin, end = line.find("<<"), line.rfind(">>")
    if begin < 0 or end <= begin + 2:
        return ""
    return line[begin:end].lstrip("<").rstrip(">").strip()


def _is_two_responses(text: str) -> bool:
    found = measures.parts(text, "******")
    return found is not None and len(found) == 2 and found[0] != found[1]


def _repeats_prompt(text: str, *, prompt_to_repeat: str) -> bool:
    return text.strip().lower().startswith(prompt_to_repeat.lower())


def _has_end(text: str, *, end_phrase: str) -> bool:
    return text.strip().strip('"').lower().endswith(end_phrase.lower())


def _is_in_capitals(text: str) -> bool | None:
    return text.isupper() and is_in(text, "en")


def _is_in_small_letters(text: str) -> bool | None:
    return text.islower() and is_in(text, "en")


def _has_capital_words(text: str, *, capital_frequency: int, capital_relation: str) -> bool:
    return _holds(measures.capital_words(text), capital_relation, capital_frequency)


def _has_no_comma(text: str) -> bool:
    return not any(comma in text for comma in _COMMAS)


def _is_quoted(text: str) -> bool:
    body = text.strip()
    return len(body) > 1 and body[0] == '"' and body[-1] == '"'


KINDS: dict[str, Kind] = {
    "keywords:existence": Kind(_has_keywords, {"keywords": read_phrases}),
    "keywords:frequency": Kind(
        _has_keyword_often,
        {"keyword": read_phrase, "frequency": read_number, "relation": read_relation},
    ),
    "keywords:forbidden_words": Kind(_has_no_forbidden_word, {"forbidden_words": read_phrases}),
    "keywords:letter_frequency": Kind(
        _has_letter_often,
        {"letter": read_letter, "let_frequency": read_number, "let_relation": read_relation},
    ),
    "language:response_language": Kind(_is_in_language, {"language": read_language}),
    "length_constraints:number_sentences": Kind(
        _has_sentences, {"num_sentences": read_number, "relation": read_relation}
    ),
    "length_constraints:number_paragraphs": Kind(_has_paragraphs, {"num_paragraphs": read_number}),
    "length_constraints:number_words": Kind(
        _has_words, {"num_words": read_number, "relation": read_relation}
    ),
    "length_constraints:nth_paragraph_first_word": Kind(
        _begins_paragraph,
        {
            "num_paragraphs": read_number,
            "nth_paragraph": read_number,
            "first_word": read_word,
        },
    ),
    "detectable_content:number_placeholders": Kind(
        _has_placeholders, {"num_placeholders": read_number}
    ),
    "detectable_content:postscript": Kind(_has_postscript, {"postscript_marker": read_phrase}),
    "detectable_format:number_bullet_lists": Kind(_has_bullets, {"num_bullets": read_number}),
    "detectable_format:constrained_response": Kind(_is_constrained, {}),
    "detectable_format:number_highlighted_sections": Kind(
        _has_highlights, {"num_highlights": read_number}
    ),
    "detectable_format:multiple_sections": Kind(
        _has_sections, {"section_spliter": read_phrase, "num_sections": read_number}
    ),
    "detectable_format:json_format": Kind(_is_json, {}),
    "detectable_format:title": Kind(_has_title, {}),
    "combination:two_responses": Kind(_is_two_responses, {}),
    "combination:repeat_prompt": Kind(_repeats_prompt, {"prompt_to_repeat": read_phrase}),
    "startend:end_checker": Kind(_has_end, {"end_phrase": read_phrase}),
    "startend:quotation": Kind(_is_quoted, {}),
    "change_case:capital_word_frequency": Kind(
        _has_capital_words,
        {"capital_frequency": read_number, "capital_relation": read_relation},
    ),
    "change_case:english_capital": Kind(_is_in_capitals, {}),
    "change_case:english_lowercase": Kind(_is_in_small_letters, {}),
    "punctuation:no_comma": Kind(_has_no_comma, {}),
}
"""The instructions by id, as google/IFEval writes it."""

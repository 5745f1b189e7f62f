"""Counts and parts of a text, as the instructions mean them.

Sentences end by rules, without a trained model: after ``.``, ``!`` or ``?`` and a blank, except
after common abbreviations and initials. As in the benchmarks, a line end alone does not separate
sentences, and the number of a list item (``1.``) is a sentence.

Not covered: words in scripts without blanks (Chinese, Thai): an unbroken run of characters is one
word.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise, zip_longest

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
    return len(split_sentences(text))


@lru_cache(maxsize=1)  # several instructions of a problem may be about sentences
def split_sentences(text: str) -> tuple[str, ...]:
    """The sentences of a text, each with a letter or a digit; blanks within a sentence are kept.

    Marks before a sentence belong to it, and marks after the last one to that one.
    """
    text = _APART.sub(r"\1 ", text)
    tokens = [*re.finditer(r"\S+", text)]
    ends, is_open = [0], False
    for token, following in zip_longest(tokens, tokens[1:]):
        is_open = is_open or any(map(str.isalnum, token[0]))
        if is_open:
            bare = token[0].rstrip(_AROUND)
            is_quoted = any(mark in _QUOTES for mark in token[0][len(bare) :])
            after = following[0].lstrip(_AROUND) if following else ""
            if _ends_sentence(bare, after, is_quoted):
                ends.append(token.end())
                is_open = False
    if is_open:
        ends.append(len(text))
    elif len(ends) > 1:
        ends[-1] = len(text)
    return tuple(text[begin:end].strip() for begin, end in pairwise(ends))


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
    texts = [part.strip() for part in text.split(mark)]
    if not all(texts[1:-1]):
        return None
    return [part for part in texts if part]


def first_word(text: str) -> str:
    """The first word, in lower case, without leading quotes and trailing punctuation."""
    word = text.split(maxsplit=1)[0] if text.strip() else ""
    return re.split(r"[.,?!'\"]", word.lstrip("'").lstrip('"'), maxsplit=1)[0].lower()

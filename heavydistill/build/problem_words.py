"""The words, numbers and signs of a problem's text, as problems are compared by them.

Compatibility forms, small letters, no punctuation; each character of a script without blanks
(Chinese, Japanese, Thai) is a word of its own, and so is each number.

Not covered: numbers that are written as words.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable

_NO_BLANKS = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_SIGNS = "-−+×÷*/^=<>≤≥"
_TOKEN = re.compile(
    r"\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)|\d+(?:\.\d+)?"
    rf"|[{_NO_BLANKS}]|[^\W\d_{_NO_BLANKS}]+|[{_SIGNS}]"
)


def tokens_of(text: str) -> list[str]:
    """Words, numbers (without commas) and signs, in their order."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return [
        token.replace(",", "") if is_number(token) else token for token in _TOKEN.findall(plain)
    ]


def masked(tokens: Iterable[str]) -> list[str]:
    """The words alone, with a single ``0`` wherever one number or several stood."""
    words: list[str] = []
    for token in tokens:
        if is_number(token):
            if words[-1:] != ["0"]:
                words.append("0")
        elif token not in _SIGNS:
            words.append(token)
    return words


def is_number(token: str) -> bool:
    """Whether a token is one."""
    return token[0].isdecimal()


def digest(tokens: Iterable[str], key: bytes = b"") -> int:
    """A number of 64 bits that is the same for the same tokens and key in every process."""
    text = " ".join(tokens).encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, key=key).digest())

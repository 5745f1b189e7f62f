"""Splits texts into words: responses with ``words_of``, problems with ``tokens_of``.

Compatibility forms are normalized, capitals are lowercased, punctuation is removed. Each character
of a script without spaces (Chinese, Japanese, Thai) is a word. In problems, each number and each
sign between numbers is a word; in responses, adjacent letters and digits are one word.

``most_different`` orders texts by their difference. The similarity of two texts is the Jaccard
similarity of their three-word sequences; a shorter text is a single sequence.

Not covered: numbers written as words; paraphrases.
"""

from __future__ import annotations

import hashlib
import random
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

WITHOUT_BLANKS = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""Character ranges of the scripts without spaces, for a regular expression's character class."""
_WORD = re.compile(rf"[{WITHOUT_BLANKS}]|[^\W_{WITHOUT_BLANKS}]+")
_SIGNS = "-−+×÷*/^=<>≤≥"
_TOKEN = re.compile(
    r"\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)|\d+(?:\.\d+)?"
    rf"|[{WITHOUT_BLANKS}]|[^\W\d_{WITHOUT_BLANKS}]+|[{_SIGNS}]"
)

Run = tuple[str, ...]


def words_of(text: str) -> list[str]:
    """Return the words of a text, in order."""
    return _WORD.findall(_plain(text))


def runs_of(words: Sequence[str], length: int) -> Iterator[Run]:
    """Yield all sequences of ``length`` consecutive words; none if the text is shorter."""
    return zip(*(islice(words, start, None) for start in range(length)), strict=False)


def parts_at(one: Sequence[object], other: Sequence[object]) -> int:
    """Return the first place at which two texts or lists differ, else the length of the shorter."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, both in pairs if both[0] != both[1]), min(len(one), len(other)))


def tokens_of(text: str) -> list[str]:
    """Return the words, numbers (without commas) and signs of a problem, in order."""
    return [
        token.replace(",", "") if is_number(token) else token
        for token in _TOKEN.findall(_plain(text))
    ]


def masked(tokens: Iterable[str]) -> list[str]:
    """Return the words without signs, with one ``0`` for each number or sequence of numbers."""
    words: list[str] = []
    for token in tokens:
        if is_number(token):
            if words[-1:] != ["0"]:
                words.append("0")
        elif token not in _SIGNS:
            words.append(token)
    return words


def is_number(token: str) -> bool:
    return token[0].isdecimal()


def digest(tokens: Iterable[str], key: bytes = b"") -> int:
    """Return a 64-bit hash of tokens and key, the same in every process."""
    text = " ".join(tokens).encode(errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8, key=key).digest())


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


_RUN = 3


def most_different(texts: Sequence[str], rng: random.Random) -> list[int]:
    """Order texts so that each text differs most from those before it; return their positions.

    The first text is drawn at random, because the text that differs most from all others is often
    an outlier. Each next text is the one whose highest similarity to an earlier text is lowest;
    ties are broken at random. The same texts and state of ``rng`` give the same order.
    """
    left = list(range(len(texts)))
    rng.shuffle(left)
    runs = _numbered_runs(texts)
    sizes = np.array([len(of_text) for of_text in runs])
    starts = np.cumsum(sizes) - sizes
    numbers, numbered = np.unique(
        np.concatenate([np.empty(0, np.int64), *runs]), return_inverse=True
    )
    nearest = np.zeros(len(texts))
    order: list[int] = []
    while left:
        taken = min(left, key=nearest.__getitem__)
        left.remove(taken)
        order.append(taken)
        is_there = np.zeros(len(numbers), dtype=np.int64)
        is_there[numbered[starts[taken] : starts[taken] + sizes[taken]]] = 1
        shared = np.add.reduceat(is_there[numbered], starts)
        nearest = np.maximum(nearest, shared / (sizes[taken] + sizes - shared))
    return order


def _numbered_runs(texts: Sequence[str]) -> list[np.ndarray]:
    """Return the distinct sequences of each text, as numbers that are equal for equal sequences."""
    indices: dict[str, int] = {}
    indexed = []
    for text in texts:
        words = [indices.setdefault(word, len(indices) + 1) for word in words_of(text)]
        indexed.append(np.array(words + [0] * (_RUN - len(words)), dtype=np.int64))
    base = len(indices) + 1
    return [np.unique((words[:-2] * base + words[1:-1]) * base + words[2:]) for words in indexed]

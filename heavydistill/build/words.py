"""The words of a text and the runs of them, as responses are compared with each other.

Compatibility forms are one form, capitals small, punctuation and operators gone. Each character
of a script without blanks (Chinese, Japanese, Thai) is a word of its own. Numbers stay as they
are; ``contamination``, which masks them, has words of its own.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import islice

WITHOUT_BLANKS = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
"""The scripts without blanks, for a class of a regular expression."""
_WORD = re.compile(rf"[{WITHOUT_BLANKS}]|[^\W_{WITHOUT_BLANKS}]+")

Run = tuple[str, ...]


def words_of(text: str) -> list[str]:
    """The words of any text, in their order."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def runs_of(words: Sequence[str], length: int) -> Iterator[Run]:
    """All runs of so many words; none of fewer words."""
    return zip(*(islice(words, start, None) for start in range(length)), strict=False)

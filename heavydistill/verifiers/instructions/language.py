"""Recognises the language of a text, with the same result in every process.

langdetect draws random numbers. Here every text is processed with the same seed, by a separate
detector factory whose profiles have a fixed order. The global state of langdetect is neither used
nor changed.

langdetect ignores words in capitals and mistakes French text in capitals for English, so texts are
lower-cased first. It is often wrong on short texts (one in twelve English texts of 40 letters). So
for a text with fewer than ``FEWEST_LETTERS`` letters, its result can confirm the required language
but not exclude it.

Not covered: texts in several languages; only the most frequent one is recognised.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from pathlib import Path
from typing import Any

_PROFILES = (
    "af ar bg bn ca cs cy da de el en es et fa fi fr gu he hi hr hu id it ja kn ko lt lv mk ml mr "
    "ne nl no pa pl pt ro ru sk sl so sq sv sw ta te th tl tr uk ur vi zh-cn zh-tw"
)
CODES = {code: frozenset({code}) for code in _PROFILES.split()}
CODES["zh"] = frozenset({"zh-cn", "zh-tw"})
"""Maps the names of languages in datasets to the codes of langdetect."""

FEWEST_LETTERS = 60
# langdetect reads only 10,000 characters, but would search the rest for links too.
_LONGEST = 20_000


def is_in(text: str, language: str) -> bool | None:
    """Whether most of ``text`` is in the language with the code ``language``; None if unknown."""
    from langdetect.lang_detect_exception import LangDetectException

    begin = text[:_LONGEST].lower()
    detector = factory().create()
    detector.append(begin)
    try:
        shares = {found.lang: found.prob for found in detector.get_probabilities()}
    except LangDetectException:
        return None
    share = sum(shares.get(code, 0.0) for code in CODES[language])
    # Combining marks count as letters, because Indic vowels are marks.
    letters = sum(1 for character in begin if unicodedata.category(character)[0] in "LM")
    if letters < FEWEST_LETTERS:
        return True if share > 1 / 3 else None
    if share > 0.5:
        return True
    return False if max(shares.values(), default=0.0) > 0.5 else None


@lru_cache(maxsize=1)
def factory() -> Any:
    """The langdetect factory with all language profiles; the first call takes half a second."""
    from langdetect import detector_factory

    made = detector_factory.DetectorFactory()
    folder = Path(detector_factory.PROFILES_DIRECTORY)
    made.load_json_profile(
        [(folder / code).read_text(encoding="utf-8") for code in _PROFILES.split()]
    )
    made.set_seed(0)
    return made

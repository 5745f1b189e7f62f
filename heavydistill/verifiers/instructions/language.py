"""Recognises the language of a text, with the same result in every process.

langdetect draws random numbers. Here each text gets the same seed, and a separate factory has its
profiles in a fixed order; the global state of langdetect is neither used nor changed.

langdetect skips capitals and so mistakes French ones for English; hence texts are put in small
letters. It errs on short texts (one in twelve English texts of 40 letters), so for a text of fewer
than ``FEWEST_LETTERS`` it can confirm the language asked for, but not exclude it.

Not covered: texts in several languages; the most frequent one counts.
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
"""Names of languages in datasets, to the codes of langdetect."""

FEWEST_LETTERS = 60
# langdetect reads only 10,000 characters, but would search the rest for links too.
_LONGEST = 20_000


def is_in(text: str, language: str) -> bool | None:
    """Whether most of ``text`` is in the language of a code; None if that is unknown."""
    from langdetect.lang_detect_exception import LangDetectException

    begin = text[:_LONGEST].lower()
    detector = factory().create()
    detector.append(begin)
    try:
        shares = {found.lang: found.prob for found in detector.get_probabilities()}
    except LangDetectException:
        return None
    share = sum(shares.get(code, 0.0) for code in CODES[language])
    # Marks count as well, because Indic vowels are marks.
    letters = sum(1 for character in begin if unicodedata.category(character)[0] in "LM")
    if letters < FEWEST_LETTERS:
        return True if share > 1 / 3 else None
    if share > 0.5:
        return True
    return False if max(shares.values(), default=0.0) > 0.5 else None


@lru_cache(maxsize=1)
def factory() -> Any:
    """The profiles of langdetect. The first call takes about half a second."""
    from langdetect import detector_factory

    made = detector_factory.DetectorFactory()
    folder = Path(detector_factory.PROFILES_DIRECTORY)
    made.load_json_profile(
        [(folder / code).read_text(encoding="utf-8") for code in _PROFILES.split()]
    )
    made.set_seed(0)
    return made

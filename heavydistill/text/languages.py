"""Recognises the language of a text: by the script of its letters, and by langdetect.

``other_language`` finds responses in a different language than their problem. The script of a text
is the script of most of its letters. Code, formulas, LaTeX commands, links and words of one or two
Latin or Greek letters (names of variables) do not count; a Chinese, Japanese or Korean character
counts as several Latin letters. Thinking and answer text are examined separately. Problems that
request another language or a translation may be answered in any language.

``is_in`` tells languages of one script apart, with the same result in every process: langdetect
draws random numbers, so every text is processed with the same seed, by a separate detector factory
whose profiles have a fixed order. The global state of langdetect is neither used nor changed. It
ignores words in capitals and mistakes French text in capitals for English, so texts are lower-cased
first. It is often wrong on short texts (one in twelve English texts of 40 letters). So for a text
with fewer than ``FEWEST_TO_DETECT`` letters, its result can confirm the required language but not
exclude it.

Not covered: texts in several languages; by script, languages that share one (French for English)
and texts that are short, mixed or mostly formulas, which pass.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

from heavydistill.text.extraction import without_code

FEWEST_LETTERS = 40
DOMINANT = 2 / 3
PART = 10_000
"""Number of characters read from each part of a long text: its beginning, middle and end."""
_JAPANESE_FROM = 0.1  # Minimum share of kana among the characters of a Japanese text

_WEIGHTS = {"CJK": 3, "HIRAGANA": 2, "KATAKANA": 2, "HANGUL": 2}
_NO_PROSE = re.compile(
    r"\$\$[^$]{0,5000}\$\$|\$[^$\n]{0,500}\$|\\\((?:(?!\\[()]).){0,500}\\\)"
    r"|\\\[(?:(?!\\[\[\]]).){0,5000}\\\]"
    r"|`[^`\n]{1,500}`|https?://\S{1,500}|\\(?:begin|end)\s?\{[^{}\n]{0,40}\}|\\[A-Za-z]{1,40}"
    r"|(?<![A-Za-zΑ-ω])[A-Za-zΑ-ω]{1,2}(?![A-Za-zΑ-ω])",
    re.DOTALL,
)
_LANGUAGE = (
    r"(?:english|chinese|mandarin|cantonese|japanese|korean|russian|ukrainian|bulgarian|arabic"
    r"|persian|farsi|urdu|hebrew|greek|hindi|bengali|marathi|gujarati|punjabi|tamil|telugu|kannada"
    r"|malayalam|nepali|sanskrit|thai|french|german|spanish|italian|portuguese|polish|dutch"
    r"|turkish|vietnamese|indonesian|latin|finnish|swedish|swahili)"
)
_ASKS_FOR_ANOTHER = re.compile(
    rf"\b(?:in|into|to|using|only|entirely) (?:the )?(?:\w{{1,12}} )?{_LANGUAGE}\b"
    rf"|\b{_LANGUAGE} (?:language|only|translation|response|answer)\b|\btranslat(?:e|es|ion|ing)\b"
    r"|翻译|翻譯|译成|译为|(?:用|以|使用|成|写)(?:中|英|日|韩|法|德|俄|汉|西班牙|阿拉伯|希腊)[文语語]"
    r"|翻訳|訳して|(?:日本|英|中国|韓国|ロシア)語で|번역|(?:영어|한국어|중국어|일본어)로"
    r"|перевед|перевод|на (?:английском|русском|китайском)\b",
    re.IGNORECASE,
)

_PROFILES = (
    "af ar bg bn ca cs cy da de el en es et fa fi fr gu he hi hr hu id it ja kn ko lt lv mk ml mr "
    "ne nl no pa pl pt ro ru sk sl so sq sv sw ta te th tl tr uk ur vi zh-cn zh-tw"
)
CODES = {code: frozenset({code}) for code in _PROFILES.split()}
CODES["zh"] = frozenset({"zh-cn", "zh-tw"})
"""Maps the names of languages in datasets to the codes of langdetect."""

FEWEST_TO_DETECT = 60
# langdetect reads only 10,000 characters, but would search the rest for links too.
_LONGEST = 20_000


def other_language(problem: str, *texts: str) -> bool:
    """Return whether a text has a different script than the problem requires."""
    wanted = script(problem)
    if wanted is None or _ASKS_FOR_ANOTHER.search(problem):
        return False
    return any(script(text) not in (wanted, None) for text in texts)


def script(text: str) -> str | None:
    """Return the dominant script by its Unicode name (``LATIN``); None if there is none.

    ``CJK`` is Chinese; texts with kana are ``JAPANESE``.
    """
    if len(text) > 3 * PART:
        middle = (len(text) - PART) // 2
        text = "\n".join((text[:PART], text[middle : middle + PART], text[-PART:]))
    letters = Counter(_NO_PROSE.sub(" ", without_code(text)))
    counts: Counter[str] = Counter()
    for letter, count in letters.items():
        # Count combining marks too, because Indic vowels are marks.
        if unicodedata.category(letter)[0] in "LM":
            counts[unicodedata.name(letter, "").partition(" ")[0]] += count
    kana = counts["HIRAGANA"] + counts["KATAKANA"]
    weights = Counter({name: count * _WEIGHTS.get(name, 1) for name, count in counts.items()})
    if kana > _JAPANESE_FROM * (kana + counts["CJK"]):
        weights["JAPANESE"] = sum(weights.pop(name, 0) for name in ("CJK", "HIRAGANA", "KATAKANA"))
    total = weights.total()
    if total < FEWEST_LETTERS:
        return None
    name, weight = max(weights.items(), key=lambda item: item[1])
    return name if weight >= DOMINANT * total else None


def is_in(text: str, language: str) -> bool | None:
    """Whether most of ``text`` is in the language with the code ``language``; None if unknown."""
    from langdetect.lang_detect_exception import LangDetectException

    begin = text[:_LONGEST].lower()
    detector = factory().create()
    detector.append(begin)
    try:
        shares = {guess.lang: guess.prob for guess in detector.get_probabilities()}
    except LangDetectException:
        return None
    share = sum(shares.get(code, 0.0) for code in CODES[language])
    # Combining marks count as letters, because Indic vowels are marks.
    letters = sum(1 for character in begin if unicodedata.category(character)[0] in "LM")
    if letters < FEWEST_TO_DETECT:
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

"""Finds responses in a different language than their problem, by the script of their letters.

The script of a text is the script of most of its letters. Code, formulas, LaTeX commands, links and
words of one or two Latin or Greek letters (names of variables) do not count; a Chinese, Japanese or
Korean character counts as several Latin letters. Thinking and answer text are examined separately.
Problems that request another language or a translation may be answered in any language.

Not covered: languages with the same script (French for English); texts that are short, mixed or
mostly formulas, which pass.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

from heavydistill.verifiers.extraction import without_code

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

"""Denials and alternatives in text of other languages than English.

Where structure is enough, no word is needed: another value or another option in the sentence of the
answer is an alternative, whatever joins them. Words remain for "not" and "wrong", which name no
other value, and for "or" before the answer, where "2 and 3 make 5" has the same structure.

The languages are German, French, Spanish, Portuguese, Italian, Dutch, Polish, Russian, Turkish,
Arabic, Urdu, Hindi, Bengali, Japanese, Korean, Vietnamese and Indonesian; structure is read in any.
Chinese is read with English, by lists of words of each verifier.
"""

from __future__ import annotations

import re

_ENGLISH = re.compile(
    r"\b(?:the|and|thus|therefore|hence|this|that|which|with|from|there|since|because|she|step|must"
    r"|equals|how|should|have|has|each|not|rather|than|but|mod|it|are|they|you|if|then|when|only)\b",
    re.IGNORECASE,
)
_SENTENCE_ENDS = re.compile(r"[!?。！？।\n]|\.(?!\d)")
_OR = (
    r"oder|ou|oppure|или|либо|veya|ya da|hoặc|lub|albo|atau|أو|یا|या|বা|또는|혹은"
    r"|または|もしくは|あるいは"
)
OR = rf"{_OR}|o|u"
# Without single and Greek letters, which may be variables, and without raised digits.
_OTHER_LANGUAGE = re.compile(
    rf"[^\W\d_a-zA-Z\u0370-\u03ff\u2070-\u214f²³¹½¼¾ªºµÅ]|\b(?:{_OR}|nicht|kein|niet|bukan|ist|sind|und|der|das|ein|nein|doch|est|sont"
    r"|une?|les?|la|el|los|las|es|que|il|di|che|uma?|het|een|dat|jest|nie|adalah|yang|bir)\b",
    re.IGNORECASE,
)
_NOT_BEFORE = re.compile(
    r"\b(?:nicht|keine?|pas|no|não|non|не|нет|nie|niet|geen|bukan|tidak|không|ليس|ليست|لا)"
    r"(?:\s+[^\W\d_]+){0,2}[\s$:*]*$",
    re.IGNORECASE,
)
_WRONG = (
    r"falsch|faux|fausse|fals[oa]|incorrec\w+|неверн\w*|неправильн\w*|ошиб\w+|errad[oa]|sbagliat\w+"
    r"|yanlış|خطأ|غلط|गलत|ভুল|間違\w*|틀[렸린]|\bsai\b|\bsalah\b|błęd\w+|\bfout\b|onjuist"
)
_CALLS_WRONG = re.compile(_WRONG, re.IGNORECASE)
_NOT_AFTER = re.compile(
    r"[^.!?。！？।\n\d]{0,20}?(?:\b(?:nicht|pas|no|não|non|не|nie|niet|bukan|không|değil)\b"
    rf"|नहीं|नहीँ|نہیں|ليس|নয়|ではな|ではあ|じゃな|でない|아니|아닙|{_WRONG})",
    re.IGNORECASE,
)


def is_foreign(text: str) -> bool:
    """Whether a text has a word or letter of another language, and no common English word."""
    return not _ENGLISH.search(text) and _OTHER_LANGUAGE.search(text) is not None


def last_sentence(text: str) -> str:
    """The text after the last end of a sentence."""
    return _SENTENCE_ENDS.split(text)[-1]


def first_sentence(text: str) -> str:
    """The text before the first end of a sentence."""
    return _SENTENCE_ENDS.split(text, maxsplit=1)[0]


def denies(before: str, after: str) -> bool:
    """Whether a word beside an answer, in another language, says that it is not the answer."""
    return bool(_NOT_BEFORE.search(before) or _NOT_AFTER.match(after))


def calls_wrong(text: str) -> bool:
    """Whether a text in another language has a word for "wrong"."""
    return _CALLS_WRONG.search(text) is not None

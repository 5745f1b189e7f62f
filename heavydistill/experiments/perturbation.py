r"""Replaces the values in attempts by others of the same form, for the control ``garbled``.

What a value is, and what replaces it:

    number         as many digits; sign, decimal point and thousands separators stay
    number word    another one of two to nine, ten to nineteen, or twenty, thirty, ... ninety
    choice letter  the letter of another option, and the text of an option by that option's text
    final answer   without digits: its words, with as many letters of the same alphabet and case

Within one attempt a value always has the same replacement, so that the attempt remains coherent: a
result reappears in the next step. Different attempts have different replacements, so that they do
not agree on a wrong value. A consensus would be misinformation, and a control must take the
information out. A replacement is never the value itself and, if the form leaves another one, never
a right answer. Everything is determined by the seed.

Not covered: LaTeX commands (``\pi``); numbers in words of other languages; programs without
numbers.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Callable, Collection, Sequence
from decimal import Decimal

_NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?"
_UNITS = ("two", "three", "four", "five", "six", "seven", "eight", "nine")
_TEENS = (
    *("ten", "eleven", "twelve", "thirteen", "fourteen"),
    *("fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SPELLED = dict(zip((*_UNITS, *_TEENS, *_TENS), (*range(2, 20), *range(20, 99, 10)), strict=True))
# Chinese characters beside a Latin word or letter do not belong to it.
_STARTS, _ENDS = r"(?<![A-Za-z0-9_\\'’])", r"(?![A-Za-z0-9_'’])"
# A single letter that is no article or pronoun: "A is", "A or B", but not "A train", "I see".
_ALONE = rf"{_STARTS}(?:{{}}){_ENDS}(?!(?<=[AaI]) (?!(?:is|was|or|and)\b)[a-z])"
_BOX = re.compile(r"\\f?boxed\s*\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\}")
_ALPHABETS = (("a", "z"), ("α", "ω"), ("а", "я"))
_CJK = "天地山川木金土石田禾云雨风雪竹花"
_LONG_ENOUGH = re.compile(r"[^\W\d_]{3}|[\u3400-\u9fff]{2}")  # texts of options
_LONGEST_ANSWER = 80  # longer answers are texts or programs, not words
_DRAWS = 100


def garble_attempts(attempts: Sequence[str], seed: str, right: Collection[str] = ()) -> list[str]:
    """Return attempts at one problem with other values.

    Args:
        attempts: Texts of the attempts, each with its final answer in a box, if it has no digits.
        seed: Same texts and seed give the same result.
        right: Right answers, which no replacement gives.
    """
    return [garble([text], f"{seed}\x1f{i}", right=right)[0] for i, text in enumerate(attempts)]


def garble(
    texts: Sequence[str],
    seed: str,
    *,
    answer: str = "",
    right: Collection[str] = (),
    options: Sequence[str] = (),
) -> list[str]:
    """Return the texts of one attempt with other values.

    Args:
        texts: Texts that share their replacements, e.g. reasoning and answer text.
        seed: Determines the replacements, with the order of the values in the texts.
        answer: Final answer of the attempt, if known; the last box is found without it.
        right: Right answers of the problem, e.g. ``42`` or ``C``.
        options: Texts of the options of a choice, in the order of their letters; empty texts if
            only the number of options is known.
    """
    return _Garbler(texts, seed, answer, right, options).garbled


def final_box(text: str) -> str:
    """Content of the last box in a text; empty if there is none."""
    return next(reversed(_BOX.findall(text)), "").strip()


class _Garbler:
    """The replacements of one attempt; see ``garble``."""

    def __init__(
        self,
        texts: Sequence[str],
        seed: str,
        answer: str,
        right: Collection[str],
        options: Sequence[str],
    ) -> None:
        self._rng = random.Random(seed)
        self._new: dict[str, str] = {}  # replacement by value
        self._right = {_value(number) for text in right for number in re.findall(_NUMBER, text)}
        self._right_words = {word.lower() for text in right for word in _words(text)}
        self._letters = string.ascii_lowercase[: len(options)]
        named = zip(self._letters, map(str.lower, options), strict=False)
        self._texts = {text: letter for letter, text in named if _LONG_ENOUGH.search(text)}
        self._options = options
        # The first letters make the search three times as fast.
        spelled = rf"\b(?=[tfsenTFSEN])(?ai:{'|'.join(_SPELLED)})\b"
        patterns = {"number": _NUMBER, "spelled": spelled}
        if options:
            letters = f"[{self._letters}]"
            alone = _ALONE.format(letters.upper())
            patterns = {"option": _any_of(self._texts), **patterns}
            at_end = rf"(?:(?<=: )|(?<=：)|(?<=is )){letters}(?=[*.。]*(?:\n|\Z))"
            patterns["letter"] = rf"{alone}|(?<=[({{]){letters}(?=[)}}])|{at_end}"
        else:
            finals = [answer, *map(final_box, texts)]
            wordy = [each for each in finals if len(each) <= _LONGEST_ANSWER]
            words = {w for each in wordy if not re.search(r"\d", each) for w in _words(each)}
            self._right_words |= {word.lower() for word in words}  # "y + x" would equal "x + y"
            patterns["word"] = _any_of(words)
        either = "|".join(f"(?P<{kind}>{each})" for kind, each in patterns.items() if each)
        self.garbled = [re.sub(either, self._replaced, text) for text in texts]

    def _replaced(self, found: re.Match[str]) -> str:
        kind, old = str(found.lastgroup), found[0]
        key = old.replace(",", "") if kind == "number" else old.lower()
        if key not in self._new:
            self._new[key] = getattr(self, f"_other_{kind}")(key)
        new = self._new[key]
        if kind == "number":
            digits = iter(new.replace(".", ""))
            return re.sub(r"\d", lambda _: next(digits), old)
        return new if kind == "option" else _cased(new, old)

    def _draw(self, draw: Callable[[], str], old: str, is_right: Callable[[str], bool]) -> str:
        """A drawn value other than ``old``; not a right or a used one, if draws give another."""
        used, spare = set(self._new.values()), old
        for turn in range(_DRAWS):
            new = draw()
            if new != old and not is_right(new) and (new not in used or turn > _DRAWS // 2):
                return new
            spare = new if new != old else spare
        return spare

    def _other_number(self, old: str) -> str:
        def draw() -> str:
            first = "0" if old[0] == "0" and len(old) > 1 else self._rng.choice("123456789")
            rest = (c if c == "." else self._rng.choice("0123456789") for c in old[1:])
            return first + "".join(rest)

        return self._draw(draw, old, lambda new: _value(new) in self._right)

    def _other_spelled(self, old: str) -> str:
        like = next(words for words in (_UNITS, _TEENS, _TENS) if old in words)
        return self._draw(
            lambda: self._rng.choice(like), old, lambda new: _SPELLED[new] in self._right
        )

    def _other_letter(self, old: str) -> str:
        return self._draw(
            lambda: self._rng.choice(self._letters), old, lambda new: new in self._right_words
        )

    def _other_option(self, old: str) -> str:
        letter = self._texts.get(old)
        if letter is None:  # "ı" and "ſ" match "i" and "s"
            return old
        if letter not in self._new:
            self._new[letter] = self._other_letter(letter)
        return self._options[self._letters.index(self._new[letter])]

    def _other_word(self, old: str) -> str:
        return self._draw(
            lambda: "".join(map(self._other_character, old)),
            old,
            lambda new: new in self._right_words,
        )

    def _other_character(self, old: str) -> str:
        for first, last in _ALPHABETS:
            if first <= old <= last:
                return chr(self._rng.randint(ord(first), ord(last)))
        return self._rng.choice(_CJK) if _is_cjk(old) else old


def _value(number: str) -> Decimal:
    return Decimal(number.replace(",", ""))


def _words(text: str) -> list[str]:
    """The words of an answer, without LaTeX commands."""
    return re.findall(r"[^\W\d_]+", re.sub(r"\\[a-zA-Z]+", " ", text))


def _any_of(texts: Collection[str]) -> str:
    """A pattern of whole words, the longest first; empty without texts."""
    return "|".join(map(_whole, sorted(texts, key=lambda text: (-len(text), text))))


def _whole(text: str) -> str:
    exact = re.escape(text)
    if len(text) == 1 and not _is_cjk(text):
        return _ALONE.format(exact)
    starts, ends = ("" if _is_cjk(text[place]) else at for place, at in ((0, _STARTS), (-1, _ENDS)))
    return f"{starts}(?i:{exact}){ends}"


def _is_cjk(character: str) -> bool:
    return "\u3400" <= character <= "\u9fff"


def _cased(new: str, old: str) -> str:
    """``new``, which is in lower case, in the case of ``old``."""
    if len(new) != len(old):
        return new.capitalize() if old[0].isupper() else new
    return "".join(n.upper() if o.isupper() else n for n, o in zip(new, old, strict=True))

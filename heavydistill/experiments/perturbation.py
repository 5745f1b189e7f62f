r"""Replaces values in attempts by others, for the controls ``garbled`` and ``planted``.

What a value is, and what replaces it in ``garble``:

    number         as many digits; sign, decimal point and thousands separators stay
    result         of ``A + B = C`` with + - * / or signs of LaTeX, without brackets: what the new
                   operands make; if all of these stay, a number of as many digits
    number word    another one of two to nine, ten to nineteen, or twenty, thirty, ... ninety
    choice letter  the letter of another option, and the text of an option by that option's text
    final answer   without digits: its words, with as many letters of the same alphabet and case

Numbers of the problem stay, unless one is a final answer. So an attempt is about its problem and
coherent: a wrong result is carried through all later steps to the final answer, as a thinker would.
A value that is no result always has the same replacement within an attempt. Different attempts have
different replacements, so that they do not agree on a wrong value. A consensus would be
misinformation, and this control must take the information out. A replacement is never the value
itself and, if the form leaves another one, never a right answer. Everything is determined by the
seed.

``plant`` changes one result alone, by ten units of its last place (a forgotten carry), and carries
it on in the same way.

Not covered: LaTeX commands (``\pi``); numbers in words of other languages; programs without
numbers; steps in words, whose results are numbers like others; a number that is no result and first
appears after a result of the same value, for which it is taken (``2*4=8 3*8=24``, 8 legs each).
"""

from __future__ import annotations

import itertools
import random
import re
import string
from collections.abc import Callable, Collection, Iterable, Sequence
from decimal import Decimal

from heavydistill.text.steps import read_steps

_NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?"
# A minus is a sign where nothing stands before it from which the number could be subtracted.
_SIGNED = rf"(?:(?<![\w)\]}}])(?<![\d)\]}}] )[-−])?{_NUMBER}"
# What stands between two numbers of a step.
_BETWEEN = re.compile(r"[\s$\\]{0,4}(\+|-|−|\*|×|·|times|cdot|/|÷|div|=)[\s$\\]{0,4}")
_SIGNS = {"−": "-", "×": "*", "·": "*", "times": "*", "cdot": "*", "÷": "/", "div": "/"}
_LONGEST_TERM = 12  # digits; longer numbers are not calculated with
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
_LONGEST_LABEL = 40  # characters beside a box, e.g. "The final answer is"
_LONGEST_STEP = 120  # characters
_LONGEST_ANSWER = 80  # longer answers are texts or programs, not words
_DRAWS = 100


def garble_attempts(
    attempts: Sequence[str], seed: str, right: Collection[str] = (), problem: str = ""
) -> list[str]:
    """Return attempts at one problem with other values.

    Args:
        attempts: Texts of the attempts, each with its final answer in a box, if it has no digits.
        seed: Same texts and seed give the same result.
        right: Right answers, which no replacement gives.
        problem: Text of the problem, whose numbers stay.
    """
    return [
        garble([text], f"{seed}\x1f{place}", right=right, problem=problem)[0]
        for place, text in enumerate(attempts)
    ]


def garble(
    texts: Sequence[str],
    seed: str,
    *,
    answer: str = "",
    right: Collection[str] = (),
    options: Sequence[str] = (),
    problem: str = "",
) -> list[str]:
    """Return the texts of one attempt with other values.

    Args:
        texts: Texts that share their replacements, e.g. reasoning and answer text.
        seed: Determines the replacements, with the order of the values in the texts.
        answer: Final answer of the attempt, if known; the last box is found without it.
        right: Right answers of the problem, e.g. ``42`` or ``C``.
        options: Texts of the options of a choice, in the order of their letters; empty texts if
            only the number of options is known.
        problem: Text of the problem, whose numbers stay.
    """
    for turn in range(_DRAWS):
        made = _Garbler(texts, f"{seed}\x1f{turn}", answer, right, options, problem)
        if not made.is_telling:
            break
    return made.garbled


def plant(texts: Sequence[str], seed: str, problem: str = "") -> list[str] | None:
    """Return the texts of one attempt at ``problem`` with one wrong result, which is carried on.

    The step is drawn from those that the final answer, the last box, depends on. Returns None if
    there is none.
    """
    given = _numbers_in([problem])
    read = _Planter(texts, given)
    steps, rng = list(read.steps), random.Random(seed)
    for step in rng.sample(steps, len(steps)):
        planted = _Planter(texts, given, step, rng.choice((-10, 10))).changed
        if final_box(planted[-1]) != final_box(texts[-1]):
            return planted
    return None


def final_box(text: str) -> str:
    """Content of the last box in a text; empty if there is none."""
    return next(reversed(_BOX.findall(text)), "").strip()


def box_alone(text: str) -> str:
    """The last box in a text; empty if there is none."""
    final = final_box(text)
    return rf"\boxed{{{final}}}" if final else ""


def without_boxes(text: str) -> str:
    """A text without boxes, and without the lines that hold nothing but one and its words.

    Of a box that is the value of a step (``text.steps``), the value stays: ``57 + 97 = 154``.
    """
    lines = []
    for line in text.split("\n"):
        rest = _BOX.sub(_value_of_step, line)
        if rest == line or re.search(r"\d", rest) or len(rest) > _LONGEST_LABEL:
            lines.append(rest)
    return "\n".join(lines).strip()


def _value_of_step(box: re.Match[str]) -> str:
    before = box.string[max(0, box.start() - _LONGEST_STEP) : box.start()]
    return box[1] if len(read_steps(before + box[0])) > len(read_steps(before)) else ""


_Step = tuple[tuple[tuple[str, Decimal], ...], Decimal]
"""(sign, number) of each operand of a step, and its result."""


class _Carrier:
    """Rewrites numbers from left to right, and carries every change on to later results.

    ``given`` are the numbers of the problem. After a sign such a number is that of the problem,
    even if a result before has the same value.
    """

    def __init__(self, given: set[Decimal]) -> None:
        self._given = given
        # New value by old value: of results in this text, of those in the texts before, of others.
        self._carried: dict[Decimal, Decimal] = {}
        self._before: dict[Decimal, Decimal] = {}
        self._alone: dict[Decimal, Decimal] = {}
        self._terms: list[tuple[str, Decimal, Decimal]] = []  # (sign, old, new) of the step so far
        self._text, self._end = "", 0

    def other(self, old: Decimal, like: str, step: _Step | None) -> Decimal:
        """The new value of a number, or of a result of a ``step`` whose operands all stay."""
        raise NotImplementedError

    def rewritten(self, found: re.Match[str]) -> str:
        """The text of a number after those before it."""
        like, old = found[0], _value(found[0])
        between = _BETWEEN.fullmatch(found.string, self._end, found.start())
        if found.string != self._text or found.start() < self._end:
            self._before |= self._carried
            self._text, self._carried, between = found.string, {}, None
        if not between:
            self._terms = []
        self._end = found.end()
        sign = _SIGNS.get(between[1], between[1]) if between else ""
        if sign == "=" and len(self._terms) > 1:
            new = self._result(old, like)
            self._terms = [("", old, new)]
        else:
            is_next = bool(self._terms) and sign != "="
            after = _BETWEEN.match(found.string, found.end())
            new = self._other_than_result(old, like, is_next, bool(after and after[1] != "="))
            self._terms = [*(self._terms if is_next else []), (sign if is_next else "", old, new)]
        return _written(new, like)

    def _other_than_result(self, old: Decimal, like: str, is_next: bool, leads: bool) -> Decimal:
        """The new value of a number that stands after a sign, leads a step, or stands alone."""
        known = [self._carried, self._before, self._alone]
        if is_next or leads:
            known = [self._carried, self._alone, self._before]
        if is_next and self._terms[0][1] in self._given:  # 7 * 4: more often a fact than a result
            known = [self._alone, self._carried, self._before]
        is_given = abs(old) in self._given
        if not (is_given and (is_next or (leads and old not in self._carried))):
            for values, (value, factor) in itertools.product(known, ((old, 1), (-old, -1))):
                if value in values:
                    return factor * values[value]
        new = self.other(old, like, None)
        if not is_given:
            self._alone[old] = new
        return new

    def _result(self, old: Decimal, like: str) -> Decimal:
        olds = tuple((sign, before) for sign, before, _ in self._terms)
        news = tuple((sign, after) for sign, _, after in self._terms)
        true, carried = _calculated(olds), _calculated(news)
        if olds == news or true is None or carried is None:
            new = self.other(old, like, (olds, old))
        else:
            # A slip of the attempt's own stays.
            new = _rounded(carried + old - true, like, any(sign == "/" for sign, _ in olds))
        self._carried[old] = new
        return new


class _Planter(_Carrier):
    """An attempt in which the result of ``step`` is off by ``units`` of its last place."""

    def __init__(
        self, texts: Sequence[str], given: set[Decimal], step: _Step | None = None, units: int = 0
    ) -> None:
        super().__init__(given)
        self.steps: dict[_Step, None] = {}
        self._step, self._units = step, units
        self.changed = [re.sub(_SIGNED, self.rewritten, text) for text in texts]

    def other(self, old: Decimal, like: str, step: _Step | None) -> Decimal:
        """The same value, but for the planted step."""
        if step:
            self.steps[step] = None
        return old + self._units * _unit(like) if step and step == self._step else old


class _Garbler(_Carrier):
    """The replacements of one attempt; see ``garble``."""

    def __init__(
        self,
        texts: Sequence[str],
        seed: str,
        answer: str,
        right: Collection[str],
        options: Sequence[str],
        problem: str,
    ) -> None:
        finals = [answer, *map(final_box, texts)]
        super().__init__(_numbers_in([problem]) - _numbers_in([*right, *finals, *options]))
        self._rng = random.Random(seed)
        self._new: dict[str, str] = {}  # replacement by value
        self._results: dict[_Step, Decimal] = {}  # drawn results
        self._right = _numbers_in(right)
        self._right_words = {word.lower() for text in right for word in _words(text)}
        self._letters = string.ascii_lowercase[: len(options)]
        named = zip(self._letters, map(str.lower, options), strict=False)
        self._texts = {text: letter for letter, text in named if _LONG_ENOUGH.search(text)}
        self._options = options
        # The first letters make the search three times as fast.
        spelled = rf"\b(?=[tfsenTFSEN])(?ai:{'|'.join(_SPELLED)})\b"
        patterns = {"number": _SIGNED, "spelled": spelled}
        if options:
            letters = f"[{self._letters}]"
            alone = _ALONE.format(letters.upper())
            patterns = {"option": _any_of(self._texts), **patterns}
            at_end = rf"(?:(?<=: )|(?<=：)|(?<=is )){letters}(?=[*.。]*(?:\n|\Z))"
            patterns["letter"] = rf"{alone}|(?<=[({{]){letters}(?=[)}}])|{at_end}"
        else:
            wordy = [each for each in finals if len(each) <= _LONGEST_ANSWER]
            words = {w for each in wordy if not re.search(r"\d", each) for w in _words(each)}
            self._right_words |= {word.lower() for word in words}  # "y + x" would equal "x + y"
            patterns["word"] = _any_of(words)
        either = "|".join(f"(?P<{kind}>{each})" for kind, each in patterns.items() if each)
        self.garbled = [re.sub(either, self._replaced, text) for text in texts]

    @property
    def is_telling(self) -> bool:
        """Whether a result came out as before, or as a right answer."""
        made = [*self._before.items(), *self._carried.items()]
        made += [(old, new) for old, new in self._alone.items() if new != old]
        return any(new == old or abs(new) in self._right for old, new in made)

    def other(self, old: Decimal, like: str, step: _Step | None) -> Decimal:
        """A drawn value of the same form, other than the true one; the same for a given number."""
        if step is None:
            return old if abs(old) in self._given else self._drawn(old, like, old)
        if step not in self._results:
            true = _calculated(step[0])
            self._results[step] = self._drawn(old, like, old if true is None else true)
        return self._results[step]

    def _drawn(self, old: Decimal, like: str, true: Decimal) -> Decimal:
        digits = like.lstrip("-−").replace(",", "")
        barred = self._right | {abs(true)}
        new = self._draw(
            lambda: self._digits_like(digits), digits, lambda drawn: Decimal(drawn) in barred
        )
        self._new[like] = new
        return Decimal(new).copy_sign(old)

    def _digits_like(self, old: str) -> str:
        first = "0" if old[0] == "0" and len(old) > 1 else self._rng.choice("123456789")
        return first + "".join(c if c == "." else self._rng.choice("0123456789") for c in old[1:])

    def _replaced(self, found: re.Match[str]) -> str:
        kind, old = str(found.lastgroup), found[0]
        if kind == "number":
            return self.rewritten(found)
        key = old.lower()
        if key not in self._new:
            self._new[key] = getattr(self, f"_other_{kind}")(key)
        return self._new[key] if kind == "option" else _cased(self._new[key], old)

    def _draw(self, draw: Callable[[], str], old: str, is_right: Callable[[str], bool]) -> str:
        """A drawn value other than ``old``; not a right or a used one, if draws give another."""
        used, spare = set(self._new.values()), old
        for turn in range(_DRAWS):
            new = draw()
            if new != old and not is_right(new) and (new not in used or turn > _DRAWS // 2):
                return new
            spare = new if new != old else spare
        return spare

    def _other_spelled(self, old: str) -> str:
        if _SPELLED[old] in self._given:
            return old
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
    return Decimal(number.replace(",", "").replace("−", "-"))


def _numbers_in(texts: Iterable[str]) -> set[Decimal]:
    """The numbers in texts, in digits and words, without signs."""
    spelled = {Decimal(_SPELLED[w]) for t in texts for w in t.lower().split() if w in _SPELLED}
    return spelled | {_value(number) for text in texts for number in re.findall(_NUMBER, text)}


def _calculated(terms: Iterable[tuple[str, Decimal]]) -> Decimal | None:
    """The result of a step; None if it divides by 0, or a number in it is too long."""
    summands: list[Decimal] = []
    for sign, value in terms:
        if len(value.as_tuple().digits) > _LONGEST_TERM or (sign == "/" and not value):
            return None
        if sign in ("*", "/"):
            last = summands.pop()
            summands.append(last * value if sign == "*" else last / value)
        else:
            summands.append(-value if sign == "-" else value)
    return sum(summands, Decimal(0))


def _unit(like: str) -> Decimal:
    """One in the last place of a number."""
    return Decimal(1).scaleb(-len(like.partition(".")[2]))


def _rounded(value: Decimal, like: str, is_quotient: bool) -> Decimal:
    """The value with the decimals of ``like``; with all of its own if it is no quotient."""
    if value.adjusted() > 2 * _LONGEST_TERM:
        return value
    rounded = value.quantize(_unit(like))
    return rounded if is_quotient or rounded == value else value.normalize()


def _written(value: Decimal, like: str) -> str:
    """A value in the form of the number ``like``."""
    places = max(len(like.partition(".")[2]), -int(value.as_tuple().exponent))
    digits = f"{abs(value):,.{places}f}" if "," in like else f"{abs(value):.{places}f}"
    old = like.lstrip("-−")
    if re.match(r"0\d", old):
        digits = digits.zfill(len(old))
    return ("−" if like[0] == "−" else "-") * (value < 0) + digits


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

"""Finds mentions of other models' attempts in a text, in English and Chinese.

For each noun that can mean an attempt, a bounded number of characters around it is read, so the
time is linear in the length of the text. ``mentions.yaml`` holds the words and rules of each
language. Nouns differ in strength:

    strong   attempt, thinker, solver, 尝试: "attempt 3", "the second and fourth attempts", "most
             attempts agree", "comparing the attempts", 所有尝试都错了
    weak     solution, response, candidate, 方案. A model that saw no attempts uses these words for
             its own work and for equations, so they count only with an action of an author
             ("solution 2 forgets the sign"), with a claim of several authors ("most responses
             conclude"), or in the form "in solution 2"
    plain    the Chinese nouns 解答 and 回答, which count unless they are headings

The writer's own attempts do not count: "in my first attempt", "Attempt 1: Let's try", "in attempt 1
I used", "Solution 1:" as a heading, 第一次尝试. If the problem itself uses such nouns, only strong
nouns count, and only with a number, as in "Attempt 2".

Not covered: attempts named by letters, because letters are usually options; text after
``MOST_READ`` nouns, which is usually repetition; what a text says about the attempts; other
languages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from itertools import islice
from typing import Any, Literal, NamedTuple

import yaml

Kind = Literal["cited", "own", "several"]
Noun = Literal["strong", "weak"]

MOST_READ = 5000
_SPELLINGS = str.maketrans(
    {"*": "", "`": "", "_": " ", "~": " ", "\u00a0": " ", "\u2013": "-", "\u2019": "'"}
    | {"\uff08": "(", "\uff09": ")", "\uff03": "#", "\u0130": "I"}
    | {chr(0x2460 + number): str(number + 1) for number in range(20)}
)
_IN_BRACKETS = re.compile(r"(?<=\d) ?\([^()]*\)")  # In "attempts 1 (42) and 3 (42)"
_DIGITS = "一二三四五六七八九"
CHINESE_NUMBERS = {
    f"{tens}十{ones}": 10 * (_DIGITS.find(tens) + 1 if tens else 1)
    + (_DIGITS.find(ones) + 1 if ones else 0)
    for tens in ("", *_DIGITS)
    for ones in ("", *_DIGITS)
} | {digit: value for value, digit in enumerate(_DIGITS, 1)}


class MentionSummary(NamedTuple):
    """Summary of all attempts that a text mentions."""

    numbers: frozenset[int]  # Mentioned numbers, from 1, even if the cache has no such attempt
    several: bool  # Whether several attempts are mentioned together


class Mention(NamedTuple):
    """One mention of one or several attempts."""

    kind: Kind  # Attempts of others by number, the writer's own, or several of others
    noun: Noun  # Strength of the noun
    numbers: tuple[int, ...] = ()  # Numbers of the attempts; empty for ``several``
    span: tuple[int, int] = (0, 0)  # In the text that ``plain`` returns; unknown for ``several``


def named(text: str, problem: str = "") -> MentionSummary:
    """Find all attempts that a text mentions.

    If ``problem`` (the text of the problem) itself mentions attempts, stricter rules apply.
    """
    places = mentions(text, problem)
    cited, own = (
        {(place.noun, number) for place in places if place.kind == kind for number in place.numbers}
        for kind in ("cited", "own")
    )
    # If a number means an attempt of the writer once, it means that everywhere.
    numbers = frozenset(number for _, number in cited - own)
    return MentionSummary(numbers, any(place.kind == "several" for place in places))


def speaks_of_attempts(text: str, problem: str = "") -> bool:
    """Whether a text speaks of attempts of others, even if it names none ("based on the attempts").

    In an answer that is a leak, because its reader saw none. Arguments as in ``named``.
    """
    written = plain(text).lower()
    return any(named(text, problem)) or any(
        each.speaks_of_all(written, problem.lower()) for each in _languages(False)
    )


def mentions(text: str, problem: str = "", shown: bool = False) -> list[Mention]:
    """Find all mentions in a text, sorted by language; arguments as in ``named``.

    ``shown`` says that the writer surely saw attempts; weak nouns are then read as strong ones.
    """
    written = plain(text)
    return [each for language in _languages(shown) for each in language.read(written, problem)]


def plain(text: str) -> str:
    """The text without emphasis, with normalised blanks, dashes, brackets and numbers."""
    return text.translate(_SPELLINGS)


def compiled(
    patterns: Mapping[str, str | list[str]], known: Mapping[str, str] | None = None
) -> dict[str, re.Pattern[str]]:
    """Compile patterns in which ``@name@`` stands for a pattern before it, or for a known one."""
    texts, result = dict(known or {}), dict[str, re.Pattern[str]]()
    for name, value in patterns.items():
        text = re.sub(r"@(\w+)@", lambda m: f"(?:{texts[m[1]]})", "|".join(_listed(value)))
        texts[name], result[name] = text, re.compile(text)
    return result


_Rule = Mapping[str, Any]
"""A rule: conditions on a noun and the text around it, and the kind of mention that results."""


class _Language:
    """The nouns of one language and the rules to read them."""

    def __init__(self, tree: Mapping[str, Any]) -> None:
        words: dict[str, list[str]] = {name: text.split() for name, text in tree["words"].items()}
        known = {name: "|".join(alternatives) for name, alternatives in words.items()}
        self._patterns = compiled(tree["patterns"], known)
        self._values = {word: i for group in words.values() for i, word in enumerate(group, 1)}
        self._values |= CHINESE_NUMBERS | {"两": 2, "兩": 2}
        self._tree = tree

    def read(self, written: str, problem: str) -> Iterator[Mention]:
        """Yield all mentions in a text that ``plain`` has prepared."""
        noun, text = self._patterns["noun"], written.lower()
        in_problem = list(noun.finditer(problem.lower()))
        stems = set(map(_stem, in_problem))
        for match in islice(noun.finditer(text), MOST_READ):
            if _stem(match) not in stems:
                yield from self._mention(match, text)
            elif match["strong"] and written[match.start()].isupper():
                yield from self._mention(match, text, is_name=True)
        is_silenced = self._tree["problem_silences_all_of_them"]
        if is_silenced and any(match["strong"] for match in in_problem):
            return
        for match in self._patterns["all_of_them"].finditer(text):
            near = max(0, match.start() - self._tree["windows"]["near"])
            if self._patterns["strong_plural"].search(text, near, match.start()):
                yield Mention("several", "strong")

    def speaks_of_all(self, written: str, problem: str) -> bool:
        """Whether a text speaks of the attempts together, and the problem of none."""
        is_found = self._patterns["together"].search(written)
        return bool(is_found) and not self._patterns["noun"].search(problem)

    def _mention(self, match: re.Match[str], text: str, is_name: bool = False) -> Iterator[Mention]:
        """Yield the mention at one noun; with ``is_name``, only a number after the noun counts."""
        windows = self._tree["windows"]
        before = text[max(0, match.start() - windows["before"]) : match.start()]
        after = text[match.end() : match.end() + windows["after"]]
        noun: Noun = "strong" if match["strong"] else "weak"
        for place in self._tree["places"]:
            is_behind = place["side"] == "behind"
            if is_name and not is_behind:
                continue
            pattern = self._patterns[place["pattern"]]
            where = pattern.match(after) if is_behind else pattern.search(before)
            if not where:
                continue
            left = before if is_behind else before[: where.start()]
            right = after[where.end() :] if is_behind else after
            rules = (r for r in place["rules"] if self._holds(r, match, left, where[0], right))
            kind = next(rules, {"is": "nothing"})["is"]
            if kind == "skip":
                continue
            is_plural = bool(match.groupdict().get("plural"))
            number = self._patterns[place["number"]]
            numbers = self._numbers(where, number, is_behind, is_plural)
            if kind in ("cited", "own") and numbers:
                start = match.start() if is_behind else match.start() - len(before) + where.start()
                end = match.end() + where.end() if is_behind else match.end()
                yield Mention("cited" if kind == "cited" else "own", noun, numbers, (start, end))
                if kind == "cited" and self._patterns["others"].search(after):
                    yield Mention("several", noun)
            return
        several = self._tree["several"]
        if not is_name and any(self._holds(rule, match, before, "", after) for rule in several):
            yield Mention("several", noun)

    def _holds(self, rule: _Rule, noun: re.Match[str], before: str, place: str, after: str) -> bool:
        groups, patterns = noun.groupdict(), self._patterns
        if "noun" in rule and not groups.get(rule["noun"]):
            return False
        if "number" in rule and (rule["number"] == "plural") != bool(groups.get("plural")):
            return False
        if "named" in rule and not patterns[rule["named"]].search(place):
            return False
        if "after" in rule and not patterns[rule["after"]].match(after):
            return False
        for name in reversed(_listed(rule.get("before", []))):
            match = patterns[name].search(before)
            if not match:
                return False
            before = before[: match.start()]
        return True

    def _numbers(
        self, where: re.Match[str], number: re.Pattern[str], is_behind: bool, is_plural: bool
    ) -> tuple[int, ...]:
        """The numbers of the attempts; none for a single number after a plural, which is a
        count."""
        text = where["numbers"] or ""
        first = self._patterns.get("first_alone")
        if is_behind and first and not is_plural and (alone := first.fullmatch(text)):
            return (int(alone[1]),)
        bare = _IN_BRACKETS.sub("", text)
        numbers = {self._value(each) for each in number.findall(bare)}
        for low, high in self._patterns["range"].findall(text):
            numbers.update(range(self._value(low), self._value(high) + 1))
        count = where.groupdict().get("count")
        if count and numbers <= {1}:  # "the first two"
            numbers = set(range(1, self._value(count) + 1))
        is_counted = is_behind and is_plural and len(numbers) < 2
        return () if is_counted else tuple(sorted(numbers))

    def _value(self, number: str) -> int:
        digits = re.match(r"\d+", number)
        return int(digits[0]) if digits else self._values[number]


def _stem(noun: re.Match[str]) -> str:
    return noun["strong"] or noun["weak"] or ""


@cache
def _languages(shown: bool) -> list[_Language]:
    file = resources.files("heavydistill.text") / "mentions.yaml"
    trees = yaml.safe_load(file.read_text(encoding="utf-8")).values()
    places = [place for tree in trees for place in tree["places"]] if shown else []
    for rule in (rule for place in places for rule in place["rules"]):
        rule.pop("noun", None)
    return [_Language(tree) for tree in trees]


def _listed(names: str | list[str]) -> list[str]:
    return [names] if isinstance(names, str) else names

"""Where a text in English speaks of attempts that others made.

Every place where a noun for an attempt stands is read with a bounded part of what stands around
it, so the time is linear in the length of the text. Not all nouns are worth the same:

    strong   attempt, thinker, solver, programmer: "attempt 3", "the second and fourth attempts",
             "most attempts agree", "comparing the attempts"
    weak     solution, response, candidate, reference, trajectory: a blind solver writes of its own,
             and of those of an equation, so only with what an author does ("solution 2 forgets the
             sign"), what several claim ("most responses conclude"), or as "in solution 2"

Somebody's own attempts are no sign: "in my first attempt", "Attempt 1: Let's try", "in attempt 1
I used", "Solution 1:" as a heading. Of nouns that the problem itself uses only the strong ones
count, and only as names: "Attempt 2".

Not covered: attempts named by letters, which are options or candidates more often than attempts;
what stands behind ``MOST_READ`` nouns, where a text runs in circles. ``chinese_mentions`` reads
Chinese.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

Kind = Literal["cited", "own", "several"]
Noun = Literal["strong", "weak"]

MOST_READ = 5000
_BEFORE, _AFTER, _NEAR = 120, 240, 400  # characters around a place that are read
_SPELLINGS = (
    {"*": "", "`": "", "_": " ", "~": " ", "\u00a0": " ", "\u2013": "-", "\u2019": "'"}
    | {"\uff08": "(", "\uff09": ")", "\uff03": "#", "\u0130": "I"}
    | {chr(0x2460 + number): str(number + 1) for number in range(20)}
)

_STRONG = "attempt|thinker|solver|programmer"
_WEAK = "solution|response|candidate|reference|trajector(?=y|ies)"
# Chinese may stand right beside it.
_NOUN = re.compile(
    rf"(?<![^\W_\u3400-\u9fff])(?:(?P<strong>{_STRONG})|(?P<weak>{_WEAK})(?:y|ie)?)"
    r"(?P<plural>s)?(?![^\W\d_\u3400-\u9fff])",
)
# "We attempt 2 and 3": what is done rather than named.
_VERB = re.compile(
    r"\b(?:i|we|you|they|let's|let me|let us|i'll|we'll|will|can|could|should|must|would"
    r"|(?:want|need|try|going|have) to) \Z"
)

# --- Numbers behind a noun: "3", "#1, #4 and #7", "(3)", "2-5".
_ITEM = r"[#(\[]{0,2}\d{1,2}(?!\d|%|\.\d|,\d{3})[)\]]?"
_AND = (
    r"(?:,? (?:and|or|&|vs\.?|to|through) | ?[,;/&+] ?| ?- ?)"
    rf"(?:(?:{_STRONG}|{_WEAK}y?) )?"  # "solution 1 and solution 2"
)
_LISTED = re.compile(
    rf"[ }}\\-]{{0,3}}(?:number |no\. ?)?({_ITEM}(?:{_AND}{_ITEM}){{0,40}})"
    # "Attempt 2 different ways" is a verb and what it counts.
    r"(?! (?:more|times|different|other|additional|such|new)\b)"
)
_RANGE = re.compile(r"(\d+)[)\]]?(?: ?- ?| to | through )[#(\[]{0,2}(\d+)")
# "Attempt 1, 4 apples" and "Attempt 1 - 42" name one, "attempt 2-4" several.
_ONE = re.compile(r"(\d+)[)\]]?(?:, ?| - )[#(\[]{0,2}\d+[)\]]?")

# --- Ordinals before a noun: "the second", "first, third and 5th", "the first two".
_IN_WORDS = "first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth"
_COUNT = "one|two|three|four|five|six|seven|eight|nine|ten"
_ORDINAL = rf"(?:{_IN_WORDS}|\d{{1,2}}(?:st|nd|rd|th))"
_ORDERED = re.compile(
    rf"\b({_ORDINAL}(?:,? (?:and |or |& )?(?:the )?{_ORDINAL}){{0,12}})"
    rf"(?: (?P<count>\d|{_COUNT}))? \Z",
)
_EACH_ORDINAL = re.compile(_ORDINAL)

# --- What makes an attempt somebody's own.
_OWN = re.compile(r"\b(?:my|our|own)(?: [\w-]{1,12})? \Z")
_SOMEBODYS = re.compile(r"\b(?:my|our|own|his|her|its|their|your|another|an?) (?:very )?\Z")
# Shots at a goal: "on the first attempt", but not "based on the first attempt".
_ON_THE = re.compile(r"(?<!based )(?<!build )(?<!focus )(?<!agree )(?<!rely )\bon (?:the )?\Z")
_HEADING = re.compile(r"(?:\A|\n)[ \t#>•.\d-]{0,12}\Z")
_IN_BRACKETS = r"(?: ?\([^()\n]{0,60}\))?"
_TITLE_ENDS = re.compile(rf"{_IN_BRACKETS} ?(?:[:\n—]|\. |- |\Z)")
_TRIES = re.compile(
    rf"{_IN_BRACKETS}[\s:.—-]{{0,6}}(?:"
    r"let(?:'s| us| me) (?!check|verif|see|look|exam|read|compar|re-?check|test|trace|go|analy)"
    r"|(?:i'll|i will|i try|we try|maybe|perhaps|what if|suppose|assume|try|trying|guess)\b)",
)
_I_DID = re.compile(
    r",? (?:i|we) (?:had |have )?(?:used|tried|assumed|started|dropped|lost|mis\w{3,12}"
    r"|forgot|made|got|took|did|chose|went)\b",
)

# --- What an author does.
_ADVERB = (
    r"(?: (?:also|all|both|then|correctly|incorrectly|wrongly|simply|instead|just|again|each|mostly"
    r"|consistently|clearly|independently|overwhelmingly|seem(?:s|ed)? to|appear(?:s|ed)? to))?"
)
_FAULT = r"(?:\w{1,12} )?(?:mistake|error|slip)s?"
_DOES = (
    r"(?:forg[eo]ts?|assum(?:es?|ed)|claim(?:s|ed)?|argu(?:es?|ed)|conclud(?:es?|ed)"
    r"|miss(?:es|ed)?|overlook(?:s|ed)?|ignor(?:es?|ed)|neglect(?:s|ed)?|says?|said|stat(?:es?|ed)"
    r"|mis(?:read|count|calculat|interpret|appl|us|stat|tak|understand)\w{0,4}|g[eo]ts?(?! stuck)"
    r"|us(?:es?|ed)|comput(?:es?|ed)|calculat(?:es?|ed)|deriv(?:es?|ed)|(?:dis)?agree[sd]?"
    r"|differ(?:s|ed)?|arriv(?:es?|ed)|reach(?:es|ed)?|finds?|found|(?:double-?)?counts?|treats?"
    rf"|appl(?:y|ies|ied)|propos(?:es?|ed)|ma(?:kes?|de) (?:an?|the same) {_FAULT}"
    rf"|ha(?:ve|s|d) (?:an?|the same) {_FAULT})\b"
)
_JUDGED = (
    r"(?:is|are|was|were|must be|seems?|turn(?:s|ed)? out)(?: to be)?(?: all| also| both)?"
    r" (?:wrong|incorrect|mistaken|flawed|right|correct|invalid|in error)\b"
)
# In the past it may be one's own: "all attempts failed, so let me".
_FAILS = r"(?:fails?|go(?:es)? (?:astray|wrong))\b"
# "Solution 1: use induction" is a heading of one's own.
_AUTHOR = re.compile(
    rf"{_IN_BRACKETS}(?:: (?:(?:in)?correct|wrong)\b"
    rf"|(?::(?= (?:\w{{1,12}}ly )?\w{{1,12}}[sd]\b))?{_ADVERB} (?:{_DOES}|{_JUDGED}))",
)
_INSIDE = re.compile(r"\b(?:in|by|like|per|compar(?:e|es|ing)) \Z")

# --- Several together.
_SEVERAL = re.compile(
    r"\b(?:all|both|most|many|several|some|other|majority|few|none|neither|half|rest|these|those"
    rf"|the|\d{{1,2}}|{_COUNT})(?: of)?(?: the| these| those)?"
    r"(?: (?!my|our)[\w-]{1,12})? \Z",
)
_EACH = re.compile(r"\b(?:every|each|(?:only|just) one)(?: single)? \Z")
_HOLD = re.compile(
    rf"{_ADVERB} (?:{_DOES}|{_JUDGED}|{_FAILS}|g[ai]ve\b|converged?\b|hold\b|match\b|yield(?:ed)?\b"
    r"|(?:diverge|provide)d?\b|(?:consider|present|contain|show|point)(?:ed)?\b|vary\b|split\b"
    r"|(?:have|had|share) (?:the|an?|different|conflicting|\\?boxed|[$\d])"
    r"|(?:are|were) (?:unanimous|divided|split|consistent|inconsistent|in agreement))",
)
# A blind solver speaks of solutions that are right, and of none that claim something.
_CLAIM = re.compile(
    rf"{_ADVERB} (?:claim|conclude|argue|overlook|forget|assume|miscount|say|disagree|agree on"
    r"|agree that|arrive at)(?:e?d)?\b",
)
_EXAMINED = re.compile(
    r"\b(?:(?:compar|review|examin|analy[sz]|evaluat|synthesi[sz]|inspect|assess|scrutini[sz]"
    r"|cross-?check)\w*|look(?:ing)? (?:at|across|over|through)|go(?:ing)? (?:over|through)|among"
    r"|across|(?:insights|answers|reasoning) (?:from|of|in)) \Z"
)
_GOES_ON = re.compile(r" (?:to|at|so far|i|we)\b")
_THE_OTHERS = re.compile(
    rf"\bother (?:\w{{1,12}} )?(?:{_STRONG})s\b|\b(?:the|all) others\b|\bthe rest\b(?! of)"
    rf"|\bthe other (?:\d|{_COUNT}) (?:all|are|were|say|get|got|g[ai]ve|claim|agree|miss)\b"
)
_ALL_OF_THEM = re.compile(
    rf"\b(?:all of (?:them|these)|they all|each of them) ?(?:{_FAILS}|{_JUDGED})"
    rf"|\b(?:they are|they're|these are) all (?:wrong|incorrect|mistaken|flawed)\b"
    r"|\b(?:none|not one)(?: of (?:them|these))? (?:is|are|was|were|gets?|got) (?:it |this )?"
    r"(?:right|correct)\b",
)
_ATTEMPTS = re.compile(rf"(?<!my )(?<!our )\b(?:{_STRONG})s\b")


@dataclass(frozen=True, slots=True)
class Mention:
    """One place that speaks of attempts.

    Attributes:
        kind: Attempts of others by number, somebody's own, or several of others together.
        noun: How much the noun is worth.
        numbers: Which attempts; empty for ``several``.
    """

    kind: Kind
    noun: Noun
    numbers: tuple[int, ...] = ()


def mentions(text: str, problem: str) -> Iterator[Mention]:
    """All mentions in a text of any length.

    Args:
        text: Thinking and answer of a response.
        problem: What the problem says, or empty.
    """
    written = plain(text)
    text = written.lower()
    told = {_stem(match) for match in _NOUN.finditer(problem.lower())}
    for match in islice(_NOUN.finditer(text), MOST_READ):
        if _stem(match) not in told:
            yield from _mention(match, text)
        elif match["strong"] and written[match.start()].isupper():
            yield from _by_number(match, text) or ()
    if not told.intersection(_STRONG.split("|")):
        for match in _ALL_OF_THEM.finditer(text):
            if _ATTEMPTS.search(text, max(0, match.start() - _NEAR), match.start()):
                yield Mention("several", "strong")


def plain(text: str) -> str:
    """The text without emphasis, and with one form of blanks, dashes, brackets and numbers."""
    for other, one in _SPELLINGS.items():
        text = text.replace(other, one)
    return text


def _stem(noun: re.Match[str]) -> str:
    stem: str = noun["strong"] or noun["weak"]
    return stem


def _mention(match: re.Match[str], text: str) -> list[Mention]:
    """What one noun speaks of."""
    numbered = _by_number(match, text)
    if numbered is not None:
        return numbered
    before, after = _around(match, text)
    ordered = _ORDERED.search(before)
    if ordered:
        kind = _kind(match, before[: ordered.start()], after, is_numbered=False)
        return _named(match, kind, _ordered(ordered), after)
    several = (_SEVERAL if match["plural"] else _EACH).search(before)
    if several and (_HOLD if match["strong"] else _CLAIM).match(after):
        return [Mention("several", _noun(match))]
    is_examined = several and _EXAMINED.search(before[: several.start()])
    if match["strong"] and is_examined and not _GOES_ON.match(after):
        return [Mention("several", "strong")]
    return []


def _by_number(match: re.Match[str], text: str) -> list[Mention] | None:
    """What a noun with a number behind it speaks of; None if there is no number."""
    before, after = _around(match, text)
    listed = _LISTED.match(after)
    if not listed:
        return None
    if not match["plural"] and _VERB.search(before):
        return []
    kind = _kind(match, before, after[listed.end() :], is_numbered=True)
    return _named(match, kind, _listed(listed[1], is_plural=bool(match["plural"])), after)


def _around(match: re.Match[str], text: str) -> tuple[str, str]:
    return (
        text[max(0, match.start() - _BEFORE) : match.start()],
        text[match.end() : match.end() + _AFTER],
    )


def _named(
    match: re.Match[str], kind: Kind | None, numbers: tuple[int, ...], after: str
) -> list[Mention]:
    """The mention of attempts by number, and of the others where it is said beside them."""
    if not (kind and numbers):
        return []
    found = [Mention(kind, _noun(match), numbers)]
    if kind == "cited" and _THE_OTHERS.search(after):
        found.append(Mention("several", _noun(match)))
    return found


def _noun(match: re.Match[str]) -> Noun:
    return "strong" if match["strong"] else "weak"


def _kind(match: re.Match[str], before: str, after: str, *, is_numbered: bool) -> Kind | None:
    """Whose attempt a name is; None where it is no attempt at all."""
    owner = _OWN if is_numbered else _SOMEBODYS
    if owner.search(before) or _I_DID.match(after):
        return "own"
    if not is_numbered and _ON_THE.search(before):
        return None
    is_heading = bool(_HEADING.search(before) and _TITLE_ENDS.match(after))
    if match["strong"]:
        return "own" if is_heading and _TRIES.match(after) else "cited"
    if _AUTHOR.match(after) or (is_numbered and _INSIDE.search(before)):
        return "cited"
    return "own" if is_heading else None


def _listed(text: str, *, is_plural: bool) -> tuple[int, ...]:
    """The numbers in a list; none for a single one behind a plural, which counts something."""
    one = _ONE.match(text)
    if not is_plural and one and one.end() == len(text):
        return (int(one[1]),)
    numbers = set(map(int, re.findall(r"\d+", text)))
    for low, high in _RANGE.findall(text):
        numbers.update(range(int(low), int(high) + 1))
    return () if is_plural and len(numbers) < 2 else tuple(sorted(numbers))


def _ordered(match: re.Match[str]) -> tuple[int, ...]:
    """The numbers of ordinals; "the first two" are two."""
    numbers = {_number(word) for word in _EACH_ORDINAL.findall(match[1])}
    count = match["count"]
    if count and numbers == {1}:
        many = int(count) if count.isdigit() else _COUNT.split("|").index(count) + 1
        numbers = set(range(1, many + 1))
    return tuple(sorted(numbers))


def _number(ordinal: str) -> int:
    if ordinal[0].isdigit():
        return int(ordinal[:-2])
    return _IN_WORDS.split("|").index(ordinal) + 1

r"""Finds text next to a box that changes or contradicts the answer in the box.

``\boxed{5}.5``, ``-\boxed{5}``, ``\boxed{5} million``, "not $\boxed{5}$", "4 or $\boxed{5}$" and
"\boxed{5}. No wait, it is 6" do not give 5 as the answer. This module finds an operator, as a sign
or a word, a negation, another value next to the box, a unit after the box, and later text that
denies the answer or gives another one. All other words are ignored.

Doubts, the reasons of undecided verdicts: ``outside_box`` and ``retracted``.

Not covered: a text that reaches another answer without retracting the first, and retractions in
other words.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from heavydistill.verifiers.mathematics import units
from heavydistill.verifiers.normal import normal_form, plain, plain_decimal

# --- The text on both sides of a box, without typesetting: layout, markdown, HTML tags and
# end-of-text tokens, one pair of formula delimiters, wrappers and brackets around the box.
NUMBER = r"(?:-?(?:[0-9]+/[0-9]+|[0-9][0-9,]*(?:\.[0-9]+)?|\\[dt]?frac\{[0-9]+\}\{[0-9]+\}))"
_LONGEST_NUMBER = 300
_LONGEST_LAYOUT = 40

# Typesetting directly before and directly after the box.
_LAYOUT = (
    r"(?:[ \t~]|\\[,;:! ]|\\(?:q?quad|displaystyle|textstyle|large|Large|LARGE|huge|Huge|bf|hfill"
    r"|left|right|hspace\{[^{}]{0,20}\}|phantom\{[^{}]{0,20}\}|color\{\w{1,20}\})(?![a-zA-Z])"
    r"|\*\*|__|[`&“”\"']"
    r"|</?(?:answer|final_answer|solution|response|b|strong|i|em|p|div|span|center)>)"
)
_END_OF_TEXT = r"(?:</s>|<\|[^|<>\n]{1,30}\|>)"
_DELIMITER = r"(?:\$\$?|\\[()\[\]]|\\(?:begin|end)\{[a-zA-Z*]{1,20}\})"
_LAYOUT_BEFORE = re.compile(rf"{_LAYOUT}\Z")
_LAYOUT_AFTER = re.compile(rf"{_LAYOUT}|{_END_OF_TEXT}")
_DELIMITER_BEFORE = re.compile(rf"(?<!\\){_DELIMITER}\Z")
_DELIMITER_AFTER = re.compile(r"(?:\\end\{[a-zA-Z*]{1,20}\}\s*)?(?:\$\$?|\\[)\]])|" + _DELIMITER)
_WRAPPER = re.compile(
    r"\\(?:text[a-z]{0,2}|mathbf|mathrm|boldsymbol|bm|bf|underline|underbrace|color\{\w{1,20}\})"
    r"\s*\{\Z"
)
_GROUP = re.compile(r"(?:^|[=\s$\[(])\{\Z")


@dataclass(slots=True)
class Sides:
    """Text on both sides of a box; flags record removed formula delimiters and blanks."""

    left: str
    right: str
    left_formula: bool = False
    right_formula: bool = False
    left_spaced: bool = False
    right_spaced: bool = False


def at_end(pattern: re.Pattern[str], text: str, longest: int) -> re.Match[str] | None:
    """Match a pattern at the end of the text, in its last ``longest`` characters."""
    return pattern.search(text, max(0, len(text) - longest))


def same_number(one: str, other: str) -> bool:
    """Whether two texts are the same plain number."""
    value = normal_form(one[:_LONGEST_NUMBER]).value
    return value is not None and value == normal_form(other[:_LONGEST_NUMBER]).value


def peel(sides: Sides) -> None:
    """Remove layout, the formula delimiters around the box, and brackets around the box."""
    while True:
        was = sides.left, sides.right
        while match := at_end(_LAYOUT_BEFORE, sides.left, _LONGEST_LAYOUT):
            sides.left = sides.left[: match.start()]
            sides.left_spaced |= match[0].isspace()
        while match := _LAYOUT_AFTER.match(sides.right):
            sides.right = sides.right[match.end() :]
            sides.right_spaced |= match[0].isspace() or match[0] == "&"
        wrapper = sides.right.startswith("}") and (
            at_end(_WRAPPER, sides.left, _LONGEST_LAYOUT) or at_end(_GROUP, sides.left, 2)
        )
        if wrapper:
            start = wrapper.start() if wrapper[0].startswith("\\") else len(sides.left) - 1
            sides.left, sides.right = sides.left[:start], sides.right[1:]
        for opens, closes in ("()", "[]"):
            opened = sides.left.endswith(opens) and not sides.left.endswith(f"\\{opens}")
            if opened and sides.right.startswith(closes):
                sides.left, sides.right = sides.left[:-1], sides.right[1:]
        if not sides.left_formula and (
            match := at_end(_DELIMITER_BEFORE, sides.left, _LONGEST_LAYOUT)
        ):
            sides.left, sides.left_formula = sides.left[: match.start()], True
        if not sides.right_formula and (match := _DELIMITER_AFTER.match(sides.right)):
            sides.right, sides.right_formula = sides.right[match.end() :], True
            sides.right_spaced |= match[0].endswith(("$$", r"\]"))
        if (sides.left, sides.right) == was:
            return


# --- What the text on both sides means.
MOST_READ = 10_000
_PHRASE, _WINDOW = 80, 300
_NAME = r"(?:[a-zA-Z]|\\[a-zA-Z]+)(?:_\{?\w+\}?)?"
_MANY = r"(?:(?:hundred|thousand|dozen)(?:s|ths?)?|\w*illion\w*)"
_NUMERAL = (
    r"(?:two|three|four|five|six|seven|eight|nine|ten|\w+teen"
    rf"|(?:twen|thir|for|fif|six|seven|eigh|nine)ty|{_MANY})"
)
_TEXT = re.compile(r"\\(?:text[a-z]{0,2}|mathrm|mbox)\s*\{([^{}$]{0,100})\}")
_CURRENCY = re.compile(r"(?:\\\$|[€£¥₹])\s*$")
_BOUND = re.compile(r"(?<!not )\bat (?:least|most)$", re.IGNORECASE)
_ASKS_BOUND = re.compile(r"\b(?:least|most|m(?:in|ax)im\w+|[a-z]{3,}est)\b", re.IGNORECASE)

# Text before the box: the beginning of its line, text that changes its value, words that lead to
# it, another value.
_BEGINS = re.compile(
    r"(?:^|(?<=\n))[ \t>]*(?:#+|[-*•]|\d{1,2}[.)]|\([a-z\d]{1,3}\)|\|[^\n]*\|)?\s*"
    r"(?:\\[\[(]|\$\$?|\\begin\{[a-zA-Z*]{1,20}\})?\s*\Z"
)
_CHANGED_BEFORE = re.compile(
    r"(?:(?:\b(?:not|never|cannot|neither|nor|wrong|incorrect|invalid|mistake)|n['’]t)"
    r"(?:[\s*:\"“'()$]+(?!but\b)\w+){0,3}[\s*:\"“'()$]*"
    r"|\b(?:negative|minus|plus|times|over|half|twice|double|triple|than|least|most"
    r"|sqrt|(?:square|cube) root|log|ln|sin|cos|tan|(?<!add )(?<!round )up to"
    r"|(?:divided|multiplied|raised) by|(?:\w+ths?|third|half|quarter|root|opposite|negative|out"
    r"|absolute value|inverse|reciprocal) of"
    rf"|{_NUMERAL}(?: and)?)[- ]?|(?<![-*])[-*]|[+/^(<]|\s>|[不非负倍]|不是|[大小]于"
    r"|[加减乘除][以上去]?|根号)$",
    re.IGNORECASE,
)
_LEADS = re.compile(
    r"(?:(?:^|[^!<>\\]|[\d)}]!)(?<!not)=|[=-]>|(?:^|\D):|[A-Z]\w+ \d+:\s|[⇒→➡∴≈≡：，。；&✓✅—]"
    r"|\\(?:in|equiv|approx|to|therefore|implies|iff|\\|[a-zA-Z]*arrow)|[^\W\d_a-zA-Z²³½¼¾π]"
    r"|(?<![0-9)}\]])(?:[.;!?]|(?<!\b[a-zA-Z]),)"
    r"|(?<!\\[(\[])(?<![\\a-zA-Z$])[a-zA-Z]{2,}(?:['’]s?)? )(?:\s*\$)?\s?$"
)
_OTHER_BEFORE = re.compile(
    r"(?<![\w.,/^{}+*\\-])(?<![+*/^-] )(?<!cdot )(?<!times )"
    rf"(?:(?P<name>{_NAME})\s*=\s*)?(?:\\boxed\{{)?(?P<value>{NUMBER})"
    r"(?P<after>\}?\s*(?:\\?%|(?P<unit>(?!(?:or|and|to|of|out|per)\b)[a-z]+))?\s*(?:\$|\\\))?,?\s*)"
    r"(?P<joint>(?:or|and)\b(?: \w+)?|to|(?:out )?of|per|[或和与到至、]|)[\s}$]*"
    rf"(?P<again>{_NAME}\s*=)?\s*$"
)
_LISTED = re.compile(r"(?:\b(?:are|is|either)|[:,])[\s$]*$")

# Text after the box: neutral text, text that changes its value, another value, and continuations.
_MODULO = re.compile(r"\A\\?b?mod(?:ulo)?\b[\s{$]*\w+[}$]*")
_PASSED = re.compile(
    r"\\(?:(?:tag\*?|label|end)\{[^{}]{0,40}\}|\\|approx[^\n$]{0,40})"
    r"|(?:\$\s*)?\\(?:blacksquare|square|qed|Box|checkmark)(?:\s*\$)?"
    r"|(?:\\pmod|\(\s*\\?mod)[\s{$]*\w+[})$]*"
    r"|(?:\^\s*\{*)?(?:st|nd|rd|th)\}*\$?(?= (?!of\b|root|pow|part)[a-z])"
    r"|[)\]}|]|[*_](?!\s*[\d\\({a-z])|\\?\$(?=[\s.,;)]|$)"
)
_CHANGED_AFTER = re.compile(
    rf"[\s(,;]*(?:{_MANY}|hal(?:f|ves)|(?:four|fif|six|seven|eigh|nin|ten)ths?|over|or|point|pi"
    r"|(?:third|quarter)s? of|times(?= [0-9\\$(])|(?:all )?(?:squared|cubed)|factorial"
    r"|plus|minus|mod|modulo|divided|multiplied|raised|to the power|choose|(?:in )?base|cannot"
    r"|(?:with an? )?remainder|(?:degrees )?below zero"
    r"|in (?:thousands|\w+illions)|and (?:an?|one|two|three)|(?:per|in|out of)(?= [\\$(]*\d)"
    r"|(?:if|when|for)\b[^.\n]{1,80}?(?:otherwise|else|\band \$?-?[0-9.]+\$? (?:if|when|for))"
    r"|(?:(?:is|was|are|were) )?(?:wrong|incorrect|invalid|impossible|too (?:small|large|big)"
    r"|not (?:right|correct|the|possible|enough)))"
    r"(?![-a-z])|\W{0,4}(?:is|was|are)n['’]t\b|[，,]?(?:[万亿千百十半倍分不]|是?错)",
    re.IGNORECASE,
)
_OTHER_AFTER = re.compile(
    r"(?P<joint>[\s(，,;:=→⇒$]*+(?:(?:or(?: equivalently)?|and|to|alternatively)\b|[或和与、到至]"
    rf"|\\(?:to|\(|[rR]ightarrow))?+[\s$,]*+)(?:(?P<name>{_NAME})\s*=)?\s*+(?P<value>{NUMBER})"
)
_GOES_ON = re.compile(
    r"$|\n(?!\s*(?:[+/^=]|<(?!/)|[*-]\s*\d|\\(?:times|cdot|div|pm)\b))|[.](?!\d)"
    r"|[,;:](?!\s*\$?\s*[-\d])|/\s?[a-z]{3,}\b|(?:[-–(—]\s*)*[^\W\d_]{2}|[aAI]\b"
    r"|[^\x00-\x7f–—×÷·√π²³⁴½¼¾⅓∞±∓°′″‰→⇒➜？❌✗✘✖]"
)

# Patterns for the later text after the box.
_DENIED = re.compile(
    r"\bwait\b(?! (?:for|time|until|till)\b)"
    r"|(?:^|[.!?\n])\s{0,3}(?:but |hm+,? )?(?:no|hm+|oops|actually|sorry)\b\s?[,.!:;…—–-]"
    r"|(?<!if this)(?<!if it)(?<!if that)(?: (?:is|was)|['’]s)(?: (?:wrong|incorrect)"
    r"|(?: not|n['’]t) (?:right|correct|the (?:\w+ )?answer))\b"
    r"|\bi (?:have )?(?:made|make) an? (?:\w+ )?(?:mistake|error)|不对|算错|更正|有误",
    re.IGNORECASE,
)
_ANSWER_AGAIN = re.compile(
    r"(?:\b(?:answer|solution|result|(?:correct|actual|true) \w+)(?: should| must)?(?:\*\*)?"
    r"\s*(?:is|be|was|:|=|equals)(?:\*\*)?(?: actually| now)?|\bi meant|应为"
    r"|[.!?,\n]\s{0,3}(?:or )?it (?:is|was|(?:should|must|might) be)"
    r"|(?:答案|结果)(?:应该?)?(?:\*\*)?\s*(?:是|为|:|：)|^####(?=[ \t]*-?[0-9][0-9,.]*[ \t]*$))"
    rf"[\s:$*(]*(?:\\[(\[]\s*)?(?:[a-zA-Z]\s*=\s*)?(?P<answer>{NUMBER})"
    r"(?!\s*(?:[-+*/^=<>\d(]|\\[cte]|more|less))",
    re.IGNORECASE | re.MULTILINE,
)


def surroundings(
    before: str, after: str, content: str, problem: str
) -> tuple[str | None, str, str]:
    """Check the text around a box with ``content`` in a response to ``problem``.

    Returns:
        (reason code if the answer is ambiguous, else None; currency before the box; unit after it).
    """
    # Some models write the backslash twice, as in JSON.
    sides = Sides(re.sub(r"(?<!\\)\\$", "", before[-2 * _PHRASE :]), after[:_WINDOW])
    peel(sides)
    unit, end = units.typeset(sides.right)
    sides.left, sides.right = _TEXT.sub(r" \1 ", sides.left), _TEXT.sub(r"\1", sides.right[end:])
    peel(sides)
    if currency := _CURRENCY.search(sides.left):
        sides.left = sides.left[: currency.start()]
        peel(sides)
    if not (_leads(sides, content, problem) and _leaves_alone(sides, content, problem)):
        return "outside_box", "", ""
    if _taken_back(after, content):
        return "retracted", "", ""
    return None, currency[0].strip() if currency else "", unit or units.spoken(sides.right)


def _leads(sides: Sides, content: str, problem: str) -> bool:
    """Whether the text before a box does not change its value: words, a sign such as ``=``, or
    nothing.

    "At least" before the box is allowed only if the problem asks for a bound.
    """
    left = sides.left
    if _another_before(left, content):
        return False
    if _ASKS_BOUND.search(problem) and (bound := _BOUND.search(left)):
        left = left[: bound.start()].rstrip()
    prose = sides.left_formula and sides.left_spaced
    if begins := _BEGINS.search(left):
        item = begins[0].strip()
        if not item or begins[0].endswith("\n") or (prose if item == "-" else sides.left_spaced):
            return not _CHANGED_BEFORE.search(left[: begins.start()].rstrip())
    if _CHANGED_BEFORE.search(left[-_PHRASE:]):
        return False
    if prose and re.search(r"(?:[.,;!?]|(?<!\\)\b(?:[aAI]|[a-zA-Z]{2,}))$", left):
        return True
    blank = " " if sides.left_spaced or sides.left_formula else ""
    return _LEADS.search(left + blank) is not None


def _another_before(left: str, content: str) -> bool:
    """Whether the text before the box names an additional value, as in "x = 4 or x ="."""
    other = at_end(_OTHER_BEFORE, left, _PHRASE)
    if not other or (same_number(other["value"], content) and "of" not in other["joint"]):
        return False
    if other["again"]:
        return other["name"] == other["again"].rstrip("= ")
    if other["unit"] and not units.known(other["unit"]):
        return other["joint"] == "or"
    listed = "," in other["after"] and _LISTED.search(left[: other.start()])
    return bool(other["joint"] or other["unit"] or listed)


def _leaves_alone(sides: Sides, content: str, problem: str) -> bool:
    """Whether the text after a box with ``content`` does not change its value.

    "Dozen" after the box is allowed only if the problem asks "how many dozen".
    """
    counted = re.match(rf"{_MANY}\b", sides.right)
    if counted and f"how many {counted[0].rstrip('s')}" in problem.lower():
        sides.right = sides.right[counted.end() :].lstrip()
    other = _OTHER_AFTER.match(sides.right)
    if other and same_number(other["value"], content) and other["joint"].strip(" $"):
        sides.right, sides.right_spaced = sides.right[other.end() :], False
    elif sides.right.startswith("="):
        return _is_renamed(sides.right[1:].lstrip(), content)
    # "k = 5 and m = 6" assigns the second value to another name.
    elif other and re.search(rf"{re.escape(other['name'] or '')}[\s=]*$", sides.left):
        return False
    if re.search(r"(?:\\equiv|≡)\s*$", sides.left):
        sides.right = _MODULO.sub("", sides.right)
    while passed := _PASSED.match(sides.right):
        sides.right = sides.right[passed.end() :]
        peel(sides)
    right = sides.right.lstrip("!") if sides.right_formula else sides.right
    if _CHANGED_AFTER.match(right):
        return False
    unit = units.spoken(right)
    # "5 feet 6 inches"
    if unit and unit != r"\%" and re.match(r"[a-zA-Z]+,?\s+(?:and\s+)?\$?[0-9]", right):
        return False
    if not sides.right_spaced and re.match(r"[a-zA-Z]", right):
        known = re.match(r"[a-zA-Z]{2}|[gmsL]" if sides.right_formula else r"[a-zA-Z]{2}", right)
        return unit != "" and known is not None
    return unit != "" or _GOES_ON.match(right) is not None


def _is_renamed(right: str, content: str) -> bool:
    r"""Whether the text after ``=`` only restates the box: ``x``, ``3x-6``, ``2\cdot3``."""
    if product := re.match(r"((?:\d+\s*\\(?:cdot|times)\s*)+\d+)\s*(?:[.,;$\n]|\\[)\]]|$)", right):
        return same_number(str(math.prod(map(int, re.findall(r"\d+", product[1])))), content)
    if re.match(r"(?![ei]\b)[a-zA-Z]\s*(?:[.,;$\n&]|\\[)\]]|\\\\|\\end|$)", right):
        return re.search(r"[a-zA-Z]", content) is None or "\\" in content
    formula = re.search(r"[a-z].*[-+*/^(]|[-+*/^(].*[a-z]", content)
    return formula is not None and re.match(r"[^$\n.,&\\]*[a-z]", right) is not None


def _taken_back(after: str, content: str) -> bool:
    """Whether the text after a box with ``content`` retracts it or gives another number.

    Not covered: the middle part of a text of more than twice ``MOST_READ`` characters.
    """
    if len(after) > 2 * MOST_READ:
        after = f"{after[:MOST_READ]}\n{after[-MOST_READ:]}"
    if _DENIED.search(after):
        return True
    if normal_form(content[:MOST_READ]).value is None:
        return False
    return any(not same_number(said["answer"], content) for said in _ANSWER_AGAIN.finditer(after))


# --- Answers that only repeat the problem: for "What is 12 * 13?", ``12 \cdot 13`` has the right
# value but does not answer the question. The rules cannot tell whether the problem asks for such a
# form, so the answer is undecided, unless the problem contains the reference too.
_SAME = re.compile(r"\\(?:cdot|times)(?![a-zA-Z])|[×·∙⋅]")
_FRACTION = re.compile(r"\\frac\{([0-9]+)\}\{([0-9]+)\}")
_BRACES = re.compile(r"\{(\w)\}")
_OPERATION = re.compile(r"[-+*/^!|\\]|\)\(")


def echoes(answer: str, reference: str, problem: str) -> bool:
    """Whether an answer copies an operation from a problem that does not contain the reference."""
    if plain_decimal(answer) is not None:
        return False
    return _stands_in(answer, problem) and not _stands_in(reference, problem)


def _stands_in(answer: str, problem: str) -> bool:
    given = re.sub(r"\s", "", _plain(answer))
    if not _OPERATION.search(given.lstrip("-")):
        return False
    spaced = r"\s*".join(map(re.escape, given))
    return re.search(rf"(?<![\w.]){spaced}(?![\w.]*\w)", _plain(problem)) is not None


def _plain(text: str) -> str:
    text = plain(_SAME.sub("*", text)).replace("$", " ")
    return _BRACES.sub(r"\1", _FRACTION.sub(r"\1/\2", text))

r"""Finds text next to a box that changes or contradicts the answer in the box.

``\boxed{5}.5``, ``-\boxed{5}``, ``\boxed{5} million``, "not $\boxed{5}$", "4 or $\boxed{5}$" and
"\boxed{5}. No wait, it is 6" do not give 5 as the answer. Each doubt is a pattern that names what
it finds: an operator, as a sign or a word, an operand, a bound, a denial, another value next to the
box, and later text that denies the answer or gives another one. Layout and words that no pattern
names are ignored.

Denials and second values are found by words in English and Chinese. In text of other languages any
other bare value in the sentence of the box, and any value that later ends a sentence, makes the
answer ambiguous; so does a word for "not".

Doubts, the reasons of undecided verdicts: ``outside_box`` and ``retracted``.

Not covered: a text that reaches another answer without retracting the first, and retractions in
other words.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from itertools import chain

from heavydistill.verifiers import foreign
from heavydistill.verifiers.mathematics import units
from heavydistill.verifiers.normal import is_rounded, normal_form, plain, plain_decimal

# --- The text on both sides of a box, without typesetting: HTML tags and end-of-text tokens,
# layout, markdown, one pair of formula delimiters, wrappers and brackets around the box.
NUMBER = r"(?:-?(?:[0-9]+/[0-9]+|[0-9][0-9,]*(?:\.[0-9]+)?|\\[dt]?frac\{[0-9]+\}\{[0-9]+\}))"
_LONGEST_NUMBER = 300
_LONGEST_LAYOUT = 40

# Typesetting directly before and directly after the box.
_LAYOUT = (
    r"(?:[ \t~]|\\[,;:! ]|\\(?:q?quad|displaystyle|textstyle|large|Large|LARGE|huge|Huge|bf|hfill"
    r"|left|right|centering|noindent|item|hline|newline|par"
    r"|(?:[hv]space|phantom|label|(?:sub)*section)\*?\{[^{}]{0,20}\}|color\{\w{1,20}\})(?![a-zA-Z])"
    r"|\\\\\[\w{1,6}\]|\*\*|__|[`&“”«»„\"'])"
)
_TAG = re.compile(r"</?[a-z][\w-]{0,20} ?/?>|<\|[^|<>\n]{1,30}\|>")
_DELIMITER = r"(?:\$\$?|\\[()\[\]]|\\(?:begin|end)\{[a-zA-Z*]{1,20}\}(?:\{[|lcr ]{1,9}\})?)"
_LAYOUT_BEFORE = re.compile(rf"{_LAYOUT}\Z")
_LAYOUT_AFTER = re.compile(_LAYOUT)
_DELIMITER_BEFORE = re.compile(rf"(?<!\\){_DELIMITER}\Z")
_DELIMITER_AFTER = re.compile(r"(?:\\end\{[a-zA-Z*]{1,20}\}\s*)?(?:\$\$?|\\[)\]])|" + _DELIMITER)
_WRAPPER = re.compile(
    r"\\(?:text[a-z]{0,2}|mathbf|mathrm|boldsymbol|bm|bf|underline|underbrace|displaystyle"
    r"|(?:text)?color(?:box)?\{\w{1,20}\})"
    r"\s*\{\Z"
)
_ITALIC = re.compile(r"(?:^|[\s:])\*\Z")
_GROUP = re.compile(r"(?:^|[=\s$\[(])\{\Z")


@dataclass(slots=True)
class BoxContext:
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


def peel(sides: BoxContext) -> None:
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
        if sides.right.startswith("*") and _ITALIC.search(sides.left):
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
_BOUND_AFTER = re.compile(r"\Aat (?:least|most)\b[ ,]*", re.IGNORECASE)
_BOUNDED = re.compile(r"\b(?:upper|lower) bound(?: \w+){0,3} (?:is|of)[\s:]*$", re.IGNORECASE)
_CASE = re.compile(r"\bcase \(?\w{1,3}\)?(?!\w)", re.IGNORECASE)
_ASKS_BOUND = re.compile(r"\b(?:least|most|m(?:in|ax)im\w+|[a-z]{3,}est)\b", re.IGNORECASE)

# Text before the box: the beginning of its line, words and signs that change its value, an operand
# beside it, another value.
# "2. ", "- $", "(a) \(", "| 3 | ":
_BEGINS = re.compile(
    r"(?:^|(?<=\n))[ \t>]*(?:#+|[-*•]|\d{1,2}[.)]|\([a-z\d]{1,3}\)|\|(?:[^\n]*\|)?)?\s*"
    r"(?:\\[\[(]|\$\$?|\\begin\{[a-zA-Z*]{1,20}\})?\s*\Z"
)
_SUBJECT = (
    r"\b(?:number|sum|total|amount|probability|chance|share|fraction|percentage|area|value|set)\b"
)
# "it is not ", "some would say ", "nearly ", "twice ", "a third of ", "x <", "−":
_CHANGED_BEFORE = re.compile(
    r"(?:(?:\b(?:not|never|cannot|neither|nor|wrong|incorrect|invalid|mistake)|n['’]t)"
    r"(?:[\s*:\"“'()$]+(?!but\b)\w+){0,3}[\s*:\"“'()$]*"
    r"|(?<!\bwe )(?<!\bi )\b(?:might|may|could|would|tempt\w*|easy|some|one|people|many|students)"
    r" (?:\w+ )?(?:to )?"
    r"(?:guess|think|say|assume|claim)s?(?: \w+){0,3}[\s:$]*"
    r"|\b(?:almost|nearly|barely|(?:just|slightly|a (?:bit|little)) (?:under|over|below|above)"
    r"|also (?:acceptable|possible|correct|valid)[\s:]*"
    r"|negative|minus|plus|times|over|half|twice|double|triple|than|least|most"
    r"|sqrt|(?:square|cube) root|log|ln|sin|cos|tan|(?<!add )(?<!round )up to"
    r"|(?:divided|multiplied|raised) by|(?:\w+ths?|third|half|quarter|root|opposite|negative|out"
    r"|absolute value|inverse|reciprocal) of"
    rf"|{_NUMERAL}(?: and)?)[- ]?"
    r"|(?<![-*])[-*]|[+/^(<_{|~√±×÷·∓≠≤≥−]|(?<![-=])>|(?<![\d)}\]])!=|[<>\\]=|\bnot\s*="
    r"|(?:^|[\d)(}\]\[$])\s*–|[¬∑∏∫∂∇]|\bmod|[不非负倍]|不是|[大小]于|[加减乘除][以上去]?|根号)$",
    re.IGNORECASE,
)
# "The number of boxes that hold neither pens nor pencils is": the denial is not of the answer.
_ABOUT_OTHERS = re.compile(
    rf"(?:{_SUBJECT}[^.!?\n]*|\b(?:who|which|that) (?:\w+ ?)?)"
    r"(?:\b(?:not|never|cannot|nor|wrong|incorrect|invalid)|n['’]t)"
    r"(?: (?!is\b|are\b|was\b|were\b)\w+){1,3} (?:is|are|was|were|equals)[\s:$]*$",
    re.IGNORECASE,
)
# Commands that are neither an operator nor an operand: those of conclusions, and before the box
# those of relations too.
_CONCLUSION = r"therefore|because|implies|iff|(?:Long)?[rR]ightarrow|text[a-z]{0,2}|mathrm|mbox"
_NEUTRAL = rf"(?:{_CONCLUSION}|in|equiv|approx|simeq|cong|to|[a-zA-Z]*arrow)(?![a-zA-Z])"
# "3", "x ", "5! ", "2 : ", "\sqrt ", "(1, ", ") "; a blank stands for layout or for a delimiter of
# formulas.
_OPERAND_BEFORE = re.compile(
    r"(?:[0-9](?:\.{1,3}|[…,:])?|\d!|[²³½¼¾π∞°%]"
    r"|(?<![^\W\d_²³½¼¾⁰-₉])(?<![\\'’])(?:[b-zB-HJ-Z] ?|[aAI])"
    r"|(?<![\\a-zA-Z'’])[a-zA-Z]{2}|\d |[²³½¼¾π∞°%] |\d! |\b\d+ ?: "
    r"|(?:[\d)}\]!]|(?<![a-zA-Z\\])[a-zA-Z])(?:\$\$?|\\\)) "
    rf"|\\(?!{_NEUTRAL})[a-zA-Z]+(?:\$\$?|\\\))? ?"
    r"|(?<![a-zA-Z]{2})\]\s?|[(\[{]\s*-?\d[^()\s]{0,20}[,;] "
    r"|(?<!\b[a-zA-Z]{2} \([a-z\d])[)}] ?)$"
)
_LISTED_BEFORE = re.compile(r"(?:[0-9)}\]]|\b[a-zA-Z])\s*[,;] ?$")
_OPEN_FORMULA = re.compile(r"(?:\$|\\[(\[])[^$()\[\]]*\Z")
_LABEL_BEFORE = re.compile(r"[A-Z]\w+ \d+: $|\([^()]*[a-zA-Z]{3}[^()]*\) ?$")
# "x = 3 or ", "\boxed{3} and ", "3 to ", "2 cm and ":
_OTHER_BEFORE = re.compile(
    r"(?<![\w.,/^{}+*\\-])(?<![+*/^-] )(?<!cdot )(?<!times )"
    rf"(?:(?P<name>{_NAME})\s*=\s*)?(?:\\boxed\{{)?(?P<value>{NUMBER})"
    rf"(?P<after>\}}?\s*(?:\\?%|(?P<unit>(?!(?:or|and|to|of|out|per|{foreign.OR})\b)[a-z]+))?\s*(?:\$|\\\))?,?\s*)"
    rf"(?P<joint>(?:or|and|{foreign.OR})\b(?: \w+)?|to|(?:out )?of|per|[或和与到至、]|)[\s}}$]*"
    rf"(?P<again>{_NAME}\s*=)?\s*$"
)
_LISTED = re.compile(r"(?:\b(?:are|is|either)\s*\$?|[:,]\s*\$?|^\s*\$?|[\s(]\$)\s*$")

# Text after the box: text without meaning, words that change its value, a sign or an operand beside
# it, another value.
_MODULO = re.compile(r"\A\\?b?mod(?:ulo)?\b[\s{$]*\w+[}$]*")
# "\tag{1}", "\blacksquare", "\pmod{7}", "$^{th}$ term", "Q.E.D.":
_PASSED = re.compile(
    r"\\(?:(?:tag\*?|label|end)\{[^{}]{0,40}\}|\\)"
    r"|(?:\$\s*)?\\(?:blacksquare|square|qed|Box|checkmark)(?:\s*\$)?"
    r"|(?:\\equiv[^$\n\\]{1,40})?(?:\\pmod|\(\s*\\?mod)[\s{$]*\w+[})$]*"
    r"|(?:\^\s*\{*)?(?:st|nd|rd|th)\}*\$?(?= (?!of\b|root|pow|part)[a-z])"
    r"|[)\]}|]|[*_](?!\s*[\d\\({a-z])|\\?\$(?=[\s.,;)]|$)"
    r"|\[\^\w{1,8}\]|Q\.E\.D\."
)
_APPROXIMATION = re.compile(rf"(?:\\approx|≈)\s*({NUMBER})(?!\s*(?:[\d^*/(]|\\[ct]))")
# " million", " or", " is wrong", " in base 7", " if n is even, and 3 if", "万":
_CHANGED_AFTER = re.compile(
    rf"[\s(,;–—-]*(?:{_MANY}|hal(?:f|ves)|(?:four|fif|six|seven|eigh|nin|ten)ths?|over|or|point|pi"
    r"|ish|at (?:least|most)|give or take|unless|almost|nearly|maybe|perhaps|possibly"
    r"|(?:third|quarter)s? of|times(?= [0-9\\$(])|(?:all )?(?:squared|cubed)|factorial"
    r"|plus|minus|mod|modulo|divided|multiplied|raised|to the power|choose|cannot"
    r"|(?:in )?base(?! (?:10|ten)\b)|(?:with an? )?remainder|(?:degrees )?below zero"
    r"|in (?:thousands|\w+illions)|and (?:an?|one|two|three)|(?:per|in|out of)(?= [\\$(]*\d)"
    r"|(?:if|when|for)\b[^.\n]{1,80}?"
    r"(?:otherwise|else|(?:\band|[,;]) \$?-?[0-9.]+\$? (?:if|when|for))"
    r"|[^.!?\n]{0,40}[,;] (?:otherwise|else)\b(?=[^.!?\n]{0,20}\d)|(?:is|was) close"
    r"|(?:(?:but|though|although|yet) (?:this|that|it|which|the answer) (?:\w+ ){0,2})?"
    r"(?:(?:is|was|are|were) )?"
    r"(?:wrong|incorrect|invalid|impossible|too (?:small|large|big|low|high|few|many)"
    r"|not (?:right|correct|quite|the|possible|enough)))"
    r"(?![-a-z])|\W{0,4}(?:is|was|are)n['’]t\b|[，,]?(?:[万亿千百十半倍分不]|是?错)",
    re.IGNORECASE,
)
# "+", "^2", ".5", "- 3", "x", "\pi", "→ 3":
_OPERATOR_AFTER = re.compile(
    r"[0-9+*^_=<>!?{%√×÷·π²³⁴½¼¾⅓∞±∓°′″‰？❌✗✘✖]|[.,:]\d|(?:\.{2,}|…)\s*[\d$\\]|[,;:]\s*\$?\s*[-\d]|/(?!\s?[a-z]{3})"
    r"|[-–−—]+\s*(?:[\d($\\√π]|[a-zA-Z](?![^\W\d_²³½¼¾⁰-₉]))"
    r"|[b-zB-HJ-Z](?![^\W\d_²³½¼¾⁰-₉]|['’]|-[a-z]{2})"
    rf"|[→⇒➜]\s*\$?[\d\\(-]|\\(?!(?:{_CONCLUSION})(?![a-zA-Z]))[a-zA-Z]|(?:\$|\\\()\s*\S"
    r"|\n\s*(?:[+/^=]|<(?![/|a-z])|[*-]\s*\d|\\(?:times|cdot|div|pm)\b)"
)
# In a formula, or without a blank, a bracket is a factor of the box.
_FACTOR_AFTER = re.compile(r"[(\[](?!\s*[a-zA-Z]{2})")
# " or 4", ", x = 4", "(or equivalently, 4":
_OTHER_AFTER = re.compile(
    r"(?P<joint>[\s(，,;:=→⇒$]*+(?:(?:or(?: equivalently)?|and(?: also)?|as well as|to"
    r"|alternatively|sometimes|maybe|perhaps|possibly)\b|[或和与、到至]"
    rf"|\\(?:to|\(|[rR]ightarrow))?+[\s$,]*+)(?:(?P<name>{_NAME})\s*=)?\s*+(?P<value>{NUMBER})"
)

# Patterns for the later text after the box: it denies the answer, calls something wrong, or gives
# a number as the answer.
# "Wait, ", ". No, ", "let me redo", "I made a mistake":
_DENIED = re.compile(
    r"\bwait\b(?! (?:for|time|until|till)\b)"
    r"|(?:^|[.!?\n])\s{0,3}(?:but |hm+,? )?(?:(?:no|hm+|oops|actually|sorry)\b\s?[,.!:;…—–-]"
    r"|hold on\b|scratch that|strike that|correction:|my mistake"
    r"|on (?:second|further|closer) (?:thought|inspection|look|reflection))"
    r"|\blet(?:'s| me| us) (?:redo|recalculate|recompute|start over"
    r"|(?:correct|fix) (?:this|that|it|my|the)|try (?:this |it )?again)"
    r"|\bi (?:(?:have |had )?(?:made|make) an? (?:\w+ )?(?:mistake|error)"
    r"|(?:was|am) (?:wrong|mistaken))"
    r"|不对|算错|更正|有误",
    re.IGNORECASE,
)
_CALLED_WRONG = re.compile(
    r"(?<!if this)(?<!if it)(?<!if that)(?: (?:is|was)|['’]s)(?: (?:wrong|incorrect)"
    r"|(?: not|n['’]t) (?:right|correct|the (?:\w+ )?answer))\b",
    re.IGNORECASE,
)
_BARE = (
    rf"(?<![\w.,/^{{}}+*=<>\\-])(?<![-+*/=<>] )(?P<answer>{NUMBER})"
    r"(?![.,]?\d|\s*[-+*/^=<>(]|\s*\\[cte])"
)
_BARE_NUMBER = re.compile(_BARE)
# "The answer is 7", "I meant 7", ", it should be 7", "#### 7":
_ANSWER_AGAIN = re.compile(
    r"(?:\b(?:answer|solution|result|(?:correct|actual|true) \w+)(?: should| must)?(?:\*\*)?"
    r"\s*(?:is|be|was|:|=|equals)(?:\*\*)?(?: actually| now)?|\bi meant|应为"
    r"|\b(?:maybe|perhaps|possibly|or rather|that is,|i\.e\.,?)"
    r"|[.!?,\n]\s{0,3}(?:or )?it (?:is|was|(?:should|must|might) be)"
    r"|(?:答案|结果)(?:应该?)?(?:\*\*)?\s*(?:是|为|:|：)|^####(?=[ \t]*-?[0-9][0-9,.]*[ \t]*$))"
    rf"[\s:$*(]*(?:\\[(\[]\s*)?(?:[a-zA-Z]\s*=\s*)?(?P<answer>{NUMBER})"
    r"(?!\s*(?:[-+*/^_=<>\d(]|\\[cte]|more|less))",
    re.IGNORECASE | re.MULTILINE,
)
# "and 7 works", "7 is also possible":
_ALSO = re.compile(
    rf"(?:^|[.!?;,:\n(]|\b(?:and|but|though))\s{{0,3}}\$?{_BARE}\$?,? (?:(?:also )?works"
    r"|(?:is|(?:would|could|might|may) be) (?:also|another|equally|possible|valid|acceptable))",
    re.IGNORECASE,
)

# A value that ends a sentence, perhaps with a particle: 6です。
_FOREIGN_LAST = re.compile(
    rf"{_BARE}[\s$)*]{{0,4}}[^\W\d_a-zA-Z\u4e00-\u9fff]{{0,6}}\s*(?:[.!?。！？।\n]|\Z)"
)


def surroundings(
    before: str, after: str, content: str, problem: str
) -> tuple[str | None, str, str]:
    """Check the text around a box with ``content`` in a response to ``problem``.

    Returns:
        (reason code if the answer is ambiguous, else None; currency before the box; unit after it).
    """
    before, after = _TAG.sub(" ", before[-2 * _PHRASE :]), _TAG.sub(" ", after)
    # Some models write the backslash twice, as in JSON.
    sides = BoxContext(re.sub(r"(?<!\\)\\$", "", before), after[:_WINDOW])
    peel(sides)
    unit, end = units.typeset(sides.right)
    opens = re.match(r"(?:\$|\\\()\s*", sides.right)
    if opens and sides.right_formula:  # $\boxed{5}$ $\text{cm}$
        unit, end = units.typeset(sides.right[opens.end() :])
        end += opens.end() if unit else 0
        sides.right_formula = not unit
    sides.left, sides.right = _TEXT.sub(r" \1 ", sides.left), _TEXT.sub(r"\1", sides.right[end:])
    peel(sides)
    if currency := _CURRENCY.search(sides.left):
        sides.left = sides.left[: currency.start()]
        peel(sides)
    if (
        _changed_before(sides, content, problem)
        or _changed_in_foreign_words(sides, content)
        or _changed_after(sides, content, problem)
        or _is_one_case(before, after[:_WINDOW], content)
    ):
        return "outside_box", "", ""
    if _taken_back(after, content) or _taken_back_in_foreign_words(after[:MOST_READ], content):
        return "retracted", "", ""
    return None, currency[0].strip() if currency else "", unit or units.spoken(sides.right)


def _changed_before(sides: BoxContext, content: str, problem: str) -> bool:
    """Whether the text before a box with ``content`` names something that changes its value.

    "At least" before the box changes nothing if the problem asks for a bound.
    """
    left = sides.left
    if _another_before(left, content):
        return True
    if _ASKS_BOUND.search(problem) and (bound := _BOUND.search(left)):
        left = left[: bound.start()].rstrip()
    if at_end(_BOUNDED, left, _PHRASE) and "bound" not in problem.lower():
        return True
    is_prose = sides.left_formula and sides.left_spaced
    if begins := _BEGINS.search(left):
        item = begins[0].strip()
        if not item or begins[0].endswith("\n") or (is_prose if item == "-" else sides.left_spaced):
            return _is_changed_by_words(left[: begins.start()].rstrip().rstrip("|"))
    if _is_changed_by_words(left):
        return True
    is_in_formula = _OPEN_FORMULA.search(left) and not sides.left_formula
    if (is_in_formula and re.search(r"(?<![a-zA-Z])[aAI]$", left)) or (
        not sides.left_spaced and re.search(r"\d[.,:]$", left)
    ):
        return True
    blank = " " if sides.left_spaced or sides.left_formula else ""
    left = left[-_PHRASE:] + blank
    if _LABEL_BEFORE.search(left):
        return False
    listed = not sides.left_formula and _LISTED_BEFORE.search(left)
    return bool(listed or _OPERAND_BEFORE.search(left))


def _is_one_case(before: str, after: str, content: str) -> bool:
    """Whether the box is in the line of a case, and a later case has another value."""
    if not _CASE.search(before.rpartition("\n")[2]):
        return False
    others = [value for part in _CASE.split(after)[1:] for value in _BARE_NUMBER.findall(part)]
    return any(not same_number(value, content) for value in others)


def _is_changed_by_words(left: str) -> bool:
    left = left[-_PHRASE:]
    return bool(_CHANGED_BEFORE.search(left)) and not _ABOUT_OTHERS.search(left)


def _another_before(left: str, content: str) -> bool:
    """Whether the text before the box names an additional value, as in "x = 4 or x ="."""
    other = at_end(_OTHER_BEFORE, left, _PHRASE)
    if not other or (same_number(other["value"], content) and "of" not in other["joint"]):
        return False
    if other["again"]:
        return other["name"] == other["again"].rstrip("= ")
    if other["unit"] and not units.known(other["unit"]):
        return other["joint"] == "or"
    listed = "," in other["after"] and not other["name"] and _LISTED.search(left[: other.start()])
    return bool(other["joint"] or other["unit"] or listed)


def _changed_after(sides: BoxContext, content: str, problem: str) -> bool:
    """Whether the text after a box with ``content`` names something that changes its value.

    "Dozen" after the box changes nothing if the problem asks "how many dozen", and "at least" if it
    asks for a bound.
    """
    counted = re.match(rf"{_MANY}\b", sides.right)
    if counted and f"how many {counted[0].rstrip('s')}" in problem.lower():
        sides.right = sides.right[counted.end() :].lstrip()
    other = _OTHER_AFTER.match(sides.right)
    if other and same_number(other["value"], content) and other["joint"].strip(" $"):
        sides.right, sides.right_spaced = sides.right[other.end() :], False
    elif sides.right.startswith("="):
        return not _is_renamed(sides.right[1:].lstrip(), content)
    # "k = 5 and m = 6" assigns the second value to another name.
    elif other and re.search(rf"{re.escape(other['name'] or '')}[\s=]*$", sides.left):
        return True
    if re.search(r"(?:\\equiv|≡)\s*$", sides.left):
        sides.right = _MODULO.sub("", sides.right)
    while passed := _PASSED.match(sides.right):
        sides.right = sides.right[passed.end() :]
        peel(sides)
    if nearly := _APPROXIMATION.match(sides.right):
        value = normal_form(content[:_LONGEST_NUMBER]).value
        if value is not None and not (
            is_rounded(nearly[1], value) or same_number(nearly[1], content)
        ):
            return True
        sides.right = sides.right[nearly.end() :]
        peel(sides)
    right = sides.right.lstrip("!") if sides.right_formula else sides.right
    if _ASKS_BOUND.search(problem):
        right = _BOUND_AFTER.sub("", right)
    if _CHANGED_AFTER.match(right):
        return True
    unit = units.spoken(right)
    # "5 feet 6 inches"
    if unit and unit != r"\%" and re.match(r"[a-zA-Z]+,?\s+(?:and\s+)?\$?[0-9]", right):
        return True
    if not sides.right_spaced and re.match(r"[a-zA-Z]", right):
        known = re.match(r"[a-zA-Z]{2}|[gmsL]" if sides.right_formula else r"[a-zA-Z]{2}", right)
        return not (unit and known)
    if unit:
        return False
    is_aside = sides.right_formula and sides.right_spaced
    return bool(_OPERATOR_AFTER.match(right) or (not is_aside and _FACTOR_AFTER.match(right)))


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
    if _DENIED.search(after) or any(
        not _is_of_others(after, denial.start(), content)
        for denial in _CALLED_WRONG.finditer(after)
    ):
        return True
    if normal_form(content[:MOST_READ]).value is None:
        return False
    again = chain(_ANSWER_AGAIN.finditer(after), _ALSO.finditer(after))
    return any(not same_number(match["answer"], content) for match in again)


def _is_of_others(after: str, end: int, content: str) -> bool:
    """Whether the sentence before ``end`` names other numbers than the content of the box only."""
    sentence = re.split(r"[.!?](?!\d)|\n", after[max(0, end - _WINDOW) : end])[-1]
    numbers = [number[0] for number in _BARE_NUMBER.finditer(sentence)]
    return bool(numbers) and not any(same_number(number, content) for number in numbers)


def _changed_in_foreign_words(sides: BoxContext, content: str) -> bool:
    """Whether the sentence around the box denies it, or names another value after it."""
    before, after = foreign.last_sentence(sides.left), foreign.first_sentence(sides.right)
    if not foreign.is_foreign(f"{before} {after}"):
        return False
    return (
        foreign.denies(before, after)
        or any(
            not same_number(number[0], content)
            # Chinese counting words: 其中3个
            and not re.match(r"[\u4e00-\u9fff]", after[number.end() :])
            for number in _BARE_NUMBER.finditer(after)
        )
    )


def _taken_back_in_foreign_words(after: str, content: str) -> bool:
    if not foreign.is_foreign(after):
        return False
    if foreign.calls_wrong(after):
        return True
    return normal_form(content[:MOST_READ]).value is not None and any(
        not same_number(number["answer"], content) for number in _FOREIGN_LAST.finditer(after)
    )


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

r"""Whether what stands right beside a box changes what the box says.

``\boxed{5}.5``, ``-\boxed{5}``, ``\boxed{5} million``, "not $\boxed{5}$", "4 or $\boxed{5}$" and
"\boxed{5}. No wait, it is 6" do not answer 5. What is read: an operator, written or spoken, a
negation, another value directly beside the box, the unit behind it, and whether the text after it
takes the answer back or names another one. All other words are left alone.

Doubts, the reasons of undecided verdicts: ``outside_box`` and ``retracted``.

Not covered: a text that comes to another answer without saying so, and doubts in other words.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from heavydistill.verifiers.mathematics import units
from heavydistill.verifiers.mathematics.sides import (
    NUMBER,
    Sides,
    at_end,
    peel,
    same_number,
    without_layout_end,
)
from heavydistill.verifiers.normal import normal_form

MOST_READ = 10_000
_PHRASE, _WINDOW = 80, 300
_NAME = r"(?:[a-zA-Z]|\\[a-zA-Z]+)(?:_\{?\w+\}?)?"
_NUMERAL = (
    r"(?:one|two|three|four|five|six|seven|eight|nine|ten|\w+teen|(?:twen|thir|for|fif|six|seven"
    r"|eigh|nine)ty|hundreds?|thousands?|\w*illion\w*|dozens?)"
)
_TEXT = r"\\(?:text[a-z]{0,2}|mathrm|mbox)\s*\{"
_CURRENCY = re.compile(r"(?:\\\$|[€£¥₹])\s*$")
_BOUND = re.compile(r"\s*\bat (?:least|most)\s*$", re.IGNORECASE)
_ASKS_BOUND = re.compile(
    r"\b(?:least|most|(?:min|max)im\w+|(?:small|larg|few|great|short|long|low|high)est)\b",
    re.IGNORECASE,
)

# Before the box.
_TEXT_BEFORE = re.compile(rf"{_TEXT}([^{{}}]{{0,100}})\}}$")
_ITEM = re.compile(
    r"(?:^|\n)[ \t]*(?:>[ \t]*)*(?:#+|[*•]|[0-9]{1,2}[.)]|(-|\(?(?:[a-h]|[ivx]+|[0-9])\)))?\Z"
)
_RULE = re.compile(r"(?:^|\n)[ \t]*(?:[-=*_]{3,}|\[|[^\n]*\||<[^<>\n]{1,40}>)$")
_FORMULA_BEGINS = re.compile(r"(?:\\[\[(]|\$\$?|\\begin\{[a-zA-Z*]{1,20}\})\Z")
_LEADS = re.compile(
    r"(?:\\(?:(?:long|Long)?[rR]ightarrow|implies|therefore|to|iff|approx|equiv|Leftrightarrow|in"
    r"|leadsto|because|colon|coloneqq|simeq|cong|bullet|checkmark|hence)|[⇒→∴≈≡：，。；–—►➡✅&]"
    r"|(?<!not)(?<![!<>\\])\s*=|(?<=[\d)}]!)=|(?<!\d):|[^\W\d_]{2} ?\d+:|[=-]>|\\\\)"
    r"(?:\s*(?:\$|\\\)))?$"
)
_CHANGED_BEFORE = re.compile(
    r"(?:(?<![-=])>|[-+*/^_<({\[|]|\\(?:times|cdot|div|pm|mp|neq?|[lg]eq?)|\\not *="
    r"|(?:\b(?:not|never|cannot|neither|nor|without|negative|half|twice|double|minus|root"
    r"|factorial|wrong|incorrect|invalid|mistaken?)|n['’]t)(?:[ \t*:\"“'(]+\w+){0,3}[ *:\"“'()]*"
    r"|\b(?:(?:than|least|most)(?: or equal to| the)?|plus|times|triple|over|also be|sqrt|log"
    r"|(?<!add )(?<!adds )(?<!round )up to|(?:divided|multiplied|raised) by"
    r"|(?:\w+ths?|third|quarter|opposite|out|absolute value|inverse|reciprocal) of"
    rf"|{_NUMERAL}(?: and)?|e\.g\.,?|example[,:]?)-?"
    r"|(?:[不非负倍]|不是|[大小]于|超过|不到|[乘除]以?|加上?|减去?|根号))$",
    re.IGNORECASE,
)
# A value before the box, and what joins the two: "x = 4 or x =", "2 hours", "12 and".
_OTHER_BEFORE = re.compile(
    r"(?<![\w.,/^{}+*\\-])(?<![+*/^-] )(?<!cdot )(?<!times )"
    rf"(?:(?P<name>{_NAME})\s*=\s*)?(?:\\boxed\{{)?(?P<value>{NUMBER})"
    r"(?P<after>\}?\s*(?:\\?%|(?P<unit>(?!(?:or|and|to|of|out)\b)[a-z]+))?\s*(?:\$|\\\))?,?\s*)"
    r"(?:\\text\{\s*)?(?P<joint>(?:or|and)\b(?: \w+)?|to|(?:out )?of|[或和与到至、:]|)[\s}$]*"
    rf"(?P<again>{_NAME}\s*=)?\s*$"
)
_LISTED = re.compile(r"(?:\b(?:are|is|either)|[:,])[\s$]*$")
_IS_SIGN = re.compile(r"\b(?:is|are|be|equals|was|of) -$")
_WORD = re.compile(r"([^\W\d_]+)(?:['’]s?)?$")
_FUNCTION = re.compile(
    r"(?:^|[^a-zA-Z])(?:(?:arc)?(?:sin|cos|tan)|cot|sec|csc|ln|log|exp|max|min)$"
)

# After the box.
_TEXT_AFTER = re.compile(rf"((?:\s|\\[,;:! ]|~)*){_TEXT}([^{{}}$]{{0,80}})\}}")
_MODULO = re.compile(
    r"(?:\\[,;:! ]|[\s$])*\(?(?:\\(?:text|mathrm)\{\s*\(?mod\s*\}|\\?p?mod(?:ulo)?|\\bmod)"
    r"[\s{$]*\w+[})$]*"
)
_PASSED = re.compile(
    r"\\(?:tag\*?\{[^{}]{0,20}\}|blacksquare|square|qed|Box|checkmark|approx[^\n$]{0,40}"
    r"|label\{[^{}]{0,40}\}|pmod\s*\{?\s*\w+\s*\}?|\\|newline|star|bullet|hfill|clubsuit|smile"
    r"|end\{[a-zA-Z*]{1,20}\})|\$\s*\\(?:blacksquare|square|qed|Box|checkmark)\s*\$"
    r"|[)\]}’]|\[(?=[a-z])|[*_](?!\s*[\d\\({a-z])"
)
_CHANGED_AFTER = re.compile(
    r"[\s(,;]*(?:hundreds?|thousands?|\w*illion\w*|dozens?|half(?!-[a-z])"
    r"|(?:four|fif|six|seven|eigh|nin|ten)ths?(?!-)|(?:third|quarter)s? of|(?:all )?(?:squared"
    r"|cubed)|over|factorial|plus|minus|divided|multiplied|raised|or|point|root|sqrt|pi|mod|bn|mn"
    r"|(?:with an? )?remainder|(?:degrees )?below zero|to the power|choose|(?:in )?base"
    r"|alternatively|percentage points?|in (?:thousands|\w+illions)|and (?:an?|one|two|three)\b"
    r"|times(?= [0-9\\$(])|(?:if|when|for)\b[^.\n]{1,80}?(?:otherwise|else"
    r"|\band \$?-?[0-9.]+\$? (?:if|when|for))|cannot"
    r"|(?:(?:is|was|are|were|seems|looks|might be|could be) )?(?:wrong|incorrect|invalid|false"
    r"|impossible|too (?:small|large|big)"
    r"|(?:not|never)(?= (?:right|correct|valid|the|possible|true|enough))))(?![a-z])"
    r"|\W{0,4}(?:is|was|are)n['’]t\b|\(not\b|[，,]?(?:[万亿千百十半倍分萬億不]|是?错)",
    re.IGNORECASE,
)
_OTHER_AFTER = re.compile(
    r"(?P<joint>\s*(?:,?\s*\(?or(?: equivalently,?)?|\(?and|to|alternatively|[，,]?[或和与、到至])?"
    r"[\s$,;:=→⇒]*(?:\\(?:to|[rR]ightarrow)|\\\(|and\b|or\b)?[\s$]*)"
    rf"(?P<name>{_NAME}\s*=\s*)?(?P<value>{NUMBER})"
    r"(?P<end>\s*(?:\$|\\\))?\s*(?:[.,;)]|and\b|or\b|$))?"
)
_CONSTANT = re.compile(r"(?:[ei]|\\(?:pi|infty|emptyset|varnothing))(?![a-zA-Z])")
_PRODUCT = re.compile(r"([0-9]{1,9}(?:\s*\\(?:cdot|times)\s*[0-9]{1,9})+)\s*(?:[.,;$\n]|\\[)\]]|$)")
# Behind a letter for an open formula (F) or prose (P), and one for blanks (S) or none (T).
_FITS = re.compile(
    r"..(?:$|\n\s*\n|[.](?!\d)|[:;](?!\s*[\d$\\])|/\s?[a-z]{3,}\b|(?:--+|—)\s*[^\W\d_]{2}"
    r"|[^\x00-\x7f–—×÷·√π²³⁴½¼¾⅓∞±∓°′″‰→⇒➜？❌✗✘✖]"
    r"|\^\s*\{?\\(?:text|mathrm|textrm)\{\s*(?:st|nd|rd|th)\}+\$? (?!of\b|root|pow|part)[a-z])"
    r"|F.(?:&|,(?!\s*[-\d])"
    r"|\n(?!\s*(?:[+/^!<=]|[>*-]\s*[\d\\](?![(\[])|\\(?:times|cdot|div|pm)\b)))"
    r"|P.(?:[\n!]|,(?!\d)|(?:st|nd|rd|th) (?!of\b|root|pow|part)[a-z])"
    r"|.S(?:[a-zA-Z]{2}|[aAI]\b|[-–]\s*[^\W\d_]{2}|\(\s*(?:[^\W\d_]{2}|\\text|\\pmod))|PS\(\s*[$\\]"
)

# In the text after the box.
_TAKES_BACK = re.compile(
    r"\bwait\b(?! (?:for|time|until|till|times)\b)|\b(?:oops|scratch that|correction)\b"
    r"|(?:^|[.!?\n:;—–-])\s{0,3}(?:but |hm{1,5},? )?(?:no|nope|hm{1,5}|actually|sorry|hold on)"
    r"\s?[,.!:;…—–-]"
    r"|[.!?\n]\s{0,3}(?:or|alternatively),? (?:it|the answer|maybe|perhaps|possibly|is it"
    r"|\$?-?[0-9])|\bactually,?\s+(?:it|that|the answer|this)\b"
    r"|(?<!if )\b(?:that|this|it|which|answer|result|above|value)"
    r"(?:['’]s| is| was| must be| seems| looks)"
    r"\s+(?:wrong|incorrect|mistaken|not (?:right|correct|the answer|valid)|a mistake|an error)\b"
    r"|(?<!if this )(?<!if it )(?<!if that )\b(?:is|was) (?:wrong|incorrect|mistaken"
    r"|not (?:right|correct|the (?:\w+ )?answer))\b"
    r"|\b(?:answer|result|value) (?:is|was|must be) (?:false|(?:im|not )possible)\b"
    r"|\b(?:isn|wasn)['’]t (?:right|correct|the answer|possible|valid)\b"
    r"|\bi (?:have )?(?:made|make) (?:a|an|some) (?:\w+ )?(?:mistakes?|errors?)\b"
    r"|\bmy (?:mistake|bad|error)\b|\bi (?:was|am) wrong\b|\bi meant\b|\bon second thought"
    r"|\b(?:it|that|this|answer|result|value) should (?:\w+ )?(?:be|have been)\b"
    r"|\blet me (?:re-?(?:do|check|think|consider|calculate|compute|evaluate|examine|work|read)"
    r"|correct|fix|try again|start over)\b|\bignore (?:that|the above|my)\b"
    r"|\binstead,? (?:it|the answer)\b|(?:^|[。！？\n])\s*等等|等一下|不对|算错|更正|我错了|有误"
    r"|重新(?:计算|考虑|检查|算)|(?<!答案)(?<!结果)应该?(?:是|为)",
    re.IGNORECASE,
)
_ANSWER_AGAIN = re.compile(
    r"(?:\b(?:answer|solution|result|(?:correct|actual|true|right) (?:value|number|sum|total"
    r"|count))(?: should)?(?:\*\*)?\s*(?:is|be|was|:|=|equals)(?:\*\*)?(?: actually| now| really)?"
    r"|(?:答案|结果)(?:应该?)?(?:\*\*)?\s*(?:是|为|:|：)|^####(?=[ \t]*-?[0-9][0-9,.]*[ \t]*$))"
    rf"[\s:$*(]*(?:\\[(\[]\s*)?(?:[a-zA-Z]\s*=\s*)?(?P<answer>{NUMBER})"
    r"(?!\s*(?:[-+*/^=<>\d(]|\\[cte]))",
    re.IGNORECASE | re.MULTILINE,
)
# "Check: ... the result is 10" is about the problem's numbers.
_CHECKS = re.compile(r"\W{0,9}(?:check|verif)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Beside:
    """What the surroundings of a box add to it, or why they leave open what is meant."""

    doubt: str | None = None
    unit: str = ""
    currency: str = ""


def beside(before: str, after: str, content: str, problem: str) -> Beside:
    """What stands around a box that holds ``content`` in a response to ``problem``."""
    # Some models write the backslash twice, as in JSON.
    before = re.sub(r"(?<!\\)\\$", "", before)
    sides = Sides(before[-2 * _PHRASE :], after[:_WINDOW])
    peel(sides)
    unit = _typeset_unit(sides)
    peel(sides)
    currency = _CURRENCY.search(sides.left)
    if currency:
        sides.left = sides.left[: currency.start()]
        peel(sides)
    if not (_leads(sides, content, problem) and _leaves_alone(sides, content, problem)):
        return Beside("outside_box")
    if _taken_back(after, content):
        return Beside("retracted")
    sign = currency[0].strip() if currency else ""
    return Beside(None, unit or units.spoken(sides.right), sign)


def _leads(sides: Sides, content: str, problem: str) -> bool:
    """Whether what is before a box only leads to it: words, a sign such as ``=``, or nothing.

    "At least" before the box is an answer only to a problem that asks for a bound.
    """
    left = sides.left
    if _another_before(left, content):
        return False
    if words := at_end(_TEXT_BEFORE, left, 2 * _PHRASE):
        left = words[1].rstrip()
        sides.left_spaced = sides.left_formula = True
    if _ASKS_BOUND.search(problem):
        left = _BOUND.sub("", left)
    item = _ITEM.search(left)
    if item and (not item[1] or sides.left_formula) and (sides.left_spaced or item[0] == "\n"):
        above = left[: item.start()].rstrip()
        above = without_layout_end(_FORMULA_BEGINS.sub("", without_layout_end(above)))
        return bool(_RULE.search(above)) or not _CHANGED_BEFORE.search(above[-_PHRASE:])
    if not left:
        return True
    if _CHANGED_BEFORE.search(left[-_PHRASE:]):
        bars = left.endswith("|") and sides.right.lstrip().startswith("|")
        if bars and sides.left_formula:
            return True
        # "the answer - $\boxed{5}$"
        is_dash = re.search(r"[^\W\d_]{2} -$", left) and not _IS_SIGN.search(left)
        return bool(is_dash and sides.left_spaced)
    if at_end(_LEADS, left, 30):
        return True
    prose = sides.left_formula and sides.left_spaced
    if left[-1] in ".,;!?":
        return prose or not re.search(r"[0-9)}\]].$|\b[a-zA-Z],$", left)
    word = _WORD.search(left)
    if not word or left[: word.start()].endswith("\\") or _FUNCTION.search(left):
        return sides.left_spaced and left[-1] in "–—✓"
    if not word[1].isascii():
        return True
    if word[1] in ("a", "A", "I"):
        return prose and not sides.right.startswith("th")
    opened = not sides.left_formula and left[: word.start()].endswith(("$", r"\(", r"\["))
    return len(word[1]) > 1 and sides.left_spaced and not opened


def _another_before(left: str, content: str) -> bool:
    """Whether the text names another value beside this one, as in "x = 4 or x ="."""
    other = at_end(_OTHER_BEFORE, left, _PHRASE)
    if not other or (same_number(other["value"], content) and "of" not in other["joint"]):
        return False
    if other["again"]:
        return other["name"] == other["again"].rstrip("= ")
    if other["unit"] and not units.known(other["unit"]):
        return other["joint"] == "or"
    if other["joint"] or other["unit"]:
        return True
    return bool("," in other["after"] and _LISTED.search(left[: other.start()]))


def _typeset_unit(sides: Sides) -> str:
    """A known unit in the formula after the box; other typeset words become prose."""
    if _MODULO.match(sides.right):
        return ""
    name, end = units.typeset(sides.right)
    if name:
        sides.right = sides.right[end:]
        return name
    if words := _TEXT_AFTER.match(sides.right):
        spaced = bool(words[1]) or words[2][:1].isspace()
        sides.right_spaced |= spaced
        sides.right_formula |= spaced
        sides.right = f"{words[2].strip()} {sides.right[words.end() :]}"
    return ""


def _leaves_alone(sides: Sides, content: str, problem: str) -> bool:
    """Whether what is after a box that holds ``content`` leaves its value alone.

    "Dozen" after the box is an answer only to a problem that asks "how many dozen".
    """
    peel(sides)
    counted = re.match(rf"{_NUMERAL}\b", sides.right)
    if counted and f"how many {counted[0].rstrip('s')}" in problem.lower():
        sides.right = sides.right[counted.end() :]
    if re.search(r"(?:\\equiv|≡)\s*$", sides.left) and (modulo := _MODULO.match(sides.right)):
        sides.right = sides.right[modulo.end() :]
    equal = re.match(r"&?\s*=\s*", sides.right)
    other = _OTHER_AFTER.match(sides.right)
    if equal and not (other and other["end"] is not None and same_number(other["value"], content)):
        return _is_renamed(sides.right[equal.end() :], content)
    if other and other["joint"].strip(" $"):
        if same_number(other["value"], content):
            sides.right = sides.right[other.end("value") :]
        elif _is_another(other, sides.left):
            return False
    while True:
        peel(sides)
        passed = _PASSED.match(sides.right)
        if not passed and sides.right_formula:
            # \(\boxed{5}\)$: some write the sign after the number.
            passed = re.match(r"\\?\$(?=[\s.,;)]|$)", sides.right)
        if not passed and sides.left.rstrip()[-1:] == "|":
            passed = re.match(r"\|", sides.right)
        if not passed:
            return _next_fits(sides)
        sides.right = sides.right[passed.end() :]


def _is_another(other: re.Match[str], left: str) -> bool:
    """Whether a value that follows the box stands beside it, as in "5 or 6" or "5, 6."."""
    if other["name"]:
        name = other["name"].rstrip("= ")
        return re.search(rf"(?<![\w\\]){re.escape(name)}\s*=\s*$", left) is not None
    joint = other["joint"].strip(" $")
    return other["end"] is not None or joint not in (",", ";", "，", "")


def _is_renamed(right: str, content: str) -> bool:
    """Whether what is after ``=`` only says the box again: ``x``, ``3x-6``, ``2\\cdot3``."""
    if product := _PRODUCT.match(right):
        return same_number(str(math.prod(map(int, re.findall(r"[0-9]+", product[1])))), content)
    if _CONSTANT.match(right):
        return False
    if re.match(rf"{_NAME}\s*(?:[.,;$\n&]|\\[)\]]|\\\\|\\end|$)", right):
        return re.search(r"[a-zA-Z]", content) is None or "\\" in content
    return re.search(r"[a-z].*[-+*/^(]|[-+*/^(].*[a-z]", content) is not None and bool(
        re.match(r"[^$\n.,&\\]*[a-z]", right)
    )


def _next_fits(sides: Sides) -> bool:
    """Whether the text right after the box goes on with something else."""
    right = sides.right
    if _CHANGED_AFTER.match(right):
        return False
    if unit := units.spoken(right):
        letter = re.match(r"[a-zA-Z](?![a-zA-Z])", right)
        if letter and not sides.right_spaced:
            return sides.right_formula and letter[0] in "gmsL"
        # "5 feet 6 inches"
        return unit == r"\%" or not re.match(r"[a-zA-Z]+,?\s+(?:and\s+)?\$?[0-9]", right)
    state = ("P" if sides.right_formula else "F") + ("S" if sides.right_spaced else "T")
    return _FITS.match(state + right) is not None


def _taken_back(after: str, content: str) -> bool:
    """Whether what follows a box that holds ``content`` takes it back or names another number.

    Not covered: what stands in the middle of more than twice ``MOST_READ`` characters.
    """
    if len(after) > 2 * MOST_READ:
        after = f"{after[:MOST_READ]}\n{after[-MOST_READ:]}"
    if _TAKES_BACK.search(after):
        return True
    claims = {
        claim["answer"]
        for claim in _ANSWER_AGAIN.finditer(after)
        if not claim[0].lower().startswith("result")
        or not _CHECKS.match(after, after.rfind("\n", 0, claim.start()) + 1)
    }
    if not claims or normal_form(content[:MOST_READ]).value is None:
        return False
    return not all(same_number(claim, content) for claim in claims)

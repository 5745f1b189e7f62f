r"""Finds the options that a response claims to be the answer, and whether its claims agree.

A claim is the content of ``\boxed{}``, ``\fbox{}`` or ``<answer>``, or the text after words such as
"the final answer is", "Answer:", 答案是 and 故选. It does not count if it is negated, a question,
an assumption ("if", "might", "one would think") or about another answer ("the wrong answer is",
"his answer was"). If there is no claim, a response that consists only of a letter or of an option's
text counts as one. All claims must agree, and after the last one none may be retracted or disputed.

In other languages than English and Chinese, boxes, tags and "Answer:" are claims; after the last
one, the letter of another option, or a word for "not" or "wrong", disputes it.

Not covered: other phrases, such as "I choose C" and "C is correct"; choosing between two claims.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from heavydistill.text.extraction import boxes
from heavydistill.verifiers import foreign
from heavydistill.verifiers.choice.reading import (
    FLAGS,
    LETTER,
    Options,
    Reading,
    any_of,
    denied,
    plain_text,
    read_alone,
    read_at,
    with_others,
)

MOST_CLAIMS = 1000
_WINDOW = 120  # characters before a claim that can negate it

_TAG = re.compile(r"<answer>([^<]{1,2000})</answer>", re.IGNORECASE)

# --- Words before the letter or text of an option: "the answer is", "Answer:", 答案是.
_QUALITY = (
    r"(?:single|only|most|very|final|correct|right|best|appropriate|likely|true|chosen|selected|"
    r"actual) "
)
_NOUN = (
    rf"(?:(?P<quality>{_QUALITY}){{0,4}}(?:(?:final)?answer|ans\b\.?)"
    rf"|(?P<owned>(?:my|our) |{_QUALITY}){{1,4}}(?:option|choice|letter))"
    r"(?: ?(?:option|choice|letter)\b)?(?: (?:to|for|of) (?:this|the) (?:question|problem|task))?"
    r"(?: (?:among|from|out of) (?:all )?(?:the |these )?(?:given |provided |available )?"
    r"(?:options|choices)(?: given| provided)?)?"
)
_IS = (
    r" ?(?:is|would(?: therefore| thus| then)? be|should be|must be|has to be|will be|remains|"
    r"turns out to be|seems to be|appears to be)"
    r"(?: (?:therefore|thus|hence|then|indeed|clearly|definitely|certainly|obviously|simply|still|"
    r"now|again|probably|likely|most likely|in fact|either|both|i think|i believe)){0,2}"
)
_ANCHOR = any_of(
    rf"\b{_NOUN}(?:{_IS}(?: ?:)?\n?| ?(?P<colon>[:=→⇒]|->|=>|[-–—](?= ))[ \n]?)",
    r"(?:\A|(?<=\n))(?:final )?answer\n",
    r"(?:答案|(?:正确|最终|最佳)的?选项)(?:应[该当]?|就|只能)?(?:(?:是|为|选择?):?|】?:|】)[ \n]?",
    r"(?:(?:故|因此|所以|本题)(?:应该?)?|应该?|\A|(?<=[\n.;,，；]))选择?(?:答案|选项)?[: ]?"
    r"(?=[(]?(?-i:[A-Z]))",
)
_GIVES_NONE = any_of(r" ?(?:none|neither|both|all)\b")

# --- Words that invalidate a claim.
_CLAUSE_ENDS = re.compile(r"[.!?;\n；！？]")
_CONCLUDES = any_of(r"\b(?:so|therefore|thus|hence|consequently)\b|所以|因此|故")
_SUPPOSES = any_of(
    r"\b(?:if|unless|suppos\w*|assum\w*|imagine|whether|otherwise|were|had|for example|e\.g)\b",
    r"\b(?:example|format):|假设|如果|假如|若|是否",
)
_SAID_OTHERWISE = any_of(
    r"\b(?:might|may|could|tempt\w*|mistaken\w*|mistake|wrongly|incorrectly|naive\w*|doubt|"
    r"deny|denies|claim\w*|says|said|thinks|thought|trap|someone|people|students?|not|never|cannot|"
    r"hardly|unlikely|neither|nor|why|false|wrong|initial(?:ly)?|originally|at first)\b",
    r"(?<!\bi )(?<!\bwe )\bwould\b",
    r"\b(?:many|some|others|most|you|they|he|she|one) (?:\w{1,20} )?"
    r"(?:say|think|believe|claim|argue)",
    # Directly before a claim's phrase: these words say that the claim is about another answer.
    r"(?:\b(?:incorrect|common|previous|other|first|obvious|another|second|next|bad|invalid|his|"
    r"her|their|alternative|possible|expected|worst|eliminated|least|example|sample|distractor|"
    r"decoy|non|runner-up)|'s|错误的?)[\s-]*\Z",
    r"n't\b|[不别勿]|并非|没有|有人|误以为|为什么|为何",
)
_NOT_THIS_BOX = re.compile(
    r"(?:\bnot|n't|\bnever|\bneither|\bnor|\bexcludes?|\beliminates?|\brules? out|\brather than|"
    r"\binstead of|\bexcept|\bwrong|\bincorrect|不是|并非|不选|排除)"
    r"(?: (?:be|option|choice|the|answer|is|equal to|correct)){0,3}[ :'({\[]{0,4}\Z",
    FLAGS,
)

# --- Words that retract or dispute a claim: its letter is wrong, or another letter is right too.
_CORRECTION = any_of(
    r"(?:\A|[\n.!?;:,(}\])>\-–—！？；，…]) ?(?:(?:but|oh|and|so|ah|well|hmm|no),? ){0,2}"
    r"(?:(?:wait|actually|hold on|scratch that|correction|oops|hmm|sorry|on second thoughts?|"
    r"on reflection|upon (?:re-?check|review|reflection|closer)\w*|my mistake|"
    r"let me (?:re-?\w+|correct|double[- ]check|check again|fix)|i (?:was|am) (?:wrong|mistaken)|"
    r"i(?: have|'ve)? made an? (?:\w{1,20} )?(?:mistake|error)|i meant?|just kidding|not really|"
    r"never mind|strike that|err?)\b"
    r"|no(?=[,.!:]| ?[-–—]))",
    r"等等(?=[,.，!！…我不])|不对?(?=[,，.!！])|等一下|更正|纠正|我错了|搞错了|其实|实际上|抱歉"
    r"|重新(?:检查|考虑|计算|审视)",
)
_DENIALS = any_of(
    rf"{LETTER} (?:is|was)(?: not|n't) (?:the |a )?(?:correct |right )?(?:answer|option|choice)\b",
    rf"{LETTER} is (?:the )?(?:wrong|incorrect) (?:answer|option|choice)\b",
    r"\b(?:answer|option|choice) (?:is not|isn't|cannot be|can't be|is never) (?:option )?"
    + LETTER,
    rf"不(?:是|能选|选){LETTER}",
)
_RIVALS = any_of(
    rf"\b(?:could|might|may|can)(?: also| just as well| equally)? be (?:option )?{LETTER}",
    rf"{LETTER} (?:is|are|would be|could be|might be|may be) (?:(?:also|equally|just as) "
    r"(?:a |the )?(?:correct|right|valid|good|answer)|(?:also |equally |just as )?"
    r"(?:acceptable|possible|plausible))",
    r"(?:(?<=\n)|(?<=[.] )|(?<=, ))(?:or|alternatively|possibly|maybe|perhaps|also),? "
    rf"(?:it is )?(?:option )?{LETTER}(?=[ .,!\n]|\Z)(?! [a-z])",
    rf"{LETTER} (?:could|might|may)(?: also)? be (?:the )?(?:correct|right|valid|answer)",
    r"\b(?:it is|it's|it must be|it should be) (?:option |actually |really )?"
    rf"{LETTER}(?=[.,!\n]|\Z)",
    rf"(?:(?<=\n){LETTER}|(?<=[.] ){LETTER}\.?)(?=\n|\Z)",
    rf"\bboth {LETTER} and {LETTER} (?:are|could be|would be|seem) "
    r"(?:correct|right|acceptable|possible)",
)

_ANY_LETTER = re.compile(LETTER)
_CHINESE = re.compile(r"[\u4e00-\u9fff](?![^\n]*[\u3040-\u30ff])")


@dataclass(frozen=True, slots=True)
class Claims:
    """The options that a response claims as its answer, and whether its claims agree."""

    letters: tuple[str, ...]
    """Letters that all claims name; empty if the claims are ambiguous (``doubt``)."""
    doubt: str
    """Why the claims are ambiguous, as a reason code of ``choice``; empty if they are not."""
    made: tuple[tuple[str, ...], ...] = ()
    """For each claim, in text order, the letters that it names."""


_Claim = tuple[int, Reading]
"""Position where a claim begins, and the options that it names."""


def claims_in(text: str, options: Options) -> Claims:
    """Find the claims of a response, in time linear in its length."""
    text = plain_text(text).strip()
    claims: list[_Claim] = []
    for count, claim in enumerate(_found(text, options)):
        if count == MOST_CLAIMS:
            return Claims((), "too_complex")
        claims += [claim] if claim else []
    claims.sort(key=lambda claim: (claim[0], -claim[1].end))
    outermost: list[Reading] = []
    for start, reading in claims:
        if not outermost or start >= outermost[-1].end:
            outermost.append(reading)
    if not claims and len(text) <= options.longest + _WINDOW and not {"\n", "?"} & set(text):
        alone = read_alone(text, options, strict=True)
        outermost = [alone] if alone.letters and alone.is_sure else []
    if not outermost:
        return Claims((), "no_answer")
    doubt = _doubt(text, outermost, options)
    made = tuple(reading.letters for reading in outermost)
    return Claims(() if doubt else made[-1], doubt, made)


def _doubt(text: str, readings: list[Reading], options: Options) -> str:
    """Reason code if the claims are ambiguous; empty if they are not."""
    last = readings[-1]
    rest = text[last.end :]
    is_foreign = foreign.is_foreign(rest) and not _CHINESE.search(rest)
    if _CORRECTION.search(text, last.end - 1 if last.end else 0):
        return "retracted"
    if is_foreign and (foreign.denies("", rest) or foreign.calls_wrong(rest)):
        return "retracted"
    if not last.letters:
        return "no_option"
    if len({reading.letters for reading in readings if reading.letters}) > 1:
        return "conflict"
    if not all(reading.is_sure for reading in readings if reading.letters):
        return "unclear"
    if len(last.letters) > 1:
        return ""
    (letter,), start = last.letters, readings[0].end
    named = {match[1] for match in _ANY_LETTER.finditer(rest)} if is_foreign else set()
    if named & set(options.letters) - {letter}:
        return "conflict"
    denied_letters = {name for match in _DENIALS.finditer(text, start) for name in match.groups()}
    rivals = {name for match in _RIVALS.finditer(text, start) for name in match.groups()}
    is_disputed = letter in denied_letters or rivals & set(options.letters) - {letter}
    return "conflict" if is_disputed else ""


def _found(text: str, options: Options) -> Iterator[_Claim | None]:
    """Yield the claim of each box, tag and phrase; None for one that makes no claim."""
    spans = [(m.start(), m.start(1), m.end(1), m.end()) for m in _TAG.finditer(text)]
    in_boxes = boxes(text)
    for box, inner in zip_longest(in_boxes, in_boxes[1:]):
        # A box that contains another box makes no claim.
        if box.closes is not None and not (inner and inner.start < box.closes):
            spans.append((box.start, box.inside, box.closes, box.closes + 1))
    for start, opens, closes, end in spans:
        content = text[opens:closes]
        if not content.strip() or "\\boxed" in content:
            continue  # empty, or a tag around a box
        before = text[max(0, start - _WINDOW) : start]
        sentence = foreign.last_sentence(before)
        if (
            (foreign.is_foreign(sentence) and foreign.denies(sentence, ""))
            or _NOT_THIS_BOX.search(before)
            or denied(text, end)
        ):
            yield None
            continue
        reading = read_alone(content, options)
        if len(reading.letters) == 1 and reading.is_sure:
            reading = with_others(text, end, reading.letters[0], options)
        yield start, Reading(reading.letters, reading.is_sure, max(end, reading.end))
    for match in _ANCHOR.finditer(text):
        yield _after_words(match, text, options)


def _after_words(match: re.Match[str], text: str, options: Options) -> _Claim | None:
    """The claim that follows a phrase such as "the answer is"; None if the text makes no claim."""
    before = _since(_CLAUSE_ENDS, text[max(0, match.start() - _WINDOW) : match.start()])
    last_part = _since(_CONCLUDES, before.rpartition(",")[2])
    if _SUPPOSES.search(_since(_CONCLUDES, before)) or _SAID_OTHERWISE.search(last_part):
        return None
    reading = read_at(text, match.end(), options)
    if reading is None or reading.letters:
        return (match.start(), reading) if reading else None
    # The text may be an answer even if it names no option.
    is_given = bool(_GIVES_NONE.match(text, match.end()))
    if match["colon"]:
        is_title = match["quality"] or match["owned"] or not before.strip(" -•>(){\"'1234567890")
        is_given = bool(is_title and text[match.end() : match.end() + 3].strip())
    return (match.start(), reading) if is_given else None


def _since(pattern: re.Pattern[str], text: str) -> str:
    """The text after the last match of ``pattern``; the whole text if there is no match."""
    ends = [match.end() for match in pattern.finditer(text)]
    return text[ends[-1] :] if ends else text

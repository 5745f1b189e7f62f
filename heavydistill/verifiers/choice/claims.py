r"""Which options a response claims to be the answer, and whether its claims agree.

A claim is the content of ``\boxed{}``, ``\fbox{}`` or ``<answer>``, or what follows words such as
"the final answer is", "Answer:", "I choose", 答案是 and 故选. It is none where it is negated,
asked, supposed ("if", "might", "one would think") or said of something else ("the wrong answer is",
"his answer was"). Where nothing is claimed, a response that is a letter or an option's text and
nothing more is one.

Claims before the last correction ("wait", "actually", "no,", 不对) that another claim follows do
not count. The rest must agree: what the last one names is what the response claims.

Not covered: corrections without such a word; they are conflicts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from heavydistill.verifiers.choice.reading import (
    ANCHOR,
    CHOSEN_BEFORE,
    CLAUSE_ENDS,
    CONCLUDES,
    CORRECTION,
    DENIALS,
    GIVES_NONE,
    NOT_THIS_BOX,
    OPENS_CLAUSE,
    OTHER_ANSWER,
    OWN,
    QUALITIES_BEFORE,
    RIVALS,
    SAID_OTHERWISE,
    SUPPOSES,
    Options,
    Reading,
    denied,
    plain_text,
    read_alone,
    read_at,
    with_others,
)

MOST_CLAIMS = 1000
_BLANKS = 3  # in a row, at most, in plain text
_WINDOW = 120  # characters before a claim that can deny it

_BOX_OPENS = re.compile(r"\\(?:boxed|fbox) ?\{")
_BRACE = re.compile(r"[{}]")
_BARE_BOX = re.compile(r"\\(?:boxed|fbox) ?([A-Z])(?![A-Za-z])")
_TAG = re.compile(r"<answer>([^<]{1,2000})</answer>", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Claims:
    """What a response claims.

    Attributes:
        letters: What all claims that count name; none if there is a doubt.
        doubt: Why it cannot be told, a reason of ``choice``; empty if it can.
        made: What each claim names, in the order of the text.
    """

    letters: tuple[str, ...]
    doubt: str
    made: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class _Claim:
    """One claim: where it begins, and what it names."""

    start: int
    reading: Reading


def claims_in(text: str, options: Options) -> Claims:
    """What a response claims: of any text, in time linear in its length."""
    text = plain_text(text).strip()
    claims = _claims(text, options)
    if claims == []:
        claims = _alone(text, options)
    if claims is None:
        return Claims((), "too_complex")
    if not claims:
        return Claims((), "no_answer")
    made = tuple(claim.reading.letters for claim in claims)
    letters, doubt = _agreed(text, claims, options)
    return Claims(() if doubt else letters, doubt, made)


def _alone(text: str, options: Options) -> list[_Claim]:
    """What a response claims that is an answer and nothing more."""
    if len(text) > options.longest + _WINDOW or "\n" in text or "?" in text:
        return []
    reading = read_alone(text, options, strict=True)
    return [_Claim(0, reading)] if reading.letters else []


def _agreed(text: str, claims: list[_Claim], options: Options) -> tuple[tuple[str, ...], str]:
    """What the claims that count name, and why that cannot be told."""
    since = 0
    for correction, of_claim in _corrections(text, claims, options):
        if claims[-1].start >= correction:
            since = correction
        elif of_claim or 0 <= correction - claims[-1].reading.end <= _BLANKS:
            return (), "retracted"
    counting = [claim for claim in claims if claim.start >= since]
    last = counting[-1].reading
    if not last.letters:
        return (), "no_option"
    named = {claim.reading.letters for claim in counting if claim.reading.letters}
    if len(named) > 1:
        return (), "conflict"
    if not last.is_sure or not all(c.reading.is_sure for c in counting if c.reading.letters):
        return (), "unclear"
    if len(last.letters) == 1 and _is_disputed(text, last.letters[0], counting[0].start, options):
        return (), "conflict"
    return last.letters, ""


def _corrections(text: str, claims: list[_Claim], options: Options) -> Iterator[tuple[int, bool]]:
    """Where words of correction open a clause or follow a claim, and if they must be of a claim.

    A word that begins a claimed option's own text, such as "No, because ...", corrects nothing.
    """
    ends = {claim.reading.end for claim in claims}
    claimed = {letter for claim in claims for letter in claim.reading.letters}
    for match in CORRECTION.finditer(text, claims[0].start):
        start = match.start()
        if any(options.begins_here(letter, text[start:]) for letter in claimed):
            continue
        is_chinese = match[0][0] > "\u2e7f"
        if is_chinese or start - 1 in ends or OPENS_CLAUSE.search(text[max(0, start - 20) : start]):
            yield start, not match["of_anything"]


def _is_disputed(text: str, letter: str, start: int, options: Options) -> bool:
    """Whether, from its claim on, the letter is also said to be wrong, or another to be right."""
    if any(letter in match.groups() for match in DENIALS.finditer(text, start)):
        return True
    rivals = (set(match.groups()) - {None} for match in RIVALS.finditer(text, start))
    return any(rival & set(options.letters) - {letter} for rival in rivals)


def _claims(text: str, options: Options) -> list[_Claim] | None:
    """All claims in their order, those inside others left out; None if there are too many."""
    found: list[_Claim] = []
    looked_at = 0
    for finder in (_boxed, _after_words):
        for claim in finder(text, options):
            looked_at += 1
            if looked_at > MOST_CLAIMS:
                return None
            if claim:
                found.append(claim)
    found.sort(key=lambda claim: (claim.start, -claim.reading.end))
    claims: list[_Claim] = []
    for claim in found:
        if not claims or claim.start >= claims[-1].reading.end:
            claims.append(claim)
    return claims


def _boxed(text: str, options: Options) -> Iterator[_Claim | None]:
    """What each box and tag claims; None for one that claims nothing."""
    spans = [*_boxes(text)]
    spans += [(m.start(), m.start(1), m.end(1), m.end()) for m in _TAG.finditer(text)]
    spans += [(m.start(), m.start(1), m.end(1), m.end()) for m in _BARE_BOX.finditer(text)]
    for start, opens, closes, end in spans:
        content = text[opens:closes]
        before = text[max(0, start - _WINDOW) : start]
        if not content.strip() or "\\boxed" in content:
            continue
        if NOT_THIS_BOX.search(before) or denied(text, end):
            yield None
            continue
        reading = read_alone(content, options)
        if len(reading.letters) == 1 and reading.is_sure:
            beside = with_others(text, end, reading.letters[0], options)
            reading = Reading(beside.letters, beside.is_sure, max(end, beside.end))
        yield _Claim(start, Reading(reading.letters, reading.is_sure, max(end, reading.end)))


def _boxes(text: str) -> Iterator[tuple[int, int, int, int]]:
    """(start, start of the content, its end, end) of each box that holds no other box."""
    starts = {match.end(): match.start() for match in _BOX_OPENS.finditer(text)}
    if not starts:
        return
    unclosed: list[int] = []
    latest = -1
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            unclosed.append(brace.end())
        elif unclosed:
            opens = unclosed.pop()
            if opens in starts and opens > latest:
                latest = opens
                yield starts[opens], opens, brace.start(), brace.end()


def _after_words(text: str, options: Options) -> Iterator[_Claim | None]:
    """What follows each of the words that claim; None where nothing is claimed."""
    for match in ANCHOR.finditer(text):
        before = _clause_before(text, match.start())
        qualities = QUALITIES_BEFORE.search(before)
        if qualities:
            before = before[: qualities.start()]
        reading = None
        if _is_anchor(match, before, is_qualified=qualities is not None):
            reading = read_at(text, match.end(), options)
        if (match["choose"] or match["go"]) and reading and reading.letters:
            reading = reading if CHOSEN_BEFORE.match(text, reading.end) else None
        is_title = qualities is not None or _opens_line(before)
        if reading and (reading.letters or _is_definite(match, text, is_title)):
            yield _Claim(match.start(), reading)
        else:
            yield None


def _is_anchor(match: re.Match[str], before: str, *, is_qualified: bool) -> bool:
    """Whether words of a claim claim something here."""
    last_part = before.rpartition(",")[2]
    if _is_supposed(before) or SAID_OTHERWISE.search(_after_conclusion(last_part)):
        return False
    if OTHER_ANSWER.search(before):
        return False
    kind, noun = match.lastgroup, (match["noun"] or "").lower()
    if kind == "line":
        return _opens_line(before)
    if noun in ("option", "choice", "letter"):
        return is_qualified or bool(OWN.search(before)) or (kind == "colon" and _opens_line(before))
    return True


def _is_definite(match: re.Match[str], text: str, is_title: bool) -> bool:
    """Whether an answer is given there even if it names no option."""
    if not text[match.end() : match.end() + _BLANKS].strip():
        return False
    if match[0].rstrip()[-1:] in ":=":
        return is_title
    return bool(GIVES_NONE.match(text, match.end()))


def _opens_line(before: str) -> bool:
    return not before.strip(" -•>(){\"'1234567890")


def _clause_before(text: str, start: int) -> str:
    """What the sentence says before ``start``, a bounded part of it."""
    before = text[max(0, start - _WINDOW) : start]
    ends = [match.end() for match in CLAUSE_ENDS.finditer(before)]
    return before[ends[-1] :] if ends else before


def _is_supposed(before: str) -> bool:
    return bool(SUPPOSES.search(_after_conclusion(before)))


def _after_conclusion(before: str) -> str:
    """What follows the last "so" or "therefore": what is concluded is meant."""
    ends = [match.end() for match in CONCLUDES.finditer(before)]
    return before[ends[-1] :] if ends else before

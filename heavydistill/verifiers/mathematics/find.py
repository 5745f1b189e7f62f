r"""Finds the final answer of a response.

The last box outside code counts, together with boxes before it that are joined to it only by a
comma, "and" or "or": they are one answer with several values. A box inside a box is part of it; a
box without content, as in "put it in \boxed{}", and text that is struck out do not count.
Without any box, the text after the last marker counts, if the problem has one; there is no fallback
to the last number. ``context`` reads the text next to the box.

Everything here takes time linear in the length of the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from heavydistill.text.extraction import (
    STRUCK_OUT,
    Box,
    after_marker,
    boxes,
    outermost,
    without_code,
)
from heavydistill.verifiers.mathematics.context import same_number, surroundings

MOST_BETWEEN = 80
MOST_EARLIER = 5
# \boxed 5: a single digit or letter without braces.
_BARE = re.compile(
    r"\\(?:boxed|fbox)(?:\s*(-?[0-9]+(?:\.[0-9]+)?)|\s+([a-zA-Z]))(?![a-zA-Z0-9{\\^_])"
)
_NAME = r"(?:[a-zA-Z]|\\[a-zA-Z]+)(?:_\{?\w+\}?)?(?:\([a-z]\))?"
_JOINS = re.compile(
    rf"(?:[\s,;&*$]|\\[,;:!()\[\]]|\\q?quad|\\text\{{\s*(?:,?\s*and|,?\s*or|,)\s*\}}|and\b|or\b"
    rf"|\\\\|{_NAME}\s*=)*+"
)
_NAMED = re.compile(rf"(?<![\w\\}}])({_NAME})\s*=\s*$")
_SEPARATES = re.compile(r"[,;]|\band\b|\bor\b|quad")
# Text that may stand between the boxes of a list, or of a chain as in \boxed{4} = \boxed{5}.
_ITEMS = re.compile(
    r"(?:[\s$>.*•=:→-]|\\[()\[\]]|\\(?:to|rightarrow|Rightarrow|implies)(?![a-zA-Z])"
    r"|[0-9]{1,2}[.)]|\(?[a-z]\))*+"
)
_PART = re.compile(r"(?:^|[\s*])(?:[Pp]art )?\(([a-h])\)[\s*:$]*(?:\\[(\[]\s*)?$")
_NEXT_ITEM = re.compile(r"[\n=:→]|\\(?:to|rightarrow|Rightarrow|implies)")
# Text in a box that is not part of its answer.
_INVISIBLE = re.compile(r"\\[hv]?phantom\s*\{[^{}]*\}")
_LEADS = re.compile(
    r"(?:\s|=|(?:\\text[a-z]{0,2}\s*\{)?\s*(?:(?:the )?(?:final )?answer(?: is)?\s*:?)\s*\}?)+"
    r"(?=[^\s=}])",
    re.IGNORECASE,
)
_TRAILS = re.compile(
    r"(?:\s|,|\\\\|\\newline"
    r"|(?:\\text[a-z]{0,2}\s*\{)?,?\s*\b(?:altogether|in total|in all|overall)\b\s*\}?)+\Z",
    re.IGNORECASE,
)
_AFTER_MARKER = re.compile(r"^[\s:：是为=*]+")


@dataclass(frozen=True, slots=True)
class Found:
    """A final answer, with facts from the text around it."""

    answer: str  # The answer as LaTeX
    earlier: tuple[str, ...] = ()  # Contents of the preceding boxes, without repetitions
    doubt: str | None = None
    """Reason code if the text around the answer makes it ambiguous; otherwise None."""


def find(text: str, marker: str | None, problem: str) -> Found | None:
    """Find the final answer in a response to ``problem``; None if there is no box and no marker."""
    prose = STRUCK_OUT.sub(" ", without_code(text))
    places = _outermost(prose)
    # A template such as \boxed{} or \boxed{...} is no answer, unless there is nothing else.
    places = [
        box for box in places if box.content(prose).strip(" .") or box.closes is None
    ] or places
    if places:
        return _boxed(prose, places, problem)
    behind = after_marker(prose, marker) if marker else None
    if behind:
        return Found(_AFTER_MARKER.sub("", behind).strip("* "))
    return Found("", doubt="in_code") if prose != text and _outermost(text) else None


def _outermost(text: str) -> list[Box]:
    """All boxes that are not inside another one, in order."""
    bare = [Box(match.start(), *match.span(match.lastindex or 0)) for match in _BARE.finditer(text)]
    return outermost([*boxes(text), *bare])


def _end(text: str, box: Box) -> int:
    closes = len(text) if box.closes is None else box.closes
    return closes + (text[closes : closes + 1] == "}")


def _boxed(text: str, places: list[Box], problem: str) -> Found:
    if places[-1].closes is None:
        return Found("", doubt="unclosed_box")
    whole = [box for box in places if box.closes is not None]
    # The text before each box, starting at the end of the previous box.
    ends = [0, *(_end(text, box) for box in whole)]
    before = [text[end : box.start] for end, box in zip(ends, whole, strict=False)]
    first = len(whole) - 1
    while first > 0 and _is_joined(before[first]):
        first -= 1
    contents = [_bare(box.content(text)) for box in whole]
    group = contents[first:]
    answer = _listed(group, before[first:])
    if first > 0 and _is_another(contents[first - 1], before[first], group[0]):
        parts = _parts(contents, before)
        return Found(", ".join(parts) or answer, tuple(parts), doubt="several_boxes")
    after = text[ends[-1] :]
    doubt, currency, unit = surroundings(text[: whole[first].start], after, group[-1], problem)
    if "," not in answer:
        answer = f"{currency}{answer}{unit}"
    recent = dict.fromkeys(contents[:first][-MOST_EARLIER:])
    earlier = tuple(" ".join(content.split()) for content in recent if content not in group)
    return Found(answer, earlier, doubt)


def _bare(content: str) -> str:
    """The content of a box without what is invisible or no part of the answer."""
    content = _INVISIBLE.sub("", content).strip()
    if led := _LEADS.match(content):
        content = content[led.end() :]
    return _TRAILS.sub("", content)


def _is_joined(between: str) -> bool:
    """Whether the text between two boxes joins them into one list."""
    is_short = len(between) <= MOST_BETWEEN
    return is_short and bool(_JOINS.fullmatch(between) and _SEPARATES.search(between))


def _is_another(above: str, between: str, content: str) -> bool:
    """Whether the box directly above has different content, so that it may be another answer."""
    if not (_NEXT_ITEM.search(between) and _ITEMS.fullmatch(between)):
        return False
    one, other = (text.rpartition("=")[2].strip() for text in (above, content))
    return one != other and not same_number(one, other)


def _parts(contents: list[str], before: list[str]) -> list[str]:
    """The answers to the parts (a), (b), ... at the end of a response; empty if there are none."""
    labels = [_PART.search(text[-MOST_BETWEEN:]) for text in before]
    for first in range(len(contents)):
        names = [label[1].lower() if label else "" for label in labels[first:]]
        if len(names) > 1 and names == list("abcdefgh"[: len(names)]):
            return contents[first:]
    return []


def _listed(group: list[str], before: list[str]) -> str:
    """Join the boxes of a group into one answer; several boxes keep the names before them."""
    if len(group) == 1:
        return group[0]
    named = [_NAMED.search(text[-MOST_BETWEEN:]) for text in before]
    if all(named):
        group = [f"{name[1]}={text}" for name, text in zip(named, group, strict=True) if name]
    is_or = any(re.search(r"\bor\b", text) for text in before[1:])
    return r" \text{ or } ".join(group) if is_or else ", ".join(group)

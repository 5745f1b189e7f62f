r"""Where the final answer of a response stands.

The last box outside code counts, and with it boxes before it that are joined to it by nothing but
a comma, "and" or "or": those are one answer of several values. A box inside a box is part of it.
Without any box, what follows the last marker counts, if the problem has one; a last number never.
What stands beside the box is read by ``beside``.

Everything here is linear in the length of the text.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

from heavydistill.verifiers.extraction import after_marker, boxes, without_code
from heavydistill.verifiers.mathematics.beside import beside as beside_box
from heavydistill.verifiers.mathematics.beside import same_number

MOST_BETWEEN = 80
MOST_EARLIER = 5
# \boxed 5: no braces, one number or letter.
_BARE = re.compile(
    r"\\(?:boxed|fbox)(?:\s*(-?[0-9]+(?:\.[0-9]+)?)|\s+([a-zA-Z]))(?![a-zA-Z0-9{\\^_])"
)
_NAME = r"(?:[a-zA-Z]|\\[a-zA-Z]+)(?:_\{?\w+\}?)?(?:\([a-z]\))?"
_NAMED = re.compile(rf"(?<![\w\\}}])({_NAME})\s*=\s*$")
_JOINS = re.compile(
    rf"(?:[\s,;&*$]|\\[,;:!()\[\]]|\\q?quad|\\text\{{\s*(?:,?\s*and|,?\s*or|,)\s*\}}|and\b|or\b"
    rf"|\\\\|{_NAME}\s*=)*+"
)
_SEPARATES = re.compile(r"[,;]|\band\b|\bor\b|quad")
# What stands between the answers of a list or of a chain, as in \boxed{4} = \boxed{5}.
_ITEMS = re.compile(
    r"(?:[\s$>.*•=:→-]|\\[()\[\]]|\\(?:to|rightarrow|Rightarrow|implies)(?![a-zA-Z])"
    r"|[0-9]{1,2}[.)]|\(?[a-z]\))*+"
)
_NEXT_ITEM = re.compile(r"[\n=:→]|\\(?:to|rightarrow|Rightarrow|implies)")
_AFTER_MARKER = re.compile(r"^[\s:：是为=*]+")


@dataclass(frozen=True, slots=True)
class Found:
    """A final answer.

    Attributes:
        answer: Its LaTeX.
        earlier: What the last boxes before it hold, each once.
        doubt: Why what stands around it leaves open what is meant; None if nothing does.
    """

    answer: str
    earlier: tuple[str, ...] = ()
    doubt: str | None = None


@dataclass(frozen=True, slots=True)
class _Place:
    """A box from ``start`` to ``end``; what is in it runs to ``closes``, None if unclosed."""

    start: int
    inside: int
    closes: int | None
    end: int

    def content(self, text: str) -> str:
        return text[self.inside : self.closes].strip()


def find(text: str, marker: str | None, problem: str) -> Found | None:
    """The final answer in a response to ``problem``; None without a box and a marker."""
    spoken = without_code(text)
    places = _outermost(spoken)
    if places:
        return _boxed(spoken, places, problem)
    said = after_marker(spoken, marker) if marker else None
    if said:
        return Found(_AFTER_MARKER.sub("", said).strip("* "))
    if spoken != text and _outermost(text):
        return Found("", doubt="in_code")
    return None


def _outermost(text: str) -> list[_Place]:
    """All boxes that are in no other, in their order."""
    places = [
        _Place(
            box.start, box.inside, box.closes, len(text) if box.closes is None else box.closes + 1
        )
        for box in boxes(text)
    ]
    for bare in _BARE.finditer(text):
        inside, closes = bare.span(1) if bare[1] else bare.span(2)
        places.append(_Place(bare.start(), inside, closes, closes))
    places.sort(key=lambda place: place.start)
    outer: list[_Place] = []
    for place in places:
        if not outer or place.start >= outer[-1].end or None in (place.closes, outer[-1].closes):
            outer.append(place)
    return outer


def _boxed(text: str, places: list[_Place], problem: str) -> Found:
    if places[-1].closes is None:
        return Found("", doubt="unclosed_box")
    whole = [place for place in places if place.closes is not None]
    first = len(whole) - 1
    while first > 0 and _joined(text[whole[first - 1].end : whole[first].start]):
        first -= 1
    group = whole[first:]
    before, after = text[: group[0].start], text[group[-1].end :]
    if first > 0 and _other_before(text, whole[first - 1], group[0]):
        return Found(_listed(text, group), doubt="several_boxes")
    beside = beside_box(before, after, group[-1].content(text), problem)
    answer = _listed(text, group)
    if "," not in answer:
        answer = f"{beside.currency}{answer}{beside.unit}"
    last = {place.content(text) for place in group}
    recent = dict.fromkeys(place.content(text) for place in whole[:first][-MOST_EARLIER:])
    earlier = tuple(" ".join(content.split()) for content in recent if content not in last)
    return Found(answer, earlier, beside.doubt)


def _joined(between: str) -> bool:
    """Whether what stands between two boxes makes one list of them."""
    return (
        len(between) <= MOST_BETWEEN
        and _JOINS.fullmatch(between) is not None
        and _SEPARATES.search(between) is not None
    )


def _other_before(text: str, above: _Place, box: _Place) -> bool:
    """Whether the box right before this one holds something else, as another answer would."""
    between = text[above.end : box.start]
    if not (_NEXT_ITEM.search(between) and _ITEMS.fullmatch(between)):
        return False
    one, other = (place.content(text).rpartition("=")[2].strip() for place in (above, box))
    return one != other and not same_number(one, other)


def _listed(text: str, group: list[_Place]) -> str:
    """The boxes of a group as one answer, with the names they are given if there are several."""
    contents = [place.content(text) for place in group]
    if len(group) == 1:
        return contents[0]
    ends = [0, *(place.end for place in group)]
    named = [
        _NAMED.search(text[max(ends[at], place.start - MOST_BETWEEN) : place.start])
        for at, place in enumerate(group)
    ]
    if all(named):
        contents = [
            f"{name[1]}={content}" for name, content in zip(named, contents, strict=True) if name
        ]
    betweens = [text[a.end : b.start] for a, b in itertools.pairwise(group)]
    is_or = any(re.search(r"\bor\b", between) for between in betweens)
    return r" \text{ or } ".join(contents) if is_or else ", ".join(contents)

"""Finds the final answer in a text: balanced boxes first, then markers that a dataset declares.

There is no fallback to the last number in the text, because a guess would count as an answer.
``candidate_markers`` finds possible markers; they are used in messages, never for verdicts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from heavydistill.schema import Problem

WITH_MARKER = ("math", "exact", "judged")
"""Names of the verifiers whose arguments may name a marker."""
HASHES = "####"
"""Marker of the answers of GSM8K, and of datasets with its format."""
_ENDS_WITH_HASHES = re.compile(rf"(?<!#){HASHES}[^\S\n]*[^\s#][^\n]*\s*\Z")
_BOX_OPENS = re.compile(r"\\(?:boxed|fbox)\s*\{")
STRUCK_OUT = re.compile(r"~~[^~\n]{1,200}~~|<(?P<tag>del|strike|s)>[^<\n]{1,200}</(?P=tag)>")
"""Text that is struck out."""
_FENCE = re.compile(r"^[ \t]*(```|~~~)[^\n]*$", re.MULTILINE)
# Limits of candidate markers, and patterns that match them.
_LONGEST_LINE = 400
_LONGEST_MARKER = 40
_MOST_WORDS = 4
_VALUE = re.compile(r"[-+(\[$\\]*\d|\\|\$")
_COLON = re.compile(r"[:：]\**(?=\s*\S)")
_CHINESE = re.compile(r"答案(?:[是为]|\s*[:：])?")
_LETTER = re.compile(r"[^\W\d_]|#")
_LABEL_ENDS = ":：#"
_MARKUP = "*_`>|-• \t"
# An escaped brace is a printed character, as in \{1, 2\}, and needs no closing brace.
_BRACE = re.compile(r"\\[\\{}]|[{}]")


@dataclass(frozen=True, slots=True)
class Box:
    r"""Position of a ``\boxed{...}`` or ``\fbox{...}`` in a text."""

    start: int  # Index of the backslash
    inside: int  # Index after the opening brace
    closes: int | None  # Index of the closing brace; None if it is missing

    def content(self, text: str) -> str:
        return text[self.inside : self.closes].strip()


def boxes(text: str) -> list[Box]:
    """All boxes, nested ones included, in the order in which they open."""
    starts = {match.end(): match.start() for match in _BOX_OPENS.finditer(text)}
    unclosed: list[int] = []
    closes: dict[int, int] = {}
    for brace in _BRACE.finditer(text) if starts else ():
        if brace[0] == "{":
            unclosed.append(brace.end())
        elif brace[0] == "}" and unclosed:
            closes[unclosed.pop()] = brace.start()
    return [Box(start, inside, closes.get(inside)) for inside, start in starts.items()]


def outermost(found: Iterable[Box]) -> list[Box]:
    """The boxes that are not inside another box, in order; unclosed boxes contain no other box."""
    outer: list[Box] = []
    for box in sorted(found, key=lambda box: box.start):
        around = outer[-1].closes if outer else None
        if around is None or box.closes is None or box.start > around:
            outer.append(box)
    return outer


def boxed(text: str) -> str | None:
    r"""The content of the last complete ``\boxed{...}`` or ``\fbox{...}``, with balanced braces."""
    last = next((box for box in reversed(boxes(text)) if box.closes is not None), None)
    return last.content(text) if last else None


def end_of_final_answer(text: str) -> int | None:
    """Index after the last complete box or fenced code block.

    None if there is neither, or if the last box or block is not closed.
    """
    outer, fences = outermost(boxes(text)), [fence.end() for fence in _FENCE.finditer(text)]
    ends = [box.closes for box in outer[-1:]]
    if None in ends or len(fences) % 2:
        return None
    return max([*(end + 1 for end in ends if end is not None), *fences[-1:]], default=None)


def without_code(text: str) -> str:
    """``text`` without fenced code blocks; an unclosed fence runs to the end."""
    kept: list[str] = []
    at, inside = 0, ""
    for fence in _FENCE.finditer(text):
        if not inside:
            kept.append(text[at : fence.start()])
            inside = fence[1]
        elif fence[1] == inside:
            at, inside = fence.end(), ""
    return "\n".join(kept if inside else [*kept, text[at:]])


def after_marker(text: str, marker: str) -> str | None:
    """The text after the last ``marker``, up to the end of its line; None if there is no marker."""
    _, separator, rest = text.rpartition(marker)
    return rest.partition("\n")[0].strip() if separator else None


def final_answer(text: str, marker: str | None) -> str | None:
    """The boxed answer or, if there is no box, the text after ``marker``; None without either."""
    answer = boxed(text)
    return after_marker(text, marker) if answer is None and marker else answer


def reference_answer(reference: str, marker: str | None) -> str:
    """The final answer in a reference: the content of its box, the text after ``marker``, or the
    whole text.

    Raises:
        ValueError: The reference has boxes with different contents, or several lines, other than
            those of a matrix, and neither a box nor a marker says which part is the answer.
    """
    whole = [box for box in outermost(boxes(reference)) if box.closes is not None]
    if len({"".join(box.content(reference).split()) for box in whole}) > 1:
        raise ValueError(
            "the reference has boxes with different contents; put the whole answer into one box"
        )
    answer = final_answer(reference, marker)
    if answer is not None:
        return answer
    if _has_several_lines(reference):
        label = json.dumps(common_label([reference]) or HASHES, ensure_ascii=False)
        raise ValueError(
            "the reference has several lines and no final answer is marked in it; give only the "
            f'answer, or name the marker before it in verifier_args, e.g. {{"marker": {label}}}'
        )
    return reference.strip()


def _has_several_lines(reference: str) -> bool:
    return "\n" in reference.strip() and r"\begin" not in reference


def ends_with_hashes(reference: str) -> bool:
    """Whether the last line of a reference ends with ``#### ANSWER``, and there is no box."""
    return boxed(reference) is None and _ENDS_WITH_HASHES.search(reference) is not None


def common_label(references: Iterable[str]) -> str:
    """The shortest label, such as ``A:``, before the value in the last line of all references.

    Empty if there is none, or a reference is a single line.
    """
    shared: set[str] | None = None
    for reference in references:
        markers = candidate_markers(reference) if _has_several_lines(reference) else set()
        labels = {label for label in markers if label[-1] in _LABEL_ENDS}
        shared = labels if shared is None else shared & labels
    return min(sorted(shared or ()), key=len, default="")


def marker_of(problem: Problem) -> str | None:
    """The marker in the arguments of a problem of ``WITH_MARKER``; None if there is none.

    Raises:
        ValueError: The arguments have another key, or the marker is not text.
    """
    args = json.loads(problem.verifier_args)
    if not isinstance(args, dict) or args.keys() - {"marker"}:
        raise ValueError(
            f'verifier_args of {problem.verifier} may hold "marker" and nothing else, not '
            f"{problem.verifier_args}"
        )
    marker = args.get("marker")
    if marker is not None and not (isinstance(marker, str) and marker.strip()):
        raise ValueError(f'"marker" in verifier_args takes text such as "####", not {marker!r}')
    return marker


def candidate_markers(text: str) -> set[str]:
    """Possible markers in the last line of an answer; empty if that line is too long."""
    line = next((line for line in reversed(text.splitlines()) if line.strip(_MARKUP)), "")
    line = line.strip(_MARKUP)
    if len(line) > _LONGEST_LINE:
        return set()
    leads = [line[: value.start()] for value in [_VALUE.search(line)] if value]
    leads += [line[: colon.start() + 1] for colon in _COLON.finditer(line)]
    candidates = set(_CHINESE.findall(line))
    for lead in (lead.rstrip(_MARKUP) for lead in leads):
        starts = [word.start() for word in re.finditer(r"\S+", lead)][-_MOST_WORDS:]
        # A single word counts only if it is all of the text before the value, or a label.
        ends = (lead[start:] for start in starts)
        candidates |= {end for end in ends if " " in end or end == lead or end[-1] in _LABEL_ENDS}
    return {
        marker for marker in candidates if len(marker) <= _LONGEST_MARKER and _LETTER.search(marker)
    }

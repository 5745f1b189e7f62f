"""Finds the final answer in a text: balanced boxes first, then markers that a dataset declares.

There is no fallback to the last number in the text: a guess would count as an answer.
"""

from __future__ import annotations

import re

_BOX_OPENS = re.compile(r"\\(?:boxed|fbox)\s*\{")


_BRACE = re.compile(r"[{}]")


def boxed(text: str) -> str | None:
    r"""The content of the last complete ``\boxed{...}`` or ``\fbox{...}``, braces balanced."""
    starts = {match.end() for match in _BOX_OPENS.finditer(text)}
    unclosed: list[int] = []
    last: tuple[int, int] | None = None
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            unclosed.append(brace.end())
        elif unclosed:
            start = unclosed.pop()
            if start in starts and (last is None or start > last[0]):
                last = start, brace.start()
    return text[last[0] : last[1]].strip() if last else None


def after_marker(text: str, marker: str) -> str | None:
    """What follows the last ``marker`` up to the end of its line; None without a marker."""
    _, found, rest = text.rpartition(marker)
    return rest.partition("\n")[0].strip() if found else None


def final_answer(text: str, marker: str | None) -> str | None:
    """The boxed answer, or where there is no box what follows ``marker``; None without both."""
    answer = boxed(text)
    return after_marker(text, marker) if answer is None and marker else answer

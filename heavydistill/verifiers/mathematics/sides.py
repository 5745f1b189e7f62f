r"""The two sides of a box, with what only sets type taken away.

Layout, markdown, HTML tags and end-of-text tokens, one pair of formula delimiters, wrappers such as
``\mathbf{...}`` and brackets around the box say nothing about its value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from heavydistill.verifiers.normal import normal_form

# A number in prose or in LaTeX.
NUMBER = r"(?:-?(?:[0-9]+/[0-9]+|[0-9][0-9,]*(?:\.[0-9]+)?|\\[dt]?frac\{[0-9]+\}\{[0-9]+\}))"
_LONGEST_NUMBER = 300
_LONGEST_LAYOUT = 40

# What only sets type, at the end of what is before and at the beginning of what is after.
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
    """What is left to look at on both sides, and what was passed: blanks, a formula's end."""

    left: str
    right: str
    left_formula: bool = False
    right_formula: bool = False
    left_spaced: bool = False
    right_spaced: bool = False


def at_end(pattern: re.Pattern[str], text: str, longest: int) -> re.Match[str] | None:
    """The match of a pattern that ends with the text and is no longer than ``longest``."""
    return pattern.search(text, max(0, len(text) - longest))


def same_number(one: str, other: str) -> bool:
    """Whether both are the same plain number."""
    value = normal_form(one[:_LONGEST_NUMBER]).value
    return value is not None and value == normal_form(other[:_LONGEST_NUMBER]).value


def peel(sides: Sides) -> None:
    """Takes away layout, the delimiters of the box's formula, and brackets around the box."""
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

"""Finds in a skill what instructions must not hold; ``forbidden.yaml`` is the whole list.

The patterns are a net with known holes, not a proof: text can ask for harm in words that no pattern
knows. They refuse some harmless texts too.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator
from importlib import resources
from typing import NamedTuple

import yaml

from heavydistill.skill.frontmatter import Refusal


class Pattern(NamedTuple):
    """Something that instructions must not hold."""

    name: str  # what it is, as refusals name it
    regex: re.Pattern[str]  # how it looks in a line
    fix: str  # what to do


_LIST = yaml.safe_load(
    (resources.files("heavydistill.skill") / "forbidden.yaml").read_text(encoding="utf-8")
)
PATTERNS = [
    Pattern(each["name"], re.compile(each["regex"], re.IGNORECASE), each["fix"]) for each in _LIST
]
HIDDEN = PATTERNS[0]
_LINK = re.compile(r"\[[^\]]{0,300}\]\(\s*<?([^)\s>]*)|^\s*\[[^\]]{1,300}\]:\s*<?([^\s>]+)")


def forbidden(file: str, text: str, files: Collection[str]) -> Iterator[Refusal]:
    """Yield what a file must not hold, at most one refusal of a kind for each line.

    Files that are no Markdown are data: they must not hold hidden characters alone. ``files`` are
    the paths of all files of the skill, to which links may point.
    """
    is_read = file.endswith(".md")
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        for pattern in PATTERNS if is_read else [HIDDEN]:
            if match := pattern.regex.search(line):
                yield Refusal(file, number, f"{pattern.name}: {_shown(match[0])}", pattern.fix)
        for link in _LINK.finditer(line) if is_read else ():
            target = (link[1] or link[2]).partition("#")[0]
            place = posixpath.normpath(posixpath.join(posixpath.dirname(file), target))
            if target and place not in files:
                what = f"a link that leads out of the skill, or to no file of it: {_shown(target)}"
                yield Refusal(file, number, what, "Link to a file of this folder.")


def _shown(text: str) -> str:
    return ascii(text.strip() or text)[1:-1][:60]

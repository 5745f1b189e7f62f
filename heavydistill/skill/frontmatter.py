"""Reads the frontmatter of a ``SKILL.md`` by the specification of Agent Skills.

Whatever the reference validator (``skills-ref`` 0.1.1) refuses is refused. Refused as well is what
the specification states and that validator does not check: fences that are lines of their own,
metadata that map strings to strings, other fields that are strings, and a ``compatibility`` that is
not empty. So is what clients read differently: ``---`` inside the frontmatter, and line ends that
only some versions of YAML know.

Not covered: the texts of the body and of other files (``instructions``).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

SKILL, _FENCE = "SKILL.md", "---"
_MOST_CHARACTERS = 16_384
_LIMITS = {"name": 64, "description": 1024, "compatibility": 500}
FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")


@dataclass(frozen=True, slots=True, order=True)
class Refusal:
    """Why a skill is refused."""

    file: str  # path in the folder of the skill
    line: int  # line of the file, from 1
    what: str  # what is wrong, without a full stop
    fix: str  # what to do

    def __str__(self) -> str:
        return "\\n".join(f"{self.file}:{self.line}: {self.what}. {self.fix}".splitlines())


class _RefusedError(Exception):
    """Raised with the arguments of a ``Refusal`` that follow its file."""


def read_frontmatter(text: str, folder: str) -> tuple[dict[str, str], list[Refusal]]:
    """Return the metadata, as far as they can be read, and what the specification does not allow.

    Args:
        text: Content of the ``SKILL.md``.
        folder: Name of the skill's folder, which must be the name of the skill.
    """
    try:
        fields = _fields(_inside(text))
    except _RefusedError as refused:
        return {}, [Refusal(SKILL, *refused.args)]
    refusals = [Refusal(SKILL, *each) for each in _violations(fields, folder)]
    _, metadata = fields.get("metadata", (0, {}))
    pairs = metadata.items() if isinstance(metadata, dict) else ()
    return {key: value for key, value in pairs if isinstance(value, str)}, refusals


def _inside(text: str) -> str:
    """Return the frontmatter with a blank first line, so that its lines keep their numbers."""
    first, *lines = re.split(r"\r\n|\r|\n", text)
    if first != _FENCE:
        raise _RefusedError(1, "there is no frontmatter", f"Begin the file with a line {_FENCE}.")
    if _FENCE not in lines:
        raise _RefusedError(1, "the frontmatter has no end", f"End it with a line {_FENCE}.")
    inside = lines[: lines.index(_FENCE)]
    for number, line in enumerate(inside, 2):
        if apart := [mark for mark in (_FENCE, "\x85", "\u2028", "\u2029") if mark in line]:
            what = f"{apart[0]!a} inside the frontmatter, which clients read differently"
            raise _RefusedError(number, what, "Remove it.")
    found = "\n".join(["", *inside])
    if len(found) > _MOST_CHARACTERS:
        what = f"the frontmatter has more than {_MOST_CHARACTERS:,} characters"
        raise _RefusedError(1, what, "Shorten it.")
    return found


def _fields(text: str) -> dict[str, tuple[int, object]]:
    """Return each field with its line: a string, or a dict for a mapping, or None for others."""
    try:
        for event in yaml.parse(text, yaml.SafeLoader):
            if any(getattr(event, extra, None) for extra in ("anchor", "tag", "flow_style")):
                line = event.start_mark.line + 1 if event.start_mark else 1
                what = "the frontmatter holds a YAML anchor, alias, tag, [...] or {...}"
                raise _RefusedError(line, what, "Write plain text, one field a line.")
        root = yaml.compose(text, yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        what = f"the frontmatter is not valid YAML: {error.problem}"
        raise _RefusedError(line, what, "Put the value in quotes, or correct the line.") from None
    except (yaml.YAMLError, RecursionError):
        what = "the frontmatter holds a control character, or is nested too deeply"
        raise _RefusedError(1, what, "Write plain text, one field a line.") from None
    if not isinstance(root, yaml.MappingNode):
        raise _RefusedError(1, "the frontmatter is not a mapping", "Write `name: NAME` and so on.")
    return _mapping(root)


def _mapping(node: yaml.MappingNode) -> dict[str, tuple[int, object]]:
    found: dict[str, tuple[int, object]] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode) or key.value == "<<" or key.value in found:
            raise _RefusedError(line, "a key is repeated or is no plain text", "Remove the line.")
        found[key.value] = line, _value(value)
    return found


def _value(node: yaml.Node) -> object:
    if isinstance(node, yaml.MappingNode):
        inner = _mapping(node)
        return {key: value for key, (_, value) in inner.items()}
    return node.value.strip() if isinstance(node, yaml.ScalarNode) else None


def _violations(
    fields: dict[str, tuple[int, object]], folder: str
) -> Iterator[tuple[int, str, str]]:
    """Yield line, fault and fix of each field that breaks a rule."""
    for unknown in [key for key in fields if key not in FIELDS]:
        fix = f"Remove the line; the fields are {', '.join(FIELDS)}."
        yield fields[unknown][0], f"there is no field {unknown!r}", fix
    for needed in ("name", "description"):
        if needed not in fields:
            yield 1, f"the field {needed} is missing", f"Add a line `{needed}: ...`."
    for key, (line, value) in fields.items():
        if key == "metadata":
            texts = value.values() if isinstance(value, dict) else [None]
            if not all(isinstance(text, str) for text in texts):
                yield line, "metadata do not map strings to strings", 'Write `  KEY: "TEXT"` lines.'
        elif not isinstance(value, str) or (key in _LIMITS and not value):
            yield line, f"the field {key} is not a text, or is empty", "Write a text."
        else:
            text = unicodedata.normalize("NFKC", value) if key == "name" else value
            if len(text) > _LIMITS.get(key, _MOST_CHARACTERS):
                what = f"the field {key} has {len(text):,} characters of at most {_LIMITS[key]:,}"
                yield line, what, "Shorten it."
            if key == "name":
                yield from ((line, *each) for each in _faults_of_name(text, folder))


def _faults_of_name(name: str, folder: str) -> Iterator[tuple[str, str]]:
    folder = unicodedata.normalize("NFKC", folder)
    is_plain = all(letter.isalnum() or letter == "-" for letter in name) and name == name.lower()
    if not is_plain or name.startswith("-") or name.endswith("-") or "--" in name:
        fix = "Use lowercase letters and digits, joined by single hyphens."
        yield f"{name!r} is no name of a skill", fix
    elif name != folder:
        yield f"the name is {name!r}, and the folder is {folder!r}", "Rename one of them."

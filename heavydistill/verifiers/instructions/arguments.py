"""Kinds of instructions, and how their arguments are read.

A reader converts the value in a dataset to the value that a check uses. It raises ``ValueError``
with the accepted values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heavydistill.text.languages import CODES
from heavydistill.verifiers.instructions.counts import first_word

Check = Callable[..., bool | None]
"""Takes the text, then the arguments of the instruction in order."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of instruction: its check, and the arguments that the check takes."""

    check: Check
    arguments: dict[str, Callable[[object], object]]
    """Maps the name of each argument (all are required) to the function that reads its value."""


RELATIONS = ("at least", "less than")


def number(value: Any, least: int = 1) -> int:
    """An integer of at least ``least``; also ``3.0``: some table readers turn 3 into 3.0."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or value < least:
        raise ValueError(f"a whole number from {least}")
    return value


def index(value: object) -> int:
    return number(value, least=0)


def verbatim(value: Any) -> str:
    """Text as it stands, which must not be blank."""
    phrase(value)
    return str(value)


def relation(value: Any) -> str:
    if value not in RELATIONS:
        raise ValueError(" or ".join(f'"{choice}"' for choice in RELATIONS))
    return str(value)


def phrase(value: object) -> str:
    r"""Text without surrounding blanks, with line ends converted to ``\n``."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("text")
    return value.replace("\r\n", "\n").strip()


def word(value: object) -> str:
    text = phrase(value)
    if len(text.split()) > 1 or not first_word(text):
        raise ValueError("one word")
    return first_word(text)


def phrases(value: Any) -> tuple[str, ...]:
    entries = value if isinstance(value, list | tuple) else ()
    if not entries or not all(isinstance(entry, str) and entry.strip() for entry in entries):
        raise ValueError("a list of texts")
    return tuple(map(phrase, entries))


def letter(value: Any) -> str:
    """One character, not necessarily a letter."""
    if not isinstance(value, str) or len(value.strip()) != 1:
        raise ValueError("one character")
    return value.strip()


def language(value: Any) -> str:
    code = value.strip().lower() if isinstance(value, str) else ""
    if code not in CODES:
        raise ValueError(f"one of the codes {', '.join(sorted(CODES))}")
    return code

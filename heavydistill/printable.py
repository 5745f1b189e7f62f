"""Text from outside that a terminal can show and a file can hold.

What a server says in an error, an id or a name is cleaned when it is read, and every message of
``errors`` when it is made. Texts of models stay as they are in the data; whoever prints them
decides how their control characters are shown.
"""

from __future__ import annotations

import re

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that move the cursor, recolour a terminal or reorder a line (bidirectional marks and
overrides); tabs and newlines are left out."""
# Colours and cursor movements, then titles and links of a terminal, which end with a bell or ESC \.
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b\]|\x9d)[^\x07\x1b\x9c\x9d]*(?:\x07|\x1b\\|\x9c)"
)


def encodable(text: str) -> str:
    """JSON can carry half of a surrogate pair, which nothing can store; it becomes ``?``."""
    return text.encode("utf-8", "replace").decode("utf-8")


def printable(text: str) -> str:
    """A text without escape sequences and control characters; tabs and newlines stay."""
    return CONTROL.sub("", _SEQUENCE.sub("", encodable(text)))

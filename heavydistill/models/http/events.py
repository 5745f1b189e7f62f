"""Recognises events of a stream that repeat each other but for one text.

Nearly all events of a stream are equal up to the text that they bring. Parsing each one as JSON and
checking all of its fields takes most of a client's processor time, so the bytes around the text of
one parsed event are remembered, and the text of the next one is read from between them; events that
come together are read together. An event that differs in anything else, or whose text is not one
whole JSON string, is parsed as JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

_AS_JSON = "utf-8", "surrogatepass"  # as json.loads reads bytes
_value_at = json.JSONDecoder().raw_decode  # (value, end) of the JSON at a place of a text


@dataclass(frozen=True, slots=True)
class RepeatedEvent:
    """What stands around the text in one line of a stream."""

    before: bytes  # up to the opening quote
    after: bytes  # from behind the closing quote

    @classmethod
    def around(cls, line: bytes, name: str, text: str) -> RepeatedEvent | None:
        """What stands around the field ``name`` with this text; None if its place is not certain.

        In a JSON string, the quotes around a name are escaped, so a match is never part of a text.
        """
        marks = [mark for blank in ("", " ") if (mark := f'"{name}":{blank}"'.encode()) in line]
        if len(marks) != 1 or line.count(marks[0]) != 1:
            return None
        start = line.index(marks[0]) + len(marks[0]) - 1
        rest = line[start:].decode(*_AS_JSON)
        found, end = _value_at(rest, 0)
        return cls(line[:start], rest[end:].encode(*_AS_JSON)) if found == text else None

    def text_in(self, line: bytes) -> str | None:
        """The text of a line that repeats this event; None for any other line."""
        if not (line.startswith(self.before) and line.endswith(self.after)):
            return None
        try:
            quoted = line[len(self.before) : len(line) - len(self.after)].decode(*_AS_JSON)
            text, end = _value_at(quoted, 0)
        except ValueError:  # not UTF-8, or not JSON
            return None
        return text if isinstance(text, str) and end == len(quoted) else None

    def text_of_all(self, read: bytes) -> tuple[str, int] | None:
        """(joined text, number) of events that repeat this one; None if any other bytes are there.

        What is left without the bytes between two texts is one line, with one JSON string, only if
        nothing else is among the events.
        """
        ends = b"\n\r\n" if self.after.endswith(b"\r") else b"\n\n"
        between = b'"' + self.after + ends + self.before + b'"'
        if not read.endswith(ends) or b"\\" + between in read:  # maybe an escaped quote
            return None
        line = read.replace(between, b"")
        text = self.text_in(line[: -len(ends)])
        return None if text is None else (text, 1 + (len(read) - len(line)) // len(between))

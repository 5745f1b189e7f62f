"""Traces in compressed chunks, as elements that a browser keeps and does not run.

A chunk is a JSON list of traces, deflated (RFC 1951, without a header) and in base64, in a script
element of a type that no browser executes. It is closed when its JSON has reached ``_ENOUGH``
characters, so that unpacking one is quick, however many trajectories a trace has.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import IO, Any

_ENOUGH = 400_000
_TYPE = "application/octet-stream"


class Chunks:
    """Writes the chunks of one run.

    Args:
        file: Where to, as bytes.
        run: Number of the run, which is part of the ids of its elements.

    Attributes:
        count: Chunks begun.
    """

    def __init__(self, file: IO[bytes], run: int) -> None:
        self._file = file
        self._run = run
        self._rows: list[str] = []
        self._characters = 0
        self.count = 0

    def add(self, row: dict[str, Any]) -> tuple[int, int]:
        """Take a trace; returns its chunk and its place in it."""
        text = json.dumps(row, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        if not self._rows:
            self.count += 1
        place = self.count - 1, len(self._rows)
        self._rows.append(text)
        self._characters += len(text)
        if self._characters >= _ENOUGH:
            self.close()
        return place

    def close(self) -> None:
        """Write what was taken since the last chunk."""
        if not self._rows:
            return
        packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
        packed = packer.compress(f"[{','.join(self._rows)}]".encode()) + packer.flush()
        name = f"chunk-{self._run}-{self.count - 1}"
        self._file.write(f'<script type="{_TYPE}" id="{name}">'.encode())
        self._file.write(base64.b64encode(packed))
        self._file.write(b"</script>\n")
        self._rows, self._characters = [], 0


def json_element(name: str, value: Any) -> str:
    """A script element with JSON that a browser keeps and does not run.

    ``<`` is escaped, so no text in it can end the element or open a comment.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>\n'

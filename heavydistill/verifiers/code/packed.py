"""Reads tests as LiveCodeBench writes them into a cell of its dataset.

Public tests are the JSON text of a list. Private ones are too, or where that would be long it is
packed: the text is pickled, compressed by zlib and written in base64. A pickle is a program, so
it is never run: one that holds a single text and nothing else is read, any other is refused.
"""

from __future__ import annotations

import base64
import binascii
import json
import pickletools
import zlib
from typing import Any

MOST_UNPACKED = 64_000_000
"""Bytes of the tests of a problem behind their compression."""
# What stands around the one text: the version, its length, a place in the memo and the end.
_AROUND = {"PROTO", "FRAME", "MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "STOP"}


def tests_in(cell: Any, what: str) -> list[Any]:
    """The tests in a cell; empty where there are none.

    Args:
        cell: A list, its JSON text, or that packed.
        what: Names it in messages.

    Raises:
        ValueError: It is none of these, or unpacks to more than ``MOST_UNPACKED``.
    """
    if isinstance(cell, str):
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError):
            cell = _unpacked(cell, what)
    if not isinstance(cell, list):
        raise ValueError(f"{what} is a list of tests, its JSON text, or that packed")
    return cell


def _unpacked(cell: str, what: str) -> Any:
    try:
        unzipping = zlib.decompressobj()
        pickled = unzipping.decompress(base64.b64decode(cell, validate=True), MOST_UNPACKED)
    except (ValueError, binascii.Error, zlib.error) as error:
        raise ValueError(f"{what} is neither JSON nor packed JSON: {error}") from error
    if unzipping.unconsumed_tail:
        raise ValueError(f"{what} unpacks to more than {MOST_UNPACKED:,} bytes; leave some out")
    try:
        return json.loads(_text_in(pickled))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what} is packed, and no JSON text is in it: {error}") from error


def _text_in(pickled: bytes) -> str:
    """The text that a pickle of one text holds."""
    steps = [(step.name, value) for step, value, _ in pickletools.genops(pickled)]
    made = [(name, value) for name, value in steps if name not in _AROUND]
    if len(made) != 1 or "UNICODE" not in made[0][0]:
        raise ValueError("it is no pickle of one text")
    return str(made[0][1])

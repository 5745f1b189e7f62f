"""Encodes values and reports that leave the sandbox, and arguments that enter it.

A value is encoded as JSON: null, booleans, numbers and texts directly, everything else as a list
that begins with its kind:

    ["l", ...] list  ["t", ...] tuple  ["s", ...] set  ["f", ...] frozenset  ["d", key, value, ...]
    ["i", hex] large int  ["F", name] inf or nan  ["b", hex] bytes  ["c", real, imaginary]
    ["q", numerator, denominator] Fraction  ["D", text] Decimal

An instance of a subclass (Counter, a named tuple, a class that overrides ``__eq__``) is encoded as
the value of its builtin base class, whatever its methods return, and a number of numpy as that of
Python. Other objects cannot be encoded.

A report is a line with a random token, the index of the test, a letter and the length of the
payload, followed by the payload. The token, new for each start, only separates reports. A program
may find it and forge reports, but a forged report is just another answer, because the expected
values are never in the sandbox.
"""

from __future__ import annotations

import posix
from _json import encode_basestring_ascii as _quoted
from _json import make_scanner
from typing import Any

MOST_DEPTH = 100
_PLAIN_BITS = 53
_MOST_EXPONENT = 400


class EncodeError(Exception):
    """The value cannot be encoded."""


class TooLarge(Exception):
    """The value is too large or too deep to be encoded."""


def encode(value: object, most: int) -> str:
    """Encode a value as JSON of up to ``most`` characters, or raise EncodeError or TooLarge."""
    parts: list[str] = []
    _write(value, parts, [most], 0)
    return "".join(parts)


def decode(tree: Any) -> Any:
    """Decode the parsed JSON of ``encode``; raises an exception for any other JSON."""
    if not isinstance(tree, list):
        return tree
    kind, items = tree[0], tree[1:]
    if kind in _CONTAINERS:
        return _CONTAINERS[kind](decode(item) for item in items)
    if kind == "d":
        return {decode(items[i]): decode(items[i + 1]) for i in range(0, len(items), 2)}
    if kind == "q":
        import fractions

        return fractions.Fraction(decode(items[0]), decode(items[1]))
    if kind == "D":
        import decimal

        return decimal.Decimal(items[0])
    if kind == "c":
        return complex(decode(items[0]), decode(items[1]))
    return _OTHERS[kind](items[0])


class _Reading:
    """Settings for the JSON scanner; importing ``json`` would dominate the start-up time."""

    strict = False
    object_hook = object_pairs_hook = None
    parse_float = parse_constant = float
    parse_int = int


def parsed(text: str) -> Any:
    """Parse the JSON value at the beginning of a text; raises an exception if there is none."""
    return make_scanner(_Reading)(text, 0)[0]  # type: ignore[arg-type]


def report(channel: int, token: str, index: int, letter: str, payload: bytes = b"") -> None:
    """Write one report to a file descriptor."""
    rest = f"{token} {index} {letter} {len(payload)}\n".encode() + payload + b"\n"
    while rest:
        rest = rest[posix.write(channel, rest) :]


_CONTAINERS: dict[str, Any] = {"l": list, "t": tuple, "s": set, "f": frozenset}
_OTHERS: dict[str, Any] = {"i": lambda text: int(text, 16), "F": float, "b": bytes.fromhex}


def _write(value: Any, parts: list[str], room: list[int], depth: int) -> None:
    kind = type(value)
    if depth > MOST_DEPTH:
        raise TooLarge
    if value is None or kind is bool:
        _put("null" if value is None else "true" if value else "false", parts, room)
    elif issubclass(kind, str):
        if len(value) > room[0]:
            raise TooLarge
        _put(_quoted(str.__str__(value)), parts, room)
    elif issubclass(kind, int):
        number = int.__pos__(value)
        if number.bit_length() > 4 * room[0] + _PLAIN_BITS:
            raise TooLarge
        is_plain = number.bit_length() <= _PLAIN_BITS
        _put(str(number) if is_plain else f'["i","{number:#x}"]', parts, room)
    elif issubclass(kind, float):
        real = float.__pos__(value)
        _put(repr(real) if real - real == 0 else f'["F","{real!r}"]', parts, room)
    elif issubclass(kind, set | frozenset):
        _write_unordered(value, parts, room, depth)
    elif issubclass(kind, list | tuple):
        letter, base = ("l", list) if issubclass(kind, list) else ("t", tuple)
        _write_all(letter, base.__iter__(value), parts, room, depth)
    elif issubclass(kind, dict):
        members = (part for pair in dict.items(value) for part in pair)
        _write_all("d", members, parts, room, depth)
    elif issubclass(kind, bytes | bytearray):
        if len(value) > room[0]:
            raise TooLarge
        _put(f'["b","{memoryview(value).hex()}"]', parts, room)
    elif issubclass(kind, complex):
        _write_all("c", iter((value.real, value.imag)), parts, room, depth)
    elif kind.__module__ == "fractions" and kind.__name__ == "Fraction":
        _write_all("q", iter((value.numerator, value.denominator)), parts, room, depth)
    elif kind.__module__ == "decimal" and kind.__name__ == "Decimal":
        if value and value.is_finite() and abs(value.adjusted()) > _MOST_EXPONENT:
            raise TooLarge
        _put(f'["D",{_quoted(str(value))}]', parts, room)
    elif kind.__module__ == "numpy" and getattr(value, "shape", None) == ():
        _write(value.item(), parts, room, depth + 1)
    else:
        raise EncodeError


def _write_all(letter: str, items: Any, parts: list[str], room: list[int], depth: int) -> None:
    _put(f'["{letter}"', parts, room)
    for item in items:
        _put(",", parts, room)
        _write(item, parts, room, depth + 1)
    _put("]", parts, room)


def _write_unordered(value: Any, parts: list[str], room: list[int], depth: int) -> None:
    """Encode the members of a set in an order that is the same in every process."""
    letter, base = ("s", set) if issubclass(type(value), set) else ("f", frozenset)
    members = []
    for item in base.__iter__(value):
        member: list[str] = []
        _write(item, member, room, depth + 1)
        members.append("".join(member))
    parts.append(",".join([f'["{letter}"', *sorted(members)]) + "]")


def _put(text: str, parts: list[str], room: list[int]) -> None:
    room[0] -= len(text)
    if room[0] < 0:
        raise TooLarge
    parts.append(text)

"""The files of a journal: lines with a checksum, in files that only grow.

A segment's first line names the format; every other is

    CRC32 MARK KEY JSON

with the checksum (8 hex digits) over the rest of the line, ``+`` for a response or ``-`` for a
failure, the key of the request, and an object with what was asked and what came back. A kill
leaves at most a torn last line, which is dropped; a damaged line elsewhere is skipped and
counted.

Who writes a segment holds a lock on it, and whoever finds it unlocked may replace it.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
import socket
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heavydistill.engine.reply import count, seconds
from heavydistill.engine.request import Response
from heavydistill.errors import JournalError, remedy

FORMAT = b"heavydistill journal 1\n"
SUFFIX = ".segment"
_MARK, _KEY = 9, slice(11, 75)
_PAYLOAD_STARTS = 76
_COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens")
_KEPT = [f.name for f in dataclasses.fields(Response) if f.name != "from_journal"]


@dataclass(frozen=True, slots=True)
class Record:
    """One line.

    Attributes:
        key: Of the request, 64 hex digits; see ``journal.key``.
        model: Who was asked.
        asked: Stage, prompt (a hash of the messages), sampling, seed and index of the request.
        response: What came back.
        at: When, in seconds since 1970.
    """

    key: str
    model: str
    asked: dict[str, Any]
    response: Response
    at: float

    def line(self) -> bytes:
        """As it stands in a segment."""
        payload = json.dumps(
            {
                "model": self.model,
                "asked": self.asked,
                "response": {name: getattr(self.response, name) for name in _KEPT},
                "at": self.at,
            },
            ensure_ascii=False,
        )
        mark = "-" if self.response.finish_reason == "error" else "+"
        body = f"{mark} {self.key} {payload}".encode()
        return b"%08x %s\n" % (zlib.crc32(body), body)


@dataclass(frozen=True, slots=True)
class Line:
    """Where a sound line stands.

    Attributes:
        key: Of its request, as bytes.
        failed: Whether the request came to nothing.
        offset: Of its first byte.
    """

    key: bytes
    failed: bool
    offset: int


@dataclass(frozen=True, slots=True)
class Segment:
    """A file as ``read`` found it.

    Attributes:
        path: Where it is.
        torn: Bytes of an unfinished last line.
        damaged: Numbers, from 1, of lines whose checksum is wrong.
        lines: The sound ones.
    """

    path: Path
    torn: int
    damaged: list[int]
    lines: list[Line]


def segments(folder: Path) -> Iterator[Segment]:
    """The segments of a journal, oldest first; makes the folder if it is not there.

    Raises:
        JournalError: The folder cannot be used, or a segment has another format.
        FileNotFoundError: A segment was replaced after the folder was listed.
    """
    yield from map(read, paths(folder))


def paths(folder: Path) -> list[Path]:
    """The files of a journal, oldest first; makes the folder if it is not there.

    Raises:
        JournalError: The folder cannot be used.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return sorted(folder.glob(f"*{SUFFIX}"))
    except OSError as error:
        raise JournalError(
            f"The journal {folder} cannot be used: {error.strerror}",
            f"{remedy(error, 'another --journal')}.",
        ) from error


def read(path: Path) -> Segment:
    """Check every line of a segment.

    Raises:
        JournalError: It is of another format.
    """
    found = Segment(path, 0, [], [])
    torn = offset = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            whole = line.endswith(b"\n")
            if number == 1 and line != FORMAT and (whole or not FORMAT.startswith(line)):
                raise JournalError(
                    f"{path} is no segment of this version: it begins with {line[:40]!r}",
                    "Name another journal, or read it with the version that wrote it.",
                )
            if not whole:
                torn = len(line)
            elif number > 1 and _is_sound(line):
                key = bytes.fromhex(line[_KEY].decode())
                found.lines.append(Line(key, line[_MARK : _MARK + 1] == b"-", offset))
            elif number > 1:
                found.damaged.append(number)
            offset += len(line)
    return dataclasses.replace(found, torn=torn)


def record_at(path: Path, offset: int) -> Record:
    """The record of the sound line there.

    A number in it that is none is unknown, as if a server had just sent it.
    """
    with path.open("rb") as file:
        file.seek(offset)
        line = file.readline()
    fields = json.loads(line[_PAYLOAD_STARTS:])
    said = fields["response"]
    counts = {name: count(said.get(name)) for name in _COUNTS}
    latency_s = seconds(said.get("latency_s"))
    fields["response"] = Response(**(said | counts | {"latency_s": latency_s}))
    return Record(key=line[_KEY].decode(), **fields)


def create(folder: Path) -> tuple[Path, int]:
    """(path, locked file) of a new segment of this process.

    Raises:
        OSError: The disk is full or fails.
    """
    while True:
        path = folder / f"{time.time_ns()}-{socket.gethostname()}-{os.getpid()}{SUFFIX}"
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file).st_nlink:
            break
        os.close(file)  # it was taken for an idle segment before it was locked
    write(file, FORMAT)
    sync_folder(folder)
    return path, file


def write(file: int, data: bytes) -> None:
    """All of ``data``, however many calls that takes."""
    while data:
        data = data[os.write(file, data) :]


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _is_sound(line: bytes) -> bool:
    try:
        return int(line[:8], 16) == zlib.crc32(line[9:-1])
    except ValueError:
        return False

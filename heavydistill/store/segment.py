"""Reads and writes the files of a journal: append-only files of lines with checksums.

The first line of a segment names the format; every other line is

    CRC32 MARK KEY JSON

CRC32 is the checksum (8 hex digits) of the rest of the line. MARK is ``+`` for a response and ``-``
for a failure. KEY is the key of the request. JSON is an object with the request and the response.

After a kill, at most the last line is incomplete; it is ignored. Any other line that cannot be read
is skipped and counted: a damaged line has a wrong checksum; a foreign line has a correct checksum
but no record of this version. A segment that is not a file or cannot be read at all is an error,
because its responses may have been billed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import socket
import tempfile
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import TypeAdapter

from heavydistill.errors import JournalError, remedy
from heavydistill.models.http.replies import count, seconds
from heavydistill.models.request import Response
from heavydistill.schema import to_row

FORMAT = b"heavydistill journal 1\n"
SUFFIX = ".segment"
_MARK, _KEY = 9, slice(11, 75)
_PAYLOAD_STARTS = 76
_COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens")
_KEPT = [f.name for f in dataclasses.fields(Response) if f.name != "from_journal"]
_FIELDS = {"model", "asked", "response", "at"}
_HEAD = re.compile(rb"[0-9a-f]{8} [+-] [0-9a-f]{64} ")
_HALF = re.compile(rb"\\u[dD]")


class NoRecordError(ValueError):
    """The line has a correct checksum but no record that this version can read."""


@dataclass(frozen=True, slots=True)
class Record:
    """Record of one response or failure."""

    key: str  # key of the request, 64 hex digits; see ``journal.key``
    model: str  # model that was asked
    asked: dict[str, Any]
    """What was requested: stage, prompt (hash of the messages), sampling, seed and index."""
    response: Response  # the response to the request
    at: float  # time in seconds since 1970

    def line(self) -> bytes:
        """Encode the record as a line of a segment."""
        payload = json.dumps(
            {
                "model": self.model,
                "asked": self.asked,
                "response": {name: getattr(self.response, name) for name in _KEPT},
                "at": self.at,
            },
            ensure_ascii=False,
            default=to_row,
        )
        mark = "-" if self.response.finish_reason == "error" else "+"
        body = f"{mark} {self.key} {payload}".encode()
        return b"%08x %s\n" % (zlib.crc32(body), body)


@dataclass(frozen=True, slots=True)
class SegmentLine:
    """Position of an intact line in a segment."""

    key: bytes  # Key of the request in binary form
    failed: bool  # Whether the request failed
    offset: int  # Offset of the first byte


@dataclass(frozen=True, slots=True)
class Segment:
    """The content of a segment, as returned by ``read``."""

    path: Path  # Path of the file
    torn: int  # Bytes of an incomplete last line
    damaged: list[int]  # Numbers, from 1, of lines with a wrong checksum
    foreign: list[int]  # Numbers of lines with a correct checksum but no record
    lines: list[SegmentLine]  # The intact lines

    @property
    def skipped(self) -> int:
        """Number of lines that cannot be read, not counting an incomplete last line."""
        return len(self.damaged) + len(self.foreign)


def segments(folder: Path, thorough: bool = False) -> Iterator[Segment]:
    """Read the segments of a journal, oldest first; creates the folder if it does not exist.

    Raises:
        JournalError: The folder cannot be used, or a segment cannot be read.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        paths = _listed(folder)
    except OSError as error:
        raise _unusable(folder, error) from error
    for path in paths:
        yield read(path, thorough)


def require(folder: Path, writes: bool) -> None:
    """Check that a journal can be used; reads the first line of each segment, writes nothing.

    Raises:
        JournalError: The folder or a segment cannot be read; or, with ``writes``, the folder cannot
            be written.
    """
    try:
        if _is_there(folder):
            for path in _listed(folder):
                with _reading(path) as file:
                    _require_format(path, file.readline(len(FORMAT)))
        if writes:
            probe(folder)
    except OSError as error:
        raise _unusable(folder, error) from error


def probe(folder: Path) -> None:
    """Raise OSError if no file can be created in a folder, or in its nearest existing parent.

    Leaves no file behind.
    """
    ancestor = folder.absolute()
    while not _is_there(ancestor):
        ancestor = ancestor.parent
    with tempfile.TemporaryFile(dir=ancestor):
        pass


def read(path: Path, thorough: bool = False) -> Segment:
    """Check every line of a segment.

    Args:
        path: The segment's file.
        thorough: Whether to parse the record of each line, which takes several times as long.

    Raises:
        JournalError: The segment has another format, is not a file, or cannot be read.
    """
    damaged, foreign, lines = [], [], []
    with _reading(path) as file:
        line = file.readline()
        _require_format(path, line)
        offset = len(line)
        torn = 0 if line.endswith(b"\n") else offset
        for number, line in enumerate(file, 2):
            if not line.endswith(b"\n"):
                torn = len(line)
            elif line[:8].lower() != b"%08x" % zlib.crc32(line[9:-1]):
                damaged.append(number)
            elif not _HEAD.match(line) or (thorough and not _is_record(line)):
                foreign.append(number)
            else:
                key = bytes.fromhex(line[_KEY].decode())
                lines.append(SegmentLine(key, line[_MARK : _MARK + 1] == b"-", offset))
            offset += len(line)
    return Segment(path, torn, damaged, foreign, lines)


def has_model(folder: Path, model: str) -> bool:
    """Return whether a journal has a line of a model; the lines are not checked.

    Raises:
        JournalError: A segment cannot be read.
    """
    starts = b'{"model": %s, ' % json.dumps(model, ensure_ascii=False).encode()
    for path in _listed(folder) if _is_there(folder) else ():
        with _reading(path) as file:
            if any(line.startswith(starts, _PAYLOAD_STARTS) for line in file):
                return True
    return False


def record_at(path: Path, offset: int) -> Record:
    """Read the record of the intact line at ``offset``.

    Token counts that are not numbers are read as unknown, as in server replies.

    Raises:
        NoRecordError: The line holds no record.
        JournalError: The segment is not a file, or cannot be read.
    """
    with _reading(path) as file:
        file.seek(offset)
        return _record(file.readline())


def create(folder: Path) -> tuple[Path, int]:
    """Create a segment for this process; returns (path, file descriptor).

    Raises:
        OSError: The disk is full or fails.
    """
    path = folder / f"{time.time_ns()}-{socket.gethostname()}-{os.getpid()}{SUFFIX}"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
    write(file, FORMAT)
    sync(folder)
    return path, file


def write(file: int, data: bytes) -> None:
    """Write all of ``data``, with as many system calls as necessary."""
    while data:
        data = data[os.write(file, data) :]


def sync(path: Path) -> None:
    """Flush a file to disk, or, for a folder, its directory entries."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _record(line: bytes) -> Record:
    """Parse the record of an intact line. Raises NoRecordError."""
    try:
        payload = json.loads(line[_PAYLOAD_STARTS:])
        response = payload["response"]
        if strange := payload.keys() - _FIELDS | response.keys() - set(_KEPT):
            raise ValueError(f"unknown field {min(strange)}")
        counts = {name: count(response.get(name)) for name in _COUNTS}
        payload["response"] = response | counts | {"latency_s": seconds(response.get("latency_s"))}
        record = _RECORD.validate_python({"key": line[_KEY].decode(), **payload})
        if _HALF.search(line):  # maybe half of a surrogate pair, which cannot be encoded
            record.line()
    # RecursionError: the JSON is nested too deep for the parser.
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise NoRecordError(str(error)) from error
    if (record.response.finish_reason == "error") != (line[_MARK : _MARK + 1] == b"-"):
        raise NoRecordError("the line's mark (+ response, - failure) contradicts its JSON")
    return record


_RECORD = TypeAdapter(Record)


def _is_record(line: bytes) -> bool:
    try:
        _record(line)
    except NoRecordError:
        return False
    return True


def _is_there(path: Path) -> bool:
    """Whether a path or broken link exists. Raises OSError if that cannot be determined."""
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    return True


def _listed(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIX))


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[BinaryIO]:
    """Open a segment. Raises JournalError if the path is not a file, or reading fails."""
    try:
        if not path.is_file():  # a folder, a broken link, or a pipe, which would block
            raise JournalError(
                f"{path} is named like a segment but is not a file, so it cannot be read",
                "If it is a link, restore its target (is a disk not mounted?). Or move it out of "
                "the journal: its requests are then asked again.",
            )
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        raise JournalError(
            f"{path} cannot be read: {error.strerror}",
            "Allow this user to read it, or check the disk. Or move it out of the journal: its "
            "requests are then asked again.",
        ) from error


def _require_format(path: Path, line: bytes) -> None:
    """Check the first line of a segment; it may be incomplete after a kill."""
    if line != FORMAT and (line.endswith(b"\n") or not FORMAT.startswith(line)):
        raise JournalError(
            f"{path} is not a segment of this version: it begins with {line[:40]!r}",
            "Give another journal, or read it with the version that wrote it.",
        )


def _unusable(folder: Path, error: OSError) -> JournalError:
    return JournalError(
        f"The journal {folder} cannot be used: {error.strerror}",
        f"{remedy(error, 'another --journal')}.",
    )

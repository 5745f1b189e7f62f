"""Keeps every response on disk before it is used, so that nothing is paid for twice.

A journal is a folder. Each process that writes has a segment of its own in it, a file that only
grows, so processes on one host or on several (over a shared file system) never touch each
other's bytes. A segment is lines: the first names the format, every other is

    CRC32 KEY JSON

with the checksum (8 hex digits) over the rest of the line, the key of the request (see ``key``)
and an object with the request's sampling, seed and index, and the response. ``put`` returns when
the line is on the disk. A kill leaves at most a torn last line, which is dropped; a damaged line
elsewhere is skipped and counted. Both are shown by ``check``.

A response that failed is kept for the record, and its request is asked again. Responses that
other processes write while a journal is open are seen when it is opened anew.

Not covered: the messages of a request, which a run derives again; encryption.
"""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import hashlib
import json
import os
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heavydistill.engine.request import Request, Response
from heavydistill.errors import JournalError, RunError

FORMAT = b"heavydistill journal 1\n"
SUFFIX = ".segment"
_KEY_CHARS = 64
_PAYLOAD_STARTS = 8 + 1 + _KEY_CHARS + 1
_KEPT = [f.name for f in dataclasses.fields(Response) if f.name != "from_journal"]


def key(model: str, revision: str, request: Request) -> str:
    """What makes a request the same one: model, messages, sampling, seed and sample index."""
    parts = {
        "model": model,
        "revision": revision,
        "messages": request.messages,
        "sampling": request.sampling.model_dump(),
        "seed": request.seed,
        "index": request.index,
    }
    canonical = json.dumps(parts, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a journal.

    Attributes:
        key: See ``key``.
        model: Who was asked.
        asked: Sampling, seed and index of the request.
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
        body = f"{self.key} {payload}".encode()
        return b"%08x %s\n" % (zlib.crc32(body), body)


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of a journal as ``read`` found it.

    Attributes:
        path: Where it is.
        torn: Bytes of an unfinished last line.
        damaged: Numbers, from 1, of lines whose checksum is wrong.
        lines: (key, offset, length) of every sound line.
    """

    path: Path
    torn: int
    damaged: list[int]
    lines: list[tuple[bytes, int, int]]


class Journal:
    """A journal opened by one process; its methods may be called by several threads.

    Args:
        folder: Made if it is not there.

    Raises:
        JournalError: The folder cannot be used, or holds segments of another format.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._index = self._scan()
        self._file: int | None = None
        self._broken = False
        self._written = self._synced = 0
        self._write_lock, self._sync_lock = threading.Lock(), threading.Lock()

    def get(self, wanted: str) -> Response | None:
        """The response of a request; None if there is none, or if it failed."""
        response = self.last(wanted)
        return None if response and response.finish_reason == "error" else response

    def last(self, wanted: str) -> Response | None:
        """What came of a request when it was last asked, a failure too; None if it never was."""
        place = self._index.get(bytes.fromhex(wanted))
        if place is None:
            return None
        path, offset, length = place
        try:
            with path.open("rb") as file:
                file.seek(offset)
                response = parse(file.read(length)).response
        except FileNotFoundError:  # the journal was compacted meanwhile
            self._index = self._scan()
            return self.last(wanted)
        return dataclasses.replace(response, from_journal=True)

    def put(self, record: Record) -> None:
        """Write a record; it is on the disk when this returns.

        Threads that wait share one flush.

        Raises:
            RunError: The disk is full or fails; what was written before is sound.
        """
        try:
            with self._write_lock:
                if self._broken:
                    raise OSError(errno.EIO, "an earlier record could not be written")
                self._broken = True  # until the line is whole: nothing may follow half of one
                _write(self._segment(), record.line())
                self._broken = False
                self._written = mine = self._written + 1
            with self._sync_lock:
                if self._synced < mine:
                    reached = self._written
                    os.fdatasync(self._segment())
                    self._synced = reached
        except OSError as error:
            raise RunError(
                f"The journal {self.folder} cannot be written: {error.strerror}",
                "Make room and run the same command again; what is in it is kept.",
            ) from error

    def close(self) -> None:
        """Give the segment back."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _scan(self) -> dict[bytes, tuple[Path, int, int]]:
        """Where the last response to each request stands."""
        return {
            bytes.fromhex(name.decode()): (segment.path, offset, length)
            for segment in segments(self.folder)
            for name, offset, length in segment.lines
        }

    def _segment(self) -> int:
        """The file of this process, made at its first record and locked as long as it is open."""
        if self._file is None:
            name = f"{time.time_ns()}-{socket.gethostname()}-{os.getpid()}{SUFFIX}"
            self._file = _create(self.folder / name)
        return self._file


def segments(folder: Path) -> Iterator[Segment]:
    """The segments of a journal, oldest first; makes the folder if it is not there.

    Raises:
        JournalError: The folder cannot be used, or a segment has another format.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        paths = sorted(folder.glob(f"*{SUFFIX}"))
    except OSError as error:
        raise JournalError(
            f"The journal {folder} cannot be used: {error.strerror}", "Name another folder."
        ) from error
    for path in paths:
        yield read(path)


def read(path: Path) -> Segment:
    """Check every line of a segment.

    Raises:
        JournalError: It is of another format.
    """
    torn, damaged, lines, offset = 0, [], [], 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            whole = line.endswith(b"\n")
            if number == 1 and line != FORMAT:
                if whole or not FORMAT.startswith(line):
                    raise JournalError(
                        f"{path} is no segment of this version: it begins with {line[:40]!r}",
                        "Name another journal, or read it with the version that wrote it.",
                    )
                torn = len(line)
            elif number > 1:
                if not whole:
                    torn = len(line)
                elif _is_sound(line):
                    lines.append((line[9 : 9 + _KEY_CHARS], offset, len(line)))
                else:
                    damaged.append(number)
            offset += len(line)
    return Segment(path, torn, damaged, lines)


def parse(line: bytes) -> Record:
    """The record of a sound line."""
    fields = json.loads(line[_PAYLOAD_STARTS:])
    fields["response"] = Response(**fields["response"])
    return Record(key=line[9 : 9 + _KEY_CHARS].decode(), **fields)


def _is_sound(line: bytes) -> bool:
    try:
        return int(line[:8], 16) == zlib.crc32(line[9:-1])
    except ValueError:
        return False


def _create(path: Path) -> int:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
    fcntl.flock(file, fcntl.LOCK_EX)
    _write(file, FORMAT)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)  # the name of the file must survive as well
    os.close(folder)
    return file


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]

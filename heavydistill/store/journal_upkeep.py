"""Looks after a journal: what is in it, whether it is whole, and one segment in place of many.

Segments that a process still writes to are looked at, and left alone by ``compact``. Lines that
cannot be read are counted, and ``compact`` keeps them as they are.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from heavydistill.errors import JournalError, remedy
from heavydistill.store.segment import (
    FORMAT,
    SUFFIX,
    Segment,
    opened,
    paths,
    read,
    record_at,
    segments,
    sync_folder,
)

_LOCK = "compact.lock"


@dataclass(slots=True)
class Usage:
    """What one model was asked, as far as the journal knows.

    Attributes:
        responses: Kept ones, each counted once.
        failed: Requests that came to nothing.
        prompt_tokens: Of the kept ones; where a server did not count, nothing is added.
        completion_tokens: Likewise, thinking included.
    """

    responses: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Compacted:
    """What ``compact`` did.

    Attributes:
        segments: Read and replaced by one.
        dropped: Records that nobody reads any more: requests kept twice, and failures of requests
            that were answered or failed later.
        unread: Lines that cannot be read, kept as they are.
        busy: Segments left alone, because a process writes to them or this user may not.
    """

    segments: int
    dropped: int
    unread: int
    busy: int


def usage(folder: Path) -> tuple[dict[str, Usage], int]:
    """(what each model was asked, by name; lines that cannot be read, and count nowhere).

    Raises:
        JournalError: As of ``segments_of``.
    """
    found: dict[str, Usage] = {}
    seen: set[bytes] = set()
    unread = 0
    with _unchanged(folder):
        for segment in segments(folder, thorough=True):
            unread += segment.skipped
            for line in segment.lines:
                record = record_at(segment.path, line.offset)
                model = found.setdefault(record.model, Usage())
                if line.failed:
                    model.failed += 1
                elif line.key not in seen:
                    seen.add(line.key)
                    model.responses += 1
                    model.prompt_tokens += max(0, record.response.prompt_tokens)
                    model.completion_tokens += max(0, record.response.completion_tokens)
    return found, unread


def segments_of(folder: Path) -> Iterator[Segment]:
    """As ``segments``, each line parsed.

    Raises:
        JournalError: Likewise; or the journal was compacted meanwhile.
    """
    with _unchanged(folder):
        yield from segments(folder, thorough=True)


@contextmanager
def _unchanged(folder: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise JournalError(
            f"{error.filename} was replaced while {folder} was read", "Give the same command again."
        ) from error


def compact(folder: Path) -> Compacted:
    """Write all but records that nobody reads any more into one segment, then remove the old ones.

    A kill leaves the old segments, or the new one, or both: each a whole journal.

    Raises:
        JournalError: The journal cannot be used, holds a segment that cannot be read, or is being
            compacted. Nothing is lost.
    """
    found = paths(folder)
    with ExitStack() as locks, _writing(folder):
        (folder / _LOCK).touch()
        if not _lock(folder / _LOCK, locks):
            raise JournalError(f"{folder} is being compacted", "Wait for that to end.")
        # Locked before they are read, so that nothing is written in between.
        idle = [read(path, thorough=True) for path in found if _lock(path, locks)]
        dropped = _dropped(idle)
        if idle:
            _replace(folder, idle, dropped)
    unread = sum(segment.skipped for segment in idle)
    return Compacted(len(idle), len(dropped), unread, len(found) - len(idle))


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise JournalError(
            f"The journal {folder} cannot be compacted: {error.strerror}",
            f"{remedy(error, 'another journal')}; nothing was lost.",
        ) from error


def _dropped(idle: list[Segment]) -> set[tuple[Path, int]]:
    """Where records stand that are neither the first response to a request nor, without one, its
    last failure."""
    answered: dict[bytes, tuple[Path, int]] = {}
    failed: dict[bytes, tuple[Path, int]] = {}
    every = set()
    for segment in idle:
        for line in segment.lines:
            place = (segment.path, line.offset)
            every.add(place)
            if line.failed:
                failed[line.key] = place
            else:
                answered.setdefault(line.key, place)
    return every - set((failed | answered).values())


def _replace(folder: Path, idle: list[Segment], dropped: set[tuple[Path, int]]) -> None:
    unfinished = folder / "compacted.part"
    with unfinished.open("wb") as file:
        file.write(FORMAT)
        for segment in idle:
            for offset, line in _lines(segment.path):
                if (segment.path, offset) not in dropped:
                    file.write(line)
        file.flush()
        os.fsync(file.fileno())
    # As old as the oldest: segments are read in the order of their names.
    oldest = idle[0].path.name.split("-")[0].removesuffix(SUFFIX)
    unfinished.rename(folder / f"{oldest}-compacted-{time.time_ns()}{SUFFIX}")
    sync_folder(folder)
    for segment in idle:
        segment.path.unlink()


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """(offset, line) of all whole lines after the first, as they stand there."""
    with opened(path) as file:
        offset = len(file.readline())
        for line in file:
            if line.endswith(b"\n"):
                yield offset, line
            offset += len(line)


def _lock(path: Path, locks: ExitStack) -> bool:
    """Whether nobody writes to it; from here on nobody does."""
    try:
        # For writing too: over NFS a lock needs that.
        file = locks.enter_context(opened(path, "rb+"))
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True

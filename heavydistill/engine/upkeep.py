"""Looks after a journal: what is in it, whether it is whole, and one segment in place of many.

Segments that a process still writes to are looked at, and left alone by ``compact``.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from heavydistill.engine.segment import (
    FORMAT,
    SUFFIX,
    Segment,
    paths,
    read,
    record_at,
    segments,
    sync_folder,
)
from heavydistill.errors import JournalError

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
        dropped: Lines that nobody reads any more: damage, requests kept twice, and failures of
            requests that were answered or failed later.
        busy: Segments left alone, because a process writes to them.
    """

    segments: int
    dropped: int
    busy: int


def usage(folder: Path) -> dict[str, Usage]:
    """What each model was asked, by name."""
    found: dict[str, Usage] = {}
    seen: set[bytes] = set()
    for segment in segments(folder):
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
    return found


def compact(folder: Path) -> Compacted:
    """Write all that is of use into one new segment, then remove the old ones.

    A kill leaves the old segments, or the new one, or both: each a whole journal.

    Raises:
        JournalError: The journal cannot be used, or is being compacted.
    """
    found = paths(folder)
    with ExitStack() as locks:
        (folder / _LOCK).touch()
        if not _lock(folder / _LOCK, locks):
            raise JournalError(f"{folder} is being compacted", "Wait for that to end.")
        # Locked before they are read, so that nothing is written in between.
        idle = [read(path) for path in found if _lock(path, locks)]
        kept = _kept(idle)
        lines = sum(len(segment.lines) + len(segment.damaged) for segment in idle)
        if idle:
            _replace(folder, idle, kept)
    return Compacted(len(idle), lines - len(kept), len(found) - len(idle))


def _kept(idle: list[Segment]) -> dict[bytes, tuple[Path, int]]:
    """Where the first response to each request stands, or else its last failure."""
    answered: dict[bytes, tuple[Path, int]] = {}
    failed: dict[bytes, tuple[Path, int]] = {}
    for segment in idle:
        for line in segment.lines:
            if line.failed:
                failed[line.key] = (segment.path, line.offset)
            else:
                answered.setdefault(line.key, (segment.path, line.offset))
    return failed | answered


def _replace(folder: Path, idle: list[Segment], kept: dict[bytes, tuple[Path, int]]) -> None:
    unfinished = folder / "compacted.part"
    with unfinished.open("wb") as file:
        file.write(FORMAT)
        for place in kept.values():
            file.write(record_at(*place).line())
        file.flush()
        os.fsync(file.fileno())
    # As old as the oldest: segments are read in the order of their names.
    oldest = idle[0].path.name.split("-")[0].removesuffix(SUFFIX)
    unfinished.rename(folder / f"{oldest}-compacted-{time.time_ns()}{SUFFIX}")
    sync_folder(folder)
    for segment in idle:
        segment.path.unlink()


def _lock(path: Path, locks: ExitStack) -> bool:
    """Whether nobody writes to it; from here on nobody does."""
    try:
        # For writing too: over NFS a lock needs that.
        file = locks.enter_context(path.open("rb+"))
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True

"""Looks after a journal: what is in it, whether it is whole, and one segment in place of many.

Segments that a process still writes to are looked at, and left alone by ``compact``.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from heavydistill.engine.journal import FORMAT, SUFFIX, Record, Segment, parse, segments


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
        dropped: Lines that no later run needs: failures, damage, and requests kept twice.
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
        for name, record in records(segment):
            model = found.setdefault(record.model, Usage())
            if record.response.finish_reason == "error":
                model.failed += 1
            elif name not in seen:
                seen.add(name)
                model.responses += 1
                model.prompt_tokens += max(0, record.response.prompt_tokens)
                model.completion_tokens += max(0, record.response.completion_tokens)
    return found


def compact(folder: Path) -> Compacted:
    """Write all that is of use into one new segment, then remove the old ones.

    A kill leaves the old segments, or the new one, or both: each a whole journal.

    Raises:
        JournalError: The journal cannot be used.
    """
    found = list(segments(folder))
    with ExitStack() as locks:
        idle = [segment for segment in found if _lock(segment.path, locks)]
        kept: set[bytes] = set()
        lines = sum(len(segment.lines) + len(segment.damaged) for segment in idle)
        unfinished = folder / "compacted.part"
        with unfinished.open("wb") as file:
            file.write(FORMAT)
            for segment in idle:
                for name, record in records(segment):
                    if record.response.finish_reason != "error" and name not in kept:
                        kept.add(name)
                        file.write(record.line())
            file.flush()
            os.fsync(file.fileno())
        if idle:
            # As old as the oldest: segments are read in the order of their names.
            unfinished.rename(folder / f"{idle[0].path.stem}-compacted{SUFFIX}")
            for segment in idle:
                segment.path.unlink()
        else:
            unfinished.unlink()
    return Compacted(len(idle), lines - len(kept), len(found) - len(idle))


def records(segment: Segment) -> Iterator[tuple[bytes, Record]]:
    """(key, record) of each sound line."""
    with segment.path.open("rb") as file:
        for name, offset, length in segment.lines:
            file.seek(offset)
            yield name, parse(file.read(length))


def _lock(path: Path, locks: ExitStack) -> bool:
    """Whether nobody writes to it; from here on nobody does."""
    file = locks.enter_context(path.open("rb"))
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

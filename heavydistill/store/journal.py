"""Keeps every response on disk before it is used, so that nothing is paid for twice.

A journal is a folder. Each process that writes has a segment of its own in it (see ``segment``),
so processes on one host or on several, over a shared file system, never touch each other's bytes.
``put`` returns when the record is on the disk.

The first response to a request is the one that counts, whoever asks again. A request that failed
is kept for the record, and asked again by the next run. What other processes write while a
journal is open is seen when it is opened anew, so two runs that ask for the same at the same time
both pay. A record that cannot be read is skipped, counted, and asked for again.

Not covered: the messages of a request, which a run derives again; encryption.
"""

from __future__ import annotations

import dataclasses
import fcntl
import functools
import hashlib
import json
import logging
import os
import random
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from heavydistill.errors import JournalError, RunError, remedy
from heavydistill.models.request import Request, Response
from heavydistill.store import segment
from heavydistill.store.segment import (
    FORMAT,
    SUFFIX,
    Record,
    Segment,
    opened,
    paths,
    read,
    record_at,
    segments,
    sync,
)

_Place = tuple[Path, int]
_SCANS, _PAUSE_S = 100, 0.1  # until a journal that changes all the time is given up

_log = logging.getLogger(__name__)
_LOCK = "compact.lock"


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
    return _digest(parts)


def prompt_id(messages: list[dict[str, str]]) -> str:
    """Tells prompts apart, whoever is asked and however often."""
    return _digest(messages)[:16]


def skipped_note(folder: Path, skipped: int) -> str:
    """What a user must know of so many skipped records."""
    return (
        f"{skipped:,} record(s) of the journal {folder} cannot be read and are skipped; where they "
        f"are needed they are asked for again. `heavydistill journal check {folder}` lists them."
    )


class Journal:
    """A journal opened by one process; its methods may be called by several threads.

    Raises:
        JournalError: The folder cannot be used, or a segment cannot be read or has another format.
            So do the methods that read, if that happens while it is open.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._answered: dict[bytes, _Place] = {}
        self._failed: dict[bytes, _Place] = {}
        self.skipped = 0  # lines that cannot be read, as far as they were looked at
        self._is_thorough = False
        self._own: tuple[Path, int] | None = None
        self._offset = self._written = self._synced = 0
        self._fault: OSError | None = None
        self._write_lock, self._sync_lock = threading.Lock(), threading.Lock()
        self._scan()

    def get(self, wanted: str) -> Response | None:
        """The response to a request; None if there is none, or if it failed."""
        return _reused(self._record(bytes.fromhex(wanted)))

    def last(self, wanted: str) -> Response | None:
        """The response to a request, or how it failed; None if it was never asked."""
        response = self.get(wanted)
        return response or _reused(self._record(bytes.fromhex(wanted), failed=True))

    def state(self, wanted: str) -> Literal["answered", "failed"] | None:
        """What became of a request; None if it was never asked."""
        if bytes.fromhex(wanted) in self._answered:
            return "answered"
        return "failed" if bytes.fromhex(wanted) in self._failed else None

    @property
    def answered(self) -> int:
        """How many requests have a response."""
        return len(self._answered)

    def answers(self, shuffled: bool = False) -> Iterator[Record]:
        """The records of all responses, as they were written or in a random order (always one)."""
        order = list(self._answered)
        if shuffled:
            random.Random(0).shuffle(order)
        for wanted in order:
            if record := self._record(wanted):
                yield record

    def put(self, record: Record) -> None:
        """Write a record; it is on the disk when this returns.

        Threads that wait share one flush.

        Raises:
            RunError: The disk is full or fails; what was written before is sound.
        """
        line = record.line()
        is_failed = record.response.finish_reason == "error"
        try:
            with self._write_lock, self._while_sound():
                if self._own is None:  # it is made for the first line
                    self._own = segment.create(self.folder)
                    self._offset = len(segment.FORMAT)
                path, file = self._own
                segment.write(file, line)
                place = path, self._offset
                _note(self._answered, self._failed, bytes.fromhex(record.key), is_failed, place)
                self._offset += len(line)
                self._written = mine = self._written + 1
            with self._sync_lock:
                if self._synced < mine:
                    reached = self._written
                    with self._while_sound():
                        os.fdatasync(file)
                    self._synced = reached
        except OSError as error:
            raise RunError(
                f"The journal {self.folder} cannot be written: {error.strerror}",
                f"{remedy(error, 'another --journal')}, and run the same command again; what is in "
                "it is kept.",
            ) from error

    def close(self) -> None:
        """Give the segment back. Nothing can be put after it."""
        with self._sync_lock, self._write_lock:
            if self._own is not None:
                os.close(self._own[1])
            self._fault = self._fault or OSError(0, "it was closed")

    @contextmanager
    def _while_sound(self) -> Iterator[None]:
        """Nothing may follow half of a line, nor what never reached the disk: the system reports
        that once, and the next flush as a success."""
        if self._fault:
            raise self._fault
        try:
            yield
        except OSError as error:
            self._fault = error
            raise

    def _record(self, wanted: bytes, failed: bool = False) -> Record | None:
        """The first response to a request, or its last failure."""
        while place := (self._failed if failed else self._answered).get(wanted):
            try:
                return segment.record_at(*place)
            except FileNotFoundError:  # the journal was compacted meanwhile
                pass
            except segment.NoRecordError:  # a later one of the same request may be sound
                self._is_thorough = True
            self._scan()
        return None

    def _scan(self) -> None:
        """Find the first response to each request, and its last failure."""
        for scan in range(_SCANS):
            with self._write_lock:  # what is put meanwhile would be missing
                try:
                    found = segment.segments(self.folder, self._is_thorough)
                    answered, failed, skipped = _outcomes(found)
                except FileNotFoundError as error:  # compacted while it was read
                    missing = error.filename
                else:
                    self._answered, self._failed = answered, failed
                    if skipped > self.skipped and self._is_thorough:  # nobody knew of these
                        _warn(self.folder, skipped)
                    self.skipped = skipped
                    return
            time.sleep(_PAUSE_S * scan / _SCANS)
        raise JournalError(
            f"The journal {self.folder} lists {missing}, which is not there",
            "Wait for whoever changes the journal all the time, or check its disk.",
        )


def _outcomes(segments: Iterable[Segment]) -> tuple[dict[bytes, _Place], dict[bytes, _Place], int]:
    """(where the first response to each request stands, where its last failure does, lines that
    cannot be read)."""
    answered: dict[bytes, _Place] = {}
    failed: dict[bytes, _Place] = {}
    skipped = 0
    for each in segments:
        skipped += each.skipped
        for line in each.lines:
            _note(answered, failed, line.key, line.failed, (each.path, line.offset))
    return answered, failed, skipped


def _note(
    answered: dict[bytes, _Place],
    failed: dict[bytes, _Place],
    key: bytes,
    is_failed: bool,
    place: _Place,
) -> None:
    """The first response counts, and the last failure."""
    if is_failed:
        failed[key] = place
    else:
        answered.setdefault(key, place)


def _reused(record: Record | None) -> Response | None:
    return dataclasses.replace(record.response, from_journal=True) if record else None


@functools.cache
def _warn(folder: Path, skipped: int) -> None:
    """Once, however many stages open the journal."""
    _log.warning("%s", skipped_note(folder, skipped))


def _digest(content: object) -> str:
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(slots=True)
class ModelUsage:
    """What one model was asked, as far as the journal knows."""

    responses: int = 0  # kept ones, each counted once
    failed: int = 0  # requests that came to nothing
    prompt_tokens: int = 0  # of the kept responses, as far as servers counted them
    completion_tokens: int = 0  # likewise, thinking included


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What ``compact`` did."""

    segments: int  # read and replaced by one
    dropped: int  # records of requests kept twice, and failures of those asked again later
    unread: int  # lines that cannot be read, kept as they are
    busy: int  # segments left alone, because a process writes to them or this user may not


def usage(folder: Path) -> tuple[dict[str, ModelUsage], int]:
    """(what each model was asked, by name; lines that cannot be read, and count nowhere).

    Raises:
        JournalError: As ``segments_of``.
    """
    found: dict[str, ModelUsage] = {}
    seen: set[bytes] = set()
    unread = 0
    with _unchanged(folder):
        for each in segments(folder, thorough=True):
            unread += each.skipped
            for line in each.lines:
                record = record_at(each.path, line.offset)
                model = found.setdefault(record.model, ModelUsage())
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


def compact(folder: Path) -> CompactionResult:
    """Write all but records that nobody reads any more into one segment, then remove the old ones.

    A kill leaves the old segments, or the new one, or both: each a whole journal.

    Raises:
        JournalError: The journal cannot be used, holds a segment that cannot be read, or is being
            compacted. Nothing is lost.
    """
    found = paths(folder)
    try:
        with ExitStack() as locks:
            (folder / _LOCK).touch()
            if not _lock(folder / _LOCK, locks):
                raise JournalError(f"{folder} is being compacted", "Wait for that to end.")
            # Locked before they are read, so that nothing is written in between.
            idle = [read(path, thorough=True) for path in found if _lock(path, locks)]
            # Neither the first response to a request nor, without one, its last failure.
            answered, failed, skipped = _outcomes(idle)
            every = {(each.path, line.offset) for each in idle for line in each.lines}
            dropped = every - set((failed | answered).values())
            if idle:
                _replace(folder, idle, dropped)
    except OSError as error:
        raise JournalError(
            f"The journal {folder} cannot be compacted: {error.strerror}",
            f"{remedy(error, 'another journal')}; nothing was lost.",
        ) from error
    return CompactionResult(len(idle), len(dropped), skipped, len(found) - len(idle))


def _replace(folder: Path, idle: list[Segment], dropped: set[_Place]) -> None:
    unfinished = folder / "compacted.part"
    with unfinished.open("wb") as file:
        file.write(FORMAT)
        for segment in idle:
            for offset, line in _lines(segment.path):
                if (segment.path, offset) not in dropped:
                    file.write(line)
    sync(unfinished)
    # As old as the oldest: segments are read in the order of their names.
    oldest = idle[0].path.name.split("-")[0].removesuffix(SUFFIX)
    unfinished.rename(folder / f"{oldest}-compacted-{time.time_ns()}{SUFFIX}")
    sync(folder)
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

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
import functools
import hashlib
import json
import logging
import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from heavydistill.errors import RunError, remedy
from heavydistill.models.request import Request, Response
from heavydistill.store import segment
from heavydistill.store.segment import Record, segments

_Place = tuple[Path, int]

_log = logging.getLogger(__name__)


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
            except segment.NoRecordError:  # a later one of the same request may be sound
                self._is_thorough = True
                self._scan()
        return None

    def _scan(self) -> None:
        """Find the first response to each request, and its last failure."""
        answered: dict[bytes, _Place] = {}
        failed: dict[bytes, _Place] = {}
        skipped = 0
        with self._write_lock:  # what is put meanwhile would be missing
            for each in segments(self.folder, self._is_thorough):
                skipped += each.skipped
                for line in each.lines:
                    _note(answered, failed, line.key, line.failed, (each.path, line.offset))
            self._answered, self._failed = answered, failed
        if skipped > self.skipped and self._is_thorough:  # nobody knew of these
            _warn(self.folder, skipped)
        self.skipped = skipped


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


def usage(folder: Path) -> tuple[dict[str, ModelUsage], int]:
    """(what each model was asked, by name; lines that cannot be read, and count nowhere).

    Raises:
        JournalError: As ``segments``.
    """
    found: dict[str, ModelUsage] = {}
    seen: set[bytes] = set()
    unread = 0
    for each in segments(folder, thorough=True):
        unread += each.skipped
        for line in each.lines:
            record = segment.record_at(each.path, line.offset)
            model = found.setdefault(record.model, ModelUsage())
            if line.failed:
                model.failed += 1
            elif line.key not in seen:
                seen.add(line.key)
                model.responses += 1
                model.prompt_tokens += max(0, record.response.prompt_tokens)
                model.completion_tokens += max(0, record.response.completion_tokens)
    return found, unread

"""Saves every response on disk before it is used, so that no request is billed twice.

A journal is a folder. Each process writes to a separate segment file (see ``segment``), so
processes on one host, or on several hosts with a shared file system, never write to the same file.
``put`` returns when its records are on disk.

If a request has several responses, the first one is used. A failed request is recorded, and the
next run sends it again. Records that other processes write become visible only when the journal is
opened again, so if two runs send the same request at the same time, both are billed. A record that
cannot be read is skipped and counted, and its request is sent again.

Not covered: the messages of a request, which each run builds again; encryption.
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from heavydistill.errors import RunError, remedy
from heavydistill.models.http.finish_reasons import reread
from heavydistill.models.request import Message, Request, Response
from heavydistill.store import segment
from heavydistill.store.segment import Record, segments

_Place = tuple[Path, int]

_CANONICAL = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":"))
_log = logging.getLogger(__name__)


def keys(model: str, revision: str, requests: Sequence[Request]) -> list[str]:
    """Keys of requests: hashes of model, revision, messages, sampling, seed and sample index, and
    of further parameters, if there are any."""
    # JSON of what the samples of a prompt share, by ids.
    shared: dict[tuple[int, int, int], str] = {}
    found = []
    for request in requests:
        more = id(request.more) if request.more else 0
        same = id(request.messages), id(request.sampling), more
        if same not in shared:
            parts = {"sampling": request.sampling.model_dump(), "messages": request.messages}
            parts |= {"model": model, "revision": revision}
            parts |= {"more": request.more} if request.more else {}
            shared[same] = _CANONICAL.encode(parts)[1:-1]
        found.append(_digest(f'{{"index":{request.index},{shared[same]},"seed":{request.seed}}}'))
    return found


def prompt_id(messages: list[Message]) -> str:
    """The id of a prompt: a hash of its messages alone."""
    return _digest(_CANONICAL.encode(messages))[:16]


def skipped_note(folder: Path, skipped: int) -> str:
    """The warning that ``skipped`` records cannot be read."""
    return (
        f"{skipped:,} record(s) of the journal {folder} cannot be read and are skipped; where they "
        f"are needed they are asked for again. `heavydistill journal check {folder}` lists them."
    )


class Journal:
    """A journal, opened by one process. Thread-safe.

    Raises:
        JournalError: The folder cannot be used, or a segment cannot be read or has another format.
            Methods that read raise it too.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._answered: dict[bytes, _Place] = {}
        self._failed: dict[bytes, _Place] = {}
        self.skipped = 0  # number of unreadable lines among those checked so far
        self._is_thorough = False
        self._own: tuple[Path, int] | None = None
        self._offset = 0
        self._fault: OSError | None = None
        self._lock = threading.Lock()
        self._scan()

    def get(self, wanted: str) -> Response | None:
        """The response to the request with this key; None if there is none or it failed.

        A failure that this version does not count as one is a response.
        """
        if answered := _reused(self._record(bytes.fromhex(wanted))):
            return answered
        last = self._last_failure(wanted)
        return last if last and last.finish_reason != "error" else None

    def last(self, wanted: str) -> Response | None:
        """The response to a request, or its last failure; None if it was never sent."""
        return self.get(wanted) or self._last_failure(wanted)

    def state(self, wanted: str) -> Literal["answered", "failed"] | None:
        """Whether a request was answered or failed; None if it was never sent."""
        if bytes.fromhex(wanted) in self._answered:
            return "answered"
        last = self._last_failure(wanted)
        if last is None:
            return None
        return "failed" if last.finish_reason == "error" else "answered"

    @property
    def answered(self) -> int:
        """Number of requests that have a response."""
        return len(self._answered)

    def answers(self, shuffled: bool = False) -> Iterator[Record]:
        """Yield the records of all responses in the order of writing, or in a fixed shuffled
        order."""
        order = list(self._answered)
        if shuffled:
            random.Random(0).shuffle(order)
        for wanted in order:
            if record := self._record(wanted):
                yield record

    def put(self, records: Sequence[Record]) -> None:
        """Write records with a single flush; returns when they are on disk.

        Raises:
            RunError: The disk is full or fails; earlier records are intact.
        """
        lines = [record.line() for record in records]
        try:
            with self._lock:
                path = self._append(b"".join(lines))
                for record, line in zip(records, lines, strict=True):
                    is_failed = record.response.finish_reason == "error"
                    place = path, self._offset
                    _note(self._answered, self._failed, bytes.fromhex(record.key), is_failed, place)
                    self._offset += len(line)
        except OSError as error:
            raise RunError(
                f"The journal {self.folder} cannot be written: {error.strerror}",
                f"{remedy(error, 'another --journal')}, and repeat the command; all responses in "
                "the journal are kept.",
            ) from error

    def close(self) -> None:
        """Close the segment; no record can be written afterwards."""
        with self._lock:
            if self._own is not None:
                os.close(self._own[1])
            self._fault = self._fault or OSError(0, "it was closed")

    def _append(self, data: bytes) -> Path:
        """Write to the segment and flush it; returns its path.

        After an error, every later call raises the same error, for two reasons: a line must not
        follow a partial line, and after a failed flush the system reports the next flush as
        successful although data was lost.
        """
        if self._fault:
            raise self._fault
        try:
            if self._own is None:  # the segment is created with the first record
                self._own = segment.create(self.folder)
                self._offset = len(segment.FORMAT)
            path, file = self._own
            segment.write(file, data)
            os.fdatasync(file)
        except OSError as error:
            self._fault = error
            raise
        return path

    def _record(self, wanted: bytes, failed: bool = False) -> Record | None:
        """Read the first response to a request, or its last failure."""
        while place := (self._failed if failed else self._answered).get(wanted):
            try:
                return segment.record_at(*place)
            except segment.NoRecordError:  # a later record of the same request may be intact
                self._is_thorough = True
                self._scan()
        return None

    def _last_failure(self, wanted: str) -> Response | None:
        """The last failure of a request as this version reads it, which may be a response."""
        return _reused(self._record(bytes.fromhex(wanted), failed=True))

    def _scan(self) -> None:
        """Build the index: the first response to each request, and its last failure."""
        answered: dict[bytes, _Place] = {}
        failed: dict[bytes, _Place] = {}
        skipped = 0
        with self._lock:  # records written during the scan would be missed
            for each in segments(self.folder, self._is_thorough):
                skipped += each.skipped
                for line in each.lines:
                    _note(answered, failed, line.key, line.failed, (each.path, line.offset))
            self._answered, self._failed = answered, failed
        if skipped > self.skipped and self._is_thorough:  # some of these lines are new
            _warn(self.folder, skipped)
        self.skipped = skipped


def _note(
    answered: dict[bytes, _Place],
    failed: dict[bytes, _Place],
    key: bytes,
    is_failed: bool,
    place: _Place,
) -> None:
    """Add a record to the index, which keeps each request's first response and last failure."""
    if is_failed:
        failed[key] = place
    else:
        answered.setdefault(key, place)


def _reused(record: Record | None) -> Response | None:
    return dataclasses.replace(reread(record.response), from_journal=True) if record else None


@functools.cache
def _warn(folder: Path, skipped: int) -> None:
    """Log the warning once, even if several stages open the journal."""
    _log.warning("%s", skipped_note(folder, skipped))


def _digest(canonical: str) -> str:
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(slots=True)
class ModelUsage:
    """Number of requests to one model in a journal, and their tokens."""

    responses: int = 0  # requests with a response
    failed: int = 0  # failed requests
    prompt_tokens: int = 0  # prompt tokens of the responses, if the server counted them
    completion_tokens: int = 0  # completion tokens with the thinking, if the server counted them


def usage(folder: Path) -> tuple[dict[str, ModelUsage], int]:
    """Returns (usage of each model by name, number of lines that cannot be read).

    Raises:
        JournalError: As ``segments`` raises.
    """
    used: dict[str, ModelUsage] = {}
    seen: set[bytes] = set()
    unread = 0
    for each in segments(folder, thorough=True):
        unread += each.skipped
        for line in each.lines:
            record = segment.record_at(each.path, line.offset)
            model = used.setdefault(record.model, ModelUsage())
            if line.failed:
                model.failed += 1
            elif line.key not in seen:
                seen.add(line.key)
                model.responses += 1
                model.prompt_tokens += max(0, record.response.prompt_tokens)
                model.completion_tokens += max(0, record.response.completion_tokens)
    return used, unread

"""How responses are kept: many by one flush, none before it, and none lost."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import Any

import messages
import pytest
from asking import asking, requests
from fault_server import faulty
from marked import eventually

from heavydistill.models.http.transport import submit
from heavydistill.models.journaled import JournaledEngine, journaled
from heavydistill.models.request import Request, Response, Sample
from heavydistill.store.journal import Journal, keys

FIRST, OTHERS = "1+1?", ["2+2?", "3+3?", "4+4?"]


class SlowDisk:
    """Holds the first flush until as many responses wait for the next one as were asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.engine: Any = None
        self.flushes: list[bytes] = []  # What the journal holds at each
        self.fails = False
        self._segments, self._flush = folder.glob, os.fdatasync
        self.begun, self._released = threading.Event(), threading.Event()
        monkeypatch.setattr(os, "fdatasync", self.flush)

    def flush(self, file: int) -> None:
        (segment,) = self._segments("*.segment")
        self.flushes.append(segment.read_bytes())
        self.begun.set()
        if len(self.flushes) == 1:
            assert self._released.wait(60)
        elif self.fails:
            raise OSError(28, "No space left on device")
        self._flush(file)

    def release_when_waiting(self, count: int) -> None:
        assert eventually(lambda: self._waiting() == count, 60)
        self._released.set()

    def _waiting(self) -> int:
        return sum(len(samples) for samples, _ in [*self.engine._commit._gathered.values()])


@contextlib.contextmanager
def first_flush_held(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> Iterator[tuple[SlowDisk, list[Future[list[Response]]], JournaledEngine]]:
    """Calls for one and for three prompts of four samples; the first response is being flushed."""
    disk = SlowDisk(monkeypatch, folder)
    with faulty() as server, asking(server, concurrency=64) as engine, ThreadPoolExecutor() as pool:
        disk.engine = engine
        journal = journaled(engine, folder, "served")
        calls = [pool.submit(journal.generate, requests(1, FIRST))]
        assert disk.begun.wait(60)
        calls += [pool.submit(journal.generate, requests(4, prompt)) for prompt in OTHERS]
        try:
            yield disk, calls, journal
        finally:
            disk._released.set()


def asked() -> list[Request]:
    return [each for prompt in OTHERS for each in requests(4, prompt)]


def test_responses_of_several_calls_that_end_during_a_flush_share_the_next_one(
    monkeypatch, tmp_path
):
    with first_flush_held(monkeypatch, tmp_path) as (disk, calls, _):
        disk.release_when_waiting(12)
        _, *others = [call.result(60) for call in calls]
    assert len(disk.flushes) == 2 and len(disk.flushes[1].splitlines()) == 1 + 1 + 12
    journal = Journal(tmp_path)
    for wanted, response in zip(keys("served", "", asked()), chain(*others), strict=True):
        assert journal.get(wanted).answer_text == response.answer_text


def test_no_response_is_used_before_its_flush_has_ended(monkeypatch, tmp_path):
    with first_flush_held(monkeypatch, tmp_path) as (disk, calls, journal):
        assert eventually(lambda: disk._waiting() == 12, 60)
        assert not any(call.done() for call in calls)
        (wanted,) = keys("served", "", requests(1, FIRST))
        assert journal._journal.get(wanted) is None
        disk._released.set()
        assert all(call.result(60) for call in calls)
        assert journal._journal.get(wanted)


def test_a_full_disk_is_told_to_everyone_who_waits_for_it(monkeypatch, tmp_path):
    with first_flush_held(monkeypatch, tmp_path) as (disk, calls, journal):
        disk.fails = True
        disk.release_when_waiting(12)
        first, *others = calls
        assert first.result(60)[0].failure is None
        for call in others:
            with messages.raises(
                "journal_unwritable", why="No space left on device", fix="Make room there"
            ):
                call.result(60)
        with messages.raises(
            "journal_unwritable", why="No space left on device", fix="Make room there"
        ):
            journal.generate(requests(1, "5+5?"))
    assert len(disk.flushes) == 2


def test_who_stops_waiting_takes_no_response_away(monkeypatch, tmp_path):
    with first_flush_held(monkeypatch, tmp_path) as (disk, calls, _):
        kept: list[Sample] = []
        cancelled = submit(disk.engine._generated(requests(2, "5+5?"), kept.extend))
        assert eventually(lambda: disk._waiting() == 12 + 2, 60)
        cancelled.cancel()
        assert eventually(lambda: len(disk.engine._in_flight) == 13, 60)
        disk._released.set()
        assert [len(call.result(60)) for call in calls] == [1, 4, 4, 4]
        assert eventually(lambda: len(kept) == 2, 60)


@pytest.mark.parametrize("is_drained", [True, False])
def test_the_last_responses_are_kept_when_the_engine_ends(is_drained):
    kept: list[Sample] = []
    begun = threading.Event()

    def keep(samples: list[Sample]) -> None:
        begun.set()
        assert eventually(lambda: engine.is_drained, 60)
        kept.extend(samples)

    with ThreadPoolExecutor() as pool, faulty() as server, asking(server) as engine:
        calls = [pool.submit(engine.generate, requests(1), keep)]
        assert begun.wait(60)
        calls += [pool.submit(engine.generate, requests(3), keep)]
        assert eventually(
            lambda: [len(each) for each, _ in [*engine._commit._gathered.values()]] == [3], 60
        )
        if is_drained:
            engine.drain()
            assert [len(call.result(60)) for call in calls] == [1, 3]
    assert len(kept) == 4  # closing alone is enough

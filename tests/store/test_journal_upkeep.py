"""A journal stays the same journal when it is looked after."""

from __future__ import annotations

import fcntl
import threading

import pytest
from test_journal import answers, filled, only_segment, record, request

from heavydistill.errors import JournalError
from heavydistill.store.journal import Journal, compact, key, usage
from heavydistill.store.segment import create, segments


def test_usage_counts_each_request_once_and_failures_apart(tmp_path):
    journal = Journal(tmp_path)
    for index in (0, 0, 1):
        journal.put(record(request(index=index), prompt_tokens=10, completion_tokens=5))
    journal.put(record(request(index=2), finish_reason="error", error="x", answer_text=""))
    journal.put(record(request(index=3), prompt_tokens=-1, completion_tokens=-1))
    journal.close()
    models, unread = usage(tmp_path)
    (used,) = models.values()
    assert unread == 0
    assert (used.responses, used.failed) == (3, 1)
    assert (used.prompt_tokens, used.completion_tokens) == (20, 10)


def test_compacting_keeps_every_response_and_drops_the_rest(tmp_path):
    filled(tmp_path, "a", "b")
    filled(tmp_path, "a", "b", "c")
    journal = Journal(tmp_path)
    journal.put(record(request(index=3), finish_reason="error", error="x", answer_text=""))
    journal.close()
    done = compact(tmp_path)
    assert (done.segments, done.dropped, done.busy) == (3, 2, 0)
    assert answers(tmp_path, 4) == ["a", "b", "c", None]
    # A replay wants to know how the others failed.
    assert Journal(tmp_path).last(key("m", "", request(index=3))).error == "x"
    for _ in range(3):
        assert compact(tmp_path).dropped == 0
    only_segment(tmp_path)


def test_a_segment_in_use_is_left_alone(tmp_path):
    filled(tmp_path, "a")
    busy = Journal(tmp_path)
    busy.put(record(request(index=1), "b"))
    assert compact(tmp_path).busy == 1
    busy.put(record(request(index=2), "c"))
    busy.close()
    assert answers(tmp_path, 3) == ["a", "b", "c"]


def test_an_open_journal_finds_its_responses_after_compaction(tmp_path):
    filled(tmp_path, "a")
    filled(tmp_path, "b", "b")
    opened = Journal(tmp_path)
    compact(tmp_path)
    assert opened.get(key("m", "", request(index=1))).answer_text == "b"


def test_an_empty_journal_can_be_compacted(tmp_path):
    assert compact(tmp_path).segments == 0
    assert not list(segments(tmp_path))


def test_a_segment_is_locked_as_long_as_it_is_written(tmp_path):
    journal = Journal(tmp_path)
    journal.put(record(request()))
    (segment,) = segments(tmp_path)
    with segment.path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            journal.close()
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            raise AssertionError("not locked")


def test_one_compaction_at_a_time(tmp_path):
    filled(tmp_path, "a")
    with (tmp_path / "compact.lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(JournalError, match="being compacted"):
            compact(tmp_path)
    assert answers(tmp_path, 1) == ["a"]


def test_a_segment_taken_at_birth_is_made_anew(tmp_path, monkeypatch):
    lock, taken = fcntl.flock, []

    def late(file: int, how: int) -> None:
        if not taken:  # a compaction was quicker
            (path,) = tmp_path.glob("*.segment")
            path.unlink()
            taken.append(path)
        lock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    path, _ = create(tmp_path)
    assert path.exists() and path != taken[0]


def test_compacting_while_threads_write_loses_nothing(tmp_path):
    stop = threading.Event()

    def compacting() -> None:
        while not stop.is_set():
            compact(tmp_path)

    thread = threading.Thread(target=compacting)
    thread.start()
    for start in range(0, 60, 3):
        journal = Journal(tmp_path)
        for index in range(start, start + 3):
            journal.put(record(request(index=index), str(index)))
        journal.close()
    stop.set()
    thread.join()
    assert answers(tmp_path, 60) == [str(index) for index in range(60)]

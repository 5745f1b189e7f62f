"""What in the folder of a journal cannot be read: a message, or a line that is skipped and counted.

Nothing of it keeps a run busy for ever.
"""

import errno
import json
import logging
import os
import socket
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import messages
import pytest
from test_journal import answers, ask, filled, key, only_segment, request
from typer.testing import CliRunner

from heavydistill.cli.inspect import journal
from heavydistill.errors import JournalError
from heavydistill.store.journal import Journal, _warn, usage
from heavydistill.store.segment import FORMAT, require, segments

RESPONSE = {"answer_text": "4", "finish_reason": "stop"}
PAYLOAD = {"model": "m", "asked": {"seed": 7}, "response": RESPONSE, "at": 1.5}


def line(payload: object, mark: str = "+", wanted: str = "") -> bytes:
    """With a checksum that is right."""
    text = payload if isinstance(payload, str) else json.dumps(payload)
    body = f"{mark} {wanted or key('m', '', request())} {text}".encode()
    return b"%08x %s\n" % (zlib.crc32(body), body)


def with_response(**fields: Any) -> dict[str, Any]:
    return PAYLOAD | {"response": RESPONSE | fields}


FOREIGN = {
    "no object": line([1, 2]),
    "no JSON": line("{"),
    "nested deep": line("[" * 100_000 + "]" * 100_000),
    "a field is missing": line({name: PAYLOAD[name] for name in ("model", "asked", "response")}),
    "a field is unknown": line(PAYLOAD | {"colour": "red"}),
    "no response": line(PAYLOAD | {"response": None}),
    "a field of the response is unknown": line(with_response(colour="red")),
    "a field of the response is missing": line(PAYLOAD | {"response": {"answer_text": "4"}}),
    "an answer is a list": line(with_response(answer_text=["4"])),
    "a finish reason is unknown": line(with_response(finish_reason="bored")),
    "an error is an object": line(with_response(error={})),
    "half of a character": line(with_response(answer_text="\ud83d")),
    "a failure is marked as a response": line(with_response(finish_reason="error", error="x")),
    "a response is marked as a failure": line(PAYLOAD, mark="-"),
    "no mark": line(PAYLOAD, mark="?"),
    "a key is no hex": line(PAYLOAD, wanted="x" * 64),
    "a key is short": line(PAYLOAD, wanted="abc"),
    "a line is empty": b"00000000 \n",
}


def with_line(folder: Path, foreign: bytes) -> Path:
    """The segment of a journal that answers two requests, and before them has this line."""
    filled(folder, "a", "b")
    path = only_segment(folder)
    first, *rest = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + foreign + b"".join(rest))
    return path


def test_the_line_that_the_others_are_made_of_is_a_record(tmp_path):
    (tmp_path / "1.segment").write_bytes(FORMAT + line(PAYLOAD))
    assert answers(tmp_path, 1) == ["4"]


@pytest.mark.parametrize("foreign", FOREIGN.values(), ids=FOREIGN.keys())
def test_a_line_of_another_shape_is_skipped_counted_and_asked_again(tmp_path, foreign, caplog):
    path = with_line(tmp_path, foreign)
    _warn.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert answers(tmp_path, 2) == ["a", "b"]  # a sound record of the same request counts
        list(Journal(tmp_path).answers())
    # One that nobody needs may stay unseen; it is never seen twice.
    assert sum(messages.is_in(each, "records_unread", count=1) for each in caplog.messages) <= 1
    (found,) = segments(tmp_path, thorough=True)
    assert (found.foreign, found.damaged, found.skipped) == ([2], [], 1)
    assert usage(tmp_path)[1] == 1
    path.write_bytes(FORMAT + foreign)
    caplog.clear()
    assert answers(tmp_path, 1) == [None]
    responses, asked = ask(tmp_path, 1)
    assert asked == [0] and responses[0].answer_text == "0"
    assert ask(tmp_path, 1)[1] == []  # what came instead is found by the next run


def test_a_journal_counts_what_it_skips_and_warns_of_what_shows_late(tmp_path, caplog):
    path = with_line(tmp_path, FOREIGN["an answer is a list"])
    path.write_bytes(path.read_bytes().replace(b'"b"', b'"x"'))  # a damaged one beside it
    assert Journal(tmp_path).skipped == 1 and not caplog.messages
    _warn.cache_clear()
    for _ in range(2):  # stages of a run
        assert answers(tmp_path, 2) == ["a", None]
    (told,) = caplog.messages
    assert messages.is_in(told, "records_unread", count=2, folder=tmp_path)
    assert messages.is_in(told, "check_journal", folder=tmp_path)


def put_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as held:
        held.bind(str(path))


NO_FILES: dict[str, Callable[[Path], None]] = {
    "dangling link": lambda path: path.symlink_to("nowhere"),
    "folder": Path.mkdir,
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "socket": put_socket,
}


@pytest.mark.parametrize("put", NO_FILES.values(), ids=NO_FILES.keys())
def test_what_is_named_like_a_segment_and_is_no_file_is_refused_at_once(tmp_path, put, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    folder = Path("j")
    filled(folder, "a")
    put(folder / "x.segment")
    before = sorted(folder.iterdir())
    for use in (Journal, usage, lambda folder: require(folder, writes=False)):
        with messages.raises("segment_no_file", file="j/x.segment"):
            use(folder)
    assert sorted(folder.iterdir()) == before
    done = CliRunner().invoke(journal, ["check", str(folder)])
    assert isinstance(done.exception, JournalError)  # exit code 2


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ESTALE, errno.ENOENT])
def test_a_segment_that_the_system_does_not_give_is_an_error(tmp_path, number, monkeypatch):
    """root may read everything, so the system is asked by another."""
    filled(tmp_path, "a")
    path = only_segment(tmp_path)
    open_file = open

    def refusing(name: Any, *more: Any, **keys: Any) -> int:
        if Path(name) == path:
            raise OSError(number, os.strerror(number), name)
        return open_file(name, *more, **keys)

    monkeypatch.setattr("builtins.open", refusing)
    for use in (Journal, lambda folder: require(folder, writes=False)):
        with messages.raises("segment_unreadable", file=path, why=os.strerror(number)):
            use(tmp_path)


def test_a_journal_is_checked_without_reading_it_or_leaving_anything(tmp_path):
    filled(tmp_path / "j", "a")
    before = sorted(tmp_path.rglob("*"))
    for folder in (tmp_path / "j", tmp_path / "new" / "j"):
        require(folder, writes=True)
    assert sorted(tmp_path.rglob("*")) == before
    (tmp_path / "j" / "9.segment").write_bytes(b"heavydistill journal 999\n")
    for use in (Journal, lambda folder: require(folder, writes=False)):
        with messages.raises("segment_version"):
            use(tmp_path / "j")


@pytest.mark.parametrize("place", ["file", "file/j", "link", "/proc/nowhere/j"])
def test_a_place_where_no_journal_can_be_is_refused(tmp_path, place):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("nowhere")
    for use in (Journal, lambda folder: require(folder, writes=True)):
        with messages.raises("journal_unusable", folder=tmp_path / place):
            use(tmp_path / place)


def test_stats_and_check_print_what_they_skip(tmp_path):
    path = with_line(tmp_path, FOREIGN["no object"])
    path.write_bytes(path.read_bytes().replace(b'"b"', b'"x"'))
    done = CliRunner().invoke(journal, ["stats", str(tmp_path)])
    assert done.exit_code == 0 and "2 line(s) cannot be read" in done.output
    done = CliRunner().invoke(journal, ["check", str(tmp_path)])
    assert done.exit_code == 1
    said = " ".join(done.output.split())
    assert "1 records; damaged lines: 4; lines that hold no record: 2" in said
    assert "2 record(s) cannot be read; runs send their requests again" in said


def test_a_journal_that_is_a_file_is_called_one(tmp_path):
    (tmp_path / "file").write_text("")
    for verb in ("stats", "check"):
        done = CliRunner().invoke(journal, [verb, str(tmp_path / "file")])
        assert isinstance(done.exception, JournalError)
        assert messages.is_in(done.exception.what, "journal_is_file")

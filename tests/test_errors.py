"""Errors: what is done about a disk depends on what it said; texts from outside are printable."""

import errno
import os
from pathlib import Path

import pytest

from heavydistill.errors import (
    CONTROL,
    HeavydistillError,
    RunError,
    StoppedError,
    printable,
    remedy,
)
from heavydistill.models.ledger import Ledger
from heavydistill.store.atomic import Workplace
from heavydistill.store.journal import Journal
from heavydistill.store.traces import writing


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.ENOSPC, "Make room there, or give another --out"),
        (errno.EDQUOT, "Make room there, or give another --out"),
        (errno.EACCES, "Allow this user to write there, or give another --out"),
        (errno.EROFS, "Allow this user to write there, or give another --out"),
        (errno.ENOENT, "Give another --out"),
        (errno.ENOTDIR, "Give another --out"),
        (errno.EIO, "Check the disk, or give another --out"),
    ],
)
def test_the_advice_fits_what_the_system_said(number, told):
    assert remedy(OSError(number, os.strerror(number)), "another --out") == told
    with pytest.raises(RunError) as caught, writing(Path("here")):
        raise OSError(number, os.strerror(number))
    assert caught.value.fix.startswith(told.replace("--out", "folder"))


def test_nobody_makes_room_where_there_is_no_folder():
    nowhere = Path("/proc/nowhere/run")
    for use in (
        lambda: Workplace(nowhere).claimed().__enter__(),
        lambda: Journal(nowhere),
        lambda: Ledger(nowhere / "run.ledger"),
    ):
        with pytest.raises(HeavydistillError) as caught:
            use()
        assert caught.value.fix.startswith("Give another --")
        assert "No such file" in caught.value.what


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("a\x1b]0;title\x07b", "ab"),
        ("a\x1b]8;;http://evil\x1b\\link", "alink"),
        ("a\x9d0;one\x9d0;two\x9cb", "a0;oneb"),
        ("a\x1b]0;never ended", "a]0;never ended"),
        ("\x9b2Ja\x85b\x7f", "ab"),
        ("a\rb\x08c", "abc"),
        ("\u202egnp.exe\u2066x\u2069\u200f", "gnp.exex"),
        ("half \ud83d", "half ?"),
        ("both \ud83d" + "\ude00", "both \U0001f600"),
        ("line\n\ttab, \u00e9, \u4e2d, \U0001f600", "line\n\ttab, \u00e9, \u4e2d, \U0001f600"),
    ],
)
def test_nothing_is_left_that_acts_on_a_terminal(text, shown):
    assert printable(text) == shown
    assert not CONTROL.search(printable(text))


def test_what_a_message_quotes_is_printable():
    error = StoppedError("No server answers: \x1b[31mEVIL\x1b]0;title\x07 ", "Wait\u202e.")
    assert str(error) == "No server answers: EVIL . Wait."
    assert (error.what, error.fix) == ("No server answers: EVIL ", "Wait.")

"""What a user is told to do about a disk depends on what it said."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from heavydistill.errors import HeavydistillError, RunError, remedy
from heavydistill.models.ledger import Ledger
from heavydistill.store.atomic import Workplace
from heavydistill.store.journal import Journal
from heavydistill.store.traces import writing


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (errno.ENOSPC, "Make room there, or name another --out"),
        (errno.EDQUOT, "Make room there, or name another --out"),
        (errno.EACCES, "Allow this user to write there, or name another --out"),
        (errno.EROFS, "Allow this user to write there, or name another --out"),
        (errno.ENOENT, "Name another --out"),
        (errno.ENOTDIR, "Name another --out"),
        (errno.EIO, "Check the disk, or name another --out"),
    ],
)
def test_the_advice_fits_what_the_system_said(number: int, told: str) -> None:
    assert remedy(OSError(number, os.strerror(number)), "another --out") == told
    with pytest.raises(RunError) as caught, writing(Path("here")):
        raise OSError(number, os.strerror(number))
    assert caught.value.fix.startswith(told.replace("--out", "folder"))


def test_nobody_makes_room_where_there_is_no_folder() -> None:
    nowhere = Path("/proc/nowhere/run")
    for use in (
        lambda: Workplace(nowhere).claimed().__enter__(),
        lambda: Journal(nowhere),
        lambda: Ledger(nowhere / "run.ledger"),
    ):
        with pytest.raises(HeavydistillError) as caught:
            use()
        assert caught.value.fix.startswith("Name another --")
        assert "No such file" in caught.value.what

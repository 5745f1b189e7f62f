"""Where a folder is written, how it gets its name, and what becomes of it after a kill.

All that is written before the end is in one hidden folder beside the named one, on the same disk:

    .NAME.unfinished/
        lock        held by whoever writes
        rows/       of a run's pipeline, as they are finished, and its log
        status.json of a run: how far it is
        new/        the folder, while it is written
        replaced/   the one that had the name before

At the end ``new`` takes the name, and the hidden folder goes. A folder under the name is always
whole: it is there as long as the new one is not, but for the moment between two renames. Whoever
is killed in that moment leaves the old one in ``replaced`` and the new one, whole, in ``new``; the
next start gives the latter its name. What a kill leaves at any other time is removed by the next
start with the same name.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from heavydistill.errors import ConfigError, remedy
from heavydistill.store.segment import probe, sync
from heavydistill.store.traces import writing

_LOCK = "lock"


class Workplace:
    """The hidden folder; see the module."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self.path = self._folder.with_name(f".{self._folder.name}.unfinished")
        self.new = self.path / "new"  # what will be the folder; not there at the beginning
        self.rows = self.path / "rows"  # where a run's pipeline works; likewise
        self._replaced = self.path / "replaced"

    @property
    def lacks_its_name(self) -> bool:
        """Whether somebody was killed between the renames of ``publish``."""
        return self._replaced.exists() and self.new.exists() and not self._folder.exists()

    @property
    def is_claimed(self) -> bool:
        """Whether a process is writing the folder just now; for those who only look on."""
        try:
            lock = os.open(self.path / _LOCK, os.O_RDONLY)
        except OSError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def publish(self) -> None:
        """Give ``new`` its name, in place of the folder that has it.

        Raises:
            RunError: The disk is full or fails. There is a whole folder under the name, or there
                will be at the next start.
        """
        with writing(self._folder):
            for path in (*self.new.rglob("*"), self.new):
                sync(path)
            if self._folder.exists():
                self._folder.rename(self._replaced)
            self.new.rename(self._folder)
            sync(self._folder.parent)

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """While this lasts it is there and belongs to this process; it is empty at the beginning.

        Raises:
            ConfigError: Another process has it, or the disk does not allow it.
        """
        with contextlib.ExitStack() as held:
            try:
                held.callback(os.close, self._lock())
                self._clear()
            except BlockingIOError:
                raise ConfigError(
                    f"out: another process is about to write {self._folder}",
                    "Wait for it, or name another --out.",
                ) from None
            except OSError as error:
                raise _unwritable(self.path, error) from error
            try:
                yield
            finally:
                with contextlib.suppress(OSError):  # what is left is removed by the next start
                    self._clear()
                    (self.path / _LOCK).unlink()
                    self.path.rmdir()

    def _lock(self) -> int:
        """The lock, held. Raises BlockingIOError if another process holds it."""
        while True:
            self.path.mkdir(parents=True, exist_ok=True)
            try:
                lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
            except FileNotFoundError:  # whoever had it removed it just now
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_nlink:
                    return lock
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)  # it was removed before it was locked

    def _clear(self) -> None:
        """Remove all but the lock; but a folder that lacks its name gets that first."""
        if self.lacks_its_name:
            self.new.rename(self._folder)
        for path in self.path.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != _LOCK:
                path.unlink()


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder that gets its name when this ends well, and is gone when it does not.

    Raises:
        ConfigError: The name is taken, or another process is about to take it.
        RunError: The disk is full or fails.
    """
    refuse_taken(folder)
    place = Workplace(folder)
    with place.claimed(), writing(folder):
        place.new.mkdir()
        yield place.new
        place.publish()


def refuse_taken(folder: Path) -> None:
    """Refuse a path at which there is anything but an empty folder.

    Raises:
        ConfigError: The path is taken, or an unfinished replacement there cannot be recovered.
    """
    recover(folder)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ConfigError(
            f"out: {folder} exists and is not empty", "Name another --out, or remove this one."
        )


def require_writable(folder: Path) -> None:
    """Refuse a name beside which nothing can be written. Leaves nothing behind.

    Raises:
        ConfigError: Nothing can be written there.
    """
    try:
        probe(folder.absolute().parent)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"out: {path} cannot be written: {error.strerror}", f"{remedy(error, 'another --out')}."
    )


def recover(folder: Path) -> None:
    """Finish what a kill broke off while a folder got its name.

    Raises:
        ConfigError: The disk does not allow it.
    """
    place = Workplace(folder)
    if place.lacks_its_name:
        with place.claimed():
            pass

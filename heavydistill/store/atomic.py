"""Writes a folder so that it appears under its name only when it is complete.

Until then, everything is in a hidden folder next to it, on the same disk:

    .NAME.unfinished/
        lock        held by the process that writes
        rows/       for a run: finished rows of the pipeline, and its log
        status.json for a run: its progress
        new/        the new folder
        replaced/   the old folder of that name, while the new one is put in its place

At the end, ``new`` is renamed to NAME, and the hidden folder is removed. So a folder called NAME is
always complete. If the process is killed between the two renames that replace an old folder, the
next start with the same name completes them. After a kill at any other time, the next start removes
the remaining files.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

from heavydistill.errors import ConfigError, remedy
from heavydistill.store.segment import probe, sync
from heavydistill.store.traces import writing

_LOCK = "lock"


class Workplace:
    """The hidden folder in which a folder is written; see the module's docstring."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self.path = self._folder.with_name(f".{self._folder.name}.unfinished")
        self.new = self.path / "new"  # the new folder; does not exist at the beginning
        self.rows = self.path / "rows"  # folder of a run's pipeline; initially does not exist
        self._replaced = self.path / "replaced"

    @property
    def lacks_its_name(self) -> bool:
        """Whether a process was killed between the two renames of ``publish``."""
        return self._replaced.exists() and self.new.exists() and not self._folder.exists()

    @property
    def is_claimed(self) -> bool:
        """Whether a process is writing the folder now; does not take the lock."""
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
        """Rename ``new`` to the final name, replacing an old folder of that name.

        Raises:
            RunError: The disk is full or fails. Either the old or the new folder then has the final
                name, or gets it at the next start.
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
        """Hold the hidden folder while the block runs; it is empty at first and removed at the end.

        Raises:
            ConfigError: Another process holds the folder, it cannot be written, or it is a link.
        """
        with contextlib.ExitStack() as held:
            try:
                self._refuse_link()
                held.callback(os.close, self._lock())
                self._clear()
            except BlockingIOError:
                raise ConfigError(
                    f"out: another process is about to write {self._folder}",
                    "Wait until it has ended, or name another --out.",
                ) from None
            except OSError as error:
                raise _unwritable(self.path, error) from error
            try:
                yield
            finally:
                with contextlib.suppress(OSError):  # the next start removes the rest
                    self._clear()
                    (self.path / _LOCK).unlink()
                    self.path.rmdir()

    def _refuse_link(self) -> None:
        """Raise ConfigError if a link is in the place of the hidden folder.

        It may have come with somebody else's files, and the contents of its target would be lost.
        """
        if self.path.is_symlink():
            raise ConfigError(
                f"out: {self.path}, in which {self._folder.name} is written first, is a link",
                f"Remove the link with `rm {shlex.quote(str(self.path))}`, or name another --out.",
            )

    def _lock(self) -> int:
        """Take the lock; returns its file descriptor. Raises BlockingIOError if it is held."""
        while True:
            self.path.mkdir(parents=True, exist_ok=True)
            try:
                lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
            except FileNotFoundError:  # another process has just released and removed the lock
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_nlink:
                    return lock
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)  # the lock file was removed before it was locked

    def _clear(self) -> None:
        """Complete interrupted renames, then remove everything from the folder except the lock."""
        if self.lacks_its_name:
            self.new.rename(self._folder)
        for path in self.path.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != _LOCK:
                path.unlink()


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder to write to; it is renamed to ``folder`` if the block succeeds, and
    removed if not.

    Raises:
        ConfigError: The name is in use, or another process is writing a folder with this name.
        RunError: The disk is full or fails.
    """
    refuse_taken(folder)
    place = Workplace(folder)
    with place.claimed(), writing(folder):
        place.new.mkdir()
        yield place.new
        place.publish()


def refuse_taken(folder: Path) -> None:
    """Check that a path does not exist, or is an empty folder.

    Raises:
        ConfigError: The path is in use, or an interrupted replacement there cannot be completed.
    """
    recover(folder)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise ConfigError(
            f"out: {folder} exists and is not empty", "Give another --out, or remove this folder."
        )


def require_writable(folder: Path) -> None:
    """Check that files can be written in the parent of a folder; leaves no files behind.

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
    """Complete the renames of ``publish`` if a process was killed between them.

    Raises:
        ConfigError: The renames fail.
    """
    place = Workplace(folder)
    if place.lacks_its_name:
        with place.claimed():
            pass

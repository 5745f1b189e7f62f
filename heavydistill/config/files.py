"""Reads small files that may be somebody else's, and writes files that appear when complete."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

_MOST_BYTES = 16 * 2**20  # a configuration or a record has some kilobytes


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; a pipe or a device could keep the reader for ever.

    Raises:
        OSError: The file cannot be opened, or is not a regular file.
    """
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def text_in(path: Path, most_bytes: int = _MOST_BYTES) -> str:
    """The text of a small file.

    Raises:
        OSError: As ``open_regular`` raises, or the file is larger than ``most_bytes``.
        UnicodeDecodeError: The file is not UTF-8.
    """
    with open_regular(path) as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        what = f"larger than {most_bytes >> 20} MiB, the limit for such a file"
        raise OSError(errno.EFBIG, what, str(path))
    return data.decode("utf-8")


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file in hexadecimal. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def json_of(text: str | bytes) -> Any:
    """The value of a JSON text. Raises ValueError, also if it is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that gets the name ``path`` at the end, if the block succeeds."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)  # a link here may have come with somebody else's files
    try:
        with new.open("xb") as file:
            yield file
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)

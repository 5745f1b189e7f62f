"""Reads the files of an import, row by row, and any row again.

What a file holds is seen from its content and not from its name: parquet; one JSON object a line;
or a JSON document, which is an array of objects or a single one. Of a file of lines only the
places of the lines are kept, and parquet, of which no row can be read alone, is unpacked into a
nameless file on the disk of ``TMPDIR``: both may be larger than the memory, and the rows of a
problem may be anywhere. A JSON document is read whole.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import tempfile
import weakref
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Literal

from heavydistill.errors import ProblemsError
from heavydistill.problems.tables import TableRow, object_of, refuse_constant
from heavydistill.store.traces import writing

_BOM = b"\xef\xbb\xbf"
# How gzip, Zstandard, xz, bzip2 and zip begin.
_PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh", b"PK\x03\x04")
_FIX = "Give a file of JSON lines, a JSON array of objects, or parquet."
# Of a file of lines, what is read to find the first that is not blank.
_MOST_OPENING = 2**20
# Rows of parquet that are in memory at once.
_AT_ONCE = 64


class PoolFile:
    """One file.

    Args:
        path: Any file.

    Attributes:
        name: Without its folder.
        stem: Opens the ids of problems that have none.

    Raises:
        ProblemsError: It cannot be read, or is none of the above.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.name, self.stem = path, path.name, path.stem
        self._offsets: dict[int, int] = {}
        self._document: list[dict[str, Any]] = []
        try:
            with path.open("rb") as file:
                opening = file.read(_MOST_OPENING).removeprefix(_BOM).lstrip()
        except OSError as error:
            raise ProblemsError(f"{path}: {error.strerror}", "Give the path of a file.") from error
        if opening.startswith(_PACKED):
            raise ProblemsError(f"{path} is compressed", "Unpack it first.")
        self._kind: Literal["parquet", "document", "lines"] = "lines"
        if opening.startswith(b"PAR1"):
            self._kind = "parquet"
        elif opening.startswith(b"[") or opening.partition(b"\n")[0].strip() == b"{":
            self._kind, self._document = "document", _document(path)
        elif not _first_is_json(opening):
            # A document that begins with more than a bracket, or lines of which the first is broken
            # and is complained of by its number.
            with contextlib.suppress(ProblemsError):
                self._kind, self._document = "document", _document(path)

    def rows(self) -> Iterator[TableRow]:
        """All rows in their order.

        Raises:
            ProblemsError: A line is not a JSON object, or the file is broken.
        """
        if self._kind == "lines":
            yield from self._lines()
            return
        if self._kind == "document":
            for number, values in enumerate(self._document, 1):
                yield TableRow(self._where(number), number, values)
            return
        _ = self._unpacked
        yield from map(self.row, self._offsets)

    def row(self, number: int) -> TableRow:
        """A row that ``rows`` has given."""
        where = self._where(number)
        if self._kind == "lines":
            with self.path.open("rb") as file:
                file.seek(self._offsets[number])
                return TableRow(where, number, object_of(file.readline().removeprefix(_BOM), where))
        if self._kind == "document":
            return TableRow(where, number, self._document[number - 1])
        self._unpacked.seek(self._offsets[number])
        return TableRow(where, number, pickle.load(self._unpacked))

    def _lines(self) -> Iterator[TableRow]:
        offset = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                start, offset = offset, offset + len(line)
                text = line.removeprefix(_BOM) if number == 1 else line
                if text.strip():
                    self._offsets[number] = start
                    where = self._where(number)
                    yield TableRow(where, number, object_of(text, where))

    def _where(self, number: int) -> str:
        return f"{self.name}:{number}" if self._kind == "lines" else f"{self.name}: row {number}"

    @cached_property
    def _unpacked(self) -> IO[bytes]:
        """The rows of parquet, each where ``_offsets`` says."""
        with writing(Path(tempfile.gettempdir())):
            file = tempfile.TemporaryFile()  # noqa: SIM115
            weakref.finalize(self, file.close)
            for number, values in enumerate(self._rows_of_parquet(), 1):
                self._offsets[number] = file.tell()
                pickle.dump(values, file)
            file.flush()
        return file

    def _rows_of_parquet(self) -> Iterator[dict[str, Any]]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            for batch in pq.ParquetFile(self.path).iter_batches(_AT_ONCE):
                yield from batch.to_pylist()
        except (OSError, pa.ArrowException) as error:
            raise ProblemsError(f"{self.path} is broken parquet: {error}", _FIX) from error


def _first_is_json(opening: bytes) -> bool:
    """Whether the first line is, which is taken for granted where it is longer than the opening."""
    line, ended, _ = opening.partition(b"\n")
    try:
        json.loads(line)
    except ValueError:
        return not ended and len(opening) >= _MOST_OPENING // 2
    return True


def _document(path: Path) -> list[dict[str, Any]]:
    try:
        value = json.loads(path.read_bytes().removeprefix(_BOM), parse_constant=refuse_constant)
    except UnicodeDecodeError as error:
        raise ProblemsError(f"{path} is not UTF-8", "Save the file as UTF-8.") from error
    except json.JSONDecodeError as error:
        raise ProblemsError(f"{path}:{error.lineno} is not JSON: {error.msg}", _FIX) from error
    except ValueError as error:
        raise ProblemsError(f"{path} is not JSON: {error}", _FIX) from error
    except RecursionError as error:
        raise ProblemsError(f"{path} is nested too deeply", _FIX) from error
    rows = value if isinstance(value, list) else [value]
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise ProblemsError(
                f"{path}: row {number} holds {type(row).__name__}, not an object", _FIX
            )
    return rows

"""Reads the files of an import, row by row, and any row again.

What a file holds is seen from its content and not from its name: parquet; one JSON object a line;
or a JSON document, which is an array of objects or a single one. Of a file of lines only the
places of the lines are kept, of parquet one group of rows, so that a file may be larger than the
memory; a JSON document is read whole.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

from heavydistill.errors import ProblemsError
from heavydistill.problems.tables import Row, object_of

_BOM = b"\xef\xbb\xbf"
_FIX = "Give a file of JSON lines, a JSON array of objects, or parquet."
# Of a file of lines, what is read to find the first that is not blank.
_MOST_OPENING = 2**20


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
        # Each file keeps its own last group.
        self._group = lru_cache(maxsize=1)(self._read_group)

    def rows(self) -> Iterator[Row]:
        """All rows in their order.

        Raises:
            ProblemsError: A line is not a JSON object, or the file is broken.
        """
        if self._kind == "lines":
            yield from self._lines()
            return
        if self._kind == "document":
            for number, values in enumerate(self._document, 1):
                yield Row(self._where(number), number, values)
            return
        number = 0
        for group in range(len(self._group_sizes)):
            for values in self._group(group):
                number += 1
                yield Row(self._where(number), number, values)

    def row(self, number: int) -> Row:
        """A row that ``rows`` has given."""
        where = self._where(number)
        if self._kind == "lines":
            with self.path.open("rb") as file:
                file.seek(self._offsets[number])
                return Row(where, number, object_of(file.readline().removeprefix(_BOM), where))
        position = number - 1
        if self._kind == "document":
            return Row(where, number, self._document[position])
        for group, size in enumerate(self._group_sizes):
            if position < size:
                return Row(where, number, self._group(group)[position])
            position -= size
        raise IndexError(number)

    def _lines(self) -> Iterator[Row]:
        offset = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                start, offset = offset, offset + len(line)
                text = line.removeprefix(_BOM) if number == 1 else line
                if text.strip():
                    self._offsets[number] = start
                    where = self._where(number)
                    yield Row(where, number, object_of(text, where))

    def _where(self, number: int) -> str:
        return f"{self.name}:{number}" if self._kind == "lines" else f"{self.name}: row {number}"

    @cached_property
    def _group_sizes(self) -> list[int]:
        metadata = self._parquet().metadata
        return [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]

    def _read_group(self, group: int) -> list[dict[str, Any]]:
        return list(self._parquet().read_row_group(group).to_pylist())

    def _parquet(self) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return pq.ParquetFile(self.path)
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
        value = json.loads(path.read_bytes().removeprefix(_BOM))
    except UnicodeDecodeError as error:
        raise ProblemsError(f"{path} is not UTF-8", "Save the file as UTF-8.") from error
    except json.JSONDecodeError as error:
        raise ProblemsError(f"{path}:{error.lineno} is not JSON: {error.msg}", _FIX) from error
    except RecursionError as error:
        raise ProblemsError(f"{path} is nested too deeply", _FIX) from error
    rows = value if isinstance(value, list) else [value]
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise ProblemsError(
                f"{path}: row {number} holds {type(row).__name__}, not an object", _FIX
            )
    return rows

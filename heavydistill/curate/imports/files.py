"""Reads the rows of a file of answers.

What a file holds is seen from its content and not from its name: parquet; one JSON object a line;
or a JSON document, which is an array of objects or a single one. Lines and parquet are read piece
by piece, so that they may be larger than the memory; a JSON document is read whole.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from heavydistill.errors import ProblemsError
from heavydistill.problems.tables import TableRow, object_of, refuse_constant

_BOM = b"\xef\xbb\xbf"
# How gzip, Zstandard, xz, bzip2 and zip begin.
_PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh", b"PK\x03\x04")
_FIX = "Give a file of JSON lines, a JSON array of objects, or parquet."
_MOST_OPENING = 2**20  # bytes that are read to find the first line that is not blank
_ROWS_AT_ONCE = 64  # rows of parquet in memory


def rows_of(path: Path) -> Iterator[TableRow]:
    """All rows of a file in their order.

    Raises:
        ProblemsError: The file cannot be read, is none of these or is broken, or a line is not a
            JSON object.
    """
    try:
        with path.open("rb") as file:
            opening = file.read(_MOST_OPENING).removeprefix(_BOM).lstrip()
    except OSError as error:
        raise ProblemsError(f"{path}: {error.strerror}", "Give the path of a file.") from error
    if opening.startswith(_PACKED):
        raise ProblemsError(f"{path} is compressed", "Unpack it first.")
    document = None
    if opening.startswith(b"[") or opening.partition(b"\n")[0].strip() == b"{":
        document = _document(path)
    elif not opening.startswith(b"PAR1") and not _first_is_json(opening):
        # A document that begins with more than a bracket, or lines of which the first is broken
        # and is complained of by its number.
        with contextlib.suppress(ProblemsError):
            document = _document(path)
    if document is None and not opening.startswith(b"PAR1"):
        yield from _lines(path)
        return
    rows = _parquet(path) if document is None else document
    for number, values in enumerate(rows, 1):
        yield TableRow(f"{path.name}: row {number}", number, values)


def _lines(path: Path) -> Iterator[TableRow]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            text = line.removeprefix(_BOM) if number == 1 else line
            if text.strip():
                where = f"{path.name}:{number}"
                yield TableRow(where, number, object_of(text, where))


def _parquet(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        for batch in pq.ParquetFile(path).iter_batches(_ROWS_AT_ONCE):
            yield from batch.to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise ProblemsError(f"{path} is broken parquet: {error}", _FIX) from error


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
    except (ValueError, RecursionError) as error:
        place, what = str(path), str(error)
        if isinstance(error, json.JSONDecodeError):
            place, what = f"{path}:{error.lineno}", error.msg
        raise ProblemsError(f"{place} is not JSON: {what}", _FIX) from error
    rows = value if isinstance(value, list) else [value]
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise ProblemsError(
                f"{path}: row {number} holds {type(row).__name__}, not an object", _FIX
            )
    return rows

"""Reads a source into rows of named values, each with the place where it stands.

Not covered: what the columns mean (``columns``).
"""

from __future__ import annotations

import difflib
import json
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from heavydistill.errors import ProblemsError
from heavydistill.models.hub_files import obstacle, remedy


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row."""

    where: str  # place for messages, e.g. ``sets/algebra.jsonl:3``
    number: int  # line of the file, or row, from 1
    values: dict[str, Any]  # by column


@dataclass(frozen=True, slots=True)
class Table:
    """All rows of a source."""

    origin: str  # for ``Problem.source``: the file's name without its folder, or the Hub id
    stem: str  # opens the ids of rows that have none
    rows: list[TableRow]  # in their order; at least one


_SEPARATED = {".csv": "", ".tsv": r', sep="\t"'}  # arguments of pandas, which reads them


def read(source: str, subset: str | None, split: str) -> Table:
    """A ``.jsonl`` or ``.parquet`` file, or with ``subset`` and ``split`` ``hub:ORG/NAME``.

    Raises:
        ProblemsError: The source is none of these, or see the reader of each.
    """
    path = Path(source)
    if source.startswith("hub:"):
        return read_hub(source.removeprefix("hub:"), subset, split)
    if path.suffix in (".jsonl", ".parquet"):
        return read_jsonl(path) if path.suffix == ".jsonl" else read_parquet(path)
    if path.suffix in _SEPARATED:
        made = path.with_suffix(".jsonl")
        code = f"import pandas as p; p.read_csv({json.dumps(source)}{_SEPARATED[path.suffix]})"
        code += f'.to_json({json.dumps(str(made))}, orient="records", lines=True)'
        raise ProblemsError(
            f"{source}: {path.suffix[1:].upper()} is not read",
            f"Convert it with `python -c {shlex.quote(code)}`, and give {made}; --set "
            "problems.columns.text=COLUMN names the column of the texts, if it is not text.",
        )
    raise ProblemsError(
        f"{source!r} is no problem source",
        "Give micro, a .jsonl or .parquet file, hub:ORG/NAME or gym:FAMILY.",
    )


def read_jsonl(path: Path) -> Table:
    """A file of one JSON object a line, UTF-8; blank lines are skipped.

    Raises:
        ProblemsError: The file cannot be read or is empty, or a line is not a JSON object.
    """
    lines = _bytes_of(path).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    rows = [
        TableRow(f"{path}:{number}", number, object_of(line, f"{path}:{number}"))
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]
    return _table(path.name, path.stem, str(path), rows)


def read_parquet(path: Path) -> Table:
    """A parquet file.

    Raises:
        ProblemsError: The file cannot be read, is not parquet or has no rows.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = pa.BufferReader(_bytes_of(path))
    try:
        values = pq.read_table(content).to_pylist()
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise ProblemsError(
            f"{path} cannot be read as parquet: {error}", "Write it again, or give a .jsonl file."
        ) from error
    rows = [TableRow(f"{path}: row {number}", number, row) for number, row in enumerate(values, 1)]
    return _table(path.name, path.stem, str(path), rows)


def read_hub(name: str, subset: str | None, split: str) -> Table:
    """The dataset ``ORG/NAME`` of the Hub; the library reads the token from ``HF_TOKEN``.

    Raises:
        ProblemsError: It is not there, may not be read, has no such split or no rows.
    """
    where = f"hub:{name}"
    if len([part for part in name.split("/") if part]) != 2 or name.count("/") != 1:
        raise ProblemsError(f"{where} is not of the form hub:ORG/NAME", "Write e.g. hub:org/sums.")
    hindrance = obstacle()  # before the library is imported, which then asks nobody
    import datasets

    try:
        values = list(datasets.load_dataset(name, subset, split=split))
    except Exception as error:
        # The library raises its own errors, those of the network and plain ValueErrors alike.
        if hindrance and isinstance(error, ConnectionError):
            raise ProblemsError(
                f"{where} is not in the cache of the Hub, and {hindrance}",
                remedy("the .parquet file of the dataset, downloaded elsewhere"),
            ) from error
        raise ProblemsError(
            f"{where}, split {split}: {type(error).__name__}: {error}",
            "Check the name, problems.subset and problems.split; a private or gated dataset needs "
            "HF_TOKEN.",
        ) from error
    rows = [TableRow(f"{where}, row {number}", number, row) for number, row in enumerate(values, 1)]
    return _table(f"{where}/{split}", name.partition("/")[2], where, rows)


def within(table: Table, bounds: dict[str, tuple[str, str]]) -> Table:
    """The rows of a table whose columns lie within bounds, the first and the last text.

    A text that begins with the last is within, so that a day holds all its hours.

    Raises:
        ProblemsError: A row has no such column or neither text nor a date in it, or no row is left.
    """
    rows = table.rows
    for column, (first, last) in bounds.items():
        texts = []
        for row in rows:
            value = row.values.get(column)
            if not isinstance(value, str | date):
                raise ProblemsError(
                    f"{row.where}: there is neither text nor a date in the column {column!r} "
                    "(problems.within)",
                    choices(column, row.values, "Columns there"),
                )
            texts.append(value if isinstance(value, str) else value.isoformat())
        pairs = zip(rows, texts, strict=True)
        rows = [row for row, text in pairs if first <= text and text[: len(last)] <= last]
    if not rows:
        raise ProblemsError(
            f"{table.origin}: no row lies within problems.within, {bounds}",
            "Correct the bounds; dates are written as they stand in the rows.",
        )
    return Table(table.origin, table.stem, rows)


def _table(origin: str, stem: str, where: str, rows: list[TableRow]) -> Table:
    if not rows:
        raise ProblemsError(f"{where} holds no problems", "Give a source with at least one row.")
    return Table(origin, stem, rows)


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ProblemsError(
            f"{path}: {error.strerror}", "Give the path of a .jsonl or .parquet file."
        ) from error


def object_of(line: bytes, where: str) -> dict[str, Any]:
    """The JSON object in a UTF-8 line. Raises ProblemsError with ``where`` it is if it is none."""
    fix = 'Write one object a line, e.g. {"id": "a1", "text": "...", "reference": "..."}.'
    try:
        value = json.loads(line.decode("utf-8"), parse_constant=refuse_constant)
    except UnicodeDecodeError as error:
        raise ProblemsError(f"{where} is not UTF-8", "Save the file as UTF-8.") from error
    except (ValueError, RecursionError) as error:
        raise ProblemsError(f"{where} is not JSON: {error}", fix) from error
    if not isinstance(value, dict):
        raise ProblemsError(f"{where} holds {type(value).__name__}, not an object", fix)
    return value


def refuse_constant(name: str) -> float:
    """For ``parse_constant`` of ``json.loads``: NaN and the infinities are none of its numbers."""
    raise ValueError(f"{name} is not JSON")


def choices(wrong: str, right: Iterable[str], title: str) -> str:
    """``TITLE: a, b, c.``, and the one that was probably meant."""
    right = list(right)
    near = difflib.get_close_matches(wrong, right, n=1, cutoff=0.5)
    listed = f"{title}: {', '.join(right)}."
    return f"Did you mean {near[0]}? {listed}" if near else listed

"""Reads a source into rows of named values; each row records its place for error messages.

The content of a file determines its format, not its name: parquet; one JSON object per line; or a
JSON document with an array of objects or a single object.

Not covered: the meaning of the columns (``columns``).
"""

from __future__ import annotations

import functools
import itertools
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Any

from heavydistill import plugins
from heavydistill.config.files import open_regular
from heavydistill.errors import ProblemsError, did_you_mean
from heavydistill.models.hub_files import is_hub_id, obstacle, remedy
from heavydistill.store.traces import MANIFEST, TRACES_FOLDER


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row of a source."""

    where: str  # Place in the source for messages, e.g. ``sets/algebra.jsonl:3``
    number: int  # Line number in the file, or row number, from 1
    values: dict[str, Any]  # Values by column


@dataclass(frozen=True, slots=True)
class Table:
    """All rows of a source, with its name."""

    origin: str  # Name of the file without its folder, or the Hub id; see ``Problem.source``
    stem: str  # First part of the ids of rows without ids
    rows: list[TableRow]  # Rows in their order, at least one
    outside: int = 0  # Number of rows that were read and are outside the bounds


Bounds = Mapping[str, tuple[str, str]]
"""First and last text of the columns whose rows are kept; see ``problems.within``."""


plugins.ship("source", ("micro", "gym", "hub", "benchmark"))
_BOM = b"\xef\xbb\xbf"
# First bytes of gzip, Zstandard, xz, bzip2 and zip files.
_PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh", b"PK\x03\x04")
_MOST_OPENING = 2**16  # Bytes read to determine the format of a file
_MOST_BYTES_OF_A_LINE = 64 * 2**20
_ROWS_AT_ONCE = 64  # Parquet rows in memory at a time
_MOST_LISTED = 20  # Maximum number of names listed in addition to a similar one
_FIX = "Give a file with JSON lines, a JSON array of objects, or parquet."
_FIX_OF_LINE = 'Write one object a line, e.g. {"id": "a1", "text": "...", "reference": "..."}.'
_KINDS = (".jsonl", ".json", ".parquet")
_PACKED_SUFFIXES = (".gz", ".zst", ".xz", ".bz2", ".zip")
_SEPARATED = {".csv": "", ".tsv": r', sep="\t"'}  # arguments of pandas to read such files


def read(
    source: str,
    subset: str | None,
    split: str,
    most: int | None = None,
    bounds: Bounds = MappingProxyType({}),
) -> Table:
    """Read a .jsonl, .json or .parquet file, or hub:ORG/NAME with ``subset`` and ``split``; or call
    a plug-in, NAME:ARGS.

    ``most`` is the maximum number of rows that are read; None reads all. Rows outside ``bounds``
    are not kept in memory. A text that begins with the last text is within the bounds, so that a
    day includes all its hours.

    Raises:
        ProblemsError: The source cannot be read, a row has neither text nor a date in a column of
            ``bounds``, or no row is left.
    """
    path, (name, _, args) = Path(source), source.partition(":")
    if name == "hub":
        return _table(*_read_hub(args, subset, split), most, bounds)
    if not Path(name).suffix and "/" not in name and (own := plugins.find("source", name)):
        return _table(*_read_plugin(own, args, most), most, bounds)
    if path.suffix in _KINDS:
        return read_file(path, most, bounds)
    raise _unknown(source)


def _unknown(source: str) -> ProblemsError:
    """The error for a text that is no source of problems, with what may be meant."""
    path = Path(source)
    if path.suffix in _SEPARATED:
        made = path.with_suffix(".jsonl")
        code = f"import pandas as p; p.read_csv({json.dumps(source)}{_SEPARATED[path.suffix]})"
        code += f'.to_json({json.dumps(str(made))}, orient="records", lines=True)'
        return ProblemsError(
            f"{source}: {path.suffix[1:].upper()} files are not supported",
            f"Convert it: `python -c {shlex.quote(code)}`. Then give {made}; if its texts are in a "
            "column of another name, add --set problems.columns.text=COLUMN.",
        )
    what, near = f"{source!r} is not a source of problems", ""
    if path.is_dir():
        what = f"{source} is a folder, not a file with problems"
        if (path / TRACES_FOLDER).is_dir():
            near = f"To deliberate on the attempts of this run, give --pools {source}. "
        elif (path / MANIFEST).is_file():
            near = "It holds sets, which are trained on. "
        elif files := [file for kind in _KINDS for file in sorted(path.glob(f"*{kind}"))]:
            near = f"Did you mean {files[0]}? "
    elif path.suffix in _PACKED_SUFFIXES:
        return ProblemsError(f"{source} is compressed", "Unpack it, and give the unpacked file.")
    elif siblings := [file for kind in _KINDS if (file := path.with_suffix(kind)).is_file()]:
        near = f"Did you mean {siblings[0]}? "
    elif is_hub_id(source) and "/" in source and not path.exists():
        near = f"Did you mean hub:{source}? "
    return ProblemsError(
        what,
        f"{near}Give micro, a .jsonl, .json or .parquet file, hub:ORG/NAME or gym:FAMILY"
        f"{''.join(f', {own}:ARGS' for own in plugins.names('source')[4:])}.{plugins.absent()}",
    )


_Read = tuple[str, str, str, Iterable[TableRow]]
"""(origin, stem, name in messages, rows) of a source."""


def _read_plugin(own: plugins.Plugin, args: str, most: int | None) -> _Read:
    values = replace(own, value=lambda: list(itertools.islice(own.value(args), most)))()
    where = f"{own.name}:{Path(args).name}"
    for number, row in enumerate(values, 1):
        if not isinstance(row, dict):
            raise own.fault(f"gave {type(row).__name__} as row {number}, not a dict of columns")
    rows = [TableRow(f"{where}:{number}", number, row) for number, row in enumerate(values, 1)]
    return where, own.name, where, rows


def read_file(path: Path, most: int | None = None, bounds: Bounds = MappingProxyType({})) -> Table:
    """Read the rows of a file as ``read`` does. Raises ProblemsError as ``rows_of`` too."""
    return _table(path.name, path.stem, str(path), rows_of(path, str(path)), most, bounds)


def rows_of(path: Path, name: str) -> Iterator[TableRow]:
    """Yield the rows of a file in order; ``name`` is the file's name in messages.

    Lines and parquet are read piece by piece, so that a file may be larger than the memory; a JSON
    document is read whole. Blank lines are skipped. Raises ProblemsError if the file cannot be
    read, has another format or is damaged, or a line is not a JSON object.
    """
    try:
        with open_regular(path) as file:
            opening = file.read(_MOST_OPENING).removeprefix(_BOM).lstrip()
    except OSError as error:
        raise ProblemsError(f"{name}: {error.strerror}", _FIX) from error
    if opening.startswith(_PACKED):
        raise ProblemsError(f"{name} is compressed", "Unpack it, and give the unpacked file.")
    place, fix = f"{name}: row ", _FIX
    values: Iterable[tuple[int, Any]]
    if opening.startswith(b"PAR1") or path.suffix == ".parquet":
        values = enumerate(_parquet(path, name), 1)
    elif opening.startswith(b"[") or opening.partition(b"\n")[0].strip() == b"{":
        document = _json_of(path.read_bytes(), name, _FIX)
        values = enumerate(document if isinstance(document, list) else [document], 1)
    else:
        place, fix, values = f"{name}:", _FIX_OF_LINE, _lines(path, name)
    for number, row in values:
        if not isinstance(row, dict):
            what = f"{place}{number} holds {type(row).__name__}, not an object"
            raise ProblemsError(what, fix)
        yield TableRow(f"{place}{number}", number, row)


def _lines(path: Path, name: str) -> Iterator[tuple[int, object]]:
    with path.open("rb") as file:
        lines = iter(functools.partial(file.readline, _MOST_BYTES_OF_A_LINE), b"")
        for number, line in enumerate(lines, 1):
            if len(line) == _MOST_BYTES_OF_A_LINE:
                what = f"{name}:{number} has more than {_MOST_BYTES_OF_A_LINE >> 20} MiB"
                raise ProblemsError(what, _FIX_OF_LINE)
            if line.removeprefix(_BOM).strip():
                yield number, _json_of(line, f"{name}:{number}", _FIX_OF_LINE)


def _parquet(path: Path, name: str) -> Iterator[object]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        for batch in pq.ParquetFile(path).iter_batches(_ROWS_AT_ONCE):
            yield from batch.to_pylist()
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise ProblemsError(f"{name} cannot be read as parquet: {error}", _FIX) from error


def _read_hub(name: str, subset: str | None, split: str) -> _Read:
    """The dataset ``ORG/NAME`` of the Hub; the token comes from ``HF_TOKEN``.

    Raises ProblemsError if the dataset does not exist, is not accessible, or has no such split.
    """
    where = f"hub:{name}"
    if len([part for part in name.split("/") if part]) != 2 or name.count("/") != 1:
        raise ProblemsError(f"{where} is not hub:ORG/NAME", "Write it as in hub:openai/gsm8k.")
    return f"{where}/{split}", name.partition("/")[2], where, _rows_of_hub(name, subset, split)


def _rows_of_hub(name: str, subset: str | None, split: str) -> Iterator[TableRow]:
    """Yield the rows, which are decoded one by one: a dataset may be larger than the memory."""
    where = f"hub:{name}"
    hindrance = obstacle()  # before importing the library, which then works offline
    import datasets

    try:
        for number, values in enumerate(datasets.load_dataset(name, subset, split=split), 1):
            yield TableRow(f"{where}, row {number}", number, values)
    except Exception as error:
        # The library raises its own exceptions, network errors and plain ValueErrors.
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


def _table(
    origin: str,
    stem: str,
    where: str,
    rows: Iterable[TableRow],
    most: int | None,
    bounds: Bounds,
) -> Table:
    kept, outside = list[TableRow](), 0
    for row in itertools.islice(rows, most):
        if all(_is_within(row, column, *ends) for column, ends in bounds.items()):
            kept.append(row)
        else:
            outside += 1
    if not kept and not outside:
        raise ProblemsError(f"{where} has no rows", "Give a source with at least one problem.")
    if not kept:
        raise ProblemsError(
            f"{origin}: no row is in the range of problems.within, {dict(bounds)}",
            "Correct the bounds; write dates as in the rows.",
        )
    return Table(origin, stem, kept, outside)


def _is_within(row: TableRow, column: str, first: str, last: str) -> bool:
    value = row.values.get(column)
    if not isinstance(value, str | date):
        raise ProblemsError(
            f"{row.where}: there is neither text nor a date in the column {column!r} "
            "(problems.within)",
            choices(column, row.values, "Columns there"),
        )
    text = value if isinstance(value, str) else value.isoformat()
    return first <= text and text[: len(last)] <= last


def _json_of(text: bytes, where: str, fix: str) -> object:
    try:
        return json.loads(text.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise ProblemsError(f"{where} is not UTF-8", "Save the file as UTF-8.") from error
    except json.JSONDecodeError as error:
        place = f"{where}:{error.lineno}" if b"\n" in text.strip() else where
        what = f"{place} is not JSON: {error.msg}, in column {error.colno}"
        raise ProblemsError(what, fix) from error
    except (ValueError, RecursionError) as error:
        raise ProblemsError(f"{where} is not JSON: {error}", fix) from error


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def choices(wrong: str, right: Iterable[str], title: str) -> str:
    """Return a fix that proposes the most similar name, if there is one, and lists all names.

    The list is omitted if it is long and there is a similar name.
    """
    right = list(right)
    near = did_you_mean(wrong, right, cutoff=0.5)
    if near and len(right) > _MOST_LISTED:
        return near.rstrip()
    return f"{near}{title}: {', '.join(right)}."

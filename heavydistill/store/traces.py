"""Reads and writes parquet files, and the traces in the folder ``traces`` of a run.

All traces of a run are in one file, ``train-00000-of-00001.parquet``, which
``datasets.load_dataset(FOLDER)`` reads as the split ``train``. This module keeps one row group in
memory at a time. A file appears under its name only when it is complete.

Not covered: the other files of a run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heavydistill.errors import ConfigError, RunError, remedy
from heavydistill.schema import READABLE_VERSIONS, Trace, arrow_schema, from_row, to_row
from heavydistill.store.segment import sync

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from datasets import Dataset
    from pandas import DataFrame

TRACES_FOLDER = "traces"
MANIFEST = "manifest.json"
"""File of a folder of sets, which is no run."""
REJECTS_FOLDER = "rejects"
"""Subfolder of a run's folder: rows on which a step failed, with the reason in ``status``."""
LEAF_FOLDER = "leaf"
"""Subfolder of a pipeline's work folder: rows that have already left the last step."""
_TAKE_OUT = "Take the file out of the folder, or generate the traces again."
_FILE = "train-00000-of-00001.parquet"
# Path components between a list and its items; they depend on the library that wrote the file.
_LIST_PARTS = {"list", "element", "item"}
_GROUP_CHARACTERS = 16 * 2**20
# Columns that traces of an earlier version lack, by the version that added them.
_ADDED = {
    5: ["deliberations.claims"],
    6: [
        f"{samples}.{name}"
        for samples in ("pool", "deliberations")
        for name in (
            *("served_model", "host", "system_fingerprint", "unknown_finish_reason"),
            "turns_json",
        )
    ]
    + ["problem.history_json"],
}
_FILLED = ("problem", "pool", "caches", "deliberations", "status")  # columns that are never null
_COLUMNS = [field.name for field in dataclasses.fields(Trace)]


@contextlib.contextmanager
def writing(place: Path, error: type[RunError] = RunError) -> Iterator[None]:
    """Convert an OSError in the block, which writes ``place``, to an error with a fix.

    Raises:
        RunError: Writing failed; ``error`` is the class that is raised.
    """
    try:
        yield
    except OSError as fault:
        raise error(
            f"{place} cannot be written: {fault.strerror or fault}",
            f"{remedy(fault, 'another folder')}, and repeat the command; responses in the journal "
            "are not asked again.",
        ) from fault


@contextlib.contextmanager
def reading(path: Path, fix: str = _TAKE_OUT) -> Iterator[pq.ParquetFile]:
    """Open a parquet file for the block.

    Damaged rows are detected only when their values are decoded.

    Raises:
        ConfigError: The file is damaged or cannot be read; also raised while rows are read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        message = " ".join(str(error).split()).rstrip(".")
        raise ConfigError(f"{path} cannot be read as parquet: {message}", fix) from error


class Writer:
    """Writes rows to a parquet file; keeps one row group in memory.

    Args:
        file: Path of the new file; its folder is created.
        kind: Dataclass of the rows, or their schema.
        rows_per_group: Maximum number of rows of a group; groups of long rows are smaller.
    """

    def __init__(self, file: Path, kind: type | pa.Schema, rows_per_group: int = 100) -> None:
        import pyarrow.parquet as pq

        self._schema = arrow_schema(kind) if isinstance(kind, type) else kind
        file.parent.mkdir(parents=True, exist_ok=True)
        self._held = contextlib.ExitStack()
        opened = self._held.enter_context(file.open("wb"))
        self._writer = self._held.enter_context(
            pq.ParquetWriter(opened, self._schema, compression="zstd")
        )
        self._group: list[dict[str, object]] = []
        self._most, self._characters = rows_per_group, 0
        self.rows = 0

    def write(self, row: Any) -> None:
        """Add a row, given as an instance of the dataclass ``kind``."""
        self.copy(to_row(row))

    def copy(self, row: dict[str, Any]) -> None:
        """Add a row given as a dictionary, as ``rows_in`` yields it."""
        self._group.append(row)
        self._characters += _characters(row)
        self.rows += 1
        if len(self._group) == self._most or self._characters >= _GROUP_CHARACTERS:
            self._flush()

    def close(self) -> None:
        """Write the remaining rows and close the file."""
        with self._held:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        group, self._group, self._characters = self._group, [], 0
        if group:
            self._writer.write_table(pa.Table.from_pylist(group, self._schema))


def _characters(value: object) -> int:
    """The number of characters in all texts of a row."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_characters, value.values()))
    return sum(map(_characters, value)) if isinstance(value, list) else 0


def rows_in(
    path: Path, columns: Sequence[str] | None = None, fix: str = _TAKE_OUT
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a parquet file; keeps one row group in memory.

    Args:
        path: The file.
        columns: Dotted names of the columns to read, without list levels, such as
            ``pool.verdict.verifier``; None reads all.
        fix: Fix to show if the file cannot be read.

    Raises:
        ConfigError: The file cannot be read, or, while rows are read, a row is damaged.
    """
    with reading(path, fix) as file:
        leaves = [file.schema.column(number).path for number in range(len(file.schema))]
        if columns is not None:
            leaves = [leaf for leaf in leaves if _is_in(leaf, columns)]
        for group in range(file.num_row_groups):
            yield from file.read_row_group(group, columns=leaves).to_pylist()


def _is_in(leaf: str, columns: Sequence[str]) -> bool:
    named = "".join(f"{part}." for part in leaf.split(".") if part not in _LIST_PARTS)
    return any(named.startswith(f"{column}.") for column in columns)


def count_rows(path: Path) -> int:
    """Number of rows in a parquet file, or in all files of a folder; 0 if the path does not exist.

    Raises:
        ConfigError: A file cannot be read.
    """
    count = 0
    for file in [path] if path.suffix == ".parquet" else path.glob("*.parquet"):
        with reading(file) as opened:
            count += opened.metadata.num_rows
    return count


def write_traces(
    traces: Iterable[Trace], folder: Path, rows_per_group: int = 100, name: str = _FILE
) -> Path:
    """Write traces in order, with one row group in memory.

    The file ``name`` of an earlier call is replaced at the end; it is unchanged if ``traces``
    raises.

    Returns:
        The file.

    Raises:
        RunError: The disk is full or fails.
    """
    target, unfinished = folder / name, folder / f".{name}.unfinished"
    with writing(target):
        try:
            with contextlib.closing(Writer(unfinished, Trace, rows_per_group)) as writer:
                for trace in traces:
                    writer.write(trace)
            sync(unfinished)
            unfinished.replace(target)
            sync(folder)
        finally:
            unfinished.unlink(missing_ok=True)
    return target


class Traces:
    """The traces of a run; each iteration reads them with one row group in memory.

    Raises:
        ConfigError: As ``read_traces`` raises.
    """

    def __init__(self, run: str | Path) -> None:
        self.run = Path(run)
        self._files = trace_files(self.run)

    def __iter__(self) -> Iterator[Trace]:
        return _traces(self._files)

    def __len__(self) -> int:
        return sum(map(count_rows, self._files))

    def __repr__(self) -> str:
        return f"Traces of {self.run}: {len(self)}"

    def to_dataset(self) -> Dataset:
        """Return the rows as a dataset of Hugging Face's ``datasets``, in memory."""
        import pyarrow as pa
        from datasets import Dataset

        rows = [to_row(trace) for trace in self]
        return Dataset(pa.Table.from_pylist(rows, arrow_schema(Trace)))

    def to_pandas(self) -> DataFrame:
        """Return a data frame with a row for each response and its verdict.

        ``role`` is thinker or deliberator, ``problem`` the id of the problem, ``verdict.label`` the
        label of the verdict; the other columns are the fields of a ``Deliberation``.
        """
        from pandas import json_normalize

        return json_normalize(
            [
                {
                    "problem": trace.problem.id,
                    "stratum": trace.stratum,
                    "role": role,
                    **to_row(each),
                }
                for trace in self
                for role, responses in trace.responses.items()
                for each in responses
            ]
        )


def read_traces(run: Path) -> Iterator[Trace]:
    """Read the traces of a run in order of file names; keeps one row group in memory.

    Raises:
        ConfigError: The folder holds no run, a file cannot be read, or it has none of
            ``READABLE_VERSIONS``: these are raised by the call itself. Damaged rows raise it during
            iteration.
    """
    return _traces(trace_files(run))


def read_files(files: Sequence[Path]) -> Iterator[Trace]:
    """Read the traces in ``files``, which may belong to a run in progress; see ``read_traces``."""
    for path in files:
        _refuse_other_schema(path)
    return _traces(files)


def read_columns(run: Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Read columns of a run's traces, named as in ``rows_in``; raises as ``read_traces``."""
    return itertools.chain.from_iterable(rows_in(path, columns) for path in trace_files(run))


def trace_files(run: Path) -> list[Path]:
    """List the files with the traces of a run, in order.

    Raises:
        ConfigError: As the call of ``read_traces`` raises.
    """
    files = sorted((run / TRACES_FOLDER).glob("*.parquet"))
    if not files:
        lacks = f"has no {TRACES_FOLDER}/*.parquet" if run.is_dir() else "does not exist"
        lacks = "holds sets" if (run / MANIFEST).is_file() else lacks
        raise ConfigError(
            f"{run} is not the folder of a finished run: "
            f"it {'is a file' if run.is_file() else lacks}",
            "Give the folder that `heavydistill generate --out FOLDER` wrote.",
        )
    for path in files:
        _refuse_other_schema(path)
    return files


def _refuse_other_schema(path: Path) -> None:
    with reading(path) as file:
        theirs = dict(_dotted(file.schema_arrow))
        versions = set(file.read(columns=["schema_version"]).to_pydict().get("schema_version", []))
    if "schema_version" not in theirs:
        raise ConfigError(
            f"{path} holds no traces: it has no column schema_version",
            "Move it out of the folder of the run.",
        )
    for version in versions.difference(READABLE_VERSIONS):
        raise ConfigError(
            f"{path} has schema version {version!r}, and this heavydistill reads "
            f"{', '.join(READABLE_VERSIONS)}",
            "Read it with the version that wrote it, or generate the traces again: responses in "
            "the journal are not asked again.",
        )
    ours = dict(_dotted(arrow_schema(Trace)))
    lacking = [name for name, kind in ours.items() if theirs.get(name) not in (kind, "null")]
    newest = max(map(int, versions), default=0)
    later = tuple(name for version in _ADDED if version > newest for name in _ADDED[version])
    lacking = [name for name in lacking if not name.startswith(later)]
    if different := dict.fromkeys(name.partition(".")[0] for name in lacking):
        raise ConfigError(
            f"{path} lacks the columns {', '.join(different)}, or they have other fields or types",
            "Generate the traces again.",
        )


def _dotted(fields: Iterable[pa.Field], start: str = "") -> Iterator[tuple[str, str]]:
    """Dotted names and kinds of fields and nested fields, without list levels."""
    for field in fields:
        yield f"{start}{field.name}", _kind(field.type)
        kind = getattr(field.type, "value_type", field.type)
        if getattr(kind, "num_fields", 0):  # a struct
            yield from _dotted(kind, f"{start}{field.name}.")


def _kind(of: pa.DataType) -> str:
    """Kind of a type, e.g. ``list``; equal for all widths that a library may choose."""
    name = str(of).partition("<")[0]
    name = {"double": "float", "halffloat": "float"}.get(name, name)
    return name.removeprefix("large_").removeprefix("u").rstrip("0123456789")


def _traces(files: Iterable[Path]) -> Iterator[Trace]:
    for path in files:
        for number, row in enumerate(rows_in(path, _COLUMNS), 1):
            if empty := [name for name in _FILLED if row.get(name, "") is None]:
                raise ConfigError(f"{path}: row {number} has no {empty[0]}", _TAKE_OUT)
            try:
                trace = from_row(Trace, row)
            except ConfigError as error:
                raise ConfigError(f"{path}: row {number}: {error.what}", _TAKE_OUT) from error
            yield trace

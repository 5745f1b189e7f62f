"""Writes the rows that leave a pipeline to disk, in the order in which they finish."""

from __future__ import annotations

import atexit
import contextlib
import logging
import shutil
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heavydistill.errors import RunError, StoppedError, encodable, printable
from heavydistill.schema import FAILED, Problem, Trace, to_row
from heavydistill.store.traces import Writer, writing

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset

_log = logging.getLogger(__name__)


class RowWriter:
    """Writes rows to parquet files in ``folder``, which is created; thread-safe.

    A trace that does not match the schema becomes a reject with the problem and the reason. File
    names start with ``prefix``; a file gets its final name when it is complete.
    """

    ROWS_PER_FILE = 100
    ROWS_PER_GROUP = 10  # small, so that reading one row reads few others

    def __init__(self, folder: Path, schema: pa.Schema, prefix: str = "") -> None:
        self._folder = folder
        self._prefix = f"{prefix}-" if prefix else ""
        self._schema = schema
        self._rows: list[dict[str, object]] = []
        self._files = 0
        self._lock = threading.RLock()
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def add(self, rows: list[dict[str, Any]]) -> None:
        """Add rows; a row that becomes a reject is modified in place.

        Raises:
            RunError: A row does not match the schema and is not a trace.
            StoppedError: The disk is full or fails; the caller should await the requests in flight.
        """
        with self._lock:
            if not all(self._misfit(rows, column) is None for column in self._schema):
                for row in rows:
                    self._make_fit(row)
            self._rows += rows
            if len(self._rows) >= self.ROWS_PER_FILE:
                self.close()

    def close(self) -> None:
        """Write the rows that are not in a file yet.

        Raises:
            StoppedError: The disk cannot be written; another call tries again.
        """
        with self._lock:
            if not self._rows:
                return
            final = self._folder / f"{self._prefix}{self._files:05d}.parquet"
            unfinished = final.with_suffix(".part")
            with writing(self._folder, StoppedError):
                opened = Writer(unfinished, self._schema, self.ROWS_PER_GROUP)
                with contextlib.closing(opened) as writer:
                    for row in self._rows:
                        writer.copy(row)
                unfinished.rename(final)
            self._files += 1
            self._rows = []

    def _make_fit(self, row: dict[str, Any]) -> None:
        """Turn a row that does not match the schema into a reject."""
        for column in self._schema:
            if misfit := self._misfit([row], column):
                row.update(self._reject(row, column.name, misfit))
                return

    @staticmethod
    def _misfit(rows: list[dict[str, Any]], column: pa.Field[pa.DataType]) -> Exception | None:
        """The error of a column that does not match the schema in one of the rows, if any."""
        import pyarrow as pa

        try:
            pa.array([row.get(column.name) for row in rows], column.type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            return error
        return None

    def _reject(self, row: dict[str, Any], column: str, error: Exception) -> dict[str, object]:
        """Return the reject for a row that cannot be written."""
        why = f"{column}: {type(error).__name__}: {error}"
        if self._schema.names != list(Trace.__dataclass_fields__):
            raise RunError(
                f"A row that left the pipeline does not fit its schema: {why}",
                "Correct leaf_schema, or the step that writes the column.",
            ) from error
        problem = Problem(**{name: encodable(text) for name, text in row["problem"].items()})
        status = printable(f"{FAILED}output: {why}")
        _log.warning("problem %s: %s", problem.id, status)
        return to_row(Trace(problem=problem, pool=[], status=status))


def temporary_folder() -> Path:
    """Create a folder that is deleted at process exit, because a ``Distiset`` maps its files."""
    folder = Path(tempfile.mkdtemp(prefix="heavydistill-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def dataset_of(folder: Path, cache: Path) -> Dataset:
    """Load a folder of parquet files as a dataset, memory-mapped from a file in ``cache``.

    Raises:
        RunError: There are no rows, or the disk is full.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq
    from datasets import Dataset

    files = sorted(folder.glob("*.parquet"))
    if not files:
        raise RunError("The pipeline returned no rows", "See the log above.")
    mapped = cache / "rows.arrow"
    with writing(cache):
        cache.mkdir(parents=True, exist_ok=True)
        # ``Dataset.from_parquet`` takes twice as long.
        with (
            pa.OSFile(str(mapped), "wb") as opened,
            pa.ipc.new_stream(opened, pq.read_schema(files[0])) as stream,
        ):
            for file in files:
                stream.write_table(pq.read_table(file))
        return Dataset.from_file(str(mapped))

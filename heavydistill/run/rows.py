"""Writes the rows that leave a pipeline to disk, in the order in which they finish."""

from __future__ import annotations

import atexit
import contextlib
import logging
import shutil
import tempfile
import threading
from collections.abc import Iterator
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
            for row in rows:
                self._make_fit(row)
                self._rows.append(row)
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
        import pyarrow as pa

        for column in self._schema:
            try:
                pa.array([row.get(column.name)], column.type)
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                row.update(self._reject(row, column.name, error))
                return

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
    """Load a folder of parquet files as a dataset, memory-mapped from files in ``cache``.

    Raises:
        RunError: There are no rows, or the disk is full.
    """
    from datasets import Dataset

    files = sorted(map(str, folder.glob("*.parquet")))
    if not files:
        raise RunError("The pipeline returned no rows", "See the log above.")
    with without_bars(), writing(cache):
        return Dataset.from_parquet(files, cache_dir=str(cache))


@contextlib.contextmanager
def without_bars() -> Iterator[None]:
    """Turn off the bars of ``datasets``, which would disturb our progress line."""
    from datasets import utils

    had_bars = not utils.are_progress_bars_disabled()
    utils.disable_progress_bars()
    try:
        yield
    finally:
        if had_bars:
            utils.enable_progress_bars()

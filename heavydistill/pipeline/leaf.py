"""The rows that leave the last step of a pipeline, on disk in the order in which they came."""

from __future__ import annotations

import atexit
import contextlib
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heavydistill.errors import RunError, StoppedError
from heavydistill.storage import writing

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset
    from distilabel.pipeline.batch import _Batch


class TypedWriteBuffer:
    """Stands in for distilabel's buffer, which infers a schema from every 50 rows.

    Args:
        folder: Of the parquet files; made here. A file has its name when it is whole.
        schema: Of every file.
    """

    ROWS_PER_FILE = 100
    # Small, so that whoever wants one row reads no more than its group.
    ROWS_PER_GROUP = 10

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self._folder = folder
        self._schema = schema
        self._rows: list[dict[str, Any]] = []
        self._files = 0
        # On Ctrl-C the main thread closes while the output thread may still add.
        self._lock = threading.RLock()
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def add_batch(self, batch: _Batch) -> None:
        """Take the rows of a batch of the last step.

        Raises:
            StoppedError: The disk is full or fails. What is in flight is worth awaiting: it is paid
                for, and the journal may be elsewhere.
        """
        with self._lock:
            self._rows.extend(batch.data[0])
            if len(self._rows) >= self.ROWS_PER_FILE:
                self.close()

    def close(self) -> None:
        """Write what was taken since the last file.

        Raises:
            StoppedError: As of ``add_batch``; the rows are held, and another call tries again.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        with self._lock:
            if not self._rows:
                return
            table = pa.Table.from_pylist(self._rows, schema=self._schema)
            final = self._folder / f"{self._files:05d}.parquet"
            unfinished = final.with_suffix(".part")
            with writing(self._folder, StoppedError):
                pq.write_table(table, unfinished, row_group_size=self.ROWS_PER_GROUP)
                unfinished.rename(final)
            self._files += 1
            self._rows = []


def temporary_folder() -> Path:
    """A new folder, which is there until this process ends: a ``Distiset`` maps files in it."""
    folder = Path(tempfile.mkdtemp(prefix="heavydistill-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def dataset_of(folder: Path, cache: Path) -> Dataset:
    """The rows of a folder of parquet files, mapped from files in ``cache``.

    Raises:
        RunError: There are none, or the disk is full.
    """
    from datasets import Dataset

    files = sorted(map(str, folder.glob("*.parquet")))
    if not files:
        raise RunError("No row came out of the pipeline", "See the log above.")
    with _without_progress_bars(), writing(cache):
        return Dataset.from_parquet(files, cache_dir=str(cache))


@contextlib.contextmanager
def _without_progress_bars() -> Iterator[None]:
    """The bars of ``datasets`` would tear ours."""
    from datasets.utils import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    before = are_progress_bars_disabled()
    disable_progress_bars()
    try:
        yield
    finally:
        if not before:
            enable_progress_bars()

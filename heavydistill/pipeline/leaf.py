"""The rows that leave the last step of a pipeline, on disk in the order in which they came."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
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
        folder.mkdir(parents=True, exist_ok=True)

    def add_batch(self, batch: _Batch) -> None:
        """Take the rows of a batch of the last step."""
        with self._lock:
            self._rows.extend(batch.data[0])
            if len(self._rows) >= self.ROWS_PER_FILE:
                self.close()

    def close(self) -> None:
        """Write what was taken since the last file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        with self._lock:
            if not self._rows:
                return
            table = pa.Table.from_pylist(self._rows, schema=self._schema)
            final = self._folder / f"{self._files:05d}.parquet"
            unfinished = final.with_suffix(".part")
            pq.write_table(table, unfinished, row_group_size=self.ROWS_PER_GROUP)
            unfinished.rename(final)
            self._files += 1
            self._rows = []


@contextlib.contextmanager
def without_progress_bars() -> Iterator[None]:
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

"""The rows that leave a pipeline, on a disk that has no room for them."""

from __future__ import annotations

import resource

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from distilabel.pipeline.batch import _Batch

from heavydistill.errors import StoppedError
from heavydistill.pipeline.leaf import TypedWriteBuffer

SCHEMA = pa.schema([("number", pa.int64())])


def test_rows_for_which_there_is_no_room_stop_the_run_and_are_not_lost(tmp_path):
    folder = tmp_path / "leaf"
    buffer = TypedWriteBuffer(folder, SCHEMA)
    rows = [{"number": number} for number in range(buffer.ROWS_PER_FILE)]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(StoppedError, match="cannot be written") as raised:
            buffer.add_batch(_Batch(0, "last", True, [rows]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(folder) in raised.value.what and "Make room" in raised.value.fix
    assert not list(folder.glob("*.parquet"))
    buffer.close()
    (file,) = folder.glob("*.parquet")
    assert pq.read_table(file).to_pylist() == rows

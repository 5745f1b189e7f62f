"""The rows that leave a pipeline: what does not fit the schema, and a disk without room."""

from __future__ import annotations

import resource
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from samples import trajectory

from heavydistill.errors import RunError, StoppedError
from heavydistill.run.rows import RowWriter
from heavydistill.schema import OK, Problem, Trace, arrow_schema, from_row, to_row

SCHEMA = pa.schema([("number", pa.int64())])


def test_rows_for_which_there_is_no_room_stop_the_run_and_are_not_lost(tmp_path):
    folder = tmp_path / "leaf"
    buffer = RowWriter(folder, SCHEMA)
    rows = [{"number": number} for number in range(buffer.ROWS_PER_FILE)]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(StoppedError, match="cannot be written") as raised:
            buffer.add(rows)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(folder) in raised.value.what and "Make room" in raised.value.fix
    assert not list(folder.glob("*.parquet"))
    buffer.close()
    (file,) = folder.glob("*.parquet")
    assert pq.read_table(file).to_pylist() == rows


def trace(name: str, text: str = "3 + 4", **generation: Any) -> dict[str, Any]:
    problem = Problem(id=name, text=text, reference="7", verifier="exact")
    return to_row(Trace(problem=problem, pool=[trajectory(), trajectory(**generation)]))


@pytest.mark.parametrize(
    ("bad", "column"),
    [
        (trace("bad", completion_tokens=True), "pool"),
        (trace("bad", prompt_tokens=10**30), "pool"),
        (trace("bad", cached_tokens=10**400), "pool"),
        (trace("bad", latency_s="1.5"), "pool"),
        (trace("bad", answer_text="half \ud83d"), "pool"),
        (trace("bad", finish_reason={"why": "so"}), "pool"),
        (trace("bad") | {"stratum": 7}, "stratum"),
        (trace("bad", text="half \ud83d"), "problem"),
    ],
)
def test_a_trace_that_does_not_fit_is_a_reject_and_the_others_are_kept(
    tmp_path, caplog, bad, column
):
    buffer = RowWriter(tmp_path, arrow_schema(Trace))
    given = [trace("a"), bad, trace("b")]
    buffer.add(given)
    buffer.close()
    (file,) = tmp_path.glob("*.parquet")
    rows = [from_row(Trace, row) for row in pq.read_table(file).to_pylist()]
    assert [row.problem.id for row in rows] == ["a", "bad", "b"]
    assert [len(row.pool) for row in rows] == [2, 0, 2]
    assert (rows[0].status, rows[2].status) == (OK, OK)
    assert rows[1].status.startswith(f"failed: output: {column}: ")
    assert f"problem bad: {rows[1].status}" in caplog.text
    # What counts the rows that leave sees the reject too.
    assert [row["status"] for row in given] == [row.status for row in rows]


def test_a_row_that_is_no_trace_and_does_not_fit_ends_the_run_with_its_column(tmp_path):
    buffer = RowWriter(tmp_path, SCHEMA)
    with pytest.raises(RunError, match=r"number: .*leaf_schema"):
        buffer.add([{"number": "seven"}])

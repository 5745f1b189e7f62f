"""The rows that leave a pipeline, and the folder of a run, above all of an interrupted one."""

import json
import logging
import resource
from pathlib import Path
from typing import Any

import messages
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from damaging import damage
from samples import trajectory

from heavydistill.config.run import RunConfig
from heavydistill.errors import RunError
from heavydistill.models.resolve import resolve
from heavydistill.run.result import all_traces, earlier, write
from heavydistill.run.rows import RowWriter
from heavydistill.schema import FAILED, OK, Problem, Trace, arrow_schema, from_row, to_row
from heavydistill.store.traces import REJECTS_FOLDER, TRACES_FOLDER, read_traces

RUN = resolve(RunConfig())
PROBLEMS = [Problem(id=f"p{n}", text="3 + 4", reference="7", verifier="exact") for n in range(6)]


def rows(folder: Path, texts: dict[str, str], failed: tuple[str, ...] = ()) -> Path:
    """Rows as a pipeline leaves them, by the id of the problem, each with this text."""
    folder.mkdir()
    known = {problem.id: problem for problem in PROBLEMS}
    for number, (name, text) in enumerate(texts.items()):
        status = f"{FAILED}verify_pool: boom" if name in failed else OK
        # A failed trajectory, so that a run may go on from it.
        pool = [trajectory(answer_text=text, finish_reason="error", error="x")]
        trace = Trace(problem=known[name], pool=pool, status=status)
        table = pa.Table.from_pylist([to_row(trace)], arrow_schema(Trace))
        pq.write_table(table, folder / f"{number:05d}.parquet")
    return folder


def texts_in(run: Path) -> dict[str, str]:
    return {trace.problem.id: trace.pool[0].answer_text for trace in read_traces(run)}


def test_an_interrupted_run_keeps_the_rows_that_it_did_not_come_to(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    before = rows(tmp_path / "1", {"p4": "a", "p0": "b", "p2": "c", "p1": "d"}, failed=("p2",))
    assert write(RUN, PROBLEMS, before, old, tmp_path / "none")[2] == 2
    after = rows(tmp_path / "2", {"p5": "e", "p0": "f"})
    _, *lacking, _ = write(RUN, PROBLEMS, after, new, old)
    assert texts_in(new) == {"p0": "f", "p1": "d", "p4": "a", "p5": "e"}
    assert list(texts_in(new)) == ["p0", "p1", "p4", "p5"]
    assert lacking == [1, 1]
    summary = json.loads((new / "summary.json").read_text())
    assert (summary["rejects"], summary["missing"]) == (1, 1)
    assert sum(summary["statuses"].values()) == 5
    (rejected,) = pq.read_table(new / REJECTS_FOLDER).to_pylist()
    assert rejected["problem"]["id"] == "p2"
    before = earlier(RUN.config, new)
    assert before and before.may_go_on and not before.changed


@pytest.mark.parametrize("licences", [["cc-by-nc-4.0"], None])
def test_the_licences_of_imported_pools_are_handed_on(tmp_path, licences):
    given = {} if licences is None else {"licences": licences}
    (tmp_path / "summary.json").write_text(json.dumps(given))
    run = resolve(RunConfig(pools=str(tmp_path)))
    written = rows(tmp_path / "rows", {problem.id: "a" for problem in PROBLEMS})
    write(run, PROBLEMS, written, tmp_path / "run", None)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary.get("licences") == licences


def test_rows_of_problems_that_have_changed_are_left_out_and_counted(tmp_path, caplog):
    old = tmp_path / "old"
    write(RUN, PROBLEMS, rows(tmp_path / "1", {"p0": "a", "p1": "b"}), old, tmp_path / "none")
    changed = [Problem(id="p0", text="3 + 5", reference="8", verifier="exact"), *PROBLEMS[1:]]
    with caplog.at_level(logging.WARNING):
        write(RUN, changed, rows(tmp_path / "2", {"p2": "c"}), tmp_path / "new", old)
    assert texts_in(tmp_path / "new") == {"p1": "b", "p2": "c"}
    assert "1 row(s)" in caplog.text


def test_a_run_that_was_not_interrupted_takes_nothing_from_before(tmp_path):
    full = rows(tmp_path / "1", {problem.id: "a" for problem in PROBLEMS})
    assert write(RUN, PROBLEMS, full, tmp_path / "run", None)[2] == 0
    with messages.raises("rows_missing", problems=6, rows=5):
        some = rows(tmp_path / "2", {problem.id: "a" for problem in PROBLEMS[1:]})
        write(RUN, PROBLEMS, some, tmp_path / "other", None)


@pytest.mark.parametrize("column", ["problem.text", "pool.list.element.answer_text"])
def test_rows_that_cannot_be_read_are_said_with_their_file(tmp_path, column):
    full = rows(tmp_path / "1", {problem.id: "a" for problem in PROBLEMS})
    write(RUN, PROBLEMS, full, tmp_path / "run", None)
    (file,) = (tmp_path / "run" / TRACES_FOLDER).iterdir()
    damage(file, column)
    with messages.raises("traces_no_parquet") as caught:
        list(all_traces(tmp_path / "run"))
    assert str(file) in caught.value.what


SCHEMA = pa.schema([("number", pa.int64())])


def test_rows_for_which_there_is_no_room_stop_the_run_and_are_not_lost(tmp_path):
    folder = tmp_path / "leaf"
    buffer = RowWriter(folder, SCHEMA)
    rows = [{"number": number} for number in range(buffer.ROWS_PER_FILE)]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with messages.raises("rows_unwritable") as raised:
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

import dataclasses
import resource
import tempfile
import types
import typing
from collections import Counter
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Literal

import messages
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from damaging import damage
from generations import deliberation, problem, trajectory
from hypothesis import given, settings
from hypothesis import strategies as st
from messages import message
from samples import generation

from heavydistill.errors import CONTROL, ConfigError
from heavydistill.schema import (
    Deliberation,
    Problem,
    Trace,
    Turn,
    Verdict,
    arrow_schema,
    to_row,
    turns_as_json,
)
from heavydistill.store import traces as stored
from heavydistill.store.traces import (
    TRACES_FOLDER,
    Traces,
    read_columns,
    read_files,
    read_traces,
    write_traces,
)

_SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=20),
    int: st.integers(-1, 2**62),
    float: st.floats(allow_nan=False),
    bool: st.booleans(),
}


def _values(hint: Any) -> st.SearchStrategy[Any]:
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return st.one_of(*map(_values, typing.get_args(hint)))
    if hint is type(None):
        return st.none()
    if typing.get_origin(hint) is Literal:
        return st.sampled_from(typing.get_args(hint))
    if typing.get_origin(hint) is list:
        return st.lists(_values(typing.get_args(hint)[0]), max_size=3)
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint)
        fields = {f.name: _values(hints[f.name]) for f in dataclasses.fields(hint)}
        if hint is Trace:
            del fields["schema_version"]
        for name in {"history_json", "turns_json"} & fields.keys():
            fields[name] = st.lists(_values(Turn), max_size=2).map(turns_as_json)
        return st.builds(typing.cast(type, hint), **fields)
    return _SCALARS[hint]


def _trace(number: int) -> Trace:
    problem = Problem(id=f"p{number}", text="2 + 2", reference="4", verifier="exact")
    return Trace(problem=problem, pool=[])


@given(traces=st.lists(_values(Trace), max_size=4))
@settings(max_examples=40, deadline=None)
def test_what_was_written_is_read_back(traces):
    with tempfile.TemporaryDirectory() as folder:
        write_traces(traces, Path(folder) / TRACES_FOLDER, rows_per_group=2)
        assert list(read_traces(Path(folder))) == traces


def test_row_groups_hold_no_more_than_asked(tmp_path):
    path = write_traces(map(_trace, range(7)), tmp_path / TRACES_FOLDER, rows_per_group=3)
    assert isinstance(read_traces(tmp_path), Iterator)
    metadata = pq.ParquetFile(path).metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [3, 3, 1]
    assert [trace.problem.id for trace in read_traces(tmp_path)] == [f"p{i}" for i in range(7)]


def test_the_datasets_library_reads_the_folder_as_split_train(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    folder = tmp_path / TRACES_FOLDER
    write_traces(map(_trace, range(3)), folder)
    loaded = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))
    assert list(loaded) == ["train"]
    assert loaded["train"]["problem"][2] == to_row(_trace(2))["problem"]

    # What the library writes back is still a run: its types are equal to ours in meaning only.
    again = tmp_path / "again"
    (again / TRACES_FOLDER).mkdir(parents=True)
    loaded["train"].to_parquet(str(again / TRACES_FOLDER / "train.parquet"))
    assert list(read_traces(again)) == [_trace(i) for i in range(3)]


def test_a_writer_that_breaks_leaves_the_earlier_file_whole(tmp_path):
    def breaks() -> Iterator[Trace]:
        yield _trace(5)
        raise RuntimeError("power cut")

    folder = tmp_path / TRACES_FOLDER
    write_traces([_trace(1)], folder)
    with pytest.raises(RuntimeError, match="power cut"):
        write_traces(breaks(), folder, rows_per_group=1)
    assert [trace.problem.id for trace in read_traces(tmp_path)] == ["p1"]
    assert len(list(folder.iterdir())) == 1


def test_a_new_file_is_flushed_under_its_name(tmp_path, monkeypatch):
    flushed: list[tuple[Path, bool]] = []
    file = tmp_path / "one.parquet"
    monkeypatch.setattr(stored, "sync", lambda path: flushed.append((path, file.exists())))
    write_traces([_trace(1)], tmp_path, name=file.name)
    assert flushed[-1] == (tmp_path, True)  # else a power cut could bring the old file back


def test_a_full_disk_is_said_with_what_to_do(tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with messages.raises("traces_unwritable", why="File too large", path=tmp_path):
            write_traces(map(_trace, range(100)), tmp_path / TRACES_FOLDER)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list((tmp_path / TRACES_FOLDER).iterdir())


def test_a_folder_that_is_no_run_is_refused_at_once(tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        with messages.raises("no_finished_run", folder=folder):
            read_traces(folder)


def test_single_files_are_read_in_the_order_in_which_they_are_given(tmp_path):
    files = [write_traces([_trace(n)], tmp_path / str(n)) for n in (2, 1)]
    assert list(read_files(files)) == [_trace(2), _trace(1)]
    newer = dataclasses.replace(_trace(3), schema_version="999")
    path = write_traces([_trace(3), newer], tmp_path / TRACES_FOLDER)
    for read in (lambda: read_files([*files, path]), lambda: read_traces(tmp_path)):
        with messages.raises("traces_other_schema", file=path, version="'999'"):
            read()


NAMED = {"served_model", "host", "system_fingerprint", "unknown_finish_reason", "turns_json"}


@pytest.mark.parametrize(("version", "lacks"), [("4", {"claims"} | NAMED), ("5", NAMED)])
def test_rows_of_earlier_versions_are_read_also_beside_rows_of_this_version(
    tmp_path, version, lacks
):
    said = generation(Deliberation, cache="c", round=1)
    old = dataclasses.replace(_trace(1), deliberations=[said], schema_version=version)
    older = arrow_schema(Trace)
    for samples in ("pool", "deliberations"):
        place = older.get_field_index(samples)
        fields = [each for each in older.field(place).type.value_type if each.name not in lacks]
        older = older.set(place, pa.field(samples, pa.list_(pa.struct(fields))))
    asked = [each for each in older.field("problem").type if each.name != "history_json"]
    older = older.set(0, pa.field("problem", pa.struct(asked)))
    path = write_traces([old], tmp_path / TRACES_FOLDER)
    pq.write_table(pa.Table.from_pylist([to_row(old)], older), path)
    assert list(read_traces(tmp_path)) == [old]
    pretends = dataclasses.replace(old, schema_version="6")
    pq.write_table(pa.Table.from_pylist([to_row(pretends)], older), path)
    with messages.raises("traces_lack_columns", columns="problem, pool, deliberations"):
        read_traces(tmp_path)
    new = dataclasses.replace(_trace(2), deliberations=[dataclasses.replace(said, claims=[])])
    write_traces([old, new], tmp_path / TRACES_FOLDER)
    assert list(read_traces(tmp_path)) == [old, new]


def _replaced(run: Path, change: Callable[[pa.Table], pa.Table]) -> Path:
    """The file of a run, with other columns."""
    table = pa.Table.from_pylist([to_row(_trace(1))], arrow_schema(Trace))
    path = write_traces([_trace(1)], run / TRACES_FOLDER)
    pq.write_table(change(table), path)
    return path


def _with(table: pa.Table, column: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.schema.get_field_index(column), column, values)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda _: pa.table({"text": ["a"]}), "holds no traces"),
        (
            lambda table: _with(table, "status", pa.array([7])),
            message("traces_lack_columns", columns="status"),
        ),
        (
            lambda table: table.drop_columns(["pool"]),
            message("traces_lack_columns", columns="pool"),
        ),
        (
            lambda table: table.set_column(0, "problem", pa.array([{"id": "p", "text": "2 + 2"}])),
            message("traces_lack_columns", columns="problem"),
        ),
    ],
)
def test_files_with_other_columns_are_refused(tmp_path, change, fault):
    path = _replaced(tmp_path, change)
    with pytest.raises(ConfigError, match=fault) as caught:
        read_traces(tmp_path)
    assert str(path) in caught.value.what


@pytest.mark.parametrize("column", ["problem", "pool", "status"])
def test_a_row_without_a_value_that_all_rows_have_is_said_with_its_file(tmp_path, column):
    path = _replaced(
        tmp_path, lambda table: _with(table, column, pa.nulls(1, table.field(column).type))
    )
    with messages.raises("row_without_value", file=path, row=1, column=column):
        list(read_traces(tmp_path))


def test_rows_that_cannot_be_read_are_said_with_their_file(tmp_path):
    path = write_traces(map(_trace, range(2)), tmp_path / TRACES_FOLDER, rows_per_group=1)
    damage(path, "problem.text")
    traces = read_traces(tmp_path)
    assert next(traces) == _trace(0)
    with messages.raises("traces_no_parquet", file=path):
        next(traces)
    damage(path, "schema_version")
    with messages.raises("traces_no_parquet", file=path):
        read_traces(tmp_path)
    path.write_bytes(b"PAR1 cut off")
    with messages.raises("traces_no_parquet", file=path):
        read_traces(tmp_path)


def test_damaged_turns_are_said_with_their_row(tmp_path):
    problem = {**to_row(_trace(1))["problem"], "history_json": "[3]"}
    kind = arrow_schema(Trace).field("problem").type
    path = _replaced(tmp_path, lambda table: _with(table, "problem", pa.array([problem], kind)))
    with messages.raises("turns_damaged", file=path, row=1):
        list(read_traces(tmp_path))


def test_text_that_is_none_is_said_with_its_file(tmp_path):
    damaged = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"]).buffers())
    status = arrow_schema(Trace).get_field_index("status")
    _replaced(tmp_path, lambda table: table.set_column(status, "status", damaged))
    with messages.raises("traces_no_parquet"):
        list(read_traces(tmp_path))


@given(traces=st.lists(_values(Trace), min_size=1, max_size=3))
@settings(max_examples=20, deadline=None)
def test_columns_are_what_stands_under_their_names_and_nothing_else(traces):
    with tempfile.TemporaryDirectory() as folder:
        write_traces(traces, Path(folder) / TRACES_FOLDER)
        found = list(
            read_columns(Path(folder), ["problem", "status", "pool.id", "pool.verdict.label"])
        )
    assert found == [
        {
            "problem": to_row(trace.problem),
            "status": trace.status,
            "pool": [
                {"id": each.id, "verdict": each.verdict and {"label": each.verdict.label}}
                for each in trace.pool
            ],
        }
        for trace in traces
    ]


def verdict(label: Any, extracted: str) -> Verdict:
    return Verdict(label=label, reason="said", extracted=extracted, verifier="math@2")


@given(trace=_values(Trace))
@settings(max_examples=60, deadline=None)
def test_a_trace_prints_as_at_most_twenty_short_lines(trace):
    lines = repr(trace).split("\n")
    assert len(lines) <= 20 and max(map(len, lines)) <= 300
    assert not CONTROL.search(repr(trace))


def test_a_trace_of_many_long_texts_prints_what_was_answered_and_how_often():
    text = "What is 2 + 3?\n" + "It is a long question. " * 10**5
    pool = [trajectory(r"\boxed{5}" + "x" * 10**6, index=n) for n in range(40)]
    wrong = [verdict("incorrect", str(n)) for n in range(9)]
    pool += [trajectory("4", verdict=each, index=40) for each in wrong]
    trace = Trace(problem=problem(text), pool=pool, stratum="majority-right")
    assert repr(trace).splitlines() == [
        "Trace of p: ok, majority-right",
        f"  problem: What is 2 + 3? {'It is a long question. ' * 3}".rstrip()[:91] + " ...",
        "  reference: 5 (math)",
        "  thinker: 49 responses",
        "    40 x correct: 5 (said)",
        *(f"    1 x incorrect: {n} (said)" for n in range(4)),
        "    and 5 other answers",
        "  deliberator: 0 responses",
    ]
    assert len(trace._repr_html_()) < 200_000


class _Tags(HTMLParser):
    """The tags of a page, and its texts by the innermost tag."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.texts: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: Any) -> None:
        self.open.append(tag)
        self.tags[tag] += 1
        assert not attributes

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data.strip()))


def test_a_notebook_shows_the_texts_of_a_trace_and_runs_none():
    hostile = "</pre><script>alert(1)</script><img src=x onerror=alert(1)> $x$ \x1b[2J\u202e"
    trace = Trace(
        problem=problem(hostile),
        pool=[
            trajectory(hostile, hostile, verdict=verdict("correct", hostile)),
            trajectory("5", index=1),
        ],
        deliberations=[deliberation(hostile, error=hostile)],
    )
    page = _Tags(trace._repr_html_())
    assert page.tags == {"pre": 4, "details": 3, "summary": 3, "code": 3}
    shown = hostile.replace("\x1b[2J\u202e", "")
    assert sum(shown.strip() in text for _, text in page.texts) >= 3
    # Formulas outside of these two are rendered, and may hold links.
    assert {tag for tag, text in page.texts if text} == {"pre", "code"}


def test_traces_are_counted_repeated_and_converted(tmp_path):
    traces = [
        Trace(problem=problem(id=str(n)), pool=[trajectory("5")], deliberations=[deliberation("5")])
        for n in range(3)
    ]
    write_traces(traces, tmp_path / TRACES_FOLDER, rows_per_group=2)
    opened = Traces(str(tmp_path))
    assert len(opened) == 3 and repr(opened) == f"Traces of {tmp_path}: 3"
    assert list(opened) == list(opened) == traces
    assert opened.to_dataset().to_list() == list(map(to_row, traces))
    frame = opened.to_pandas()
    assert [*zip(frame["problem"], frame["role"], frame["verdict.label"], strict=True)] == [
        (str(n), role, "correct") for n in range(3) for role in ("thinker", "deliberator")
    ]
    assert Traces(tmp_path).to_dataset().features["stratum"].dtype == "string"

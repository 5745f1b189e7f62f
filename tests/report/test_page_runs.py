"""Which runs a report finds in a folder, whole, killed or in progress."""

import dataclasses
import json

import messages

from heavydistill.metrics.comparison import COMPARISON
from heavydistill.report.page import runs, writer
from heavydistill.schema import FAILED
from heavydistill.store.atomic import Workplace
from heavydistill.store.traces import LEAF_FOLDER, REJECTS_FOLDER, TRACES_FOLDER, write_traces

RUN = runs.ReportedRun(name="run", files=[])


def test_the_rows_that_a_step_failed_on_are_reported_too(run, traces, tmp_path):
    broken = dataclasses.replace(traces[0], status=f"{FAILED}verify: boom")
    write_traces(traces[1:], tmp_path / TRACES_FOLDER)
    write_traces([broken], tmp_path / REJECTS_FOLDER)
    (source,) = runs.find(tmp_path)
    told = runs.figures(RUN, writer.read_files(source.files))
    assert told.summary.problems == 12 and source.unfinished == ""


def test_an_evaluation_is_its_runs(run, tmp_path):
    for side in ("before", "after"):
        (tmp_path / "e" / side).parent.mkdir(exist_ok=True)
        (tmp_path / "e" / side).symlink_to(run)
    (tmp_path / "e" / COMPARISON).write_text("{}")
    assert [source.name for source in runs.find(tmp_path / "e")] == ["e / before", "e / after"]
    told = writer.write_report([tmp_path / "e"], tmp_path / "page.html")
    text = told.file.read_text("utf-8")
    assert "pairs two runs by problem" in text and "index-1" in text
    assert "evaluation.json" in text and "evaluate again" in text  # it holds no comparison


def test_a_killed_run_and_one_in_progress_are_reported_as_far_as_they_got(traces, tmp_path):
    place = Workplace(tmp_path / "run")
    with place.claimed():
        with messages.raises("no_rows_yet"):
            runs.find(tmp_path / "run")
        write_traces(traces[:5], place.rows / LEAF_FOLDER)
        (source,) = runs.find(tmp_path / "run")
        assert "is in progress" in source.unfinished
        text = writer.write_report([tmp_path / "run"], tmp_path / "p.html").file.read_text("utf-8")
        assert "Unfinished." in text and "In this report: 5 problems." in text
        leaf = [path.read_bytes() for path in (place.rows / LEAF_FOLDER).iterdir()]
    (place.rows / LEAF_FOLDER).mkdir(parents=True)  # as a kill would have left it
    (place.rows / LEAF_FOLDER / "00000.parquet").write_bytes(leaf[0])
    (source,) = runs.find(tmp_path / "run")
    assert "was killed" in source.unfinished
    write_traces(traces, tmp_path / "run" / TRACES_FOLDER)
    (tmp_path / "run" / "summary.json").write_text(json.dumps({"missing": 7}))
    (source,) = runs.find(tmp_path / "run")
    assert source.unfinished == "7 problems have no row: the run was stopped."


def test_an_evaluation_is_reported_when_it_is_whole(traces, tmp_path):
    place = Workplace(tmp_path / "e")
    with place.claimed():
        write_traces(traces, place.new / "before" / TRACES_FOLDER)
        with messages.raises("no_rows_yet") as caught:
            runs.find(tmp_path / "e")
    assert "the end of an evaluation" in caught.value.fix


def test_what_is_no_run_is_refused_with_what_is_missing(tmp_path):
    with messages.raises("neither_run_nor_evaluation"):
        runs.find(tmp_path)
    with messages.raises("no_folder"):
        runs.find(tmp_path / "gone")
    (tmp_path / TRACES_FOLDER).mkdir()
    with messages.raises("no_run"):
        runs.find(tmp_path)
    (tmp_path / "summary.json").write_text("{")
    write_traces([], tmp_path / TRACES_FOLDER)
    with messages.raises("no_json"):
        runs.find(tmp_path)


def test_runs_of_one_name_are_told_apart(run, tmp_path):
    written = writer.write_report([run, run], tmp_path / "page.html")
    assert [source.name for source in written.runs] == ["first", "first (2)"]

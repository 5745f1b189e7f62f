"""What the page says of the runs of an evaluation or a crossing together."""

from __future__ import annotations

import dataclasses
import html
import re
import shutil
from pathlib import Path

import pytest
import runs

from heavydistill.errors import ConfigError
from heavydistill.metrics.comparison import COMPARISON, compare
from heavydistill.metrics.controls import CONTROLS, hold_against
from heavydistill.metrics.crossing import CROSSING, cross
from heavydistill.pipeline.comparing import side_of
from heavydistill.report.page import together, writing
from heavydistill.report.text import percent, points
from heavydistill.schema import Trace
from heavydistill.storage import TRACES_FOLDER, read_traces, write_traces
from heavydistill.versioned import write_versioned


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs over the same problems, compared and held against controls."""
    folder = tmp_path_factory.mktemp("evaluations") / "mine"
    runs.write_run(folder / "before", 20, k=4, d=2)
    shutil.copytree(folder / "before", folder / "after")
    shutil.rmtree(folder / "after" / TRACES_FOLDER)
    write_traces(map(_taught, read_traces(folder / "before")), folder / "after" / TRACES_FOLDER)
    sides = [side_of(folder / name, name) for name in ("after", "before")]
    write_versioned(compare(sides[0], sides[1], {}), folder / COMPARISON)
    traces = {name: list(read_traces(folder / name)) for name in ("before", "after")}
    controls = {"alone": traces["before"], "order-1": traces["before"]}
    write_versioned(hold_against(traces["after"], 1, controls), folder / CONTROLS)
    return folder


def _taught(trace: Trace) -> Trace:
    """With deliberations that are right."""
    right = [
        dataclasses.replace(one, verdict=dataclasses.replace(one.verdict, label="correct"))
        for one in trace.deliberations
        if one.verdict
    ]
    return dataclasses.replace(trace, deliberations=right)


def words(page: str) -> str:
    """What is read of a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def test_an_evaluation_shows_changes_controls_and_orders(evaluation: Path) -> None:
    shown = together.of_folder(evaluation)
    comparison = together.read_comparison(evaluation / COMPARISON)
    controlled = together.read_controlled(evaluation / CONTROLS)
    told = words(shown)
    assert "mine: its runs together" in told and "points are paired by problem" in told
    for name, _, change in comparison.metrics:
        assert change.difference
        assert name in told and points(change.difference.mean) in told
    alone = controlled.controls[0]
    assert percent(alone.answering.accuracy.mean) in told
    assert f"the deliberator, without attempts {percent(alone.answering.accuracy.mean)}" in told
    assert "2 orders of the same attempts, 20 problems" in told
    # Votes of the run, its deliberation, and the control are in the plot.
    assert shown.count("<circle") == 4 and 'class="control"' in shown
    assert 'class="deliberation"' in shown


def test_a_crossing_shows_a_row_a_thinker_and_a_column_a_deliberator(
    evaluation: Path, tmp_path: Path
) -> None:
    pairs = {
        (thinker, reader): list(read_traces(evaluation / thinker))
        for thinker in ("before", "after")
        for reader in ("first", "<b>other</b>")
    }
    crossing = cross(pairs, 4, 2, 1)
    write_versioned(crossing, tmp_path / CROSSING)
    shown = together.of_folder(tmp_path)
    told = words(shown)
    assert "HM@2 first HM@2 <b>other</b>" in told and "<b>other</b>" not in shown
    for cell in crossing.cells:
        assert percent(cell.heavy_mean_at_d.mean) in told
        assert points(cell.heavy_minus_vote.mean) in told


def test_a_run_says_nothing_of_several_and_one_alone_has_no_changes(
    evaluation: Path, tmp_path: Path
) -> None:
    assert together.of_folder(evaluation / "after") == ""
    alone = compare(side_of(evaluation / "after", "after"), None, {})
    write_versioned(alone, tmp_path / COMPARISON)
    assert together.of_folder(tmp_path) == ""


def test_it_stands_in_the_page_once_and_before_the_runs(evaluation: Path, tmp_path: Path) -> None:
    page = writing.write_report([evaluation], tmp_path / "page.html").file.read_text("utf-8")
    assert page.count("What else the same models do") == 1
    assert page.index("What else the same models do") < page.index('id="summary-0"')


def test_an_evaluation_that_lost_its_runs_is_refused(evaluation: Path, tmp_path: Path) -> None:
    (tmp_path / COMPARISON).write_bytes((evaluation / COMPARISON).read_bytes())
    with pytest.raises(ConfigError, match=r"traces/\*\.parquet"):
        writing.write_report([tmp_path], tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()

"""What the page says of the runs of an evaluation or a crossing together."""

import html
import re
import shutil
from pathlib import Path

import messages
import pytest
import runs
from generations import altered

from heavydistill.config.versioned import write_versioned
from heavydistill.experiments.comparison import side_of
from heavydistill.metrics.comparison import COMPARISON, compare_sides, read_comparison
from heavydistill.metrics.controls import CONTROLS, compare_with_controls
from heavydistill.metrics.experiments.crossing import CROSSING, cross
from heavydistill.report.grid import FEW_NOTE, percent
from heavydistill.report.page import writer
from heavydistill.report.page.sections import of_folder
from heavydistill.report.summary import STRATA_NOTE
from heavydistill.schema import Trace
from heavydistill.store.traces import TRACES_FOLDER, read_traces, write_traces

FEW_WARNING = "Intervals over fewer than 30 problems are too narrow to rely on."


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs over the same problems, compared and held against controls."""
    folder = tmp_path_factory.mktemp("evaluations") / "mine"
    runs.write_run(folder / "before", 20, k=4, d=2)
    shutil.copytree(folder / "before", folder / "after")
    shutil.rmtree(folder / "after" / TRACES_FOLDER)
    taught = [
        altered(trace, "deliberations", judged={"label": "correct"})
        for trace in read_traces(folder / "before")
    ]
    write_traces(taught, folder / "after" / TRACES_FOLDER)
    sides = [side_of(folder / name, name) for name in ("after", "before")]
    write_versioned(compare_sides(sides[0], sides[1], {}), folder / COMPARISON)
    traces = {name: list(read_traces(folder / name)) for name in ("before", "after")}
    controls = dict.fromkeys(("alone-thinker", "garbled", "order-1"), traces["before"])
    write_versioned(compare_with_controls(traces["after"], 1, controls), folder / CONTROLS)
    return folder


def words(page: str) -> str:
    """What is read of a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", page)).split())


def test_an_evaluation_is_shown_with_its_orders(evaluation):
    told = words("".join(of_folder(evaluation)))
    assert "mine Deliberation against the model's own vote is better: 80.0% right against" in told
    assert "of it without the attempts' values. The values add +20.0" in told
    assert "points are paired by problem" in told
    assert "2 orders of the same attempts, 20 problems" in told


def test_tokens_are_told_as_written_and_read_and_of_how_many_problems_they_are_unknown(
    evaluation, tmp_path
):
    known = list(read_traces(evaluation / "after"))
    lost = [("prompt_tokens", "completion_tokens")] * 3 + [("prompt_tokens",)] * 2
    some = [_unknown(trace, *of) for trace, of in zip(known, lost, strict=False)]
    none = [_unknown(trace, *lost[0]) for trace in known]
    controls = {"chain": none, "choose": known}
    shutil.copy(evaluation / COMPARISON, tmp_path)
    write_versioned(compare_with_controls([*some, *known[5:]], 1, controls), tmp_path / CONTROLS)
    told = words("".join(of_folder(tmp_path)).partition("Way to answer")[2])
    assert "Written And read Heavy adds" in told
    assert "Controls are not matched in tokens" in told
    right = "100.0% 100.0 to 100.0%"
    assert f"attempts {right} 200 350 " in told and f"attempt {right} 200 350 0.0" in told
    assert "of the thinker 55.0%" in told and "unknown unknown +45.0" in told
    for tokens, heavy in (("written", 3), ("read", 5)):
        of_each = f"problem(s) with an unknown number of {tokens} tokens"
        assert f"{heavy} {of_each} (heavy)" in told
        assert f"20 {of_each} (chain)" in told


def _unknown(trace: Trace, *fields: str) -> Trace:
    """With attempts of which these tokens are not known."""
    return altered(trace, "pool", **dict.fromkeys(fields, -1))


def test_changes_over_few_problems_say_so_and_tables_what_is_to_be_known_of_them(
    evaluation, tmp_path
):
    shown = "".join(of_folder(evaluation))
    tables = {
        words(table[: table.index("</th>")]): words(table) for table in shown.split("<thead>")[1:]
    }
    assert STRATA_NOTE in tables["Stratum"] and FEW_NOTE in tables["Stratum"]
    marked = [title for title, told in tables.items() if FEW_NOTE in told]
    assert marked == ["Stratum", "Rate, 95% intervals"]
    assert "9 (few)" in tables["Stratum"]
    rescue = read_comparison(evaluation / COMPARISON).after.summary.rescue
    share, of_all = rescue.interval, f"{rescue.count} of {rescue.of}"
    assert share and f" to {percent(share.high)} {of_all} regress" in tables["Rate, 95% intervals"]
    assert words(shown).count(FEW_WARNING) == 2  # changes and controls
    side = side_of(runs.write_run(tmp_path / "run", 30, k=2, d=1), "run")
    write_versioned(compare_sides(side, side, {}), tmp_path / COMPARISON)
    told = words("".join(of_folder(tmp_path)))
    assert "30 problems" in told and FEW_WARNING not in told


def test_a_crossing_says_who_was_not_sampled_alike_and_that_problems_are_few(evaluation, tmp_path):
    traces = list(read_traces(evaluation / "before"))
    told = _crossed(traces, {"a": 1.0, "<b>b</b>": 0.3}, tmp_path)
    assert "HM@2 a HM@2 <b>b</b>" in told
    assert "Not sampled alike, deliberating: a: temperature 1; <b>b</b>: temperature 0.3" in told
    assert "alike, thinking" not in told and FEW_WARNING in told
    many = [altered(trace, asked={"id": f"{half}"}) for half, trace in enumerate(traces * 2)]
    told = _crossed(many, {"a": 1.0, "b": 1.0}, tmp_path)
    assert "40 problems" in told and "alike" not in told and FEW_WARNING not in told


def _crossed(traces: list[Trace], readers: dict[str, float], folder: Path) -> str:
    """What is told of one thinker with deliberators of these temperatures."""
    usual = {"min_p": 0.0, "top_k": None}  # which change nothing, and are not told
    sampling = {
        "thinking": {"t": {"temperature": 1.0}},
        "deliberating": {name: {"temperature": heat} | usual for name, heat in readers.items()},
    }
    crossing = cross({("t", name): traces for name in readers}, 4, 2, 1, sampling)
    write_versioned(crossing, folder / CROSSING)
    return words("".join(of_folder(folder)))


def test_a_run_says_nothing_of_several_and_one_alone_has_no_changes(evaluation, tmp_path):
    assert "".join(of_folder(evaluation / "after")) == ""
    alone = compare_sides(side_of(evaluation / "after", "after"), None, {})
    write_versioned(alone, tmp_path / COMPARISON)
    assert "".join(of_folder(tmp_path)) == ""


def test_it_stands_in_the_page_once_before_the_runs_which_must_be_there(evaluation, tmp_path):
    page = writer.write_report([evaluation], tmp_path / "page.html").file.read_text("utf-8")
    assert page.count("<h3>Controls</h3>") == 1
    assert page.index("<h3>Controls</h3>") < page.index('id="summary-0"')
    garbled = Path(shutil.copytree(evaluation, tmp_path / "x")) / "garbled"
    (garbled.parent / "before").rename(garbled)
    page = writer.write_report([garbled.parent], tmp_path / "page.html").file.read_text("utf-8")
    title = "x / garbled Deliberation on other attempts: 80.0% right 95% interval"
    assert title in words(page), "their vote is no measure"

    (tmp_path / COMPARISON).write_bytes((evaluation / COMPARISON).read_bytes())
    with messages.raises("neither_run_nor_evaluation"):
        writer.write_report([tmp_path], tmp_path / "none.html")
    assert not (tmp_path / "none.html").exists()

"""Runs that are there, compared: what is read from their folders, and what is refused."""

import dataclasses
import fcntl
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import messages
import pytest
from generations import altered
from messages import message
from pool_folders import pool_folder, pool_of
from rich.console import Console
from runs import traces, write_run

from heavydistill.config.run import RunConfig, dump_config
from heavydistill.config.versioned import as_json
from heavydistill.errors import ConfigError
from heavydistill.experiments.comparison import compare
from heavydistill.metrics.counts import Usage
from heavydistill.metrics.intervals import Interval
from heavydistill.report.comparison import as_markdown, print_comparison
from heavydistill.run.result import REJECTS_FOLDER
from heavydistill.schema import FAILED
from heavydistill.store.atomic import Workplace
from heavydistill.store.traces import TRACES_FOLDER, read_traces, write_traces


@pytest.fixture
def a(tmp_path):
    return write_run(tmp_path / "a", 12, k=4)


@pytest.fixture
def b(tmp_path):
    return write_run(tmp_path / "b", 12, k=4, thinker="other", words=20)


def record(run: Path, **changed: Any) -> None:
    """Change what its ``summary.json`` says."""
    path = run / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


def test_what_a_run_says_of_itself_stands(a, b):
    model = {"name": "strong", "revision": "0123"}
    names = [field.name for field in dataclasses.fields(Usage) if field.name != "cost_usd"]
    usage = {"thinking": dict.fromkeys(names, 0)}
    record(b, heavydistill="0.0.9", thinker=None, deliberator=model, usage=usage, left_out=3)
    told = compare(a, b)
    assert told.after.heavydistill == "0.0.9" and told.after.thinker is None
    assert told.after.deliberator and dataclasses.asdict(told.after.deliberator) == model
    assert told.after.summary.usage["thinking"].requests == 0 and told.after.left_out == 3
    # One that does not say it is told by its traces.
    assert told.before and told.before.heavydistill == "" and told.before.left_out is None
    assert told.before.thinker and told.before.thinker.name == "teacher"
    assert told.before.summary.usage["thinking"].requests == 48
    assert [run.name for run in (told.before, told.after)] == ["A", "B"]
    # One on the pools of another does not know what that left out.
    (b / "config.yaml").write_text(dump_config(RunConfig(pools="/elsewhere", pools_sha256="0123")))
    assert compare(a, b).after.left_out is None


def test_evaluated_runs_are_compared_with_their_controls_beside_them(tmp_path):
    """In A the attempts' values change nothing; in B all is wrong without them."""
    for name, label in (("a", None), ("b", "incorrect")):
        run = write_run(tmp_path / name / "after", 12, k=4)
        judged = {"label": label} if label else None
        without = [altered(trace, "deliberations", judged=judged) for trace in read_traces(run)]
        write_traces(without[:10], run.with_name("garbled") / TRACES_FOLDER)
        write_traces(without, run.with_name("alone-thinker") / TRACES_FOLDER)
        (run.parent / "controls.json").write_text("{}")
    folders = [tmp_path / name / "after" for name in ("a", "b")]
    told = compare(*folders)
    assert list(told.minus_controls) == ["alone", "garbled"] and told.heavy_mean_at_d
    worth, alone = told.minus_controls["garbled"], told.minus_controls["alone"]
    assert worth.before == Interval(0, 0, 0) and alone.after == told.heavy_mean_at_d.after
    assert worth.difference and 0 < worth.difference.low < worth.difference.mean == worth.after.mean
    console = Console(record=True, width=200, file=io.StringIO())
    print_comparison(told, console, full=True)
    printed = " ".join(console.export_text().split())
    assert "The attempts' values add 0.0 (0.0 to 0.0) in A, +" in printed
    assert "HM - garbled" in printed and "| HM - alone, no attempts | 0.0 (0.0" in as_markdown(told)
    shutil.rmtree(tmp_path / "a" / "garbled")
    assert list(compare(*folders).minus_controls) == ["alone"]
    (tmp_path / "b" / "controls.json").unlink()
    assert not compare(*folders).minus_controls


def test_runs_asked_differently_are_compared_and_it_is_said(a, b):
    config = RunConfig(domain="stem", teacher="glm-4.6", endpoint={"base_url": "http://x:1/v1"})
    (b / "config.yaml").write_text(dump_config(config))
    told = compare(a, b)
    assert [(one.key, one.before, one.after) for one in told.asked_differently] == [
        ("domain", "brief", "stem")
    ]
    assert "http://x" not in as_json(told)


@pytest.mark.parametrize("reader", ["a", "b"])
def test_a_run_on_the_pools_of_another_differs_in_nothing_that_it_did_not_ask(a, b, reader):
    """Its configuration has the defaults of problems and thinking, which nobody was asked with."""
    asked = {"problems": {"source": "gym:chain_sum", "size": 12}, "seed": 3, "domain": "brief"}
    asked |= {"think": {"k": 4, "sampling": {"temperature": 0.5, "max_tokens": 64}}}
    read = {"pools": "/elsewhere/a", "pools_sha256": "0123", "think": {"k": 4}, "seed": 4}
    reading, asking = (a, b) if reader == "a" else (b, a)
    (asking / "config.yaml").write_text(dump_config(RunConfig.model_validate(asked)))
    (reading / "config.yaml").write_text(dump_config(RunConfig.model_validate(read)))
    told = {one.key for one in compare(a, b).asked_differently}
    assert told == {"seed", "domain"}


def test_runs_on_other_pools_are_told_apart(a, b):
    for run, pools in ((a, "0123"), (b, "4567")):
        config = RunConfig(pools="/elsewhere", pools_sha256=pools)
        (run / "config.yaml").write_text(dump_config(config))
    told = [(one.key, one.before, one.after) for one in compare(a, b).asked_differently]
    assert told == [("pools_sha256", "0123", "4567")]


def test_the_same_runs_give_the_same_bytes_anywhere(a, b, tmp_path, monkeypatch):
    first = as_json(compare(a, b))
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for run in (a, b):
        run.rename(moved / run.name)
    monkeypatch.chdir(moved)
    assert as_json(compare(Path("a"), Path("b"))) == first
    assert str(tmp_path) not in first


def test_models_that_are_folders_are_told_by_their_names(tmp_path, b):
    a = write_run(tmp_path / "a", 12, k=4, thinker="/models/mine", deliberation_model="out/mine")
    told = compare(a, b)
    assert told.before and told.before.thinker == told.before.deliberator
    assert told.before.thinker and told.before.thinker.name == "mine"
    assert "/models" not in as_json(told)


def test_rows_that_failed_count_as_wrong(a, b):
    """They lie beside the traces, and their problem is in both runs."""
    rows = list(traces(12, k=4))
    failed = dataclasses.replace(rows[3], pool=[], deliberations=[], status=f"{FAILED}verify: /x")
    write_traces([*rows[:3], *rows[4:]], b / TRACES_FOLDER)
    write_traces([failed], b / REJECTS_FOLDER)
    told = compare(a, b)
    assert told.problems == 12 and told.after.summary.statuses == {"ok": 11, "failed": 1}


def test_an_import_is_a_run_without_configuration(tmp_path):
    runs = [
        pool_folder(tmp_path / name, [pool_of(number, answers) for number in (1, 2, 3)])
        for name, answers in (("a", ["1", "1"]), ("b", ["1", "2"]))
    ]
    for run in runs:
        (run / "summary.json").write_text(json.dumps({"missing": 0}))
    told = compare(*runs)
    assert told.asked_differently == [] and told.after.deliberator is None
    assert told.mean_at_k.difference and told.mean_at_k.difference.mean == 0.0
    assert told.heavy_mean_at_d is None


def judged_by(run: Path, verifier: str) -> None:
    """Give its trajectories verdicts of a verifier; of none, no verdicts."""

    def judged(one: Any) -> Any:
        verdict = dataclasses.replace(one.verdict, verifier=verifier) if verifier else None
        return dataclasses.replace(one, verdict=verdict)

    rows = [
        dataclasses.replace(
            trace,
            pool=list(map(judged, trace.pool)),
            deliberations=trace.deliberations if verifier else [],
        )
        for trace in traces(12, k=4)
    ]
    write_traces(rows, run / TRACES_FOLDER)


def gone(run: Path) -> None:
    run.rename(run.with_name("gone"))


REFUSED: dict[str, Callable[[Path], Any]] = {
    "verifier or verifier arguments there: sum:11": lambda run: write_traces(
        list(traces(11, k=4)), run / TRACES_FOLDER
    ),
    "different versions of a verifier: math@1 (B), math@2 (A and B)": lambda run: judged_by(
        run, "math@1"
    ),
    "The run B has no verdicts": lambda run: judged_by(run, ""),
    "was interrupted: 4 of its problems have no trace": lambda run: record(run, missing=4),
    "is an evaluation of several runs. Give one of them, e.g.": lambda run: (
        run / "evaluation.json"
    ).touch(),
    message("no_finished_run", folder="") + ": it has no traces": lambda run: next(
        (run / TRACES_FOLDER).iterdir()
    ).unlink(),
    message("no_finished_run", folder="") + ": summary.json cannot be read": lambda run: (
        run / "summary.json"
    ).unlink(),
    "summary.json is not the summary of a run": lambda run: record(run, usage={"thinking": 3}),
    "is not the summary of a run": lambda run: record(run, left_out="few"),
    "was interrupted before its folder was written": lambda run: (
        gone(run) or Workplace(run).path.mkdir()  # type: ignore[func-returns-value]
    ),
    message("no_finished_run", folder=""): gone,
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_no_comparable_run_is_refused_with_what_is_missing(a, b, message):
    REFUSED[message](b)
    with pytest.raises(ConfigError) as caught:
        compare(a, b)
    assert message in str(caught.value)


def test_a_run_that_is_being_written_is_refused(a, b):
    place = Workplace(b).path
    place.mkdir()
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with messages.raises("run_being_written"):
            compare(a, b)
    assert compare(a, b).problems == len(list(read_traces(a)))

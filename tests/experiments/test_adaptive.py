"""Early stopping on the folder of a run: what is read, written and refused."""

import dataclasses
import json

import messages
import pytest
from generations import altered
from runs import traces, write_run

from heavydistill.config.run import RunConfig, dump_config
from heavydistill.experiments.adaptive import measure_stopping
from heavydistill.metrics.experiments.stopping import ADAPTIVE, read_stopping
from heavydistill.schema import LeftOut
from heavydistill.store.traces import TRACES_FOLDER, write_traces


def test_a_run_gives_its_curve_and_no_policy_that_it_does_not_show(tmp_path):
    report = measure_stopping(write_run(tmp_path / "run", 40), tmp_path / "out")
    assert [each.rule for each in report.rules] == ["vote"] * 8 + ["stop"] * 7 + ["heavy"]
    assert report.measured["thinker"] == report.measured["deliberator"] == ["teacher"]
    assert report.measured["verifiers"] == ["math@2"] and len(report.measured["prompts"]) == 2
    assert report.measured["rounds"] == ["1"]
    assert "temperature 1.0" in report.measured["thinker_sampling"]
    assert "max_tokens 448" in report.measured["deliberator_sampling"]
    heavy = report.rules[-1]
    assert heavy.per_right["completion"] == pytest.approx((8 * 40 + 40) / heavy.right.mean)
    assert heavy.per_right["seconds"] == pytest.approx(0.2 / heavy.right.mean)
    assert heavy.per_right["usd"] == 0.0, "a model in this process is free"
    assert report.stop_at is None, "40 problems are too few"
    assert [each.name for each in (tmp_path / "out").iterdir()] == [ADAPTIVE]
    assert json.loads((tmp_path / "out" / ADAPTIVE).read_text())["k"] == 8


def test_a_confirmed_rule_is_written_for_a_service(tmp_path):
    run = write_run(tmp_path / "run", 1)
    (one,) = traces(1)
    right = dataclasses.replace(one.pool[0].verdict, label="correct")
    one = altered(one, "pool", "deliberations", verdict=right)
    many = (altered(one, asked={"id": f"p{number}"}) for number in range(1400))
    write_traces(many, run / TRACES_FOLDER)
    report = measure_stopping(run, tmp_path / "out")
    assert read_stopping(tmp_path / "out" / ADAPTIVE) == report
    assert (report.k, report.stop_at, report.confirming) == (8, 2, 700)
    assert report.gate_at == len(one.problem.text), "one attempt is always right here"
    assert report.chosen.saved["completion"] == pytest.approx(1 - 2 / 9)


def test_prices_are_those_of_the_models_of_the_run(tmp_path):
    run = write_run(tmp_path / "run", 10)
    priced = {"base_url": "http://127.0.0.1:9/v1", "price_in": 1.0, "price_out": 10.0}
    config = RunConfig(teacher="served", endpoint=priced, domain="brief")
    (run / "config.yaml").write_text(dump_config(config))
    heavy = measure_stopping(run, tmp_path / "out").rules[-1]
    one = (30 * 1.0 + 40 * 10.0) / 10**6
    assert heavy.per_right["usd"] == pytest.approx(9 * one / heavy.right.mean)
    (run / "config.yaml").write_text("teacher: no-such-model\n")
    unknown = measure_stopping(run, tmp_path / "other").rules[-1]
    assert unknown.per_right["usd"] is None and unknown.per_right["completion"]


def test_runs_that_do_not_record_the_answer_are_refused(tmp_path):
    with messages.raises("nothing_deliberated"):
        measure_stopping(write_run(tmp_path / "run", 4, d=0), tmp_path / "out")
    run = write_run(tmp_path / "narrow", 4)
    left_out = [LeftOut(generation="t", reason="not_selected")]
    partial = (
        dataclasses.replace(each, caches=[dataclasses.replace(each.caches[0], left_out=left_out)])
        for each in traces(4)
    )
    write_traces(partial, run / TRACES_FOLDER)
    with messages.raises("caches_show_some"):
        measure_stopping(run, tmp_path / "out")
    with messages.raises("no_finished_run"):
        measure_stopping(tmp_path / "narrow" / TRACES_FOLDER, tmp_path / "out")
    assert not (tmp_path / "out").exists()

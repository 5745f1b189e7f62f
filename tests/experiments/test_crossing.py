"""Which runs a crossing makes, and how they are put together; nobody is asked."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import messages
import pytest
from command_line import MICRO
from fake_server import completion, serving
from generations import deliberation
from pool_folders import pool_of

from heavydistill.config.run import load_config
from heavydistill.errors import UserError
from heavydistill.experiments.crossing import CrossingPlan, check, crossed
from heavydistill.metrics.experiments.crossing import CROSSING, read_crossing
from heavydistill.metrics.summary import summarize
from heavydistill.run.generate import Plan as RunPlan
from heavydistill.run.generate import RunResult
from heavydistill.store.traces import TRACES_FOLDER, read_traces, write_traces


def checked(tmp_path: Path, thinkers: list[str], readers: list[str], **keys: Any) -> CrossingPlan:
    usual = {"problems.limit": 2, "think.k": 2, "deliberate.d": 1, "out": str(tmp_path / "x")}
    keys = {key.replace("__", "."): value for key, value in keys.items()}
    return check(load_config(None, {**usual, **keys}), thinkers, readers)


def made(plan: RunPlan, right: bool) -> RunResult:
    """As if the run was made: one problem of two has a right attempt, all deliberations are so."""
    traces = [pool_of(1, ["1", "0"]), pool_of(2, ["0", "0"])]
    label = "correct" if right else "incorrect"
    traces = [
        dataclasses.replace(trace, deliberations=[deliberation("", label=label)])
        for trace in traces
    ]
    write_traces(traces, plan.folder / TRACES_FOLDER)
    return RunResult(plan.folder, summarize(traces), 0, 0)


def test_a_thinker_is_asked_once_and_all_read_its_pools(trained, tmp_path):
    plan = checked(tmp_path, ["micro-student", trained], ["micro", trained])
    asked: dict[str, RunPlan] = {}

    def run_one(name: str, each: RunPlan) -> RunResult:
        asked[name] = each
        return made(each, each.config.deliberator == "micro")

    table = crossed(plan, run_one)
    names = [f"{thinker}+{reader}" for thinker in ("micro-student", "trained")
             for reader in ("micro", "trained")]  # fmt: skip
    assert list(asked) == names
    assert [bool(each.pools) for each in asked.values()] == [False, True, False, True]
    for thinker in ("micro-student", "trained"):
        reading = asked[f"{thinker}+trained"]
        # It reads where the pools are now, and says where they will be.
        assert reading.config.pools == str(tmp_path / "x" / f"{thinker}+micro")
        assert reading.pools_at and reading.pools_at.name == f"{thinker}+micro"
        assert reading.config.deliberator == trained
        # It is asked as a checkpoint is, and not as the first deliberator's profile says.
        asking = asked[f"{thinker}+micro"].config.deliberate.sampling
        assert asking.max_tokens == 448 != reading.config.deliberate.sampling.max_tokens
    assert {each.config.domain for each in asked.values()} == {"brief"}
    assert sorted(path.name for path in (tmp_path / "x").iterdir()) == sorted([*names, CROSSING])
    assert read_crossing(tmp_path / "x" / CROSSING) == table
    assert [thinker.name for thinker in table.thinkers] == ["micro-student", "trained"]
    means = [cell.heavy_mean_at_d.mean for cell in table.cells]
    assert means == [1, 0, 1, 0] and table.thinkers[0].mean_at_k.mean == 0.25
    assert table.cells[0].heavy_minus_vote.mean == pytest.approx(1 - 0.25)
    most = {
        stage: [each["max_tokens"] for each in of.values()] for stage, of in table.sampling.items()
    }
    assert list(table.sampling["thinking"]) == ["micro-student", "trained"]
    assert list(table.sampling["deliberating"]) == ["micro", "trained"]
    configs = [asked[f"{thinker}+trained"].config for thinker in ("micro-student", "trained")]
    assert {most["deliberating"][1]} == {of.deliberate.sampling.max_tokens for of in configs}
    assert most["deliberating"][0] == 448
    assert str(tmp_path) not in json.dumps(dataclasses.asdict(table))


def test_what_a_step_failed_on_counts_as_wrong_for_all_who_read(tmp_path):
    plan = checked(tmp_path, ["micro-student"], ["micro", "micro-student"])

    def run_one(name: str, each: RunPlan) -> RunResult:
        finished = made(each, True)
        if not each.pools:
            return finished
        # It reads what is in traces/, and the second problem is not there.
        traces = list(read_traces(each.folder))[:1]
        shutil.rmtree(each.folder / TRACES_FOLDER)
        write_traces(traces, each.folder / TRACES_FOLDER)
        return finished

    table = crossed(plan, run_one)
    assert table.problems == 2 and [cell.unasked for cell in table.cells] == [0, 1]
    assert [cell.heavy_mean_at_d.mean for cell in table.cells] == [1.0, 0.5]
    assert table.cells[1].heavy_minus_vote.mean == pytest.approx(0.5 - 0.25)


def test_a_budget_that_is_given_holds_for_every_reader(tmp_path):
    plan = checked(tmp_path, ["micro"], ["micro", "micro-student"], cache__budget_tokens=700)
    asked: dict[str, RunPlan] = {}

    def run_one(name: str, each: RunPlan) -> RunResult:
        asked[name] = each
        return made(each, True)

    crossed(plan, run_one)
    assert [each.config.cache.budget_tokens for each in asked.values()] == [700, 700]


@pytest.mark.parametrize(
    ("thinkers", "readers"), [(["base"], ["first", "frist"]), (["base", "frist"], ["first"])]
)
def test_a_server_must_have_all_models_before_one_is_asked(tmp_path, thinkers, readers):
    listed = [{"id": name, "object": "model"} for name in ("base", "first")]
    with serving(lambda body: completion("no"), (200, {"object": "list", "data": listed})) as at:
        keys = {"endpoint__base_url": at.base_url, "endpoint__tokenizer": MICRO}
        plan = checked(tmp_path, thinkers, readers, **keys)
        with messages.raises("model_not_served", model="frist"):
            crossed(plan, lambda _, each: pytest.fail("it was asked"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("thinkers", "readers", "keys", "told"),
    [
        ([], ["micro"], {}, "--thinkers is empty"),
        (["micro"], [], {}, "--deliberators is empty"),
        (["micro", "micro"], ["micro"], {}, "both called micro"),
        (["micro"], ["nobody-such"], {}, "nobody-such"),
        (["micro"], ["micro"], {"thinker": "micro"}, "thinker cannot be used"),
        (["micro"], ["micro"], {"deliberate__d": 0}, "deliberate.d 0 cannot be used"),
    ],
)
def test_whatever_can_be_mended_is_said_before_anything_is_written(
    tmp_path, thinkers, readers, keys, told
):
    there = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match=told):
        checked(tmp_path, thinkers, readers, **keys)
    assert sorted(tmp_path.rglob("*")) == there

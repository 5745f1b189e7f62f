"""Pools of another run in place of a thinker, without a pipeline that runs."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import messages
import pytest
from command_line import MICRO
from pool_folders import pool_folder, pool_of
from rich.console import Console
from samples import cache_of

from heavydistill.cli.plan import print_plan
from heavydistill.config.run import Attempts, CacheChoice, RunConfig, dump_config, load_config
from heavydistill.errors import BudgetError, ConfigError, HeavydistillError, ProblemsError
from heavydistill.heavy.judge_votes import Ballot, Said, Vote, verdict_of
from heavydistill.run.estimate import Range, estimate
from heavydistill.run.generate import Plan, check
from heavydistill.run.pools import read_pools
from heavydistill.run.recipe.pipeline import build_heavy_pipeline, llm_of
from heavydistill.run.recipe.steps import BuildCaches, LoadPools
from heavydistill.schema import Trace, Trajectory
from heavydistill.store.traces import read_traces
from heavydistill.verifiers import registry

NOW = f"exact@{registry.get('exact').version}"


def of_pools(folder: Path, **keys: Any) -> RunConfig:
    named = {key.replace("__", "."): value for key, value in keys.items()}
    return load_config(None, {"pools": str(folder), "out": str(folder.parent / "run")} | named)


def checked(folder: Path, **keys: Any) -> Plan:
    return check(of_pools(folder, **keys), asks=False)


def refused(kind: type[HeavydistillError], folder: Path, **keys: Any) -> str:
    with pytest.raises(kind) as caught:
        checked(folder, **keys)
    assert not (folder.parent / "run").exists()
    return str(caught.value)


def by(trajectory: Trajectory, verifier: str) -> Trajectory:
    assert trajectory.verdict
    verdict = dataclasses.replace(trajectory.verdict, verifier=verifier)
    return dataclasses.replace(trajectory, verdict=verdict)


def put_to_a_judge(trajectory: Trajectory, rule: str = NOW, said: Said = "correct") -> Trajectory:
    assert trajectory.verdict
    votes = [Vote(said=said, prompt_tokens=10, completion_tokens=1)]
    asked = {"model": "critic", "prompt": "judge.general.en@abc", "asked": "j_1", "same_as": ""}
    ballot = Ballot(by=rule, rule_reason="", rule_evidence="", votes=votes, **asked)
    return dataclasses.replace(trajectory, verdict=verdict_of(trajectory.verdict, ballot))


@pytest.fixture
def pools(tmp_path):
    return pool_folder(tmp_path / "pools", [pool_of(n, [f"{n}", "0", f"{n}"]) for n in range(1, 6)])


@pytest.fixture
def mixed(tmp_path):
    """Verdicts of now, of another version, of a judge after both and one that failed, and none."""
    trace = pool_of(1, ["1", "1", "1", "1", "1", "1"])
    now, old, voted, outvoted, failed, none = trace.pool
    assert now.verdict and now.verdict.verifier == NOW
    pool = [
        now,
        by(old, "exact@0"),
        put_to_a_judge(voted),
        put_to_a_judge(outvoted, "exact@0"),
        put_to_a_judge(failed, said="failed"),
        dataclasses.replace(none, verdict=None),
    ]
    return pool_folder(tmp_path / "mixed", [dataclasses.replace(trace, pool=pool)])


def test_problems_and_k_are_those_of_the_pools_and_nobody_thinks(pools):
    plan = checked(pools, deliberator="micro-student")
    assert [problem.id for problem in plan.problems] == ["p1", "p2", "p3", "p4", "p5"]
    assert plan.problems == [trace.problem for trace in read_traces(pools)]
    assert (plan.config.think.k, plan.config.thinker) == (3, None)
    assert plan.config.roles == ("micro-student", "micro-student")
    assert [problem.id for problem in checked(pools, problems__limit=2).problems] == ["p1", "p2"]


def test_the_saved_configuration_names_the_same_run_wherever_the_pools_are(pools, tmp_path):
    config = checked(pools).config
    saved = tmp_path / "config.yaml"
    saved.write_text(dump_config(config))
    again = check(load_config(saved), asks=False).config
    assert again == config
    moved = pools.rename(tmp_path / "moved")
    assert check(load_config(saved, {"pools": str(moved)})).config.identity == config.identity
    other = pool_folder(tmp_path / "other", [pool_of(1, ["1", "2", "3"])])
    assert checked(other).config.identity != config.identity


def test_pools_that_have_changed_since_are_refused(pools, tmp_path):
    saved = tmp_path / "config.yaml"
    saved.write_text(dump_config(checked(pools).config))
    pool_folder(pools, [pool_of(1, ["1", "2", "3"])])
    with messages.raises("pools_changed"):
        check(load_config(saved))


@pytest.mark.parametrize(
    ("kind", "keys", "said"),
    [
        (ConfigError, {"think__k": 8}, "have 3 trajectories"),
        (ConfigError, {"cache__width": 4}, "cache.width 4 is larger than think.k 3"),
        (ConfigError, {"think__min_k": 4}, "min_k 4 is larger than think.k 3"),
        (BudgetError, {"cache__budget_tokens": 20}, "cache.budget_tokens"),
    ],
)
def test_what_contradicts_the_pools_is_refused(pools, kind, keys, said):
    assert said in refused(kind, pools, **keys)
    assert checked(pools, think__k=3).config.think.k == 3


def test_a_cache_may_be_wider_than_the_trajectories_of_a_run_without_flags(tmp_path):
    wide = pool_folder(tmp_path / "wide", [pool_of(1, ["1"] * 12)])
    assert checked(wide, cache__width=10, think__min_k=9).config.think.k == 12


@pytest.mark.parametrize(
    ("traces", "said"),
    [
        (None, "not the folder of a finished run"),
        ([], "holds no traces"),
        ([pool_of(1, ["1"])], "has one attempt per problem"),
        ([pool_of(1, ["1", "2"])] * 2, "two traces of problem p1"),
        ([dataclasses.replace(pool_of(1, ["1", "2"]), schema_version="1")], "schema version '1'"),
    ],
)
def test_folders_without_pools_that_can_be_taken_are_refused(tmp_path, traces, said):
    folder = tmp_path / "pools"
    if traces is not None:
        pool_folder(folder, traces)
    assert said in refused(ConfigError, folder)


def test_pools_of_an_unknown_verifier_are_refused(tmp_path):
    unknown = pool_folder(tmp_path / "unknown", [pool_of(1, ["1", "2"], verifier="mine")])
    told = refused(ProblemsError, unknown)
    assert "problem p1" in told and "'mine'" in told and "verify.own" in told


def test_verdicts_that_do_not_stand_are_counted_and_said(mixed, capsys):
    found = read_pools(of_pools(mixed))
    (trace,) = read_traces(mixed)
    assert found.unjudged == 2
    assert dict(found.outdated) == {"exact@0": 1, "judge:critic@abc after exact@0": 1}
    assert found.voted == {trace.pool[2].id}
    print_plan(checked(mixed), Console(width=200))
    told = capsys.readouterr().out
    assert f"K=6 trajectories by somebody in {mixed}" in " ".join(told.split())
    assert "Judged again: 1 trajectories with verdicts of another version, exact@0" in told
    assert "Judged now: 2 trajectories without a verdict, or whose judge failed" in told


def test_rows_that_failed_in_a_step_are_counted_and_said(pools, capsys):
    failed = pool_folder(pools.parent / "failed", [pool_of(9, []), pool_of(8, [])])
    (failed / "traces").rename(pools / "rejects")
    print_plan(checked(pools), Console(width=200))
    assert "Left out: 2 row(s) that failed in a step of that run" in capsys.readouterr().out
    (pools / "rejects" / "broken.parquet").write_bytes(b"no parquet")
    assert "broken.parquet cannot be read" in refused(ConfigError, pools)


def test_rows_keep_the_verdicts_that_stand_alone(mixed):
    step = LoadPools(source=str(mixed), batch_size=2)
    step.load()
    ((rows, last),) = step.process()
    (trace,) = read_traces(mixed)
    stood = [item["verdict"] and item["verdict"]["verifier"] for item in rows[0]["pool"]]
    assert stood == [NOW, None, f"judge:critic@abc after {NOW}", None, None, None]
    assert last and rows[0]["problem"] == dataclasses.asdict(trace.problem)
    assert rows[0]["thinker_prompt_version"] == "thinker.of-another"
    texts = [item["answer_text"] for item in rows[0]["pool"]]
    assert texts == [trajectory.answer_text for trajectory in trace.pool]


@pytest.mark.parametrize(
    ("limit", "offset", "batches"),
    [
        (None, 0, [["p1", "p2"], ["p3", "p4"], ["p5"]]),
        (4, 0, [["p1", "p2"], ["p3", "p4"]]),
        (3, 2, [["p3"]]),
    ],
)
def test_batches_say_which_is_the_last(pools, limit, offset, batches):
    step = LoadPools(source=str(pools), limit=limit, batch_size=2)
    step.load()
    given = list(step.process(offset))
    assert [[row["problem"]["id"] for row in rows] for rows, _ in given] == batches
    assert [last for _, last in given] == [False] * (len(batches) - 1) + [True]


def test_traces_are_read_as_they_are_needed(pools, monkeypatch):
    read = []

    def noting(run: Path) -> Any:
        for trace in read_traces(run):
            read.append(trace.problem.id)
            yield trace

    monkeypatch.setattr("heavydistill.run.pools.read_traces", noting)
    step = LoadPools(source=str(pools), batch_size=1)
    step.load()
    batches = step.process()
    next(batches)
    assert read == ["p1", "p2"], "the batch, and the one that tells that it is not the last"


def rows_of(folder: Path, attempts: Attempts, **fields: Any) -> list[dict[str, Any]]:
    step = LoadPools(source=str(folder), attempts=attempts, batch_size=10, **fields)
    step.load()
    return [row for rows, _ in step.process() for row in rows]


@pytest.mark.parametrize("attempts", ["garbled", "foreign"])
def test_caches_of_a_control_show_other_attempts_in_the_order_of_the_run(pools, attempts):
    def caches(attempts: Attempts) -> list[dict[str, Any]]:
        choice = CacheChoice(budget_tokens=900, attempts=attempts, selection="max_diversity")
        build = BuildCaches(choice=choice, reader=MICRO)
        build.load()
        return list(next(build.process(rows_of(pools, attempts))))

    for own, other in zip(caches("own"), caches(attempts), strict=True):
        places = {item["id"]: place for place, item in enumerate(own["pool"])}
        ids = [
            other["pool"][places[item["generation"]]]["id"] for item in own["caches"][0]["items"]
        ]
        assert [item["generation"] for item in other["caches"][0]["items"]] == ids
        assert (
            own["problem"] == other["problem"]
            and own["problem"]["text"] in other["caches"][0]["prompt"]
        )
        assert all(item["verdict"] is None for item in other["pool"])
        assert not {item["id"] for item in own["pool"]} & {item["id"] for item in other["pool"]}


@pytest.mark.parametrize(
    "attempts", ["own", "none", "garbled", "foreign", "transplant", "empty", "answers", "steps"]
)
def test_shards_of_a_control_have_its_pools_together(pools, attempts):
    traces = list(read_traces(pools))
    with_caches = [
        dataclasses.replace(trace, caches=[cache_of(trace.problem, trace.pool)]) for trace in traces
    ]
    pool_folder(pools, with_caches)
    whole = rows_of(pools, attempts)
    if attempts == "transplant":
        assert not whole  # the vote is right everywhere
        return
    parts = [rows_of(pools, attempts, first=first, every=2) for first in (0, 1)]
    assert sorted(whole, key=str) == sorted([*parts[0], *parts[1]], key=str)
    assert len(parts[0]) == 3 and len(rows_of(pools, attempts, limit=4)) == 4
    assert checked(pools, cache__attempts=attempts).problems == [t.problem for t in traces]


def test_a_prompt_without_attempts_is_that_of_either_role(pools):
    for task, version in (("think", "thinker.general.en"), ("deliberate", "deliberator.general")):
        choice = CacheChoice(budget_tokens=900, attempts="none")
        build = BuildCaches(choice=choice, reader=MICRO, task=task, min_k=9)
        build.load()
        (row, *_) = next(build.process(rows_of(pools, "none")))
        (cache,) = row["caches"]
        assert cache["items"] == [] and len(row["pool"]) == 3
        assert cache["prompt_version"].startswith(version)
        assert row["problem"]["text"] in cache["prompt"] and "boxed{1}" not in cache["prompt"]
    assert checked(pools, cache__attempts="none", deliberate__task="think").config.rounds == 1


@pytest.mark.parametrize(
    ("attempts", "traces", "said"),
    [
        ("garbled", [pool_of(1, ["", ""])], "no cache has final answers that can all be"),
        ("garbled", [pool_of(1, ["\\pi", "?"])], "Use problems with numbers, letters or words"),
        ("foreign", [pool_of(1, ["1", "2"])], "no two of the problems are of one kind"),
        ("transplant", [pool_of(1, ["1", "2", "2"])], "--k 16 --set cache.width=8"),
        ("steps", [pool_of(1, ["1", "2"])], "no cache has an attempt with a final box"),
        ("planted-2", [pool_of(1, ["1", "2"])], "Use problems that are calculated in steps"),
    ],
)
def test_a_control_without_any_pool_is_refused_with_what_to_do(tmp_path, attempts, traces, said):
    folder = pool_folder(tmp_path / "pools", traces)
    told = refused(ConfigError, folder, cache__attempts=attempts)
    assert (
        messages.is_in(told, "control_not_possible", control=attempts, run="pools") and said in told
    )


def test_problems_without_other_attempts_are_left_out_and_said(tmp_path, capsys):
    folder = pool_folder(tmp_path / "some", [pool_of(1, ["1", "1"]), pool_of(2, ["", "\\pi"])])
    plan = checked(folder, cache__attempts="garbled", think__min_k=1)
    assert [problem.id for problem in plan.problems] == ["p1"]
    print_plan(plan, Console(width=200))
    assert "Left out: 1 problem(s) without attempts for garbled" in capsys.readouterr().out


def test_the_plan_asks_for_deliberations_alone(pools, capsys):
    plan = checked(pools, deliberate__d=2, deliberate__rounds=2)
    told = estimate(plan)
    assert [stage.stage for stage in told.stages] == ["deliberate_1", "deliberate_2"]
    assert not told.thinking and told.amounts.calls == Range(20, 20)
    print_plan(plan, Console(width=300), in_full=True)
    printed = capsys.readouterr().out
    assert "thinking" not in printed and "thinkers" not in printed


def test_the_pipeline_begins_with_the_pools_and_no_model_thinks(pools):
    plan = checked(pools, deliberate__d=2)
    pipeline = build_heavy_pipeline(plan.run)
    saved = json.dumps(pipeline.dump())
    assert list(pipeline.dag) == [
        "load_pools",
        "verify_pool",
        "build_caches_1",
        "deliberate_1",
        "verify_deliberations_1",
        "label_traces",
    ]
    assert "SampleTrajectories" not in saved
    pipeline.discard()
    with messages.raises("pools_have_no_thinker"):
        llm_of(plan.run, "think")


def test_an_empty_pool_is_no_obstacle_to_the_others(tmp_path):
    traces: list[Trace] = [pool_of(1, []), pool_of(2, ["2", "2"])]
    folder = pool_folder(tmp_path / "some", traces)
    assert checked(folder).config.think.k == 2
    step = LoadPools(source=str(folder), batch_size=2)
    step.load()
    ((rows, _),) = step.process()
    assert [len(row["pool"]) for row in rows] == [0, 2]

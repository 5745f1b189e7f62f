"""How the runs of an evaluation are configured, checked and put together; nobody is asked."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import messages
import pytest
from command_line import MICRO
from fake_server import completion, serving
from pool_folders import pool_folder, pool_of

from heavydistill.config.run import RunConfig, dump_config, load_config
from heavydistill.errors import BudgetError, ConfigError, MissingModelError, TeacherError, UserError
from heavydistill.experiments.evaluation import (
    AFTER,
    BEFORE,
    FROZEN,
    ControlRun,
    EvaluationPlan,
    check,
    control_names,
    controls_of,
    evaluate,
    paired,
)
from heavydistill.metrics.comparison import COMPARISON, read_comparison
from heavydistill.metrics.controls import NAMES
from heavydistill.metrics.summary import summarize
from heavydistill.models.request import THINK
from heavydistill.models.resolve import resolve
from heavydistill.report.controls import grids, lines
from heavydistill.run import generate
from heavydistill.run.generate import Plan as RunPlan
from heavydistill.run.generate import RunResult
from heavydistill.run.result import made_by
from heavydistill.schema import FAILED, Trace
from heavydistill.store.traces import REJECTS_FOLDER, TRACES_FOLDER, read_traces, write_traces


def config(**keys: Any) -> RunConfig:
    return load_config(None, {key.replace("__", "."): value for key, value in keys.items()})


def test_a_checkpoint_is_asked_as_its_base_is(trained):
    given = config(thinker=trained, deliberator=trained)
    alone = resolve(given).config
    before, after = paired(given, "micro-student")
    assert before == resolve(RunConfig(teacher="micro-student")).config
    assert after.roles == (trained, trained)
    for key in ("domain", "think", "deliberate", "cache"):
        assert getattr(after, key) == getattr(before, key)
        # It would not be, if it were left to the defaults.
        assert getattr(after, key) != getattr(alone, key)
    assert after.domain == "brief" and after.think.sampling.max_tokens == 192
    assert resolve(after).config == after


def test_what_the_configuration_says_holds_for_both(trained):
    given = config(teacher=trained, domain="stem", think__sampling__max_tokens=100)
    for each in paired(given, "micro-student"):
        assert each.domain == "stem" and each.think.sampling.max_tokens == 100
        assert each.deliberate.sampling.max_tokens == 448


def test_a_role_that_nobody_is_named_for_is_the_model_before(trained):
    before, after = paired(config(deliberator=trained), "micro-student")
    assert before.roles == ("micro-student", "micro-student")
    assert after.roles == ("micro-student", trained)
    _, after = paired(config(deliberator=trained, teacher="micro"), "micro-student")
    assert after.roles == ("micro", trained)


@pytest.mark.parametrize(
    ("named", "lacking"),
    [
        ({}, "--thinker MODEL --deliberator MODEL"),
        ({"thinker": "x"}, "--deliberator MODEL"),
        ({"deliberator": "x"}, "--thinker MODEL"),
        ({"pools": "runs/x"}, "--deliberator MODEL"),
    ],
)
def test_no_role_is_left_to_the_default_teacher(named, lacking):
    with pytest.raises(MissingModelError) as caught:
        check(config(**named))
    assert caught.value.flags == lacking
    if named:  # a run without any flag is that of the bundled teacher
        with pytest.raises(MissingModelError):
            generate.check(config(**named))
    config(teacher="micro", **named).refuse_unnamed()


def test_who_only_thinks_needs_no_deliberator():
    config(thinker="x", deliberate__d=0).refuse_unnamed()
    config(pools="runs/x", deliberator="x").refuse_unnamed()


def test_a_checkpoint_with_less_context_is_refused(trained):
    file = Path(trained) / "config.json"
    tree = json.loads(file.read_text()) | {"max_position_embeddings": 1024}
    file.write_text(json.dumps(tree))
    with pytest.raises(ConfigError, match=r"exceed the context of trained, 1,?024 tokens"):
        paired(config(deliberator=trained), "micro-student")


def test_models_whose_thinking_is_switched_otherwise_are_refused():
    served = {"endpoint__base_url": "http://localhost:1/v1", "endpoint__tokenizer": MICRO}
    with pytest.raises(ConfigError) as caught:
        paired(config(deliberator="adapter", **served), "qwen3-8b")
    assert "enable_thinking" in str(caught.value) and "adapter" in str(caught.value)
    _, after = paired(config(deliberator="adapter", **served), "base")
    assert after.roles == ("base", "adapter")


def checked(
    tmp_path: Path, before: str | None = "micro-student", controls: Sequence[str] = (), **keys: Any
) -> EvaluationPlan:
    given = config(out=str(tmp_path / "evals" / "x"), problems__limit=3, **keys)
    return check(given, before, controls=controls)


def test_both_runs_have_the_same_problems_and_journal(trained, tmp_path):
    plan = checked(tmp_path, deliberator=trained)
    before, after = plan.runs[BEFORE], plan.runs[AFTER]
    assert before.problems == after.problems and len(after.problems) == 3
    assert before.journal == after.journal == plan.place.journal == tmp_path / "evals" / "journal"
    assert not plan.place.folder.parent.exists()


@pytest.mark.parametrize("fault", ["after", "before", "taken"])
def test_whatever_can_be_mended_is_said_before_anything_is_written(trained, tmp_path, fault):
    folder = tmp_path / "evals" / "x"
    if fault == "taken":
        folder.mkdir(parents=True)
        (folder / "notes.txt").write_text("mine")
    named = {"deliberator": str(tmp_path / "nowhere") if fault == "after" else trained}
    there = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match=r"nowhere|microstudent|exists and is not empty"):
        checked(tmp_path, "microstudent" if fault == "before" else "micro-student", **named)
    assert sorted(tmp_path.rglob("*")) == there


def with_answers(plan: RunPlan, answers: list[str], rejected: bool = False) -> RunResult:
    """As if the run was made: the first problem has these attempts, the others none."""
    trace = pool_of(1, answers)
    traces = [Trace(problem=problem, pool=[]) for problem in plan.problems]
    traces[0] = dataclasses.replace(traces[0], pool=trace.pool)
    if rejected:
        traces[1] = dataclasses.replace(traces[1], status=f"{FAILED}verify_pool: boom")
        write_traces([traces[1]], plan.folder / REJECTS_FOLDER)
    write_traces([*traces[:1], *traces[1 + rejected :]], plan.folder / TRACES_FOLDER)
    (plan.folder / "config.yaml").write_text(dump_config(plan.config))
    (plan.folder / "summary.json").write_text(json.dumps(made_by(plan.run)))
    return RunResult(plan.folder, summarize(traces), int(rejected), 0)


def test_the_folder_holds_both_runs_and_what_came_of_them(trained, tmp_path):
    plan, asked = checked(tmp_path, deliberator=trained), []

    def run_one(which: str, each: RunPlan) -> RunResult:
        asked.append(which)
        assert not plan.place.folder.exists()
        return with_answers(each, ["1", "1"] if which == AFTER else ["0", "1"], which == BEFORE)

    comparison = evaluate(plan, run_one).comparison
    assert asked == [BEFORE, AFTER]
    assert sorted(path.name for path in plan.place.folder.iterdir()) == [AFTER, BEFORE, COMPARISON]
    assert [path.name for path in plan.place.folder.parent.iterdir()] == ["x"]
    assert read_comparison(plan.place.folder / COMPARISON) == comparison
    assert len(list(read_traces(plan.place.folder / AFTER))) == 3
    # The row that failed in a step counts as wrong, in the place where it would have been.
    assert comparison.problems == 3
    assert comparison.mean_at_k.before and comparison.mean_at_k.before.mean == pytest.approx(1 / 6)
    assert comparison.mean_at_k.after.mean == pytest.approx(1 / 3)
    # What a step says of its failure may name places.
    assert comparison.before
    assert comparison.before.summary.statuses == {"ok": 2, "failed": 1}


def test_a_new_deliberator_also_reads_the_pools_of_the_run_before(trained, tmp_path):
    plan, asked = checked(tmp_path, thinker=trained, deliberator=trained), {}
    assert plan.frozen and plan.frozen.requests(3) == 3 * plan.runs[AFTER].config.deliberate.d
    assert "deliberates 4 times on the attempts of before" in plan.frozen.description

    def run_one(which: str, each: RunPlan) -> RunResult:
        asked[which] = each
        return with_answers(each, ["0", "1"] if which == BEFORE else ["1", "1"])

    comparison = evaluate(plan, run_one).comparison
    assert list(asked) == [BEFORE, AFTER, FROZEN] and comparison.frozen
    frozen, after = asked[FROZEN].config, asked[AFTER].config
    assert frozen.pools == str(plan.place.folder / BEFORE) and frozen.roles[1] == trained
    assert (frozen.cache, frozen.deliberate) == (after.cache, after.deliberate)
    # With one role, these runs were made already; without deliberations there are none.
    for keys in ({"deliberator": trained}, {"thinker": trained}, {"teacher": "micro"}):
        more = {"deliberate__d": 0} if "teacher" in keys else {}
        other = checked(tmp_path / "y", **keys, **more)
        assert other.frozen is None, keys


def test_the_file_tells_models_by_name_and_revision_and_no_places(trained, tmp_path):
    plan = checked(tmp_path, deliberator=trained)
    comparison = evaluate(plan, lambda _, each: with_answers(each, ["1"])).comparison
    assert comparison.after.thinker and comparison.after.thinker.name == "micro-student"
    assert comparison.after.deliberator and comparison.after.deliberator.name == "trained"
    assert len(comparison.after.deliberator.revision) == 16
    assert comparison.config["think"]["sampling"]["max_tokens"] == 192
    assert comparison.versions["transformers"]
    text = (plan.place.folder / COMPARISON).read_text()
    assert str(tmp_path) not in text and "models/trained" not in text


def test_a_run_that_breaks_leaves_no_folder(trained, tmp_path):
    plan = checked(tmp_path, deliberator=trained)

    def run_one(which: str, each: RunPlan) -> RunResult:
        if which == AFTER:
            raise KeyboardInterrupt
        return with_answers(each, ["1"])

    with pytest.raises(KeyboardInterrupt):
        evaluate(plan, run_one)
    assert not list(plan.place.folder.parent.iterdir())


def test_a_server_must_have_both_models_before_one_is_asked(tmp_path):
    models = 200, {"object": "list", "data": [{"id": "base", "object": "model"}]}
    with serving(lambda body: completion("no"), models) as server:
        at = {"endpoint__base_url": server.base_url, "endpoint__tokenizer": MICRO}
        plan = checked(tmp_path, "base", deliberator="adapter", **at)
        with messages.raises("model_not_served", model="adapter"):
            evaluate(plan, lambda _, each: pytest.fail("it was asked"))
    assert not plan.place.folder.parent.exists()


def test_a_server_must_have_room_for_every_control_before_one_is_asked(tmp_path):
    """A chain is longer than what the other runs ask."""
    listed = {"id": "base", "object": "model", "max_model_len": 2048}
    keys: dict[str, Any] = {"think.k": 64, "cache.width": 2, "cache.selection": "max_length"}
    keys |= {f"{stage}.sampling.max_tokens": 64 for stage in ("think", "deliberate")}
    keys |= {"cache.budget_tokens": 900, "endpoint.context": 8192}
    keys |= {"teacher": "base", "problems.limit": 3, "out": str(tmp_path / "evals" / "x")}
    with serving(lambda body: completion("no"), (200, {"object": "list", "data": [listed]})) as at:
        given = keys | {"endpoint.base_url": at.base_url, "endpoint.tokenizer": MICRO}
        plan = check(load_config(None, given), controls=["chain"])
        with pytest.raises(TeacherError, match="serves base with 2048 tokens"):
            evaluate(plan, lambda _, each: pytest.fail("it was asked"))
    assert not plan.place.folder.parent.exists()


def test_a_control_that_asks_anew_is_made_as_it_was_checked(trained, tmp_path, monkeypatch):
    """What is wrong with it must be found before the runs that it is held against are paid."""
    plan, asked = checked(tmp_path, None, ["chain"], teacher=trained), {}
    monkeypatch.setattr(generate, "check", lambda *_: pytest.fail("it was checked too late"))

    def run_one(which: str, each: RunPlan) -> RunResult:
        asked[which] = each
        return with_answers(each, ["1", "0"])

    controlled = evaluate(plan, run_one).controlled
    assert list(asked) == [AFTER, "chain"] and controlled
    assert [control.name for control in controlled.controls] == ["chain"]
    chain, folder = asked["chain"], plan.place.folder / "chain"
    assert chain.problems == plan.runs[AFTER].problems and chain.config.out == str(folder)
    assert chain.journal == plan.place.journal and chain.config.rounds == 0
    assert load_config(folder / "config.yaml") == chain.config


def test_a_control_without_any_pool_is_refused_before_one_is_asked(trained, tmp_path):
    """Here no deliberation, and so no cache, was made of the only problem with attempts."""
    controls = ["alone", "garbled", "transplant"]
    plan, asked = checked(tmp_path, None, controls, teacher=trained), []

    def run_one(which: str, each: RunPlan) -> RunResult:
        asked.append(which)
        return with_answers(each, ["1", "0"])

    with messages.raises("control_not_possible", control="transplant"):
        evaluate(plan, run_one)
    assert asked == [AFTER]
    assert not list(plan.place.folder.parent.iterdir())


def test_without_a_model_before_there_is_one_run(trained, tmp_path):
    plan = checked(tmp_path, None, teacher=trained)
    comparison = evaluate(plan, lambda _, each: with_answers(each, ["1"])).comparison
    assert list(plan.runs) == [AFTER] and comparison.before is None
    assert sorted(path.name for path in plan.place.folder.iterdir()) == [AFTER, COMPARISON]


def test_deliberators_are_compared_on_the_pools_of_another_run(trained, tmp_path):
    pools = pool_folder(tmp_path / "pools", [pool_of(n, ["1", "2", "1"]) for n in range(1, 4)])
    given = {"pools": str(pools), "out": str(tmp_path / "x"), "deliberator": trained}
    plan = check(config(**given), "micro-student")
    assert [each.config.deliberator for each in plan.runs.values()] == ["micro-student", trained]
    comparison = evaluate(plan, lambda _, each: with_answers(each, ["1", "2", "1"])).comparison
    assert comparison.after.thinker is None and comparison.after.summary.k == 3
    # Else the card of a model would name the default source, which nobody read.
    assert "problems" not in comparison.config and comparison.config["domain"]
    assert str(tmp_path) not in (plan.place.folder / COMPARISON).read_text()


# What the controls of an evaluation ask.
def planned(tmp_path: Path, **keys: Any) -> RunPlan:
    usual = {"problems__limit": 2, "think__k": 4, "deliberate__d": 2, "out": str(tmp_path / "x")}
    return generate.check(config(**usual | keys))


def control(tmp_path: Path, name: str, **keys: Any) -> ControlRun:
    (one,) = controls_of(planned(tmp_path, **keys), [name], 1)
    return one


def moved(control: ControlRun, pools: Path) -> RunConfig:
    """The control's configuration, on these pools."""
    places = {"pools": str(pools), "out": str(pools.parent / control.name)}
    return control.config.model_copy(update=places)


def test_alone_the_deliberator_is_asked_as_it_deliberates_with_either_prompt(tmp_path):
    plan = planned(tmp_path, thinker="micro", deliberator="micro-student", deliberate__rounds=2)
    both = controls_of(plan, ["alone"], 1)
    assert [alone.name for alone in both] == ["alone-thinker", "alone-deliberator"]
    pools = pool_folder(tmp_path / "pools", [pool_of(n, ["1", "2"]) for n in (1, 2)])
    for alone, task in zip(both, ("think", "deliberate"), strict=True):
        asked = generate.check(moved(alone, pools)).run
        assert asked.config.roles[1] == "micro-student" and asked.thinker is None
        assert asked.deliberator.sampling == plan.run.deliberator.sampling
        assert (asked.config.deliberate.task, asked.config.cache.attempts) == (task, "none")
        assert asked.config.rounds == 1 and alone.requests(100) == 200


def test_controls_of_the_attempts_differ_from_the_run_in_them_alone(tmp_path):
    plan = planned(tmp_path, cache__width=2, deliberate__rounds=2)
    for each in controls_of(plan, ["garbled", "foreign", "transplant"], 1):
        assert each.config.cache == plan.config.cache.model_copy(update={"attempts": each.name})
        assert each.config.deliberate == plan.config.deliberate and each.plan is None
        assert (each.config.seed, each.config.domain) == (plan.config.seed, plan.config.domain)
        assert each.requests(100) == 400 and "deliberates 2 times: " in each.description


SERVED = {"teacher": "served", "endpoint__base_url": "http://localhost:9/v1"}
SERVED |= {"endpoint__tokenizer": MICRO, "think__sampling__max_tokens": 100}
SERVED |= {"deliberate__sampling__max_tokens": 300}


@pytest.mark.parametrize(
    ("keys", "most", "said"),
    [
        ({}, 4 * 100 + 300, ", 2 times"),
        # A cache at random, and all rounds.
        ({"cache__width": 2, "deliberate__rounds": 2}, 2 * 100 + 2 * 300 + 300, ", 2 times"),
        # Else the configuration would contradict itself once all other runs were paid for.
        (
            {"endpoint__capabilities__max_output": 300},
            *(300, " of the 700 that the heavy answer may have (its server allows no more in one"),
        ),
        ({"endpoint__capabilities__max_output": 700}, 700, ", 2 times"),
        (
            {"think__k": 64, "cache__selection": "max_length", "cache__width": 4}
            | {"endpoint__context": 2048},
            *(1822, " of the 6,700 that the heavy answer may have (more do not fit its context"),
        ),
    ],
)
def test_the_chain_may_have_the_tokens_of_all_that_fit(tmp_path, keys, most, said):
    chain = control(tmp_path, "chain", **SERVED, **keys)
    assert chain.plan and chain.plan.run.in_stage(THINK).sampling.max_tokens == most
    assert f"one chain of at most {most:,} tokens{said}" in chain.description
    assert chain.config.think.sampling.max_tokens == most and chain.config.rounds == 0
    generate.check(chain.config.model_copy(update={"out": str(tmp_path / "chain")}), asks=False)


def test_the_skill_may_have_the_tokens_of_all_and_its_server_must_have_room_for_them(tmp_path):
    served = SERVED | {"endpoint__context": 8192, "cache__width": 2, "domain": "stem"}
    plan = planned(tmp_path, **served)
    (skill,) = controls_of(plan, ["skill"], 1)
    assert skill.description.startswith("served follows the skill in one response of at most 500")
    assert skill.run and skill.run.deliberator.sampling.max_tokens == 2 * 100 + 300
    pools = pool_folder(tmp_path / "pools", [pool_of(n, ["1", "2"]) for n in (1, 2)])
    asked = generate.check(moved(skill, pools), asks=False).run
    assert (asked.deliberator.sampling, asked.config.rounds) == (skill.run.deliberator.sampling, 1)
    assert asked.config.cache.budget_tokens and asked.config.cache.budget_tokens > 2000
    assert skill.requests(100) == 200
    (less,) = controls_of(planned(tmp_path, **served | {"endpoint__context": 2500}), ["skill"], 1)
    assert "tokens of the 500 that the heavy answer may have" in less.description


def test_the_context_of_the_micro_models_holds_the_skill_and_an_answer(tmp_path):
    (skill,) = controls_of(planned(tmp_path, teacher="micro", problems__limit=100), ["skill"], 1)
    assert skill.run and skill.run.deliberator.sampling.max_tokens > 200


def test_a_context_that_cannot_hold_the_skill_is_said_and_the_rest_is_run(trained, tmp_path):
    plan = checked(tmp_path, None, ["alone", "skill"], teacher=trained)
    skill = plan.controls[-1]
    assert skill.requests(100) == 0 and skill.description == f"Not asked: {skill.not_asked}"
    told = evaluate(plan, lambda _, each: with_answers(each, ["1", "0"])).controlled
    assert told and told.not_asked == {"skill": skill.not_asked}
    assert [each.name for each in told.controls] == ["alone"] and told.attempt
    (line,) = (line for line in next(grids(told)).lines if line.label == "skill")
    assert line.cells[0] == "not asked"
    assert any(f"Not asked (skill): {skill.not_asked}" in line for line in lines(told))
    plan = checked(tmp_path / "y", None, ["skill"], teacher=trained)
    only = evaluate(plan, lambda _, each: with_answers(each, ["1", "0"])).controlled
    assert only and not only.controls and only.skill_minus_attempt is None


def test_what_a_control_asked_can_be_read_again(tmp_path):
    """By whoever compares, builds from or replays its folder; a cache may be wider than its K."""
    plan = planned(tmp_path, processes=2, cache__width=3)
    controls = controls_of(plan, list(NAMES), 2)
    for each in controls:
        pools = "after" if each.plan is None else None
        saved = each.config.model_copy(update={"pools": pools})
        file = tmp_path / f"{each.name}.yaml"
        file.write_text(dump_config(saved))
        assert load_config(file) == saved
    assert [each.config.processes for each in controls] == [2] * 19


def test_a_chooser_reads_the_same_caches(tmp_path):
    choose = control(tmp_path, "choose")
    assert choose.plan is None and choose.config.deliberate.task == "choose"
    pools = pool_folder(tmp_path / "pools", [pool_of(n, ["1", "2"]) for n in (1, 2)])
    reading = generate.check(moved(choose, pools)).config
    assert reading.deliberate.task == "choose" and reading.think.k == 2
    assert choose.description.endswith("with the prompt for all domains")
    assert choose.requests(100) == 100 * choose.config.deliberate.d


@pytest.mark.parametrize(
    ("names", "orders", "keys", "told"),
    [
        ([], 5, {}, "a cache of 4 attempts has only 4 rotations"),
        ([], 3, {"cache__width": 2}, "a cache of 2 attempts has only 2 rotations"),
        (["chain"], 1, {"deliberate__d": 0}, "--d is 0"),
        ([], 2, {"deliberate__d": 0}, "--d is 0"),
        ([], 2, {"deliberate__rounds": 2}, "Set --rounds to 1"),
        (["foreign"], 1, {"problems__limit": 1}, "foreign is not possible on these problems"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, names, orders, keys, told):
    with pytest.raises(ConfigError, match=told):
        controls_of(planned(tmp_path, **keys), names, orders)


def test_a_run_with_pools_reads_no_problems_to_ask_anew(tmp_path):
    pools = pool_folder(tmp_path / "pools", [pool_of(n, ["1", "2"]) for n in (1, 2)])
    plan = generate.check(config(pools=str(pools), deliberator="micro", out=str(tmp_path / "x")))
    with pytest.raises(ConfigError, match="Leave out --pools, or give --controls with some of a"):
        controls_of(plan, ["chain"], 1)
    assert [each.name for each in controls_of(plan, ["choose"], 2)] == ["choose", "order-1"]
    assert len(controls_of(plan, ["alone", "garbled"], 1)) == 3


def test_a_chooser_whose_prompt_does_not_fit_is_refused_before_anything_is_spent(tmp_path):
    with pytest.raises(BudgetError, match=r"cache\.budget_tokens"):
        control(tmp_path, "choose", cache__budget_tokens=200)


def test_all_means_all():
    names = ["alone", "chain", "choose", "garbled", "foreign", "transplant", "empty", "answers"]
    names += ["steps", "planted", "skill"]
    assert control_names(["alone", " all"], config()) == names
    names.remove("chain")
    assert control_names(["all"], config(pools="run")) == names
    assert control_names(["foreign", " alone", "foreign"], config()) == ["foreign", "alone"]
    with pytest.raises(ConfigError, match="unknown control 'lone'") as caught:
        check(config(), controls=["alone", "lone"])
    assert f"Give all, or some of {', '.join(NAMES)}, separated by commas" in str(caught.value)

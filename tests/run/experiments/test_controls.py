"""What the controls of an evaluation ask; nobody is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pool_folders import pool_folder, pool_of

import heavydistill
from heavydistill.config.run import dump_config, load_config
from heavydistill.errors import BudgetError, ConfigError
from heavydistill.models.request import THINK
from heavydistill.models.resolve import resolve
from heavydistill.run import generate
from heavydistill.run.experiments.evaluation import ControlRun, control_names, controls_of

MICRO = str(Path(heavydistill.__file__).parent / "micro" / "teacher")


def planned(tmp_path: Path, **keys: Any) -> generate.Plan:
    usual = {"problems.limit": 2, "think.k": 4, "deliberate.d": 2, "out": str(tmp_path / "x")}
    keys = {key.replace("__", "."): value for key, value in keys.items()}
    return generate.check(load_config(None, {**usual, **keys}))


def control(tmp_path: Path, name: str, **keys: Any) -> ControlRun:
    (one,) = controls_of(planned(tmp_path, **keys), [name], 1)
    return one


def test_alone_the_deliberator_is_asked_as_it_deliberates(tmp_path):
    plan = planned(tmp_path, thinker="micro", deliberator="micro-student")
    (alone,) = controls_of(plan, ["alone"], 1)
    config = resolve(alone.config).config
    assert config.roles == ("micro-student", "micro-student")
    assert config.think.k == 2 and config.rounds == 0 and alone.plan
    assert alone.plan and alone.plan.run.in_stage(THINK).sampling == plan.run.deliberator.sampling
    assert config.problems == plan.config.problems and config.domain == plan.config.domain


@pytest.mark.parametrize(
    ("keys", "most"),
    [
        ({}, 4 * 100 + 300),
        # A cache at random, and all rounds.
        ({"cache__width": 2, "deliberate__rounds": 2}, 2 * 100 + 2 * 300 + 300),
    ],
)
def test_the_chain_may_have_the_tokens_of_all(tmp_path, keys, most):
    sizes = {"think__sampling__max_tokens": 100, "deliberate__sampling__max_tokens": 300}
    chain = control(tmp_path, "chain", **sizes, **keys)
    assert chain.config.think.sampling.max_tokens == most and chain.config.rounds == 0
    assert f"at most {most:,} tokens, 2 times" in chain.description


def test_a_chain_that_does_not_fit_the_context_is_shorter_and_said(tmp_path):
    sizes = {"think__k": 64, "cache__selection": "max_length", "cache__width": 4}
    sizes |= {"think__sampling__max_tokens": 192}
    chain = control(tmp_path, "chain", **sizes)
    assert chain.config.think.sampling.max_tokens < 2048
    assert "of the 12,736 that the heavy answer may have" in chain.description
    generate.check(chain.config.model_copy(update={"out": str(tmp_path / "chain")}))


def test_a_chain_is_no_longer_than_its_server_takes_and_says_so(tmp_path):
    served = {"teacher": "served", "endpoint__base_url": "http://localhost:9/v1"}
    served |= {"endpoint__tokenizer": MICRO, "think__sampling__max_tokens": 100}
    served |= {"deliberate__sampling__max_tokens": 300}
    chain = control(tmp_path, "chain", endpoint__capabilities__max_output=300, **served)
    # Else the configuration would contradict itself once all other runs were paid for.
    assert chain.plan and chain.plan.run.in_stage(THINK).sampling.max_tokens == 300
    expected = "one chain of at most 300 tokens of the 700 that the heavy answer may"
    assert expected in chain.description
    assert "its server takes no more in one response" in chain.description
    at_most = control(tmp_path, "chain", endpoint__capabilities__max_output=700, **served)
    assert "at most 700 tokens, 2 times" in at_most.description


def test_what_a_control_asked_can_be_read_again(tmp_path):
    """By whoever compares, builds from or replays its folder; a cache may be wider than its K."""
    plan = planned(tmp_path, processes=2, cache__width=3, problems__limit=1)
    controls = controls_of(plan, ["alone", "chain", "choose"], 2)
    for each in controls:
        pools = "after" if each.plan is None else None
        config = each.config.model_copy(update={"pools": pools})
        file = tmp_path / f"{each.name}.yaml"
        file.write_text(dump_config(config))
        assert load_config(file) == config
    assert [each.config.processes for each in controls] == [2, 2, 2, 2]


def test_a_chooser_reads_the_same_caches(tmp_path):
    choose = control(tmp_path, "choose")
    assert choose.plan is None and choose.config.deliberate.task == "choose"
    pools = pool_folder(tmp_path / "pools", [pool_of(n, ["1", "2"]) for n in (1, 2)])
    config = choose.config.model_copy(update={"pools": str(pools), "out": str(tmp_path / "c")})
    checked = generate.check(config)
    assert checked.config.deliberate.task == "choose" and checked.config.think.k == 2
    assert choose.description.endswith("in the wording that serves all domains")
    assert choose.requests(100) == 100 * choose.config.deliberate.d


@pytest.mark.parametrize(
    ("names", "orders", "keys", "told"),
    [
        ([], 5, {}, "a cache of 4 attempts has 4 orders"),
        ([], 3, {"cache__width": 2}, "a cache of 2 attempts has 2 orders"),
        (["chain"], 1, {"deliberate__d": 0}, "--d is 0"),
        ([], 2, {"deliberate__d": 0}, "--d is 0"),
        ([], 2, {"deliberate__rounds": 2}, "Set --rounds to 1"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, names, orders, keys, told):
    with pytest.raises(ConfigError, match=told):
        controls_of(planned(tmp_path, **keys), names, orders)


def test_a_run_with_pools_reads_no_problems_to_ask_anew(tmp_path):
    pools = pool_folder(tmp_path / "pools", [pool_of(n, ["1", "2"]) for n in (1, 2)])
    plan = generate.check(
        load_config(None, {"pools": str(pools), "deliberator": "micro", "out": str(tmp_path / "x")})
    )
    with pytest.raises(ConfigError, match="Leave out --pools"):
        controls_of(plan, ["alone"], 1)
    assert [each.name for each in controls_of(plan, ["choose"], 2)] == ["choose", "order-1"]


def test_a_chooser_whose_prompt_does_not_fit_is_refused_before_anything_is_spent(tmp_path):
    with pytest.raises(BudgetError, match=r"cache\.budget_tokens"):
        control(tmp_path, "choose", cache__budget_tokens=200)


def test_all_means_all():
    assert control_names(["all"]) == ["alone", "chain", "choose"]
    assert control_names(["chain", "alone", "chain"]) == ["chain", "alone"]
    with pytest.raises(ConfigError, match="there is no control 'lone'"):
        control_names(["alone", "lone"])

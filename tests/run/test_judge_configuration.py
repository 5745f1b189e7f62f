"""How a configuration asks for a judge, and how the pipeline has it."""

import dataclasses
import json
from typing import Any

import pytest
from distilabel.pipeline import Pipeline

from heavydistill.config.run import RunConfig, load_config
from heavydistill.errors import ConfigError
from heavydistill.models.http.limits import Gate
from heavydistill.models.request import JUDGE, THINK, deliberate_stage
from heavydistill.models.resolve import ResolvedRun, resolve
from heavydistill.run.recipe import build_heavy_pipeline, judge_of, llm_of, window_of

URL, OTHER = "http://localhost:1/v1", "http://localhost:2/v1"
SHORT = {"judge__model": "m", "judge__endpoint": {"base_url": OTHER, "context": 8192}}


def resolved(**keys: Any) -> ResolvedRun:
    """Keys with two underscores for each dot."""
    served = {
        "teacher": "served",
        "endpoint.base_url": URL,
        "endpoint.tokenizer": "micro",
        "journal": "kept",
        "cache.budget_tokens": 100,
    }
    dotted = {key.replace("__", "."): value for key, value in keys.items()}
    return resolve(load_config(None, served | dotted))


def configured(**keys: Any) -> RunConfig:
    return resolved(**keys).config


def test_nobody_is_asked_unless_a_judge_is_declared():
    assert configured().judge is None
    with pytest.raises(ValueError, match="no judge"):
        judge_of(resolved(), "pool")


def test_a_judge_has_sampling_of_its_own_and_the_endpoint_of_the_run():
    config = configured(judge__model="other", endpoint__price_in=1.0, endpoint__price_out=2.0)
    judge = config.judge
    assert judge.votes == 3 and judge.endpoint.base_url == URL
    assert judge.sampling.model_dump() == {
        "temperature": 0.7,
        "top_p": 0.95,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "max_tokens": 4096,  # half of the context that is assumed
    }
    elsewhere = {"base_url": OTHER, "context": 131_072}
    assert resolved(judge__model="o", judge__endpoint=elsewhere).judge.sampling.max_tokens == 8192
    # What is known of the teacher does not hold for another model at the same address.
    assert judge.endpoint.tokenizer is None and judge.endpoint.price_in is None
    same = configured(judge__model="served", endpoint__price_in=1.0, endpoint__price_out=2.0)
    assert same.judge.endpoint.price_in == 1.0
    assert resolve(config).config == config


def test_a_judge_elsewhere_is_asked_there_for_all_votes_singly():
    keys = {"base_url": OTHER, "capabilities": {"n": 8}, "api_key_env": "OTHER_KEY"}
    run = resolved(judge__model="other", judge__endpoint=keys, judge__votes=5)
    llm = llm_of(run, JUDGE)
    assert (llm.endpoint.base_url, llm.endpoint.key_env) == (OTHER, "OTHER_KEY")
    assert llm.endpoint.capabilities.n == 1 and llm.endpoint.reasoning == "optional"
    assert (llm.stage, llm.ledger is not None, llm.journal) == (JUDGE, True, "kept")
    assert llm_of(run, THINK).endpoint.base_url == URL


def test_all_who_ask_at_one_address_share_its_slots_and_its_limits_a_minute(tmp_path):
    keys = {"judge__model": "other", "deliberate__rounds": 2, "journal": str(tmp_path)}

    def gates(run: ResolvedRun) -> list[Gate]:
        """Those of thinking, both rounds of deliberating, and the judge."""
        stages = [THINK, deliberate_stage(1), deliberate_stage(2), JUDGE]
        models = [llm_of(run, stage) for stage in stages]
        for model in models:
            model.load()
        found = [model._engine._engine._gate for model in models]
        for model in models:
            model.unload()
        return found

    assert len(set(gates(resolved(**keys, endpoint__requests_per_minute=2500)))) == 1
    own = {"base_url": OTHER, "requests_per_minute": 900}
    *run, judge = gates(resolved(**keys, endpoint__requests_per_minute=1600, judge__endpoint=own))
    assert len(set(run)) == 1 and judge not in run


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"judge__votes": 3}, "judge.model"),
        ({"judge__model": "m", "judge__votes": 0}, "judge.votes"),
        ({"judge__model": "m", "judge__sampling__temperature": 0}, "all the same"),
        ({"judge__model": "m", "judge__reasons": ["truncated"]}, "truncated"),
        ({"judge__model": "m", "judge__endpoint": {"concurrency": 3}}, "base_url"),
        ({"judge__model": "m", "judge__endpoint": {"start_vllm": True}}, "base_url"),
        ({"judge__model": "m", "judge__reasonss": []}, "judge.reasons"),
        ({"judge__model": "m", "budget": "5usd"}, "price"),
        ({**SHORT, "judge__sampling__max_tokens": 10**6}, "judge.sampling"),
    ],
)
def test_a_contradiction_is_said_with_what_to_do(keys, told):
    prices = {"endpoint__price_in": 1.0, "endpoint__price_out": 1.0}
    with pytest.raises(ConfigError) as refused:
        resolved(**prices, **keys)
    assert told in str(refused.value)


def test_one_vote_may_be_greedy():
    config = configured(judge__model="m", judge__votes=1, judge__sampling__temperature=0)
    assert config.judge.sampling.temperature == 0


def test_a_server_that_is_started_for_the_teacher_serves_no_other_judge():
    with pytest.raises(ConfigError, match="judge"):
        resolve(
            RunConfig.model_validate(
                {
                    "teacher": "qwen3-8b",
                    "endpoint": {"start_vllm": True, "context": 40960, "tokenizer": "micro"},
                    "judge": {"model": "other"},
                }
            )
        )


def test_a_saved_configuration_with_no_judge_takes_one_from_the_command_line(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("judge: null\n")
    assert load_config(file, {"judge.model": "m"}).judge.model == "m"


def test_who_judges_makes_another_run_and_where_does_not():
    def identity(**keys: Any) -> str:
        return configured(**keys).identity

    base = identity(judge__model="m")
    assert base != identity() and base != identity(judge__model="other")
    assert base != identity(judge__model="m", judge__votes=5)
    assert base == identity(judge__model="m", judge__endpoint={"base_url": OTHER})
    # As a run that starts its own server names no endpoint of the judge.
    config = configured(judge__model="served")
    bare = config.judge.model_copy(update={"endpoint": None})
    assert config.identity == config.model_copy(update={"judge": bare}).identity


def test_a_pipeline_with_a_judge_judges_after_each_verification_and_round_trips(tmp_path):
    run = resolved(
        judge__model="other",
        judge__reasons=["needs_units"],
        deliberate__rounds=2,
        endpoint__tokenizer=None,
        teacher="micro",
        endpoint__base_url=None,
        judge__endpoint={"base_url": OTHER},
        cache__budget_tokens=None,
    )
    pipeline = build_heavy_pipeline(run)
    steps = [step["name"] for step in pipeline.dump()["pipeline"]["steps"]]
    at = [steps.index(name) for name in ("verify_pool", "judge_pool", "build_caches_1")]
    assert at == list(range(at[0], at[0] + 3))
    for round in (1, 2):
        verify = steps.index(f"verify_deliberations_{round}")
        assert steps[verify + 1] == f"judge_deliberations_{round}"
    seeds = {
        step["step"]["llm"]["seed"]
        for step in pipeline.dump()["pipeline"]["steps"]
        if step["name"].startswith("judge")
    }
    assert len(seeds) == 3
    saved = pipeline.dump()
    pipeline.save(tmp_path / "p.yaml", format="yaml")
    again = Pipeline.from_yaml(tmp_path / "p.yaml")
    for key in ("steps", "connections"):
        assert json.dumps(again.dump()["pipeline"][key]) == json.dumps(saved["pipeline"][key])
    assert window_of(run) > window_of(dataclasses.replace(run, judge=None))
    pipeline.discard()

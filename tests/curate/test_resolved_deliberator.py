"""Who is asked: what a build and its run say, completed, or refused with the reason."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from asked_caches import MICRO, pairs
from fault_server import faulty

from heavydistill.config.run import RunConfig, load_config
from heavydistill.config.sets import BuildConfig, load_build_config
from heavydistill.curate.redeliberation import deliberate, resolve, volume_of
from heavydistill.errors import ConfigError, TeacherError
from heavydistill.models.ledger import account_of
from heavydistill.models.resolve import resolve as resolve_run

CACHES = [cache for _, cache in pairs(3)]


def build(out: Path, **redeliberate: Any) -> BuildConfig:
    redeliberate = {"d": 4, **redeliberate}
    keys = {f"redeliberate.{name.replace('__', '.')}": v for name, v in redeliberate.items()}
    return load_build_config(None, {"runs": ["run"], "out": str(out / "sets"), **keys})


def run(**keys: Any) -> RunConfig:
    return load_config(None, {name.replace("__", "."): value for name, value in keys.items()})


def account(config: BuildConfig, before: RunConfig | None = None) -> Path:
    return account_of(resolve(config, before).config)


SERVED = {"endpoint__base_url": "http://localhost:1/v1", "endpoint__tokenizer": MICRO}


def test_the_deliberator_of_a_run_is_asked_as_it_was_in_the_run(tmp_path):
    before = resolve_run(
        run(teacher="strong", deliberator="wise", deliberate__sampling__temperature=0.3, **SERVED)
    ).config
    again = resolve(build(tmp_path, d=3), before)
    deliberator = again.deliberator
    assert deliberator.profile.name == "wise" and deliberator.samples == 3
    assert deliberator.endpoint == before.endpoint
    assert deliberator.sampling.model_dump() == before.deliberate.sampling.model_dump()
    assert again.config.journal == str(tmp_path / "journal")


def test_a_part_of_the_sampling_may_be_other_than_in_the_run(tmp_path):
    before = resolve_run(run(teacher="wise", deliberate__sampling__top_p=0.5, **SERVED)).config
    deliberator = resolve(build(tmp_path, sampling__temperature=0.7), before).deliberator
    assert (deliberator.sampling.temperature, deliberator.sampling.top_p) == (0.7, 0.5)


def test_another_teacher_has_its_own_sampling_and_nothing_of_the_runs_model(tmp_path):
    price = {"endpoint__price_in": 1, "endpoint__price_out": 2}
    before = run(teacher="wise", deliberate__sampling__temperature=0.3, **price, **SERVED)
    deliberator = resolve(build(tmp_path, teacher="qwen3-8b"), before).deliberator
    assert deliberator.profile.name == "qwen3-8b" and deliberator.sampling.temperature == 1.0
    assert deliberator.endpoint.base_url == before.endpoint.base_url
    assert deliberator.profile.tokenizer != MICRO and deliberator.profile.price is None


def test_the_samples_are_others_than_those_of_a_run_with_the_same_seed(tmp_path):
    assert resolve(build(tmp_path, seed=5), run(seed=5)).config.seed not in (0, 5)
    first, same, other = (resolve(build(tmp_path, seed=n), run()).config.seed for n in (5, 5, 6))
    assert first == same != other


def test_the_account_is_that_of_the_build_wherever_it_is_written(tmp_path):
    served = {"teacher": "wise", **SERVED}
    mine = account(build(tmp_path, **served)).name
    assert account(build(tmp_path / "other", **served, budget="1Mtok")).name == mine
    assert account(build(tmp_path, **served, d=2)).name != mine
    more = build(tmp_path, **served).model_copy(update={"preset": "agglm"})
    assert account(more).name != mine


def test_a_budget_is_for_all_runs_of_a_build_whoever_deliberates_on_each(tmp_path):
    wanted = build(tmp_path, budget="1Mtok")
    accounts = {
        account(wanted, resolve_run(run(teacher=name, **SERVED)).config)
        for name in ("wise", "qwen3-8b")
    }
    assert len(accounts) == 1


@pytest.mark.parametrize(
    ("redeliberate", "before", "message"),
    [
        ({}, None, r"imported pool has no deliberator.*redeliberate\.teacher"),
        (
            {},
            {"endpoint__start_vllm": True},
            r"start_vllm: no server is started.*redeliberate\.endpoint\.b",
        ),
        ({"endpoint__start_vllm": True}, {}, r"Start it yourself, `heavydistill teachers micro`"),
        ({"teacher": "wise", "endpoint__base_url": "http://h/v1"}, {}, r"endpoint\.tokenizer"),
        ({}, {"teacher": "w", **SERVED, "endpoint__tokenizer": "server"}, r"endpoint\.tokenizer"),
        ({"budget": "1Mtok"}, {"teacher": "micro"}, "budget: 1Mtok is for served models"),
        ({"budget": "1usd"}, {"teacher": "w", **SERVED}, "price of w is not known"),
        (
            {"endpoint__capabilities": {"max_output": 99}, "sampling__max_tokens": 100, **SERVED},
            {"teacher": "w"},
            r"redeliberate\.sampling\.max_tokens 100 is more than the 99",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused_with_what_mends_it(
    tmp_path, redeliberate, before, message
):
    with pytest.raises(ConfigError, match=message):
        resolve(build(tmp_path, **redeliberate), None if before is None else run(**before))


def test_a_model_that_is_not_known_is_refused(tmp_path):
    with pytest.raises(TeacherError, match=r"no model 'micri'\. Did you mean micro"):
        resolve(build(tmp_path, teacher="micri"), run())


def test_a_prompt_that_does_not_fit_beside_the_response_is_refused_with_what_would(tmp_path):
    deliberator = resolve(build(tmp_path, sampling__max_tokens=1900), run())
    with pytest.raises(ConfigError, match=r"redeliberate\.sampling\.max_tokens to (\d+)") as error:
        volume_of(deliberator, CACHES)
    fitting = int(str(error.value).split("max_tokens to ")[1].split()[0])
    volume_of(resolve(build(tmp_path, sampling__max_tokens=fitting), run()), CACHES)
    with pytest.raises(ConfigError):
        volume_of(resolve(build(tmp_path, sampling__max_tokens=fitting + 1), run()), CACHES)


def test_prompts_are_counted_with_the_tokenizer_of_the_model_that_reads_them(tmp_path):
    deliberator = resolve(build(tmp_path), run())
    foreign = [dataclasses.replace(one, reader="other", prompt_tokens=1) for one in CACHES]
    assert volume_of(deliberator, foreign) == volume_of(deliberator, CACHES)


def test_the_volume_is_what_is_not_in_the_journal_yet(tmp_path):
    with faulty(reasoning="none") as server:
        keys = {"teacher": "served", "endpoint__base_url": server.base_url}
        keys |= {"endpoint__tokenizer": MICRO, "endpoint__context": 2048, "d": 2}
        keys |= {"endpoint__price_in": 1.0, "endpoint__price_out": 3.0}
        config = build(tmp_path, sampling__max_tokens=100, **keys)
        deliberator = resolve(config, None)
        volume = volume_of(deliberator, CACHES)
        assert (volume.caches, volume.requests, volume.in_journal) == (3, 6, 0)
        assert volume.prompt_tokens == 2 * sum(cache.prompt_tokens for cache in CACHES)
        assert volume.completion_tokens == 600
        assert volume.usd == pytest.approx((volume.prompt_tokens + 3 * 600) / 1e6)
        deliberate(deliberator, volume, lambda: pairs(3)[:2], tmp_path)
    left = volume_of(deliberator, CACHES)
    assert (left.requests, left.in_journal, left.completion_tokens) == (6, 4, 200)
    assert left.prompt_tokens == 2 * CACHES[2].prompt_tokens

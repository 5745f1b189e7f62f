"""Asking about caches that are there: who is asked, how much, and for real over HTTP."""

import dataclasses
import json
import threading
from pathlib import Path
from typing import Any

import messages
import pytest
from asked_caches import MICRO, pairs
from fault_server import FaultServer, faulty

from heavydistill.config.run import RunConfig, load_config
from heavydistill.config.sets import BuildConfig, load_build_config
from heavydistill.curate.redeliberation import (
    CacheDeliberations,
    Deliberations,
    DeliberationTally,
    deliberate,
    requests_of,
    resolve,
    volume_of,
)
from heavydistill.errors import ConfigError, UserError
from heavydistill.models.ledger import Ledger, account_of, balance_of
from heavydistill.models.resolve import ResolvedRun
from heavydistill.models.resolve import resolve as resolve_run
from heavydistill.run.rows import RowWriter
from heavydistill.schema import arrow_schema
from heavydistill.store.journal import Journal

CACHES = [cache for _, cache in pairs(3)]
PAIRS = pairs(3)


def build(out: Path, **redeliberate: Any) -> BuildConfig:
    redeliberate = {"d": 4, **redeliberate}
    keys = {f"redeliberate.{name.replace('__', '.')}": v for name, v in redeliberate.items()}
    usual = {"runs": ["run"], "out": str(out / "sets"), "verify.workers": 1}
    return load_build_config(None, usual | keys)


def run(**keys: Any) -> RunConfig:
    return load_config(None, {name.replace("__", "."): value for name, value in keys.items()})


def account(config: BuildConfig, before: RunConfig | None = None) -> Path:
    return account_of(resolve(config, before).config)


SERVED = {"endpoint__base_url": "http://localhost:1/v1", "endpoint__tokenizer": MICRO}


def test_the_deliberator_of_a_run_is_asked_as_it_was_in_the_run(tmp_path):
    said = {"deliberate__sampling__temperature": 0.3, "deliberate__sampling__top_p": 0.5}
    before = resolve_run(run(teacher="strong", deliberator="wise", **said, **SERVED)).config
    again = resolve(build(tmp_path, d=3), before)
    deliberator = again.deliberator
    assert deliberator.profile.name == "wise" and deliberator.samples == 3
    assert deliberator.endpoint == before.endpoint
    assert deliberator.sampling.model_dump() == before.deliberate.sampling.model_dump()
    assert again.config.journal == str(tmp_path / "journal")
    # A part of the sampling may be other than in the run.
    other = resolve(build(tmp_path, sampling__temperature=0.7), before).deliberator.sampling
    assert (other.temperature, other.top_p) == (0.7, 0.5)


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


@pytest.mark.parametrize("tokenizer", [None, "server"])
def test_prompts_of_a_model_whose_tokenizer_is_unknown_have_the_students_tokens(
    tmp_path, tokenizer
):
    served = {"teacher": "wise", "endpoint__base_url": "http://h/v1"}
    resolved = resolve(build(tmp_path, **served, endpoint__tokenizer=tokenizer), None)
    volume = volume_of(resolved, PAIRS)
    assert volume.prompt_tokens == 4 * sum(cache.prompt_tokens for cache in CACHES)


@pytest.mark.parametrize(
    ("redeliberate", "before", "message"),
    [
        ({}, None, r"redeliberate\.teacher.*imported pool has no deliberator"),
        (
            {},
            {"endpoint__start_vllm": True},
            r"start_vllm: this command starts no server.*redeliberate\.endpoint\.b",
        ),
        ({"endpoint__start_vllm": True}, {}, r"Start it yourself .`heavydistill teachers micro`"),
        ({"budget": "1Mtok"}, {"teacher": "micro"}, "budget: 1Mtok is for served models"),
        ({"budget": "1usd"}, {"teacher": "w", **SERVED}, "price of w is unknown"),
        ({"teacher": "micri"}, {}, r"no model 'micri'.* Did you mean micro"),
        (
            {"endpoint__capabilities": {"max_output": 99}, "sampling__max_tokens": 100, **SERVED},
            {"teacher": "w"},
            r"redeliberate\.sampling\.max_tokens 100 exceeds the 99",
        ),
    ],
)
def test_what_cannot_be_asked_is_refused_with_what_mends_it(
    tmp_path, redeliberate, before, message
):
    with pytest.raises(UserError, match=message):
        resolve(build(tmp_path, **redeliberate), None if before is None else run(**before))


def test_a_prompt_that_does_not_fit_beside_the_response_is_refused_with_what_would(tmp_path):
    deliberator = resolve(build(tmp_path, sampling__max_tokens=1900), run())
    with pytest.raises(ConfigError, match=r"redeliberate\.sampling\.max_tokens to (\d+)") as error:
        volume_of(deliberator, PAIRS)
    fitting = int(str(error.value).split("max_tokens to ")[1].split()[0])
    volume_of(resolve(build(tmp_path, sampling__max_tokens=fitting), run()), PAIRS)
    with pytest.raises(ConfigError):
        volume_of(resolve(build(tmp_path, sampling__max_tokens=fitting + 1), run()), PAIRS)


def test_prompts_are_counted_with_the_tokenizer_of_the_model_that_reads_them(tmp_path):
    deliberator = resolve(build(tmp_path), run())
    foreign = [
        (problem, dataclasses.replace(cache, reader="other", prompt_tokens=1))
        for problem, cache in PAIRS
    ]
    assert volume_of(deliberator, foreign) == volume_of(deliberator, PAIRS)


def test_the_volume_is_what_is_not_in_the_journal_yet(tmp_path):
    with faulty() as server:
        price = {"endpoint__price_in": 1.0, "endpoint__price_out": 3.0}
        deliberator = deliberator_of(server, tmp_path, endpoint__context=2048, **price)
        volume = volume_of(deliberator, PAIRS)
        assert (volume.caches, volume.requests, volume.in_journal) == (3, 6, 0)
        assert volume.prompt_tokens == 2 * sum(cache.prompt_tokens for cache in CACHES)
        assert volume.completion_tokens == 600
        assert volume.usd == pytest.approx((volume.prompt_tokens + 3 * 600) / 1e6)
        deliberate(deliberator, volume, lambda: pairs(3)[:2], tmp_path)
    left = volume_of(deliberator, PAIRS)
    assert (left.requests, left.in_journal, left.completion_tokens) == (6, 4, 200)
    assert left.prompt_tokens == 2 * CACHES[2].prompt_tokens


def deliberator_of(server: FaultServer, folder: Path, **keys: Any) -> ResolvedRun:
    """The served model, with a journal in the folder."""
    server.reasoning = "none"
    usual = {"teacher": "served", "endpoint__base_url": server.base_url, "d": 2}
    usual |= {"endpoint__tokenizer": MICRO, "endpoint__retries": 0, "sampling__max_tokens": 100}
    return resolve(build(folder, **usual | keys), None)


def micro(folder: Path, **keys: Any) -> ResolvedRun:
    return resolve(build(folder, **{"teacher": "micro", **keys}), None)


@pytest.fixture
def everything(tmp_path_factory):
    """Asks about so many caches: (deliberations on each, tally)."""

    def ask(deliberator: ResolvedRun, count: int, of=pairs, **more: Any):
        asked = of(count)
        volume = volume_of(deliberator, asked)
        folder = tmp_path_factory.mktemp("rows")
        written, tally = deliberate(deliberator, volume, lambda: asked, folder, **more)
        return [written.on(problem.id, cache.id) for problem, cache in asked], tally

    return ask


def test_caches_of_several_rounds_are_asked_about_in_their_rounds(tmp_path, everything):
    def of_two_rounds(count: int):
        return [
            (problem, dataclasses.replace(cache, round=1 + n % 2))
            for n, (problem, cache) in enumerate(pairs(count))
        ]

    with faulty() as server:
        deliberator = deliberator_of(server, tmp_path)
        written, tally = everything(deliberator, 5, of_two_rounds)
        assert len(server.requests) == 10 and tally.caches == 5
    assert [[one.round for one in each] for each in written] == [[1 + n % 2] * 2 for n in range(5)]


def test_the_slots_of_an_endpoint_are_full_and_caches_are_read_as_they_are_needed(
    tmp_path, everything
):
    read = 0

    class Counted(list):
        def __iter__(self):
            nonlocal read
            read = 0
            for pair in super().__iter__():
                read += 1
                yield pair

    def look(tally: DeliberationTally) -> None:
        assert read - tally.caches <= 64

    together = threading.Barrier(4)  # breaks, and fails the requests, unless four are here at once
    with faulty(plan=lambda body, attempt: together.wait(60) and None) as server:
        deliberator = deliberator_of(server, tmp_path, endpoint__concurrency=4)
        everything(deliberator, 120, lambda count: Counted(pairs(count)), on_progress=look)
        assert server.most_in_flight == 4 and len(server.requests) == 240
    assert read == 120


def test_nothing_is_paid_twice_and_who_failed_is_asked_again(tmp_path, everything):
    def plan(body: dict[str, Any], attempt: int) -> str | None:
        return "too long" if body["seed"] % 3 == 0 else None

    with faulty(plan=plan) as server:
        deliberator = deliberator_of(server, tmp_path)
        written, tally = everything(deliberator, 10)
        failed = [one for deliberations in written for one in deliberations if one.error]
        assert 0 < tally.failed == len(failed) < 20
        assert all(one.verdict and one.verdict.reason == "error" for one in failed)
        assert len(server.requests) == 20
        again, _ = everything(deliberator, 10)
        assert len(server.requests) == 20 + len(failed)
    assert [[one.id for one in each] for each in again] == [
        [one.id for one in each] for each in written
    ]


def test_where_the_budget_ends_all_that_was_sent_is_kept_and_a_higher_one_goes_on(
    tmp_path, everything
):
    with faulty(seconds=0.05) as server:
        poor = deliberator_of(server, tmp_path, budget="5ktok", endpoint__concurrency=4)
        with messages.raises("budget_used_up"):
            everything(poor, 30)
        paid = len(server.requests)
        assert 0 < paid < 60 and server.tokens <= 5_000
        assert Journal(Path(poor.config.journal)).answered == paid == len(server.bill)
        rich = deliberator_of(server, tmp_path, budget="1Mtok", endpoint__concurrency=4)
        _, tally = everything(rich, 30)
        assert len(server.requests) == 60 and tally.summary(rich).deliberations == 60
        assert balance_of(account_of(rich.config)).spent_tokens == server.tokens


def test_the_same_is_not_asked_by_two_at_once(tmp_path, everything):
    with faulty() as server:
        deliberator = deliberator_of(server, tmp_path)
        with Ledger(account_of(deliberator.config)).running(), messages.raises("account_in_use"):
            everything(deliberator, 1)
        assert not server.requests


def test_a_row_that_failed_is_an_error_and_not_left_out(tmp_path):
    writer = RowWriter(tmp_path / "rows", arrow_schema(CacheDeliberations))
    row = {"problem_id": "p", "cache_id": "c", "deliberations": []}
    writer.add([row | {"status": "failed: verify: OSError: gone"}])
    writer.close()
    with messages.raises("redeliberation_failed", cache="c", why="failed: verify: OSError: gone"):
        Deliberations(tmp_path / "rows")


def test_a_folder_is_known_by_its_last_name_and_asked_the_same_wherever_it_is(
    tmp_path, monkeypatch
):
    for place in ("here", "there"):
        folder = tmp_path / place / "checkpoint-20"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 2048}))
    monkeypatch.chdir(tmp_path / "here")
    names = ["checkpoint-20", "./checkpoint-20", str(folder), f"{tmp_path}/here/checkpoint-20"]
    asked = [micro(tmp_path, teacher=name) for name in names]
    assert {one.deliberator.profile.name for one in asked} == {"checkpoint-20"}
    pair = pairs(1)[0]
    assert all(requests_of(one, *pair) == requests_of(asked[0], *pair) for one in asked)
    assert len({asked[n].deliberator.profile.model for n in (0, 1, 3)}) == 1
    assert micro(tmp_path).deliberator.profile.name == "micro"

"""Asking about caches for real: over HTTP, and with the bundled micro model."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from asked_caches import MICRO, pairs
from fault_server import FaultServer, faulty

from heavydistill.config.sets import load_build_config
from heavydistill.curate.redeliberation import (
    CacheDeliberations,
    Deliberations,
    DeliberationTally,
    deliberate,
    requests_of,
    resolve,
    volume_of,
)
from heavydistill.errors import ConfigError, RunError, StoppedError, TeacherError
from heavydistill.models.ledger import Ledger, account_of, balance_of
from heavydistill.models.resolve import ResolvedRun
from heavydistill.run.rows import RowWriter
from heavydistill.schema import arrow_schema
from heavydistill.store.journal import Journal

ONE_WORKER = {"verify.workers": 1}


def deliberator_of(server: FaultServer, folder: Path, **keys: Any) -> ResolvedRun:
    """The served model, with a journal in the folder."""
    server.reasoning = "none"
    chosen = {
        "teacher": "served",
        "endpoint.base_url": server.base_url,
        "endpoint.tokenizer": MICRO,
        "endpoint.retries": 0,
        "sampling.max_tokens": 100,
        "d": 2,
    }
    chosen |= {name.replace("__", "."): value for name, value in keys.items()}
    config = {f"redeliberate.{key}": value for key, value in chosen.items()}
    out = str(folder / "sets")
    return resolve(
        load_build_config(None, {"runs": ["run"], "out": out, **config, **ONE_WORKER}), None
    )


def micro(folder: Path, **keys: Any) -> ResolvedRun:
    chosen = {"redeliberate.teacher": "micro", "runs": ["run"], "out": str(folder / "sets")}
    return resolve(load_build_config(None, chosen | ONE_WORKER | keys), None)


@pytest.fixture
def everything(tmp_path_factory):
    """Asks about so many caches: (deliberations on each, tally)."""

    def ask(deliberator: ResolvedRun, count: int, of=pairs, **more: Any):
        asked = of(count)
        volume = volume_of(deliberator, (cache for _, cache in asked))
        folder = tmp_path_factory.mktemp("rows")
        written, tally = deliberate(deliberator, volume, lambda: asked, folder, **more)
        return [written.on(problem.id, cache.id) for problem, cache in asked], tally

    return ask


def test_the_micro_model_deliberates_and_the_same_again_comes_from_the_journal(
    tmp_path, everything
):
    deliberator = micro(tmp_path, **{"redeliberate.d": 1})
    told: list[int] = []
    written, tally = everything(
        deliberator, 17, on_progress=lambda tally: told.append(tally.caches)
    )
    flat = [one for deliberations in written for one in deliberations]
    asked = tally.summary(deliberator)
    assert len(flat) == 17 == asked.deliberations == asked.sets
    assert told[-1] == 17
    assert {one.index for one in flat} == {0} and {one.model for one in flat} == {"micro"}
    assert [one.cache for one in flat] == [cache.id for _, cache in pairs(17)]
    assert all(one.verdict and one.verdict.verifier.startswith("math@") for one in flat)
    assert any(one.is_correct for one in flat)
    assert asked.completion_tokens == sum(one.completion_tokens for one in flat)
    assert (asked.cost_usd, tally.from_journal) == (0, 0)
    again, second = everything(deliberator, 17)
    assert (again, second.summary(deliberator), second.from_journal) == (written, asked, 17)


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

    with faulty(seconds=0.05) as server:
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
        with pytest.raises(StoppedError, match="higher --budget"):
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
        with (
            Ledger(account_of(deliberator.config)).running(),
            pytest.raises(ConfigError, match="in progress"),
        ):
            everything(deliberator, 1)
        assert not server.requests


def test_a_server_that_does_not_have_the_model_is_refused_before_it_is_asked(tmp_path, everything):
    with faulty() as server:
        deliberator = deliberator_of(server, tmp_path, teacher="other")
        with pytest.raises(TeacherError, match="does not serve 'other'"):
            everything(deliberator, 1)
        assert not server.requests
    with pytest.raises(TeacherError, match="Nothing answers"):
        everything(deliberator_of(FaultServer(base_url="http://127.0.0.1:9/v1"), tmp_path), 1)


def test_a_row_that_failed_is_an_error_and_not_left_out(tmp_path):
    writer = RowWriter(tmp_path / "rows", arrow_schema(CacheDeliberations))
    row = {"problem_id": "p", "cache_id": "c", "deliberations": []}
    writer.add([row | {"status": "failed: verify: OSError: gone"}])
    writer.close()
    with pytest.raises(RunError, match="cache c: failed: verify: OSError: gone"):
        Deliberations().add(tmp_path / "rows", tmp_path / "mapped")


def test_a_folder_is_known_by_its_last_name_and_asked_the_same_wherever_it_is(
    tmp_path, monkeypatch
):
    for place in ("here", "there"):
        folder = tmp_path / place / "checkpoint-20"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 2048}))
    monkeypatch.chdir(tmp_path / "here")
    names = ["checkpoint-20", "./checkpoint-20", str(folder), f"{tmp_path}/here/checkpoint-20"]
    asked = [micro(tmp_path, **{"redeliberate.teacher": name}) for name in names]
    assert {one.deliberator.profile.name for one in asked} == {"checkpoint-20"}
    cache = pairs(1)[0][1]
    assert all(requests_of(one, cache) == requests_of(asked[0], cache) for one in asked)
    assert len({asked[n].deliberator.profile.model for n in (0, 1, 3)}) == 1
    assert micro(tmp_path).deliberator.profile.name == "micro"

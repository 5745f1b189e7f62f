"""Asking about caches for real: over HTTP, and with the bundled micro model."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from asked_caches import MICRO, pairs
from fault_server import FaultServer, faulty

from heavydistill.config.run import Verifying
from heavydistill.config.sets import load_build_config
from heavydistill.curate.redeliberation.asking import Asking, resolve
from heavydistill.curate.redeliberation.deliberator import Deliberator
from heavydistill.errors import ConfigError, RunError, StoppedError, TeacherError
from heavydistill.models.ledger import balance_of
from heavydistill.models.request import deliberation
from heavydistill.run.llm import HeavyLLM
from heavydistill.run.tasks import fields_of
from heavydistill.schema import Deliberation
from heavydistill.store.journal import Journal
from heavydistill.store.sets.folder import RedeliberationSummary

VERIFY = Verifying(workers=1)


def asking_of(server: FaultServer, folder: Path, **keys: Any) -> Asking:
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
    return resolve(load_build_config(None, {"runs": ["run"], "out": out, **config}), None)


def micro(folder: Path, **keys: Any) -> Asking:
    chosen = {"redeliberate.teacher": "micro", "runs": ["run"], "out": str(folder / "sets")}
    return resolve(load_build_config(None, chosen | keys), None)


def everything(
    asking: Asking, count: int, replay: bool = False
) -> tuple[list[list[Deliberation]], RedeliberationSummary]:
    """(deliberations on each of so many caches, what was asked for)."""
    with Deliberator(asking, VERIFY, replay) as model:
        found = []
        for (problem, cache), deliberations in model.ask(pairs(count)):
            assert {one.cache for one in deliberations} == {cache.id}
            assert problem.id == f"p_{len(found)}"
            found.append(deliberations)
        return found, model.asked


def test_the_micro_model_deliberates_and_a_replay_is_the_same(tmp_path):
    asking = micro(tmp_path, **{"redeliberate.d": 1})
    written, asked = everything(asking, 17)  # more than a batch
    flat = [one for deliberations in written for one in deliberations]
    assert len(flat) == 17 == asked.deliberations == asked.sets
    assert {one.index for one in flat} == {0} and {one.model for one in flat} == {"micro"}
    assert all(one.verdict and one.verdict.verifier.startswith("math@") for one in flat)
    assert any(one.is_correct for one in flat)
    assert asked.completion_tokens == sum(one.completion_tokens for one in flat)
    assert asked.cost_usd == 0
    assert everything(asking, 17, replay=True) == (written, asked)


def test_deliberations_are_the_rows_that_the_pipeline_makes(tmp_path):
    with faulty() as server:
        asking = asking_of(server, tmp_path)
        written, _ = everything(asking, 3)
        llm = HeavyLLM(
            teacher="served",
            sampling=asking.sampling,
            seed=asking.seed,
            endpoint=asking.endpoint,
            journal=str(asking.journal),
            replay=True,
        )
        llm.load()
        prompts = [[{"role": "user", "content": cache.prompt}] for _, cache in pairs(3)]
        outputs = llm.generate(prompts, num_generations=2)
        llm.unload()
    for (problem, cache), output, mine in zip(pairs(3), outputs, written, strict=True):
        for fields, one in zip(fields_of(output, llm), mine, strict=True):
            theirs = deliberation(problem.id, cache.id, 1, fields)
            assert [getattr(theirs, name) for name in fields] == [
                getattr(one, name) for name in fields
            ]
            assert theirs.id == one.id


def test_the_slots_of_an_endpoint_are_full(tmp_path):
    with faulty(seconds=0.2) as server:
        asking = asking_of(server, tmp_path, endpoint__concurrency=8)
        started = time.monotonic()
        everything(asking, 32)
        took = time.monotonic() - started
    assert server.most_in_flight == 8
    assert len(server.requests) == 64
    assert took < 3 * 64 / 8 * 0.2


def test_a_slow_response_does_not_hold_up_the_others(tmp_path):
    slow = pairs(1)[0][1].prompt
    all_came = threading.Event()

    def plan(body: dict[str, Any], attempt: int) -> str | None:
        if len(server.requests) == 60:
            all_came.set()
        # The first cache is answered when everything else was asked for, or never.
        waits = body["messages"][0]["content"] == slow
        return "hang" if waits and not all_came.wait(60) else None

    with faulty(plan=plan) as server:
        everything(asking_of(server, tmp_path, endpoint__concurrency=4), 30)
    assert all_came.is_set()
    assert len(server.requests) == 60


def test_pairs_are_read_as_they_are_needed(tmp_path):
    read = 0

    def reading() -> Any:
        nonlocal read
        for pair in pairs(60):
            read += 1
            yield pair

    with faulty() as server:
        asking = asking_of(server, tmp_path, endpoint__concurrency=2)
        with Deliberator(asking, VERIFY) as model:
            for taken, _ in enumerate(model.ask(reading())):
                assert read - taken <= 16
    assert read == 60


def test_every_finished_cache_is_told_as_soon_as_it_is(tmp_path):
    told: list[int] = []
    with faulty() as server, Deliberator(asking_of(server, tmp_path), VERIFY) as model:
        for _ in model.ask(pairs(10), on_done=lambda: told.append(model.tally.caches)):
            pass
    assert told == list(range(1, 11))


def test_nothing_is_paid_twice_and_failures_are_replayed_as_they_were(tmp_path):
    def plan(body: dict[str, Any], attempt: int) -> str | None:
        return "too long" if body["seed"] % 3 == 0 else None

    with faulty(plan=plan) as server:
        asking = asking_of(server, tmp_path)
        written, asked = everything(asking, 10)
        failed = [one for deliberations in written for one in deliberations if one.error]
        assert 0 < asked.failed == len(failed) < 20
        assert all(one.verdict and one.verdict.reason == "error" for one in failed)
        sent = len(server.requests)
        assert everything(asking, 10, replay=True) == (written, asked)
        assert len(server.requests) == sent == 20
        again, _ = everything(asking, 10)
        assert len(server.requests) == sent + len(failed)  # who failed is asked again
    assert [[one.id for one in each] for each in again] == [
        [one.id for one in each] for each in written
    ]


def test_a_replay_needs_no_server_and_no_weights(tmp_path):
    with faulty() as server:
        asking = asking_of(server, tmp_path)
        written = everything(asking, 2)
    assert everything(asking, 2, replay=True) == written


def test_a_replay_of_what_was_never_asked_is_an_error(tmp_path):
    with faulty() as server:
        asking = asking_of(server, tmp_path)
        everything(asking, 1)
    with pytest.raises(RunError, match="does not hold every response"):
        everything(asking, 2, replay=True)


def test_where_the_budget_ends_all_that_was_sent_is_kept_and_a_higher_one_goes_on(tmp_path):
    with faulty(seconds=0.05) as server:
        poor = asking_of(server, tmp_path, budget="5ktok", endpoint__concurrency=4)
        with pytest.raises(StoppedError, match="higher --budget"):
            everything(poor, 30)
        paid = len(server.requests)
        assert 0 < paid < 60 and server.tokens <= 5_000
        assert Journal(poor.journal).answered == paid == len(server.bill)
        rich = asking_of(server, tmp_path, budget="1Mtok", endpoint__concurrency=4)
        written, asked = everything(rich, 30)
        assert len(server.requests) == 60 and asked.deliberations == 60
        assert balance_of(rich.account).spent_tokens == server.tokens
    assert everything(rich, 30, replay=True) == (written, asked)


def test_what_is_taken_before_the_budget_ends_is_whole(tmp_path):
    with faulty(seconds=0.02) as server:
        poor = asking_of(server, tmp_path, budget="5ktok", endpoint__concurrency=4)
        taken = []
        with pytest.raises(StoppedError), Deliberator(poor, VERIFY) as model:
            for _, deliberations in model.ask(pairs(30)):
                taken.append(deliberations)
        assert taken
        assert all(one.finish_reason == "stop" for each in taken for one in each)


def test_what_is_in_flight_at_an_interruption_is_awaited_and_kept(tmp_path):
    with faulty(seconds=0.3) as server:
        asking = asking_of(server, tmp_path, endpoint__concurrency=4)
        with pytest.raises(KeyboardInterrupt), Deliberator(asking, VERIFY) as model:
            for _ in model.ask(pairs(30)):
                raise KeyboardInterrupt
        sent = len(server.requests)
        assert 0 < sent < 60
        assert Journal(asking.journal).answered == sent == len(server.bill)
        everything(asking, 30)
        assert len(server.requests) == 60
    assert not [one for one in threading.enumerate() if one.name.startswith("deliberating")]


def test_the_same_is_not_asked_by_two_at_once(tmp_path):
    with faulty() as server:
        asking = asking_of(server, tmp_path)
        with (
            Deliberator(asking, VERIFY),
            pytest.raises(ConfigError, match="in progress"),
            Deliberator(asking, VERIFY),
        ):
            pass


def test_a_server_that_does_not_have_the_model_is_refused_before_it_is_asked(tmp_path):
    with faulty() as server:
        asking = asking_of(server, tmp_path, teacher="other")
        with pytest.raises(TeacherError, match="does not serve 'other'"):
            everything(asking, 1)
        assert not server.requests
    with pytest.raises(TeacherError, match="Nothing answers"):
        everything(asking_of(FaultServer(base_url="http://127.0.0.1:9/v1"), tmp_path), 1)


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
    assert {one.model.name for one in asked} == {"checkpoint-20"}
    cache = pairs(1)[0][1]
    assert all(one.requests(cache) == asked[0].requests(cache) for one in asked)
    assert asked[0].model.model == asked[1].model.model == asked[3].model.model
    assert micro(tmp_path).model.name == "micro"

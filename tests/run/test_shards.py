"""A run as shards over one journal: in threads here, in processes of this machine where marked."""

import collections
import dataclasses
import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import fake_vllm
import messages
import pytest
from command_line import MICRO, started
from fake_server import FakeServer, serving
from marked import eventually
from problem_files import remainders
from samples import untimed
from sharded_runs import (
    IN_FLIGHT,
    PROBLEMS,
    TOKENS,
    D,
    K,
    Slow,
    asking,
    by_request,
    planned,
    seeds,
)

from heavydistill.config.run import load_config
from heavydistill.errors import ConfigError, JournalError, RunError
from heavydistill.models.ledger import account_of, balance_of
from heavydistill.models.resolve import resolve
from heavydistill.run.generate import Plan, check
from heavydistill.run.recipe import pipeline as recipe
from heavydistill.run.recipe.pipeline import build_heavy_pipeline, paying
from heavydistill.run.result import write
from heavydistill.run.shards import Shard, ShardEnd, Surroundings, run_shard, run_shards, shards_of
from heavydistill.schema import Trace
from heavydistill.store.traces import LEAF_FOLDER, read_traces


class Threads:
    """Runs shards in threads of this process, the pool that is nearest to hand."""

    surroundings = None

    def __init__(self, count: int) -> None:
        self.count = count
        self.ends: dict[int, ShardEnd] = {}

    def start(self, shards: list[Shard]) -> None:
        for shard in shards:
            threading.Thread(target=self.work, args=(shard,), daemon=True).start()

    def work(self, shard: Shard) -> None:
        self.ends[shard.number] = run_shard(shard)

    def ended(self) -> dict[int, ShardEnd]:
        return dict(self.ends)

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """distilabel's ``with pipeline`` is not for several threads; elsewhere shards are processes."""
    lock = threading.Lock()

    def built(*given: Any, **keys: Any) -> Any:
        with lock:
            return build_heavy_pipeline(*given, **keys)

    monkeypatch.setattr(recipe, "build_heavy_pipeline", built)


class Counts(collections.Counter[str]):
    """Rows that have left each step, as progress was told."""

    def on_batch(self, step: str, rows: list[dict[str, Any]]) -> None:
        self[step] += len(rows)

    def on_sample(self, step: str, tokens: int, is_whole: bool) -> None:
        self[f"samples of {step}"] += 1


def traces_of(plan: Plan, rows: Path, folder: Path) -> list[Trace]:
    """The rows that were left, as the folder of a run has them."""
    write(plan.run, plan.problems, rows, folder, None)
    return untimed(read_traces(folder))


def test_shards_make_the_rows_of_one_pipeline_and_count_them(tmp_path):
    with serving(by_request) as server:
        plan = planned(server, tmp_path)
        counts, pool = Counts(), Threads(3)
        shards = shards_of(plan.run, pool, tmp_path / "rows")
        run_shards(pool, shards, counts.on_batch, counts.on_sample)
        assert len(server.requests) == PROBLEMS * (K + D) == seeds(tmp_path)
        assert counts.pop("samples of sample_trajectories") == PROBLEMS * K
        assert counts.pop("samples of deliberate_1") == PROBLEMS * D
        assert set(counts.values()) == {PROBLEMS} and len(counts) == 7
        sharded = traces_of(plan, tmp_path / "rows" / LEAF_FOLDER, tmp_path / "sharded")
        pipeline = build_heavy_pipeline(plan.run, replay=True)
        pipeline.run_to_files()
        assert sharded == traces_of(plan, pipeline.leaf_files, tmp_path / "one")
        pipeline.discard()


class LosesTheFirst(Threads):
    """The first shard is lost in the midst of its work, and begun again."""

    server: FakeServer

    def work(self, shard: Shard) -> None:
        if shard.number == 0:
            lost = dataclasses.replace(shard, rows=shard.rows)
            stop = shard.rows / "stop"

            def lose() -> None:
                assert eventually(lambda: len(self.server.requests) >= 10, 300)
                stop.touch()

            threading.Thread(target=lose).start()
            end = run_shard(lost)
            assert end.failure, "it was too quick"
            stop.unlink()
        super().work(shard)


def test_a_shard_that_is_lost_and_begun_again_counts_once_and_asks_for_nothing_twice(tmp_path):
    def unhurried(body: dict[str, Any]) -> Any:
        time.sleep(0.1)
        return by_request(body)

    with serving(unhurried) as server:
        plan = planned(server, tmp_path, **{"endpoint.concurrency": 2})
        counts, pool = Counts(), LosesTheFirst(1)
        pool.server = server
        shards = shards_of(plan.run, pool, tmp_path / "rows")
        run_shards(pool, shards, counts.on_batch)
        assert len(server.requests) == PROBLEMS * (K + D)
    assert len(list((tmp_path / "rows").glob("*.jsonl"))) == 2, "of both attempts"
    assert set(counts.values()) == {PROBLEMS}
    names = {file.stem[:13] for file in (tmp_path / "rows" / LEAF_FOLDER).iterdir()}
    assert names == {pool.ends[0].name}
    assert len(traces_of(plan, tmp_path / "rows" / LEAF_FOLDER, tmp_path / "run")) == PROBLEMS


def test_the_budget_holds_for_all_shards_together(tmp_path):
    with serving(by_request) as server:
        budget = {"budget": "2500tok", "think.sampling.max_tokens": 100}
        plan = planned(server, tmp_path, **budget, **{"deliberate.sampling.max_tokens": 100})
        counts, pool = Counts(), Threads(2)
        with paying(plan.run), messages.raises("budget_used_up"):
            shards = shards_of(plan.run, pool, tmp_path / "rows")
            run_shards(pool, shards, counts.on_batch)
        balance = balance_of(account_of(plan.config))
        assert 500 < balance.spent_tokens == TOKENS * len(server.requests) <= 2500
        assert not balance.in_flight and seeds(tmp_path) == len(server.requests)


def test_a_shard_that_breaks_ends_the_run_with_its_error(tmp_path):
    class Breaks(Threads):
        def work(self, shard: Shard) -> None:
            if shard.number == 1:
                self.ends[1] = ShardEnd("0001-a", RunError("Out of luck", "Try again."))

    with serving(by_request) as server:
        plan = planned(server, tmp_path)
        pool = Breaks(2)
        with pytest.raises(RunError, match="Out of luck"):
            run_shards(pool, shards_of(plan.run, pool, tmp_path / "rows"), Counts().on_batch, print)


def test_slots_and_limits_are_divided_but_for_a_server_of_each_shard():
    keys = {
        "teacher": "m",
        "endpoint.base_url": "http://h/v1",
        "endpoint.tokenizer": MICRO,
        "endpoint.concurrency": 10,
        "endpoint.requests_per_minute": 100,
        "judge.model": "other",
        "judge.endpoint": {"base_url": "http://o/v1", "concurrency": 3},
    }
    run = resolve(load_config(None, keys))
    shards = shards_of(run, Threads(3), Path("rows"))
    assert [(shard.number, shard.count) for shard in shards] == [(0, 3), (1, 3), (2, 3)]
    part = shards[0].run
    for model in (part.thinker, part.deliberator):
        assert model and model.endpoint.concurrency == 3
        assert (model.endpoint.requests_per_minute, model.endpoint.tokens_per_minute) == (33, None)
    assert part.judge and part.judge.endpoint.concurrency == 1
    with messages.raises("concurrency_of_shards", concurrency=3, shards=4):
        shards_of(run, Threads(4), Path("rows"))
    started = run.with_endpoint(
        run.config.endpoint.model_copy(update={"start_vllm": True, "base_url": None})
    )
    own = shards_of(started, Threads(3), Path("rows"), server=["vllm", "serve", "m"])
    assert own[0].run.deliberator.endpoint.concurrency == 10
    assert own[0].server == ("vllm", "serve", "m")


def test_each_shard_may_start_a_server_of_its_own(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in fake_vllm.install(tmp_path / "bin", 1).items():
        monkeypatch.setenv(name, value)
    keys = {
        "teacher": "qwen3-8b",
        "endpoint.start_vllm": True,
        "endpoint.tokenizer": MICRO,
        "endpoint.reasoning": "optional",
        "problems.source": str(remainders(tmp_path, 4)),
        "think.k": 2,
        "deliberate.d": 1,
        "out": str(tmp_path / "run"),
    }
    plan, pool, counts = check(load_config(None, keys)), Threads(2), Counts()
    shards = shards_of(plan.run, pool, tmp_path / "rows", server=plan.server)
    with paying(plan.run):
        run_shards(pool, shards, counts.on_batch)
    assert counts["label_traces"] == 4
    logs = sorted(tmp_path.glob("run.vllm-*.log"))
    assert [log.name for log in logs] == ["run.vllm-0.log", "run.vllm-1.log"]
    ports = {re.search(r"--port (\d+)", log.read_text())[1] for log in logs}  # type: ignore[index]
    assert len(ports) == 2


@pytest.fixture
def ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.chdir(Path.cwd())
    token = tmp_path / ".ray-token"
    token.touch()
    return Surroundings("0.1.0", tmp_path, token, {"SOME_KEY": "secret"})


def test_a_shard_works_where_the_command_was_given(ours, tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "another")
    ours.apply()
    assert Path.cwd() == tmp_path and os.environ["SOME_KEY"] == "secret"
    assert "secret" not in repr(ours)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"version": "0.0.1"}, ConfigError, "the driver 0.0.1"),
        ({"folder": Path("/no/such/folder")}, ConfigError, "cannot enter the working folder"),
        ({"token": Path("/no/such/journal/t")}, JournalError, "does not see the journal"),
    ],
)
def test_a_machine_that_differs_is_an_error(ours, change, error, message):
    with pytest.raises(error, match=message):
        dataclasses.replace(ours, **change).apply()


@pytest.mark.slow
def test_two_processes_give_the_traces_of_one(tmp_path):
    for name, count in (("one", 1), ("two", 2)):
        sizes = ["--k=2", "--d=2", "--set=problems.size=48", f"--processes={count}"]
        places = [f"--out={name}", f"--journal=of-{name}"]
        process = started("generate", *sizes, *places, cwd=tmp_path)
        printed, _ = process.communicate(timeout=800)
        assert process.returncode == 0, printed
    one, two = (untimed(read_traces(tmp_path / name)) for name in ("one", "two"))
    assert one == two and len(one) == 48
    assert len(list((tmp_path / "of-two").iterdir())) == 2, "each process has a segment"


def children(pid: int) -> list[int]:
    """Shards of a run, oldest first."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += (task / "children").read_text().split()
    words = {int(child): Path(f"/proc/{child}/cmdline").read_text() for child in found}
    return sorted(child for child, line in words.items() if "spawn_main" in line)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["a shard is killed", "Ctrl-C", "all is killed"])
def test_an_end_of_processes_keeps_what_was_answered(tmp_path, how):
    answer = Slow()
    with serving(answer) as server:
        planned(server, tmp_path)
        command = ["generate", *asking(server.base_url, "run", "--processes=2")]
        process = started(*command, cwd=tmp_path)
        answer.midway(process)
        shards = children(process.pid)
        assert len(shards) == 2, process.poll() is not None and process.communicate()
        if how == "Ctrl-C":
            os.killpg(process.pid, signal.SIGINT)
        elif how == "all is killed":
            os.kill(process.pid, signal.SIGKILL)
        else:
            os.kill(shards[0], signal.SIGKILL)
        printed, _ = process.communicate(timeout=800)
        if how == "Ctrl-C":
            assert process.returncode == 130 and messages.is_in(printed, "same_command_goes_on"), (
                printed
            )
            assert seeds(tmp_path) == answer.given == len(server.requests) < PROBLEMS * (K + D)
        elif how == "a shard is killed":
            assert process.returncode == 1, printed
            assert "The process of shard 0 ended with code -9" in printed
        kept = seeds(tmp_path)
        there = [Path(f"/proc/{pid}") for pid in shards]
        assert eventually(lambda: not any(path.exists() for path in there), 300), "one outlived it"
        assert kept >= IN_FLIGHT
        sent = len(server.requests)
        again = started(*command, cwd=tmp_path)
        printed, _ = again.communicate(timeout=800)
        assert again.returncode == 0, printed
        assert len(server.requests) - sent <= PROBLEMS * (K + D) - kept
    assert len(list(read_traces(tmp_path / "run"))) == PROBLEMS

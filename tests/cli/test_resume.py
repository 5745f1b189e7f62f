"""Runs that are killed and run again: nothing finished is paid for twice, and nothing changes."""

import collections
import dataclasses
import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from fake_server import FakeServer, completion, serving

from heavydistill.config.models import Capabilities, Sampling
from heavydistill.models.capabilities import save
from heavydistill.models.ledger import Ledger
from heavydistill.schema import Trace
from heavydistill.store.segment import record_at, segments
from heavydistill.store.traces import read_traces

COMMAND = str(Path(sys.executable).parent / "heavydistill")
MICRO = str(Path(__file__).parents[2] / "heavydistill" / "micro" / "teacher")
PROBLEMS, K, D, IN_FLIGHT = 200, 8, 4, 16
TOKENS = 18  # of every response of ``fake_server.completion``
MAX_TOKENS = Sampling().max_tokens


class Bill:
    """A server's answers, which depend on the request alone, and what it had to do for them."""

    def __init__(self) -> None:
        self.finished: collections.Counter[str] = collections.Counter()
        self._lock = threading.Lock()

    def answer(self, body: dict[str, Any]) -> Any:
        request = json.dumps([body["messages"], body["seed"]])
        draw = random.Random(request)
        time.sleep(min(2.0, draw.lognormvariate(-1.4, 0.8)))
        with self._lock:
            self.finished[request] += 1
        return completion(f"\\boxed{{{draw.randrange(6)}}}", reasoning_content=f"{draw.random()}")


def arguments(server: FakeServer, folder: Path, run: str, **flags: object) -> list[str]:
    problems = folder / "problems.jsonl"
    lines = [
        {"id": f"p{n}", "text": f"{n} mod 6?", "reference": f"{n % 6}"} for n in range(PROBLEMS)
    ]
    problems.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    chosen = {"k": K, "d": D, "journal": folder / "journal"} | flags
    return [
        *("generate", "--teacher=served", f"--endpoint={server.base_url}"),
        *(f"--tokenizer={MICRO}", f"--problems={problems}", f"--out={folder / run}"),
        *(f"--{name}={value}" for name, value in chosen.items()),
        *("--set=endpoint.retries=0", f"--set=endpoint.concurrency={IN_FLIGHT}"),
        "--set=endpoint.context=131072",  # that of the tokenizer's folder is smaller
    ]


@pytest.fixture
def run(call):
    """Runs a command in this process to a good end."""

    def run(*words: object) -> None:
        code, *printed = call(*words)
        assert code == 0, printed

    return run


def started(*words: str) -> subprocess.Popen[str]:
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen([COMMAND, *words], text=True, start_new_session=True, **pipes)


def on_a_full_disk(*words: str) -> subprocess.CompletedProcess[str]:
    limit = (200_000, 200_000)
    return subprocess.run(
        [COMMAND, *words],
        capture_output=True,
        text=True,
        timeout=240,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    )


def told(run: Path) -> list[Trace]:
    """The traces without the times, in which two servings of one request differ."""

    def timeless(generation: Any) -> Any:
        return dataclasses.replace(generation, latency_s=0.0)

    traces = []
    for trace in read_traces(run):
        pool = [timeless(t) for t in trace.pool]
        deliberations = [timeless(d) for d in trace.deliberations]
        traces.append(dataclasses.replace(trace, pool=pool, deliberations=deliberations))
    return traces


def kill_somewhere(command: list[str], server: FakeServer, draw: random.Random) -> bool:
    """Start, and ``kill -9`` the whole run: some time after its first request, or before that.

    Returns:
        Whether it was still running.
    """
    process = subprocess.Popen(
        [COMMAND, *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    latest = time.monotonic() + draw.choice([60, 60, 60, draw.uniform(0.2, 4)])
    while process.poll() is None and not server.requests and time.monotonic() < latest:
        time.sleep(0.01)
    try:
        process.wait(timeout=draw.uniform(0, 1.0) if server.requests else 0)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True
    assert process.returncode == 0
    return False


def journaled_seeds(folder: Path) -> set[int]:
    return {
        record_at(segment.path, line.offset).asked["seed"]
        for segment in segments(folder / "journal")
        for line in segment.lines
    }


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [4, 12])
def test_a_run_that_is_killed_again_and_again_ends_as_if_undisturbed(tmp_path, kills, run):
    draw, done = random.Random(4), 0
    undisturbed, disturbed = Bill(), Bill()
    with serving(undisturbed.answer) as server:
        run(*arguments(server, tmp_path, "undisturbed", journal=tmp_path / "other"))
    assert set(undisturbed.finished.values()) == {1}
    assert len(undisturbed.finished) == PROBLEMS * (K + D)

    paid: set[int] = set()
    with serving(disturbed.answer) as server:
        command = arguments(server, tmp_path, "disturbed")
        while done < kills:
            assert kill_somewhere(command, server, draw), f"it ended after {done} kills"
            done += 1
            sent = {request["seed"] for request in server.requests}
            assert not sent & paid, "a finished request was sent again"
            server.requests.clear()
            paid = journaled_seeds(tmp_path)
        assert 0 < len(paid) < PROBLEMS * (K + D)
        run(*command)
    assert told(tmp_path / "disturbed") == told(tmp_path / "undisturbed")
    assert not list(tmp_path.glob(".*"))
    # Only what was in flight at a kill, in either stage, may have been answered twice.
    answered = sum(disturbed.finished.values())
    assert set(disturbed.finished) == set(undisturbed.finished)
    assert answered - len(disturbed.finished) <= kills * 2 * IN_FLIGHT
    # The account holds every answer, and what was in flight at a kill at the most it can have been.
    (account,) = (tmp_path / "journal").glob("*.ledger")
    balance = Ledger(account).balance
    unanswered = balance.ended - answered
    assert balance.spent_tokens >= TOKENS * answered + MAX_TOKENS * unanswered
    assert balance.spent_tokens > TOKENS * balance.ended
    assert answered <= balance.ended <= PROBLEMS * (K + D) + kills * 2 * IN_FLIGHT


def test_a_replay_is_the_run_byte_for_byte_and_asks_nobody(tmp_path, run):
    def sometimes(body: dict[str, Any]) -> Any:
        draw = random.Random(json.dumps([body["messages"], body["seed"]]))
        if draw.random() < 0.1:
            return 400, {"error": {"message": "no"}}
        reason = "length" if draw.random() < 0.1 else "stop"
        return completion(f"\\boxed{{{draw.randrange(6)}}}", finish_reason=reason)

    with serving(sometimes) as server:
        run(*arguments(server, tmp_path, "run", limit=60))
    run("replay", tmp_path / "run", f"--out={tmp_path / 'again'}")
    for name in ("traces/train-00000-of-00001.parquet", "summary.json"):
        first, again = (tmp_path / folder / name for folder in ("run", "again"))
        assert first.read_bytes() == again.read_bytes()


def test_a_replay_heeds_nothing_that_doctor_saw_later_and_says_where_to_name_its_journal(
    tmp_path, monkeypatch, run, call
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with serving(Bill().answer) as server:
        run(*arguments(server, tmp_path, "run", limit=3, k=2, d=1))
    save(server.base_url, "served", Capabilities(refused=["seed"], context=2048, max_output=512))
    (tmp_path / "journal").rename(tmp_path / "moved")
    replay = ["replay", tmp_path / "run", f"--out={tmp_path / 'again'}"]
    code, _, errors = call(*replay)
    assert code == 2 and "--journal" in errors
    run(*replay, f"--journal={tmp_path / 'moved'}")
    assert list(read_traces(tmp_path / "again")) == list(read_traces(tmp_path / "run"))


def test_more_samples_and_rounds_pay_for_the_new_ones_only(tmp_path, run):
    # The caches hold the new trajectories too, so every deliberation is another request.
    with serving(Bill().answer) as server:
        for k, d, new in ((4, 2, 4 + 2), (6, 2, 2 + 2), (6, 3, 1)):
            server.requests.clear()
            run(*arguments(server, tmp_path, f"{k}-{d}", limit=5, k=k, d=d))
            assert len(server.requests) == 5 * new


def test_a_full_disk_stops_the_run_and_the_same_command_goes_on(tmp_path, run):
    def long_winded(body: dict[str, Any]) -> Any:
        return completion("\\boxed{1}", reasoning_content="so " * 2000)

    with serving(long_winded) as server:
        command = arguments(server, tmp_path, "run", limit=20, k=4, d=1)
        stopped = on_a_full_disk(*command)
        assert stopped.returncode == 1
        assert "cannot be written" in stopped.stderr and "same command again" in stopped.stderr
        assert not (tmp_path / "run").exists()
        paid = len(journaled_seeds(tmp_path))
        assert 0 < paid < 20 * 5
        server.requests.clear()
        run(*command)
        assert len(server.requests) == 20 * 5 - paid


def test_an_interrupted_run_waits_for_what_is_paid_and_the_same_command_goes_on(tmp_path, run):
    bill = Bill()

    def unhurried(body: dict[str, Any]) -> Any:
        time.sleep(1.0)
        return bill.answer(body)

    with serving(unhurried) as server:
        command = arguments(server, tmp_path, "run", limit=20)
        process = started(*command)
        while sum(bill.finished.values()) < 60:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        printed, _ = process.communicate(timeout=60)
        assert process.returncode == 130 and "same command goes on" in printed
        # Whatever was sent was answered, and every answer is in the journal.
        assert sum(bill.finished.values()) == len(server.requests)
        assert len(journaled_seeds(tmp_path)) == len(server.requests)
        run(*command)
        assert len(server.requests) == 20 * (K + D)
    assert len(list(read_traces(tmp_path / "run"))) == 20


def test_a_resumed_run_that_is_interrupted_keeps_what_was_finished_before(tmp_path, call):
    up = False
    asked_again: collections.Counter[bool] = collections.Counter()

    def down_at_first(body: dict[str, Any]) -> Any:
        if not up:
            return 400, {"error": {"message": "your prompt exceeds the maximum context length"}}
        time.sleep(0.3)
        asked_again["Attempt 1" in body["messages"][0]["content"]] += 1
        return completion("\\boxed{1}")

    with serving(down_at_first) as server:
        command = arguments(server, tmp_path, "run", limit=60, k=4, d=1)
        assert call(*command)[0] == 1 and len(list(read_traces(tmp_path / "run"))) == 60
        up = True
        process = started(*command)
        while asked_again[True] < 10:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130
    traces = list(read_traces(tmp_path / "run"))
    assert [trace.problem.id for trace in traces] == [f"p{n}" for n in range(60)]
    assert 0 < sum(trace.status == "ok" for trace in traces) < 60
    assert not list(tmp_path.glob(".*"))


def test_a_killed_run_leaves_nothing_that_the_next_one_does_not_remove(tmp_path, run):
    def unhurried(body: dict[str, Any]) -> Any:
        time.sleep(0.05)
        return completion("\\boxed{1}")

    with serving(unhurried) as server:
        command = arguments(server, tmp_path, "run", limit=60, k=4, d=1)
        process = started(*command)
        while len(server.requests) < 100:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        assert not (tmp_path / "run").exists()
        assert (tmp_path / ".run.unfinished").is_dir()
        run(*command)
    assert len(list(read_traces(tmp_path / "run"))) == 60
    assert not list(tmp_path.glob(".*"))


def test_a_disk_too_full_for_the_rows_is_said_and_what_was_there_stays(tmp_path, run):
    def long_winded(body: dict[str, Any]) -> Any:
        return completion("\\boxed{1}", reasoning_content=random.randbytes(10_000).hex())

    with serving(long_winded) as server:
        run(*arguments(server, tmp_path, "run", limit=10, k=4, d=1))
    replay = ("replay", str(tmp_path / "run"), f"--out={tmp_path / 'again'}")
    stopped = on_a_full_disk(*replay)
    assert stopped.returncode == 1, stopped.stderr
    assert "again" in stopped.stderr and "cannot be written" in stopped.stderr
    assert "Make room" in stopped.stderr and "Traceback" not in stopped.stderr
    assert not (tmp_path / "again").exists() and not list(tmp_path.glob(".*"))
    run(*replay)


def test_the_same_command_asks_again_for_what_failed_and_for_nothing_else(tmp_path, run, call):
    up = False

    def sometimes(body: dict[str, Any]) -> Any:
        draw = random.Random(json.dumps([body["messages"], body["seed"]]))
        if not up and draw.random() < 0.2:
            return 503, {"error": {"message": "busy"}}
        return completion("\\boxed{1}")

    with serving(sometimes) as server:
        command = arguments(server, tmp_path, "run", limit=10)
        run(*command)
        failed = sum(
            t.failure == "overloaded" for x in read_traces(tmp_path / "run") for t in x.pool
        )
        assert failed
        up = True
        server.requests.clear()
        run(*command)
        # The new attempts change the caches, so the deliberations on them are new too.
        first_stage = [r for r in server.requests if "Attempt 1" not in r["messages"][0]["content"]]
        assert len(first_stage) == failed
        assert all(t.failure is None for x in read_traces(tmp_path / "run") for t in x.pool)
        code, _, errors = call(*command)
        assert code == 2 and "not empty" in errors


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_model_in_this_process_keeps_what_ended_in_a_batch_that_is_broken_off(tmp_path, run):
    samples = 16 * 64  # of all problems, in one batch
    command = ["generate", "--k=64", "--d=0", "--set=problems.size=16"]
    command += [f"--out={tmp_path / 'run'}", f"--journal={tmp_path / 'journal'}"]
    kept = set()
    for signum, code in ((signal.SIGKILL, -9), (signal.SIGINT, 130)):
        process = started(*command)
        while not journaled_seeds(tmp_path) - kept and process.poll() is None:
            time.sleep(0.01)
        os.killpg(process.pid, signum)
        printed, _ = process.communicate(timeout=60)
        assert process.returncode == code, printed
        now = journaled_seeds(tmp_path)
        assert kept < now and len(now) < samples
        kept = now
    run_folder = tmp_path / "run"
    finished = list(read_traces(run_folder)) if run_folder.exists() else []
    assert len(finished) < 16, "only problems whose samples had all ended are in it"
    assert all(t.failure is None for trace in finished for t in trace.pool)
    run(*command)
    records = [line for one in segments(tmp_path / "journal") for line in one.lines]
    assert len(records) == len(journaled_seeds(tmp_path)) == samples
    assert len(list(read_traces(tmp_path / "run"))) == 16

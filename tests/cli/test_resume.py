"""Runs that are killed and run again: nothing finished is paid for twice, and nothing changes."""

import itertools
import json
import os
import random
import resource
import signal
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import messages
import pytest
from command_line import COMMAND, broken_off, records_of, run_command, served, started
from fair_clock import fair_requests
from fake_server import FakeServer, completion, serving
from fault_server import FaultServer, faulty
from problem_files import remainders
from samples import untimed

from heavydistill.config.models import Capabilities, Sampling
from heavydistill.models.capabilities import save
from heavydistill.models.ledger import Balance, Ledger
from heavydistill.store.traces import read_traces

PROBLEMS, K, D, IN_FLIGHT = 200, 8, 4, 16
TOKENS = 18  # of every response of ``fake_server.completion``
MAX_TOKENS = Sampling().max_tokens


class Bill:
    """A server's answers, which depend on the request alone, and what it had to do for them."""

    def __init__(self) -> None:
        self.finished: Counter[str] = Counter()
        self._lock = threading.Lock()

    def answer(self, body: dict[str, Any]) -> Any:
        request = request_of(body)
        draw = random.Random(request)
        time.sleep(min(2.0, draw.lognormvariate(-1.4, 0.8)))
        with self._lock:
            self.finished[request] += 1
        return completion(f"\\boxed{{{draw.randrange(6)}}}", reasoning_content=f"{draw.random()}")


def request_of(body: dict[str, Any]) -> str:
    return json.dumps([body["messages"], body["seed"]])


def arguments(server: FakeServer, folder: Path, run: str, **flags: object) -> list[str]:
    chosen = {"problems": remainders(folder, PROBLEMS), "out": folder / run, "k": K, "d": D}
    chosen |= {"journal": folder / "journal", **flags}
    return [
        *("generate", *served(server.base_url)),
        *(f"--{name}={value}" for name, value in chosen.items()),
        *("--set=endpoint.retries=0", f"--set=endpoint.concurrency={IN_FLIGHT}"),
        "--set=endpoint.context=131072",  # that of the tokenizer's folder is smaller
        "--set=verify.timeout_s=60",  # no verdict depends on how busy the machine is
    ]


@pytest.fixture
def run(call):
    """Runs a command in this process to a good end."""

    def run(*words: object) -> None:
        code, *printed = call(*words)
        assert code == 0, printed

    return run


def on_a_full_disk(*words: str) -> subprocess.CompletedProcess[str]:
    limit = (200_000, 200_000)
    return subprocess.run(
        [COMMAND, *words],
        capture_output=True,
        text=True,
        timeout=800,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    )


def kill_somewhere(command: list[str], server: FakeServer, draw: random.Random) -> bool:
    """Start, and ``kill -9`` the whole run: some time after its first request, or before that.

    Returns:
        Whether it was still running.
    """
    process = started(*command, stdout=subprocess.DEVNULL)
    latest = time.monotonic() + draw.choice([600, 600, 600, draw.uniform(0.2, 4)])
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
    return {record.asked["seed"] for record in records_of(folder / "journal")}


@pytest.mark.slow
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
    assert untimed(read_traces(tmp_path / "disturbed")) == untimed(
        read_traces(tmp_path / "undisturbed")
    )
    assert not list(tmp_path.glob(".*"))
    # Only what was in flight at a kill, in either stage, may have been answered twice.
    answered = sum(disturbed.finished.values())
    assert set(disturbed.finished) == set(undisturbed.finished)
    assert answered - len(disturbed.finished) <= kills * 2 * IN_FLIGHT
    # The account holds every answer, and what was in flight at a kill at the most it can have been.
    booked = balance(tmp_path)
    unanswered = booked.ended - answered
    assert booked.spent_tokens >= TOKENS * answered + MAX_TOKENS * unanswered
    assert booked.spent_tokens > TOKENS * booked.ended
    assert answered <= booked.ended <= PROBLEMS * (K + D) + kills * 2 * IN_FLIGHT


def test_a_replay_is_the_run_byte_for_byte_and_asks_nobody(tmp_path, run):
    def sometimes(body: dict[str, Any]) -> Any:
        draw = random.Random(request_of(body))
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
        assert "cannot be written" in stopped.stderr and "repeat the command" in stopped.stderr
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
        code, printed = broken_off(command, lambda: sum(bill.finished.values()) >= 60)
        assert code == 130 and "same command goes on" in " ".join(printed.split())
        # Whatever was sent was answered, and every answer is in the journal.
        assert sum(bill.finished.values()) == len(server.requests)
        assert len(journaled_seeds(tmp_path)) == len(server.requests)
        run(*command)
        assert len(server.requests) == 20 * (K + D)
    assert len(list(read_traces(tmp_path / "run"))) == 20


def test_a_resumed_run_that_is_interrupted_keeps_what_was_finished_before(tmp_path, call):
    up = False
    asked_again: Counter[bool] = Counter()

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
        assert broken_off(command, lambda: asked_again[True] >= 10)[0] == 130
    traces = list(read_traces(tmp_path / "run"))
    assert [trace.problem.id for trace in traces] == [f"p{n}" for n in range(60)]
    assert 0 < sum(trace.status == "ok" for trace in traces) < 60
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
        if not up and random.Random(request_of(body)).random() < 0.2:
            return 503, {"error": {"message": "busy"}}
        return completion("\\boxed{1}")

    def failures() -> list[Any]:
        return [t.failure for x in read_traces(tmp_path / "run") for t in x.pool if t.failure]

    with serving(sometimes) as server:
        command = arguments(server, tmp_path, "run", limit=10)
        run(*command)
        failed = failures()
        assert failed and set(failed) == {"overloaded"}
        up = True
        server.requests.clear()
        run(*command)
        # The new attempts change the caches, so the deliberations on them are new too.
        first_stage = [r for r in server.requests if "Attempt 1" not in r["messages"][0]["content"]]
        assert len(first_stage) == len(failed) and not failures()
        code, _, errors = call(*command)
        assert code == 2 and messages.is_in(errors, "holds_finished_run")


@pytest.mark.slow
def test_a_model_in_this_process_keeps_what_ended_in_a_batch_that_is_broken_off(tmp_path, run):
    samples = 16 * 64  # of all problems, in one batch
    folder = tmp_path / "run"
    kept: set[int] = set()

    def more() -> set[int]:
        return journaled_seeds(tmp_path) - kept

    command = ["generate", "--k=64", "--d=0", "--set=problems.size=16"]
    command += [f"--out={folder}", f"--journal={tmp_path / 'journal'}"]
    for signum, code in ((signal.SIGKILL, -9), (signal.SIGINT, 130)):
        assert broken_off(command, more, signum)[0] == code
        now = journaled_seeds(tmp_path)
        assert kept < now and len(now) < samples
        kept |= now
    finished = list(read_traces(folder)) if folder.exists() else []
    assert len(finished) < 16, "only problems whose samples had all ended are in it"
    assert all(t.failure is None for trace in finished for t in trace.pool)
    run(*command)
    assert len(records_of(tmp_path / "journal")) == len(journaled_seeds(tmp_path)) == samples
    assert len(list(read_traces(folder))) == 16


# Against a server that fails on purpose: no row is lost, and the bill adds up.
ROWS, POOL, ANSWERS = 30, 4, 2
PLAIN = "What is 1 + 1?"  # the test question of the circuit breaker
# Answered without a token, so that the bill is exact; the others are bounded, see test_ledger.
FREE_FAULTS = ["busy", "busy, wait", "starting", "broken"]
COSTLY_FAULTS = ["hang", "hang up", "no json", "no choices", "cut", "stall", "no end"]
LASTING = {"too long": "too_long", "no room": "context_overflow", "refused": "rejected"}


def faulty_run(server: FaultServer, folder: Path, *more: str, timeout_s: float = 60) -> list[str]:
    """A run that a busy machine does not time out, as what timed out is asked for again."""
    lengths = [f"--set={stage}.sampling.max_tokens=64" for stage in ("think", "deliberate")]
    return [
        *("generate", *served(server.base_url), f"--problems={remainders(folder, ROWS, 4)}"),
        *(f"--out={folder / 'run'}", f"--k={POOL}", f"--d={ANSWERS}", *lengths),
        *(f"--set=endpoint.timeout_s={timeout_s}", *more),
    ]


def ended(*words: str, code: int = 0) -> str:
    done = run_command(*words)
    printed = done.stdout + done.stderr
    assert done.returncode == code, printed
    return printed


def balance(folder: Path) -> Balance:
    (account,) = (folder / "journal").glob("*.ledger")
    return Ledger(account).balance


def failing(faults: list[str], lasting: list[str]) -> Any:
    """A plan: some first attempts fail, and a few requests always do."""

    def plan(body: Any, attempt: int) -> str | None:
        if body["messages"][0]["content"] == PLAIN:  # it shows that the server works
            return None
        draw = random.Random(request_of(body))
        if lasting and draw.random() < 0.08:
            return draw.choice(lasting)
        return draw.choice(faults) if attempt == 0 and draw.random() < 0.25 else None

    return plan


@pytest.mark.parametrize("faults", [FREE_FAULTS, FREE_FAULTS + COSTLY_FAULTS])
def test_no_row_is_lost_and_every_failure_has_its_kind(tmp_path, faults):
    plan = failing(faults, list(LASTING))
    with faulty(plan=plan, reasoning="reasoning") as server, fair_requests():
        hangs = faults != FREE_FAULTS
        done = run_command(*faulty_run(server, tmp_path, timeout_s=2 if hangs else 60))
        assert done.returncode in (0, 1), done.stdout + done.stderr
    traces = list(read_traces(tmp_path / "run"))
    assert [trace.problem.id for trace in traces] == [f"p{n}" for n in range(ROWS)]
    assert all(len(trace.pool) == POOL for trace in traces)
    samples = [s for trace in traces for s in [*trace.pool, *trace.deliberations]]
    failed = Counter(s.failure for s in samples if s.failure)
    lasting = Counter(
        LASTING[fault]
        for _, body in server.requests
        if (fault := server.plan(body, 1))  # what is left of it after the first attempt
    )
    assert failed == lasting and len(failed) == len(LASTING)
    answered = [s for s in samples if not s.failure]
    assert all(s.reasoning and s.answer_text for s in answered)

    counted = sum(s.prompt_tokens + s.completion_tokens for s in answered)
    booked = balance(tmp_path)
    assert (booked.in_flight, booked.reserved_tokens) == (0, 0)
    assert booked.ended == len(server.requests)
    if faults == FREE_FAULTS:
        of_plain = sum(read + written for read, written in server.bill if read == len(PLAIN))
        assert counted + of_plain == server.tokens == booked.spent_tokens
    else:  # what nobody counted is booked at the most that it can have been
        assert counted < booked.spent_tokens


def test_a_budget_holds_over_resumptions_and_nothing_is_paid_twice(tmp_path):
    with faulty(seconds=0.05) as server:
        small = faulty_run(server, tmp_path, "--budget=20ktok")
        # When it happens, in each of the two stages, and at the end.
        assert 1 <= ended(*small, code=1).count("The budget is used up") <= 3
        assert 10_000 < server.tokens <= 20_000
        assert balance(tmp_path).spent_tokens == server.tokens
        ended(*small, code=1)
        assert server.tokens <= 20_000
        ended(*faulty_run(server, tmp_path, "--budget=2Mtok"))
        asked = [request_of(body) for _, body in server.requests]
        assert len(asked) == len(set(asked)) == ROWS * (POOL + ANSWERS)
        assert balance(tmp_path).spent_tokens == server.tokens
    assert len(list(read_traces(tmp_path / "run"))) == ROWS


def test_more_samples_into_the_same_folder_go_on_with_its_account(tmp_path):
    def into(*more: str, code: int = 0) -> str:
        printed = ended(*faulty_run(server, tmp_path, "--limit=4", *more), code=code)
        return " ".join(printed.split())

    def files() -> dict[Path, int]:
        return {path: path.stat().st_ino for path in (tmp_path / "run").rglob("*")}

    with faulty() as server:
        into("--budget=1Mtok")
        spent, asked, before = server.tokens, len(server.requests), files()
        for change in (f"--k={POOL + 1}", "--seed=1", f"--d={ANSWERS + 1}"):
            printed = into(f"--budget={spent + 50}tok", change, code=1)
            assert f"have spent {spent:,} of {spent + 50:,} tokens; 50 are left" in printed
            assert "it is replaced at the end" in printed
            assert f"Now {tmp_path / 'run'} is unchanged" in printed
        assert len(server.requests) == asked and files() == before
        into("--budget=1Mtok", f"--k={POOL + 1}")
        assert balance(tmp_path).spent_tokens == server.tokens > spent
    assert {len(trace.pool) for trace in read_traces(tmp_path / "run")} == {POOL + 1}


def test_a_budget_needs_a_server(tmp_path):
    here = ("generate", "--budget=2usd", f"--out={tmp_path / 'run'}")
    assert "run in this process" in ended(*here, code=2)


def test_a_key_that_is_refused_in_mid_run_costs_nothing_that_is_paid(tmp_path):
    with faulty(seconds=1.0) as server:
        number = itertools.count(1)  # exactly one request is the 60th, whatever arrives beside it
        server.plan = lambda body, attempt: "bad key" if next(number) == 60 else None
        wanted = faulty_run(server, tmp_path)
        assert messages.is_in(ended(*wanted, code=2), "key_refused")
        answered = len(server.requests) - 1
        traces = read_traces(tmp_path / "run")
        kept = sum(len(trace.pool) + len(trace.deliberations) for trace in traces)
        assert 0 < kept <= answered < ROWS * (POOL + ANSWERS)
        server.plan = lambda body, attempt: None
        ended(*wanted)
        # What was in flight when it was refused was answered and kept: nothing is asked twice.
        assert len(server.requests) == ROWS * (POOL + ANSWERS) + 1
    assert len(list(read_traces(tmp_path / "run"))) == ROWS

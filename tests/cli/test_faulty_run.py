"""Whole runs against a server that fails on purpose: no row is lost, and the bill adds up."""

from __future__ import annotations

import json
import random
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from command_line import run_command
from fault_server import FaultServer, faulty

from heavydistill.models.ledger import Balance, Ledger
from heavydistill.store.traces import read_traces

MICRO = str(Path(__file__).parents[2] / "heavydistill" / "micro" / "teacher")
PROBLEMS, K, D = 30, 4, 2
# Answered without a token, so that the bill is exact; the others are bounded, see test_ledger.
FREE_FAULTS = ["busy", "busy, wait", "starting", "broken"]
COSTLY_FAULTS = ["hang", "hang up", "no json", "no choices", "cut", "stall", "no end"]
LASTING = {"too long": "too_long", "no room": "context_overflow", "refused": "rejected"}


def command(server: FaultServer, folder: Path, *more: str) -> list[str]:
    problems = folder / "problems.jsonl"
    rows = [
        {"id": f"p{n}", "text": f"{n} mod 4?", "reference": str(n % 4)} for n in range(PROBLEMS)
    ]
    problems.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return [
        *("generate", "--teacher=served", f"--endpoint={server.base_url}"),
        *(f"--tokenizer={MICRO}", f"--problems={problems}", f"--out={folder / 'run'}"),
        *(f"--k={K}", f"--d={D}", "--set=think.sampling.max_tokens=64"),
        *("--set=deliberate.sampling.max_tokens=64", "--set=endpoint.timeout_s=2", *more),
    ]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return run_command(*words)


def balance(folder: Path) -> Balance:
    (account,) = (folder / "journal").glob("*.ledger")
    return Ledger(account).balance


def sometimes(faults: list[str], lasting: list[str]) -> Any:
    """A plan: some first attempts fail, and a few requests always do."""

    def plan(body: Any, attempt: int) -> str | None:
        draw = random.Random(json.dumps([body["messages"], body["seed"]]))
        if lasting and draw.random() < 0.08:
            return draw.choice(lasting)
        return draw.choice(faults) if attempt == 0 and draw.random() < 0.25 else None

    return plan


@pytest.mark.parametrize("faults", [FREE_FAULTS, FREE_FAULTS + COSTLY_FAULTS])
def test_no_row_is_lost_and_every_failure_has_its_kind(tmp_path, faults):
    with faulty(plan=sometimes(faults, list(LASTING)), reasoning="reasoning") as server:
        done = run(*command(server, tmp_path))
        assert done.returncode in (0, 1), done.stdout + done.stderr
    traces = list(read_traces(tmp_path / "run"))
    assert [trace.problem.id for trace in traces] == [f"p{n}" for n in range(PROBLEMS)]
    assert all(len(trace.pool) == K for trace in traces)
    samples = [s for trace in traces for s in [*trace.pool, *trace.deliberations]]
    failed = Counter(s.failure for s in samples if s.failure)
    lasting = Counter(
        LASTING[fault]
        for _, body in server.requests
        if (fault := server.plan(body, 1))  # what is left of it after the first attempt
    )
    assert failed == lasting and len(failed) == len(LASTING)
    assert all(s.reasoning and s.answer_text for s in samples if not s.failure)

    answered = [s for s in samples if not s.failure]
    told = sum(s.prompt_tokens + s.completion_tokens for s in answered)
    booked = balance(tmp_path)
    assert (booked.in_flight, booked.reserved_tokens) == (0, 0)
    assert booked.ended == len(server.requests)
    if faults == FREE_FAULTS:
        assert told == server.tokens == booked.spent_tokens
    else:  # what nobody counted is booked at the most that it can have been
        assert told < booked.spent_tokens


def test_a_budget_holds_over_resumptions_and_nothing_is_paid_twice(tmp_path):
    with faulty(seconds=0.05) as server:
        small = command(server, tmp_path, "--budget=20ktok")
        stopped = run(*small)
        assert stopped.returncode == 1, stopped.stdout + stopped.stderr
        assert "budget does not hold another request" in stopped.stdout
        assert 10_000 < server.tokens <= 20_000
        assert balance(tmp_path).spent_tokens == server.tokens
        again = run(*small)
        assert again.returncode == 1
        assert server.tokens <= 20_000
        done = run(*command(server, tmp_path, "--budget=2Mtok"))
        assert done.returncode == 0, done.stdout + done.stderr
        asked = [json.dumps([body["messages"], body["seed"]]) for _, body in server.requests]
        assert len(asked) == len(set(asked)) == PROBLEMS * (K + D)
        assert balance(tmp_path).spent_tokens == server.tokens
    assert len(list(read_traces(tmp_path / "run"))) == PROBLEMS


def test_more_samples_into_the_same_folder_go_on_with_its_account(tmp_path):
    def into(*more: str) -> subprocess.CompletedProcess[str]:
        return run(*command(server, tmp_path, "--limit=4", *more))

    with faulty() as server:
        done = into("--budget=1Mtok")
        assert done.returncode == 0, done.stdout + done.stderr
        spent, asked = server.tokens, len(server.requests)
        before = {path: path.stat().st_ino for path in (tmp_path / "run").rglob("*")}
        for change in (f"--k={K + 1}", "--seed=1", f"--d={D + 1}"):
            stopped = into(f"--budget={spent + 50}tok", change)
            assert stopped.returncode == 1, stopped.stdout + stopped.stderr
            assert f"have spent {spent:,} of {spent + 50:,} tokens; 50 are left" in stopped.stdout
            assert "it is replaced when this one is whole" in stopped.stdout
            assert f"For now {tmp_path / 'run'} is as it was" in stopped.stdout
        assert len(server.requests) == asked
        assert {path: path.stat().st_ino for path in (tmp_path / "run").rglob("*")} == before
        more = into("--budget=1Mtok", f"--k={K + 1}")
        assert more.returncode == 0, more.stdout + more.stderr
        assert balance(tmp_path).spent_tokens == server.tokens > spent
    assert {len(trace.pool) for trace in read_traces(tmp_path / "run")} == {K + 1}


def test_a_budget_in_money_needs_a_price(tmp_path):
    with faulty() as server:
        refused = run(*command(server, tmp_path, "--budget=2usd"))
        assert refused.returncode == 2 and "--price-in" in refused.stderr
        assert not server.requests


def test_a_budget_for_a_model_in_this_process_is_refused(tmp_path):
    refused = run("generate", "--budget=2usd", f"--out={tmp_path / 'run'}")
    assert refused.returncode == 2 and "run in this process" in refused.stderr


def test_a_teacher_that_lost_its_thinking_ends_the_run_with_what_to_change(tmp_path):
    profile = tmp_path / "thinker.yaml"
    profile.write_text(
        f"name: served\ntokenizer: {MICRO}\ncontext: 2048\nthinking: {{tags: [<t>, </t>]}}\n"
    )
    with faulty(reasoning="none") as server:
        words = command(server, tmp_path, f"--teacher={profile}", "--set=endpoint.concurrency=2")
        stopped = run(*words)
        assert stopped.returncode == 2 and "--reasoning-parser" in stopped.stderr
        assert len(server.requests) <= 6
        server.reasoning = "reasoning"  # the server is set right, and all is asked again
        server.requests.clear()
        done = run(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        assert len(server.requests) == PROBLEMS * (K + D)


def test_a_key_that_is_refused_in_mid_run_costs_nothing_that_is_paid(tmp_path):
    with faulty(seconds=1.0) as server:
        server.plan = lambda body, attempt: "bad key" if len(server.requests) == 60 else None
        wanted = command(server, tmp_path)
        stopped = run(*wanted)
        assert stopped.returncode == 2 and "refuses the key" in stopped.stderr
        answered = len(server.requests) - 1
        kept = sum(
            len(trace.pool) + len(trace.deliberations) for trace in read_traces(tmp_path / "run")
        )
        assert 0 < kept <= answered < PROBLEMS * (K + D)
        server.plan = lambda body, attempt: None
        assert run(*wanted).returncode == 0
        # What was in flight when it was refused was answered and kept: nothing is asked twice.
        assert len(server.requests) == PROBLEMS * (K + D) + 1
    assert len(list(read_traces(tmp_path / "run"))) == PROBLEMS


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("broken", ["No server of served has answered for", "HTTP 500: Internal error"]),
        ("busy for", ["left alone for 86,400 s, longer than endpoint.timeout_s (2 s)", "HTTP 429"]),
    ],
)
def test_a_run_of_one_problem_stops_at_a_server_that_stays_away_and_goes_on_later(
    tmp_path, fault, says
):
    with faulty(retry_after="86400") as server:
        server.plan = lambda body, attempt: None if body["seed"] % 2 else fault
        stopped = run(*command(server, tmp_path, "--limit=1"))
        assert stopped.returncode == 1, stopped.stdout + stopped.stderr
        last = stopped.stdout.strip().splitlines()[-1]
        assert last.startswith("Stopped: ") and all(part in last for part in says)
        server.plan = lambda body, attempt: None
        done = run(*command(server, tmp_path, "--limit=1"))
        assert done.returncode == 0, done.stdout + done.stderr
        assert len(server.bill) == K + D

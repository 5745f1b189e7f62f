"""`generate --batch` against a batch API, killed at every step, and files for vllm run-batch."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from batch_server import BatchServer, batch_serving
from command_line import broken_off, run_command, served
from fault_server import faulty
from problem_files import remainders
from samples import untimed

from heavydistill.models.ledger import balance_of
from heavydistill.schema import Trace
from heavydistill.store.traces import read_traces

PROBLEMS, K, D = 6, 4, 2
ALL = PROBLEMS * (K + D)


def arguments(server: Any, folder: Path, run: str = "run", *more: str) -> list[str]:
    return [
        *("generate", *served(server.base_url), f"--problems={remainders(folder, PROBLEMS)}"),
        *(f"--out={folder / run}", f"--journal={folder / f'{run}-journal'}"),
        *(f"--k={K}", f"--d={D}", "--set=endpoint.context=8192", "--set=verify.timeout_s=60"),
        *("--set=think.sampling.max_tokens=1000", "--set=deliberate.sampling.max_tokens=1000"),
        *more,
    ]


def told(run: Path) -> list[Trace]:
    return untimed(read_traces(run))


def spent(folder: Path, run: str = "run") -> float:
    (account,) = (folder / f"{run}-journal").glob("run-*.ledger")
    return balance_of(account).spent_tokens


def left_behind(folder: Path, run: str = "run") -> list[Path]:
    return list((folder / f"{run}-journal").glob("*.batches"))


def test_rows_are_those_of_the_online_run_whatever_becomes_of_the_batches(tmp_path, caplog):
    # Lines that are foreign, doubled, torn and in another order; half of a batch expires.
    with batch_serving(ends=["faults", "expired"]) as server:
        more = ["--batch", "--set=endpoint.batch_requests=20"]
        done = run_command(*arguments(server, tmp_path, "run", *more))
        assert done.returncode == 0, done.stderr
        assert run_command(*arguments(server, tmp_path, "online")).returncode == 0
        twice = {key: times for key, times in server.billed.items() if times > 1}
        assert len(server.billed) == ALL and len(twice) == 1  # whose line was lost
        assert len(server.batches) > 3 and not server.files and not left_behind(tmp_path)
    for said in ("ids of other requests", "for the second time", "no answer", "(expired)"):
        assert said in caplog.text
    assert told(tmp_path / "run") == told(tmp_path / "online")
    again = ("replay", tmp_path / "run", f"--out={tmp_path / 'again'}")
    assert run_command(*again).returncode == 0
    assert told(tmp_path / "again") == told(tmp_path / "run")


@pytest.mark.slow
def test_a_run_that_is_killed_at_every_step_bills_nothing_twice(tmp_path):
    steps = ["POST files", "POST batches", "GET batches", "GET files/content", "DELETE files"]
    with batch_serving(loses={"POST batches"}) as server:
        command = arguments(server, tmp_path, "run", "--batch")
        for step in steps:
            server.stalls, server.calls_made = {step}, []
            broken_off(command, lambda step=step: server.stalled(step), signal.SIGKILL)
            assert not (tmp_path / "run").exists()
        (folder,) = left_behind(tmp_path)
        (state,) = folder.glob("*.json")  # as if killed while the answers are taken
        state.write_text(json.dumps({**json.loads(state.read_text()), "is_taken": False}))
        server.stalls = set()
        done = run_command(*command)
        assert done.returncode == 0, done.stderr
        assert len(server.billed) == ALL and set(server.billed.values()) == {1}
        assert len(server.batches) == 2 and not server.files and not left_behind(tmp_path)
        assert spent(tmp_path) == server.tokens


def test_no_wait_ends_at_once_and_the_same_command_goes_on(tmp_path):
    with batch_serving(ends=["open", "open"]) as server:
        command = arguments(server, tmp_path, "run", "--batch", "--no-wait")
        for _ in range(2):
            done = run_command(*command)
            assert done.returncode == 1 and "1 batch job with 24 requests" in done.stdout
        assert len(server.batches) == 1
        online = run_command(*arguments(server, tmp_path))
        assert online.returncode == 2 and "Add --batch" in online.stderr
        server.batches["batch_0"]["end"] = "completed"
        assert run_command(*command).returncode == 1  # the deliberations are sent
        server.batches["batch_1"]["end"] = "completed"
        assert run_command(*command).returncode == 0
        assert set(server.billed.values()) == {1} and len(server.batches) == 2


def test_failures_are_repeated_and_then_are_data(tmp_path):
    def plan(body: Any, attempt: int) -> str | None:
        bad = body["seed"] % 7
        return "refused" if bad == 0 else "broken" if bad == 1 and attempt < 2 else None

    with batch_serving(plan=plan) as server:
        done = run_command(*arguments(server, tmp_path, "run", "--batch"))
        assert done.returncode == 0, done.stdout + done.stderr
        lost = [t.failure for trace in read_traces(tmp_path / "run") for t in trace.pool]
        assert lost.count("rejected") > 0 and {*lost} == {None, "rejected"}
        # Refused requests are not repeated, the others twice.
        assert max(server._attempts.values()) == 3


@pytest.mark.parametrize(
    ("fault", "said"), [("no money", "no credit left"), ("refused", "All 24 requests")]
)
def test_a_fault_of_all_requests_stops_the_run_once(tmp_path, fault, said):
    faults = [fault]
    with batch_serving(plan=lambda body, attempt: next(iter(faults), None)) as server:
        command = arguments(server, tmp_path, "run.1", "--batch")
        stopped = run_command(*command)
        assert stopped.returncode and said in " ".join((stopped.stdout + stopped.stderr).split())
        faults.clear()
        again = run_command(*command)  # refused requests are data then
        assert again.returncode == (fault == "refused"), again.stderr
        assert not server.files and not left_behind(tmp_path, "run.1")


@pytest.mark.parametrize(
    ("end", "said"),
    [("failed", "Enqueued token limit"), ("cancelled", "was cancelled; 12 of its 24 requests")],
)
def test_a_batch_that_ends_as_a_whole_is_said_and_can_be_repeated(tmp_path, end, said):
    with batch_serving(ends=[end]) as server:
        command = arguments(server, tmp_path, "run", "--batch")
        done = run_command(*command)
        assert done.returncode in (1, 2)
        assert said in " ".join((done.stdout + done.stderr).split())
        assert not server.files
        assert run_command(*command).returncode == 0
        assert set(server.billed.values()) == {1}


def test_the_budget_counts_half_of_the_price_and_divides_a_batch(tmp_path):
    prices = ["--batch", "--price-in=10", "--price-out=1000"]
    with batch_serving() as server:
        plan = run_command(*arguments(server, tmp_path, "run", *prices, "--dry-run"))
        assert "5 USD per million prompt tokens, 500 per million" in " ".join(plan.stdout.split())
        assert "to 48.00" in plan.stdout
        # Each request can cost 0.5 USD, and costs far less.
        done = run_command(*arguments(server, tmp_path, "run", *prices, "--budget=6usd"))
        assert done.returncode == 0, done.stderr
        assert len(server.batches) > 3 and set(server.billed.values()) == {1}
        short = run_command(*arguments(server, tmp_path, "short", *prices, "--budget=0.1usd"))
        assert short.returncode == 1 and "budget is used up" in short.stdout


def answer(command: str, server: BatchServer) -> None:
    """What ``vllm run-batch`` does with its input and output file."""
    words = command.split()
    asked, output = (Path(words[words.index(flag) + 1]) for flag in ("-i", "-o"))
    lines = []
    for line in map(json.loads, asked.read_text().splitlines()):
        thought, text = server.text_of(line["body"], 0)
        message = {"role": "assistant", "content": text, "reasoning_content": thought}
        body = {"id": "r", "choices": [{"index": 0, "finish_reason": "stop", "message": message}]}
        lines.append({"id": "vllm-1", "custom_id": line["custom_id"], "error": None})
        lines[-1]["response"] = {"status_code": 200, "request_id": "vllm-2", "body": body}
    output.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def test_files_for_vllm_run_batch_are_written_and_their_answers_taken_back(tmp_path):
    with faulty(usage="never") as server:
        command = arguments(server, tmp_path, "run", "--no-wait", f"--batch-files={tmp_path}/io")
        command = [word for word in command if not word.startswith("--endpoint=")]
        for _ in range(2):
            done = run_command(*command)
            assert done.returncode == 1, done.stderr
            said = "".join(done.stdout.replace("\n", " "))
            order = said.partition("the GPUs are: ")[2].partition(" Give the")[0]
            assert order.startswith("vllm run-batch -i") and order.endswith("--model served")
            answer(order, server)
        done = run_command(*command)
        assert done.returncode == 0, done.stderr
        assert not list((tmp_path / "io").iterdir()) and not left_behind(tmp_path)
        assert run_command(*arguments(server, tmp_path, "online")).returncode == 0
    assert told(tmp_path / "run") == told(tmp_path / "online")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--batch", "--endpoint={url}"], "has no batch API"),
        (["--batch", "--endpoint={url}", "--teacher=other"], "serve 'other'"),
        (["--batch"], "the model runs in this process"),
        (["--batch", "--start-vllm"], "without a batch API"),
        (["--batch", "--endpoint={url},{url}"], "there are several"),
        (["--batch-files=io", "--endpoint={url}"], "Give batch_files alone"),
        (["--batch-files=io", "--processes=2"], "not divided into shards"),
        (["--no-wait"], "no model is asked in batches"),
    ],
)
def test_what_cannot_be_batched_is_said_before_anything_is_sent(tmp_path, words, said):
    with batch_serving(lacks=True) as server:
        words = [word.format(url=server.base_url) for word in words]
        more = () if "--teacher=other" in words else ("--teacher=served",)
        more = () if words == ["--no-wait"] else more
        done = run_command("generate", "--limit=2", *words, *more, cwd=tmp_path)
        assert done.returncode == 2, done.stdout
        assert said in " ".join(done.stderr.split())
        assert not server.requests and not server.calls_made
        assert not list(tmp_path.rglob("*.segment"))

"""``heavydistill generate --start-vllm`` as a user runs it, with a ``vllm`` that needs no GPU."""

import json
import os
import signal
import subprocess
import uuid
from pathlib import Path

import fake_vllm
import marked
import messages
import pytest
import yaml
from command_line import MICRO, records_of, started
from import_files import lines
from marked import MARK, eventually

from heavydistill.store.traces import read_traces

PROFILE = f"""
name: mine
hub: org/mine
tokenizer: {MICRO}
context: 8192
output: 300
thinking: {{tags: [<think>, </think>], parser: deepseek_r1}}
vllm:
  flags: {{max-num-seqs: 16, trust-remote-code: ""}}
  gpus:
    1: null
    2: {{model: org/mine-fp8, tensor_parallel: 2, max_model_len: 2000}}
    4: null
    8: null
  why_null: it was made for two
"""
_LATEST_S = 300.0


class Machine:
    """Three GPUs, a profile for two of them, and processes that carry a mark."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin, self.out = folder / "bin", folder / "runs" / "one"
        self.log = folder / "runs" / "one.vllm.log"
        self.mark = uuid.uuid4().hex
        found = {name: value for name, value in os.environ.items() if name != "FAKE_VLLM"}
        self.environment = {
            **found,
            **fake_vllm.install(self.bin, gpus=3),
            MARK: self.mark,
            "http_proxy": "http://127.0.0.1:9",  # nothing is there
        }
        rows = ({"text": f"What is {n} + 1?", "reference": f"{n + 1}"} for n in range(4))
        lines(folder / "p.jsonl", *rows)
        (folder / "mine.yaml").write_text(PROFILE, encoding="utf-8")

    def start(self, how: str = "", *flags: str) -> subprocess.Popen[str]:
        """The run, with a server that goes wrong as ``fake_vllm`` says."""
        return started(
            *("generate", f"--teacher={self.folder}/mine.yaml", "--start-vllm"),
            *(f"--problems={self.folder}/p.jsonl", f"--out={self.out}", "--k=3", "--d=2"),
            *("--set=endpoint.retries=0", *flags),
            env={**self.environment, "FAKE_VLLM": how},
        )

    def run(self, how: str = "", *flags: str) -> tuple[int, str]:
        """(exit code, all that was printed); nothing of it is left."""
        process = self.start(how, *flags)
        printed, _ = process.communicate(timeout=_LATEST_S)
        assert not self.alive()
        return process.returncode, printed

    def asked(self) -> int:
        return len(fake_vllm.asked(self.bin))

    def kill(self) -> None:
        """What a test that failed has left."""
        for pid in self.alive():
            os.kill(pid, signal.SIGKILL)

    def alive(self) -> list[int]:
        return marked.alive(self.mark)


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path)
    yield machine
    machine.kill()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    machine = Machine(tmp_path_factory.mktemp("served"))
    code, printed = machine.run()
    assert code == 0, printed
    return machine, printed


def test_the_server_has_the_flags_of_the_profile(served):
    machine, printed = served
    given = json.loads((machine.bin / "arguments.json").read_text())
    assert given[:-1] == [
        *("serve", "org/mine-fp8", "--served-model-name", "org/mine"),
        *("--reasoning-parser", "deepseek_r1", "--tensor-parallel-size", "2"),
        *("--gpu-memory-utilization", "0.9", "--max-model-len", "2000"),
        *("--generation-config", "vllm", "--enable-prompt-tokens-details"),
        *("--stream-interval", "16"),
        *("--max-num-seqs", "16", "--trust-remote-code", "--host", "127.0.0.1", "--port"),
    ]
    shown = " ".join(printed.replace("\\\n", "").split())
    assert " ".join(given[:4]) in shown and str(machine.log) in printed
    assert fake_vllm.gpus_listed(machine.bin) == 1
    log = machine.log.read_text().splitlines()
    assert log[0].endswith(" ".join(given[-4:])) and log[-1] == "Application startup complete."
    assert "Loading safetensors checkpoint shards: 80%" in log
    # The saved configuration serves again and has the context of the server.
    saved = yaml.safe_load((machine.out / "config.yaml").read_text())
    assert saved["endpoint"]["start_vllm"] is True and saved["endpoint"]["base_url"] is None
    assert saved["endpoint"]["context"] == 2000
    assert saved["cache"]["budget_tokens"] == 2000 - 300 - 64


def test_both_stages_ask_it_and_it_alone(served):
    requests = fake_vllm.asked(served[0].bin)
    texts = [request["messages"][0]["content"] for request in requests]
    assert sum("==== Attempt" not in text for text in texts) == 4 * 3
    assert sum("==== Attempt" in text for text in texts) == 4 * 2
    assert len({request["pid"] for request in requests}) == 1
    assert {request["model"] for request in requests} == {"org/mine"}
    traces = list(read_traces(served[0].out))
    assert [trace.status for trace in traces] == ["ok"] * 4
    assert {t.reasoning for trace in traces for t in trace.pool} == {"one and one"}


def test_a_replay_needs_neither_gpu_nor_vllm(served):
    machine = served[0]
    again = machine.folder / "runs" / "again"
    environment = {**machine.environment, "PATH": "/nowhere"}
    process = started("replay", machine.out, f"--out={again}", env=environment)
    printed, _ = process.communicate(timeout=_LATEST_S)
    assert process.returncode == 0, printed
    assert list(read_traces(again)) == list(read_traces(machine.out))


def test_a_server_that_cannot_start_is_told_with_its_log_and_what_mends_it(machine):
    code, printed = machine.run("dies")
    assert code == 2 and "Traceback" not in printed
    assert "vLLM ended with code 1 before it was ready. There is too little" in printed
    assert "--set endpoint.context=N" in printed and str(machine.log) in printed
    assert printed.rstrip().endswith("says:\nValueError: No available memory for the cache blocks.")
    assert not machine.out.exists()


def test_a_run_that_fails_stops_the_server(machine):
    code, printed = machine.run("other")
    assert (
        code == 2
        and messages.is_in(printed, "model_not_served", model="org/mine")
        and not machine.asked()
    )


@pytest.mark.slow
def test_a_server_that_dies_ends_the_run_and_the_same_command_goes_on(machine):
    # One at a time: whoever asks the sixth time has got the answers before it.
    code, printed = machine.run("ends:5", "--set=endpoint.concurrency=1")
    assert code == 1 and "Traceback" not in printed
    assert "vLLM was ended by signal 9, as the system does if memory is short" in printed
    assert f"{machine.log} and ends with:\n" in printed and not machine.out.exists()
    before = machine.asked()
    code, printed = machine.run()
    assert code == 0, printed
    assert before >= 6 and machine.asked() - before < 4 * (3 + 2)
    assert len(list(read_traces(machine.out))) == 4


@pytest.mark.parametrize(("when", "whom"), [("stays", "group"), ("hangs", "process")])
def test_nothing_outlives_a_run_that_is_killed(machine, when, whom):
    run = machine.start(when)
    ready = machine.asked if when == "hangs" else machine.log.exists
    assert eventually(ready, _LATEST_S) and eventually(lambda: len(machine.alive()) >= 4, _LATEST_S)
    (os.killpg if whom == "group" else os.kill)(run.pid, signal.SIGKILL)
    assert eventually(lambda: not machine.alive(), _LATEST_S), machine.alive()
    run.communicate()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_run_can_be_interrupted_while_the_server_loads(machine, signum):
    run = machine.start("stays")
    log = machine.log
    assert eventually(lambda: log.exists() and "40%" in log.read_text(), _LATEST_S)
    os.killpg(run.pid, signum)  # as a terminal does
    printed, _ = run.communicate(timeout=_LATEST_S)
    assert eventually(lambda: not machine.alive(), _LATEST_S), machine.alive()
    if signum is signal.SIGINT:
        assert run.returncode == 130 and "one was not written" in " ".join(printed.split())


@pytest.mark.slow
def test_an_interrupted_run_keeps_the_server_until_it_has_what_is_paid(machine):
    """The terminal sends Ctrl-C to all its processes; the server must not hear it."""
    run = machine.start("slow")
    assert eventually(machine.asked, _LATEST_S)
    os.killpg(run.pid, signal.SIGINT)
    printed, _ = run.communicate(timeout=_LATEST_S)
    assert run.returncode == 130 and not machine.alive(), printed
    kept = {each.asked["seed"] for each in records_of(machine.out.parent / "journal")}
    assert {request["seed"] for request in fake_vllm.asked(machine.bin)} == kept

"""The service with many conversations in flight, beside optillm on the same models.

    python benchmarks/load.py                                       # 256 conversations, 5 minutes
    python benchmarks/load.py --optillm VENV/bin/optillm            # moa and self_consistency too
    python benchmarks/load.py --seconds 3 --conversations 8         # seconds

The models are ``stub_server.py``: drawn response times, 60 tokens a response. The service runs as
a user starts it and records its answers. A conversation asks ``heavy`` three questions, one after
the other, and then the next one begins. Each answer takes five calls: K=4 and one deliberation; the
three candidates, the critique and the answer of moa; the five samples of self_consistency. Prints
for each: answers, errors, seconds of an answer and of its first content (medians and 99th
percentiles), calls and completion tokens an answer, as the models count them, and processor time.

The program fails if the service answers with an error or without a deliberation, if an answer has
no row, or if its resident memory grows: from the second fifth of the time to the last one by more
than 5 % (means over samples of each second; not checked in less than a minute).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from stub_server import MODEL, TOKENS, Server, problem, serving

from heavydistill.store.traces import count_rows

ROOT = Path(__file__).parents[1]
COMMAND = "from heavydistill.cli.app import main; main()"
K, TURNS = 4, 3
_GROWTH = 1.05
_SHORTEST_S = 60.0  # for a statement on memory
_START_S = 180.0
_TICKS, _PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGESIZE")


@dataclass
class Measured:
    """What the clients of one contestant saw."""

    seconds: list[float] = field(default_factory=list)  # of each answer
    first: list[float] = field(default_factory=list)  # to its first content
    errors: Counter[str] = field(default_factory=Counter)
    resident: list[float] = field(default_factory=list)  # MiB of the process, each second
    cpu_s: float = 0.0  # of the process
    samples: int = 0  # that the models were asked for

    def line(self, name: str) -> str:
        """The row of a table."""
        answers = len(self.seconds)
        if not answers:
            return f"{name:<18} no answer; {dict(self.errors)}"
        shares = [*_percentiles(self.seconds), *_percentiles(self.first)]
        calls = self.samples / (answers + self.errors.total())
        numbers = f"{answers:7} {self.errors.total():6}" + "".join(f"{s:9.2f}" for s in shares)
        return f"{name:<18}{numbers}{calls:7.2f}{calls * TOKENS:8.0f}{self.cpu_s:8.0f}"

    @property
    def growth(self) -> float:
        """Resident memory of the last fifth of the time, as a multiple of the second fifth's."""
        fifth = len(self.resident) // 5
        before, after = self.resident[fifth : 2 * fifth], self.resident[-fifth:]
        return statistics.mean(after) / statistics.mean(before)


def _percentiles(values: list[float]) -> tuple[float, float]:
    ordered = sorted(values)
    return statistics.median(ordered), ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]


@contextlib.contextmanager
def started(command: list[str], address: str | None = None) -> Iterator[tuple[str, int]]:
    """A server until the block ends: (its base address, its process).

    The address is found in what the service prints, unless it is given. What a server prints is
    thrown away, unless it does not start.
    """
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "OPENAI_API_KEY": "none"}
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, env=env, stdout=said, stderr=subprocess.STDOUT)
        try:
            latest = time.monotonic() + _START_S
            while not (ready := _ready(said, address)):
                if process.poll() is not None or time.monotonic() > latest:
                    said.seek(0)
                    sys.exit(f"{command[0]} did not start:\n{said.read()}")
                time.sleep(0.2)
            yield ready, process.pid
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def _ready(said: Any, address: str | None) -> str:
    """The address of a server whose health is good; empty if it is not."""
    said.seek(0)
    printed = re.search(r"http://127\S+/v1", said.read())
    if not (found := address or (printed and printed[0])):
        return ""
    with contextlib.suppress(OSError):  # HTTP 503 too
        urllib.request.urlopen(f"{found.removesuffix('/v1')}/health", timeout=5).close()
        return found
    return ""


def service(models: str, out: Path, conversations: int) -> list[str]:
    """The command of the service."""
    teacher = ROOT / "heavydistill" / "micro" / "teacher"
    keys = [f"endpoint.concurrency={(K + 1) * conversations}", "endpoint.context=8192"]
    keys += [f"serve.max_requests={conversations}"]
    flags = ["--teacher", MODEL, "--endpoint", models, "--tokenizer", str(teacher)]
    flags += ["--k", str(K), "--port", "0", "--out", str(out)]
    flags += [part for key in keys for part in ("--set", key)]
    return [sys.executable, "-c", COMMAND, "serve", *flags]


def optillm(program: str, models: str) -> tuple[list[str], str]:
    """(command of optillm, its base address)."""
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [program, "--base-url", models, "--port", str(port), "--log", "error"]
    return words, f"http://127.0.0.1:{port}/v1"


async def ask(
    session: aiohttp.ClientSession, address: str, body: dict[str, Any], into: Measured
) -> str:
    """Ask for a streamed answer and note how it came; returns its text, empty after an error."""
    begun, first, text, error, path = time.monotonic(), 0.0, "", "", "deliberated"
    try:
        async with session.post(f"{address}/chat/completions", json=body) as reply:
            error = "" if reply.ok else f"HTTP {reply.status}"
            async for line in reply.content:
                if error or not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                error = (event.get("error") or {}).get("code", "")
                path = (event.get("heavy") or {}).get("path", path)
                for choice in event.get("choices", ()):
                    text += choice["delta"].get("content") or ""
                first = first or (text and time.monotonic())
    except (aiohttp.ClientError, TimeoutError, OSError) as fault:
        error = type(fault).__name__
    if error or not text or path != "deliberated":
        into.errors[error or (path if text else "no content")] += 1
        return ""
    into.seconds.append(time.monotonic() - begun)
    into.first.append(first - begun)
    return text


async def load(address: str, pid: int, model: str, chosen: argparse.Namespace) -> Measured:
    """Keep so many conversations in flight for so long, and await their last answers."""
    measured, numbers = Measured(), itertools.count()
    until = time.monotonic() + chosen.seconds
    connector, patience = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(
        connector=connector, timeout=patience, read_bufsize=2**20
    ) as session:

        async def converse() -> None:
            while time.monotonic() < until:
                messages: list[dict[str, str]] = []
                for _ in range(TURNS):
                    messages.append({"role": "user", "content": problem(next(numbers))})
                    body = {"model": model, "messages": messages, "stream": True}
                    text = await ask(session, address, body, measured)
                    messages.append({"role": "assistant", "content": text})
                    if not text or time.monotonic() >= until:
                        break

        async def watch() -> None:
            while time.monotonic() < until:
                await asyncio.sleep(1)
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                measured.resident.append(pages * _PAGE / 2**20)

        before = cpu_s(pid)
        await asyncio.gather(watch(), *(converse() for _ in range(chosen.conversations)))
        measured.cpu_s = cpu_s(pid) - before
    return measured


def cpu_s(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def ours(server: Server, chosen: argparse.Namespace) -> Iterator[str]:
    """Load the service and print; yields what is not as promised."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "served"
        with started(service(server.url("ours"), out, chosen.conversations)) as (address, pid):
            measured = asyncio.run(load(address, pid, "heavy", chosen))
        measured.samples = server.taken("ours")[0]
        print(measured.line("heavydistill heavy"), flush=True)
        answers, rows = len(measured.seconds), count_rows(out / "traces")
    if measured.errors:
        yield f"errors: {dict(measured.errors)}"
    if rows != answers:
        yield f"{answers} answers have {rows} rows"
    if not chosen.seconds < _SHORTEST_S:
        resident, growth = measured.resident, measured.growth
        print(f"  resident memory {min(resident):.0f} to {max(resident):.0f} MiB, x {growth:.3f}")
        if growth > _GROWTH:
            yield f"resident memory grew to {growth:.3f} times"


def beside(server: Server, chosen: argparse.Namespace) -> None:
    """Load optillm and print."""
    for approach in ("moa", "self_consistency"):
        command, at = optillm(chosen.optillm, server.url(approach))
        with started(command, at) as (address, pid):
            measured = asyncio.run(load(address, pid, f"{approach}-{MODEL}", chosen))
        measured.samples = server.taken(approach)[0]
        print(measured.line(f"optillm {approach}"), flush=True)
        if measured.errors:
            print(f"  errors: {dict(measured.errors)}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--conversations", type=int, default=256)
    parser.add_argument("--mean-s", type=float, default=4.0, help="mean time of a response")
    parser.add_argument("--chunks", type=int, default=20, help="pieces of a response")
    parser.add_argument("--optillm", metavar="PROGRAM", help="the program of its environment")
    chosen = parser.parse_args()
    seconds = "".join(f"{name:>9}" for name in ("p50 s", "p99 s", "first 50", "first 99"))
    print(f"{'':<18}answers errors{seconds}{'calls':>7}{'tokens':>8}{'CPU s':>8}")
    with serving(chosen.mean_s, chosen.chunks) as server:
        faults = list(ours(server, chosen))
        if chosen.optillm:
            beside(server, chosen)
    if faults:
        sys.exit(f"Not as promised: {'; '.join(faults)}")


if __name__ == "__main__":
    main()

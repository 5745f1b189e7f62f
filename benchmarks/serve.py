"""Processor time of the service for a heavy request, and how soon its answer begins.

    python benchmarks/serve.py

A process of its own holds the models, which stream ``--pieces`` pieces for each of nine calls, and
the clients. Only the process of the service is measured, and beside it nine streams, eight at once
and then one, that a loop around aiohttp reads line by line as JSON, in the same run. Prints
milliseconds of processor time a request, their ratio, and the time from the end of the last attempt
to the first content, with one request at a time and with ``--clients`` at once; medians of
``--rounds`` turns.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import statistics
import time
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from heavydistill.config.serve import ServeConfig
from heavydistill.config.yaml import load
from heavydistill.models.http.transport import submit
from heavydistill.serve.app import Site
from heavydistill.serve.service import Service

K = 8
MICRO = Path(__file__).parents[1] / "heavydistill" / "micro" / "teacher"
_PAUSE_S = 0.002  # between the pieces of a stream


def _event(**body: Any) -> bytes:
    return b"data: " + json.dumps({"id": "1", "model": "stub", **body}).encode() + b"\n\n"


class _Outside:
    """The models and the clients, in a process of their own."""

    def __init__(self, pieces: int) -> None:
        self._pieces = pieces
        self.ended: dict[str, float] = {}  # when the last attempt at a question ended

    async def complete(self, http: web.Request) -> web.StreamResponse:
        """One call of a model."""
        text = (await http.json())["messages"][-1]["content"]
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(http)
        delta = {"index": 0, "delta": {"content": "word "}, "finish_reason": None}
        for _ in range(self._pieces):
            await response.write(_event(choices=[delta]))
            await asyncio.sleep(_PAUSE_S)
        usage = {"prompt_tokens": len(text), "completion_tokens": self._pieces}
        end = {"index": 0, "delta": {}, "finish_reason": "stop"}
        await response.write(_event(choices=[end], usage=usage) + b"data: [DONE]\n\n")
        if "Attempt 1" not in text:
            self.ended[text.partition("question ")[2].split()[0]] = time.monotonic()
        return response

    async def ask(self, address: str, question: str) -> float:
        """Seconds from the end of the last attempt to the first content."""
        turn = {"role": "user", "content": f"question {question} ?"}
        body = {"model": "heavy", "messages": [turn], "stream": True}
        first = 0.0
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{address}/chat/completions", json=body) as reply,
        ):
            async for line in reply.content:
                if line.startswith(b"data: {"):
                    choices = json.loads(line[6:]).get("choices")
                    if not first and choices and choices[0]["delta"].get("content"):
                        first = time.monotonic()
        assert first, "no answer came"
        return first - self.ended[question]


def _outside(pipe: Any, pieces: int) -> None:
    async def run() -> None:
        outside, loop = _Outside(pieces), asyncio.get_running_loop()
        app = web.Application()
        app.router.add_post("/v1/chat/completions", outside.complete)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        pipe.send(f"http://127.0.0.1:{runner.addresses[0][1]}/v1")
        number = 0
        while True:
            address, requests, at_once = await loop.run_in_executor(None, pipe.recv)
            waits: list[float] = []
            while len(waits) < requests:
                names = [str(number + each) for each in range(at_once)]
                number += at_once
                waits += await asyncio.gather(*(outside.ask(address, name) for name in names))
            pipe.send(waits)

    asyncio.run(run())


async def _bare(models: str, requests: int) -> None:
    """Nine streams for each request, read line by line: eight at once, and then one."""
    body = {"model": "stub", "messages": [{"role": "user", "content": "question x ?"}]}
    async with aiohttp.ClientSession() as session:

        async def read() -> None:
            async with session.post(f"{models}/chat/completions", json=body) as reply:
                async for line in reply.content:
                    if line.startswith(b"data: {"):
                        json.loads(line[6:])

        for _ in range(requests):
            await asyncio.gather(*(read() for _ in range(K)))
            await read()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=32, help="requests of a turn")
    parser.add_argument("--clients", type=int, default=16, help="requests at once")
    parser.add_argument("--pieces", type=int, default=60, help="pieces of a response")
    chosen = parser.parse_args()
    here, there = multiprocessing.Pipe()
    outside = multiprocessing.get_context("spawn").Process(
        target=_outside, args=(there, chosen.pieces), daemon=True
    )
    outside.start()
    models = here.recv()
    keys: dict[str, object] = {"teacher": "stub", "endpoint.base_url": models, "think.k": K}
    keys |= {"endpoint.tokenizer": str(MICRO), "endpoint.context": 8192, "serve.port": 0}
    keys |= {"endpoint.concurrency": (K + 1) * chosen.clients}
    service = Service(load(ServeConfig, None, keys))
    rows: list[tuple[float, ...]] = []
    with contextlib.closing(service), Site(service).listening() as address:
        service.load()

        def asked(at_once: int) -> tuple[float, list[float]]:
            began = time.process_time()
            here.send((address, chosen.requests, at_once))
            waits = here.recv()
            return 1000 * (time.process_time() - began) / chosen.requests, waits

        asked(1)
        for _ in range(chosen.rounds):
            began = time.process_time()
            submit(_bare(models, chosen.requests)).result()
            bare = 1000 * (time.process_time() - began) / chosen.requests
            (alone, first), (busy, later) = asked(1), asked(chosen.clients)
            waits = [1000 * statistics.median(each) for each in (first, later)]
            rows.append((bare, alone, alone / bare, busy, busy / bare, *waits))
    outside.kill()
    names = ("nine streams, bare", "a request", "ratio", "one of many", "ratio")
    names += ("first content after ms", "the same, of many")
    for name, values in zip(names, zip(*rows, strict=True), strict=True):
        print(f"{name:<24} {statistics.median(values):8.2f}")


if __name__ == "__main__":
    main()

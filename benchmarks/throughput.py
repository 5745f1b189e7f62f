"""How long requests take through the pipeline, beside a bare client and stock distilabel.

    python benchmarks/throughput.py --problems 2000 --stock

A server in a process of its own answers each request after a lognormal time, the same for the
same request, so everyone does the same work. In one run, one after the other:

- ideal: the sum of all latencies over the number of slots;
- bare: an asyncio loop around the openai client;
- ours: ``SampleTrajectories`` in a ``HeavyPipeline``, with the journal on;
- ours again: the same with the journal full, which asks for nothing;
- stock (``--stock``): distilabel's own ``OpenAILLM`` and ``TextGeneration``, batches of 50.

Prints seconds, the ratio to the bare client, and the most memory that any process of ours took.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import random
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

MEAN_S, SIGMA = 0.3, 1.2
MODEL = "stub"


def latency(text: str) -> float:
    """Seconds that a request with this content takes: lognormal with mean ``MEAN_S``."""
    return random.Random(text).lognormvariate(0.0, SIGMA) * MEAN_S / 2.718281828 ** (SIGMA**2 / 2)


def serve(port: Any) -> None:
    """A server that answers any request, however many there are; ``port`` is told where it is."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            fields = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:-2])
            body = await reader.readexactly(int(fields.get(b"content-length", 0)))
            reply = await completion(json.loads(body)) if body else listing
            data = json.dumps(reply).encode()
            head = (
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            )
            writer.write(head % len(data) + data)
            await writer.drain()

    async def guarded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await answer(reader, writer)
        writer.close()

    listing = {"object": "list", "data": [{"id": MODEL, "object": "model"}]}

    async def completion(body: dict[str, Any]) -> dict[str, Any]:
        samples = body.get("n") or 1
        content = json.dumps([body["messages"], body.get("seed")])
        # A request for several samples takes as long as the slowest of them.
        await asyncio.sleep(max(latency(f"{content}{index}") for index in range(samples)))
        message = {"role": "assistant", "content": "so \\boxed{1}", "reasoning_content": "x" * 200}
        return {
            "id": "r",
            "object": "chat.completion",
            "created": 0,
            "model": MODEL,
            "choices": [
                {"index": i, "finish_reason": "stop", "message": message} for i in range(samples)
            ],
            "usage": {"prompt_tokens": 10, "completion_tokens": 60, "total_tokens": 70},
        }

    async def start() -> None:
        server = await asyncio.start_server(guarded, "127.0.0.1", 0, backlog=1024)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(start())


def bare(url: str, prompts: list[str], k: int, slots: int) -> None:
    """One request a sample, ``slots`` at a time."""
    from openai import AsyncOpenAI

    async def ask() -> None:
        gate = asyncio.Semaphore(slots)
        async with AsyncOpenAI(base_url=url, api_key="none", timeout=600) as client:

            async def one(prompt: str, index: int) -> None:
                async with gate:
                    await client.chat.completions.create(
                        model=MODEL, messages=[{"role": "user", "content": prompt}], seed=index
                    )

            await asyncio.gather(*(one(p, i) for p in prompts for i in range(k)))

    asyncio.run(ask())


def ours(url: str, problems: Path, k: int, slots: int, journal: Path) -> None:
    """The thinking half of a run."""
    from heavydistill.config import Endpoint, Problems, Sampling
    from heavydistill.pipeline.build import Pace
    from heavydistill.pipeline.compat import HeavyPipeline
    from heavydistill.pipeline.llm import HeavyLLM
    from heavydistill.pipeline.steps import LabelTraces, LoadProblems
    from heavydistill.pipeline.tasks import SampleTrajectories
    from heavydistill.schema import Trace, arrow_schema
    from heavydistill.teachers.registry import find

    endpoint = Endpoint(base_url=url, concurrency=slots, tokenizer="none")
    pace = Pace.of(find(MODEL, endpoint), k, slots)
    llm = HeavyLLM(
        teacher=MODEL, sampling=Sampling(max_tokens=64), endpoint=endpoint, journal=str(journal)
    )
    with HeavyPipeline("throughput", arrow_schema(Trace), window=2 * pace.rows) as pipeline:
        load = LoadProblems(source=Problems(source=str(problems)), batch_size=16)
        think = SampleTrajectories(
            llm=llm,
            num_generations=k,
            input_batch_size=pace.batch,
            batches_in_flight=pace.in_flight,
        )
        load >> think >> LabelTraces(input_batch_size=pace.batch)
    assert len(pipeline.run()["default"]["train"]) == sum(1 for _ in problems.open())
    pipeline.discard()


def stock(url: str, prompts: list[str], k: int) -> None:
    """distilabel as it comes."""
    from distilabel.models import OpenAILLM
    from distilabel.pipeline import Pipeline
    from distilabel.steps import LoadDataFromDicts
    from distilabel.steps.tasks import TextGeneration

    with tempfile.TemporaryDirectory() as cache, Pipeline("stock", cache_dir=cache) as pipeline:
        load = LoadDataFromDicts(data=[{"instruction": p} for p in prompts], batch_size=50)
        llm = OpenAILLM(model=MODEL, base_url=url, api_key="none", timeout=600)
        load >> TextGeneration(llm=llm, num_generations=k, input_batch_size=50)
        pipeline.run(use_cache=False)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", type=int, default=500)
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--slots", type=int, default=64, help="requests in flight")
    parser.add_argument("--stock", action="store_true", help="run stock distilabel too; slow")
    chosen = parser.parse_args()
    prompts = [f"What is {n} + {n}?" for n in range(chosen.problems)]
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    server = context.Process(target=serve, args=(there,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{here.recv()}/v1"
    with tempfile.TemporaryDirectory() as folder:
        problems = Path(folder) / "problems.jsonl"
        rows = [
            {"id": str(n), "text": text, "reference": str(2 * n)} for n, text in enumerate(prompts)
        ]
        problems.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
        journal = Path(folder) / "journal"
        ideal = chosen.problems * chosen.k * MEAN_S / chosen.slots
        print(f"ideal      {ideal:7.1f} s (expected)", flush=True)
        k, slots = chosen.k, chosen.slots
        base = _timed("bare", lambda: bare(url, prompts, k, slots), None)
        _timed("ours", lambda: ours(url, problems, k, slots, journal), base)
        _timed("ours again", lambda: ours(url, problems, k, slots, journal), base)
        if chosen.stock:
            _timed("stock", lambda: stock(url, prompts, k), base)
    server.terminate()
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"most memory: this process {own:.0f} MiB, largest child {children:.0f} MiB")


def _timed(name: str, work: Any, base: float | None) -> float:
    started = time.perf_counter()
    work()
    seconds = time.perf_counter() - started
    ratio = f"  {seconds / base:.3f} of the bare client" if base else ""
    print(f"{name:<10} {seconds:7.1f} s{ratio}", flush=True)
    return seconds


if __name__ == "__main__":
    main()

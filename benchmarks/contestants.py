"""The clients that are measured, each in a process of its own: what ``throughput.py`` starts.

    python contestants.py NAME '{"url": ..., "problems": N, "k": K, "slots": S, ...}'

Every one asks ``problems`` times ``k`` samples, ``slots`` at a time, and checks that they came.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
from pathlib import Path

from stub_server import MODEL, problem


def bare(url: str, problems: int, k: int, slots: int, stream: bool = False) -> None:
    """An asyncio loop around the openai client, one request a sample."""
    from openai import AsyncOpenAI

    async def ask() -> int:
        gate = asyncio.Semaphore(slots)
        async with AsyncOpenAI(base_url=url, api_key="none", timeout=600) as client:

            async def one(text: str, seed: int) -> int:
                messages = [{"role": "user", "content": text}]
                async with gate:
                    if not stream:
                        reply = await client.chat.completions.create(
                            model=MODEL, messages=messages, seed=seed
                        )
                        return reply.usage.completion_tokens
                    tokens = 0
                    async for chunk in await client.chat.completions.create(
                        model=MODEL,
                        messages=messages,
                        seed=seed,
                        stream=True,
                        stream_options={"include_usage": True},
                    ):
                        tokens = chunk.usage.completion_tokens if chunk.usage else tokens
                    return tokens

            asked = (one(problem(n), seed) for n in range(problems) for seed in range(k))
            return sum(map(bool, await asyncio.gather(*asked)))

    assert asyncio.run(ask()) == problems * k


def ours(
    url: str,
    problems: int,
    k: int,
    slots: int,
    journal: str | None,
    account: str,
    file: str,
    asked: int,
    refused: float,
) -> None:
    """The thinking half of a run, as ``heavydistill.run.generate`` starts it.

    ``account`` is the file of the run's account, which is to book ``asked`` requests, and those
    that were refused, where a share of them is ``refused``.
    """
    from heavydistill.run.interrupts import loading

    with loading():
        from heavydistill.run.recipe.pipeline import Pace
    from heavydistill.config.models import Endpoint, Sampling
    from heavydistill.config.run import Problems
    from heavydistill.models.ledger import Ledger
    from heavydistill.models.registry import profile_at
    from heavydistill.run.recipe.llm import HeavyLLM
    from heavydistill.run.recipe.steps import LabelTraces, LoadProblems
    from heavydistill.run.recipe.tasks import SampleTrajectories
    from heavydistill.run.runner import HeavyPipeline
    from heavydistill.schema import OK, Trace, arrow_schema

    endpoint = Endpoint(base_url=url, concurrency=slots, tokenizer="none")
    pace = Pace.of(profile_at(MODEL, endpoint), k, endpoint)
    llm = HeavyLLM(
        teacher=MODEL,
        sampling=Sampling(max_tokens=64),
        endpoint=endpoint,
        journal=journal,
        ledger=account,
    )
    with HeavyPipeline("throughput", arrow_schema(Trace), window=2 * pace.rows) as pipeline:
        load = LoadProblems(name="load", source=Problems(source=file), batch_size=16)
        think = SampleTrajectories(
            name="sample",
            llm=llm,
            num_generations=k,
            input_batch_size=pace.batch,
            batches_in_flight=pace.in_flight,
        )
        load >> think >> LabelTraces(name="label", input_batch_size=pace.batch)
    with contextlib.closing(Ledger(Path(account))) as ledger, ledger.running():
        rows = pipeline.run()["default"]["train"].with_format("arrow")[:]
        ended = ledger.balance.ended
        assert ended > asked if refused else ended == asked
    assert rows.num_rows == problems and set(rows["status"].to_pylist()) == {OK}
    errors = [pools.flatten().field("error") for pools in rows["pool"].chunks]
    assert sum(error.null_count for error in errors) == problems * k
    pipeline.discard()


def stock(url: str, problems: int, k: int, slots: int) -> None:
    """distilabel as it comes, which asks for ``k`` samples of 50 rows at once."""
    from distilabel.models import OpenAILLM
    from distilabel.pipeline import Pipeline
    from distilabel.steps import LoadDataFromDicts
    from distilabel.steps.tasks import TextGeneration

    data = [{"instruction": problem(number)} for number in range(problems)]
    with tempfile.TemporaryDirectory() as cache, Pipeline("stock", cache_dir=cache) as pipeline:
        load = LoadDataFromDicts(data=data, batch_size=50)
        llm = OpenAILLM(model=MODEL, base_url=url, api_key="none", timeout=600)
        load >> TextGeneration(llm=llm, num_generations=k, input_batch_size=50)
        rows = pipeline.run(use_cache=False)["default"]["train"]
        assert rows.num_rows >= problems


def write_problems(file: Path, count: int) -> None:
    """The problems as a file for ``ours``."""
    rows = ({"id": str(n), "text": problem(n), "reference": str(2 * n)} for n in range(count))
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    {"bare": bare, "ours": ours, "stock": stock}[sys.argv[1]](**json.loads(sys.argv[2]))

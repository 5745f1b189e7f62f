"""Share of right answers through the service on the micro task, beside optillm on the same model.

    python benchmarks/served_answers.py --optillm VENV/bin/optillm  # 200 problems

``heavydistill serve`` with the bundled micro models answers the same problems as ``heavy`` (K=4
and one deliberation), as ``vote`` (K=5) and as ``single``. optillm gets its calls from the same
service: its model is ``single``, so its attempts are asked with the thinker's own wording. The
system message that it sends to every model is dropped on the way, because the micro models were
trained without one. Its moa asks for three candidates, a critique and an answer, and its
self_consistency for five samples, whose whole texts it compares. Five calls each, ``single`` one.

Verdicts are those of a run. Prints for each: right answers with the 95 % interval of the share,
errors, and calls and completion tokens a problem, as the service counts them.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
from aiohttp import web
from load import COMMAND, K, optillm, started

from heavydistill.config.run import Verifying, load_config
from heavydistill.metrics.intervals import wilson
from heavydistill.problems import load_fit
from heavydistill.schema import Problem
from heavydistill.verifiers.pool import VerdictPool

_AT_ONCE = 16
_MODELS = {"heavy": {"k": K}, "vote": {"k": K + 1}, "single": {}}


class _Way:
    """The way from optillm to the service: drops system messages, and counts tokens."""

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self._session, self._address = session, address
        self.used: Counter[str] = Counter()

    async def complete(self, http: web.Request) -> web.Response:
        """One call of optillm, as the model ``single``."""
        body = await http.json()
        body["messages"] = [each for each in body["messages"] if each["role"] != "system"]
        body["model"] = "single"
        async with self._session.post(f"{self._address}/chat/completions", json=body) as reply:
            answer = await reply.json()
        if reply.ok:
            self.used += Counter(calls=1, tokens=answer["usage"]["completion_tokens"])
        return web.json_response(answer, status=reply.status)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        """Yields its base address."""
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.complete)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        finally:
            await runner.cleanup()


async def answers(
    session: aiohttp.ClientSession, address: str, problems: list[Problem], body: dict[str, Any]
) -> tuple[list[str | None], Counter[str]]:
    """(answer to each problem, None after an error; calls and tokens)."""
    slots, used = asyncio.Semaphore(_AT_ONCE), Counter[str]()

    async def ask(problem: Problem) -> str | None:
        asked = {**body, "messages": [{"role": "user", "content": problem.text}]}
        async with (
            slots,
            session.post(f"{address}/chat/completions", json=asked) as reply,
        ):
            answer = await reply.json()
        if not reply.ok or "error" in answer:
            return None
        of_service = answer["usage"].get("heavy", {})
        tokens = answer["usage"]["completion_tokens"]
        used.update(Counter(calls=of_service.get("calls", 0), tokens=tokens if of_service else 0))
        return answer["choices"][0]["message"]["content"]

    return list(await asyncio.gather(*map(ask, problems))), used


def line(name: str, texts: list[str | None], used: Counter[str], problems: list[Problem]) -> str:
    """The row of a table."""
    pairs = [(each, text) for each, text in zip(problems, texts, strict=True) if text is not None]
    with VerdictPool(Verifying()) as pool:
        labels = Counter(each.verdict.label for each in pool.judge_all(pairs))
    count = len(problems)
    share = wilson(labels["correct"], count)
    interval = f"{100 * share.mean:.1f} ({100 * share.low:.1f} to {100 * share.high:.1f})"
    errors = f"{count - len(pairs):6}{labels['undecided']:10}"
    spent = f"{used['calls'] / count:8.2f}{used['tokens'] / count:9.0f}"
    return f"{name:<24}{interval:<22}{errors}{spent}"


async def compare(address: str, problems: list[Problem], program: str | None) -> None:
    """Ask all and print."""
    print(f"{'':<24}{'right %':<22}{'errors':>6}{'undecided':>10}{'calls':>8}{'tokens':>9}")
    patience = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(timeout=patience) as session:
        for model, heavy in _MODELS.items():
            body = {"model": model, "heavy": {**heavy, "seed": 0}}
            texts, used = await answers(session, address, problems, body)
            print(line(f"heavydistill {model}", texts, used, problems), flush=True)
        for approach in ("moa", "self_consistency") if program else ():
            way = _Way(session, address)
            async with way.open() as models:
                command, at = optillm(program or "", models)
                with started(command, at) as (beside, _):
                    body = {"model": f"{approach}-single"}
                    texts, _ = await answers(session, beside, problems, body)
            print(line(f"optillm {approach}", texts, way.used, problems), flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--optillm", metavar="PROGRAM", help="the program of its environment")
    chosen = parser.parse_args()
    config = load_config(None, {"problems.source": "micro", "problems.size": chosen.problems})
    problems = load_fit(config.problems, config.verify).problems
    with started([sys.executable, "-c", COMMAND, "serve", "--port=0", f"--k={K}"]) as (address, _):
        asyncio.run(compare(address, problems, chosen.optillm))


if __name__ == "__main__":
    main()

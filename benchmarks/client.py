"""Processor time that the client takes for each streamed token and for each request, in one run.

    python benchmarks/client.py

A server in a process of its own answers over HTTP; only this process is measured. For a stream:

- alone: each event in a write of its own, paced, so that the client wakes for each of them;
- by eight: eight events a write, as they come where a client is busy;
- sixteen tokens an event: as ``vllm serve --stream-interval 16`` sends them;
- alone, bare: an empty asyncio protocol that receives the same writes, which is what the event loop
  itself takes;
- alone, aiohttp: a loop around aiohttp that receives them and does nothing with them.

For a request without a stream, ``OpenAIEngine`` beside a bare aiohttp client and the openai client.
Prints microseconds of processor time, tokens a second of one process, and ratios; medians of
``--rounds`` turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import time
from collections.abc import Callable
from typing import Any

from heavydistill.config.models import Endpoint, Sampling
from heavydistill.models.http.engine import OpenAIEngine
from heavydistill.models.registry import profile_at
from heavydistill.models.request import Request, user_turn

MODEL = "stub"
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\n"
_PAUSE_S = 0.002  # between the writes of a stream; other streams are served meanwhile


def _event(text: str) -> bytes:
    delta = {"index": 0, "delta": {"content": text}, "logprobs": None, "finish_reason": None}
    body = {"id": "chatcmpl-5", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
    return b"data: " + json.dumps({**body, "choices": [delta]}).encode() + b"\n\n"


def _end(tokens: int) -> bytes:
    last = {"index": 0, "delta": {"content": ""}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 9, "completion_tokens": tokens, "total_tokens": tokens + 9}
    events = [{"choices": [last]}, {"choices": [], "usage": usage}]
    lines = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events]
    return b"".join([*lines, b"data: [DONE]\n\n"])


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection; the path says how: ``/EVENTS-TOKENS-WRITES/...``."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            line, *fields = head.decode().split("\r\n")
            length = next(
                (int(f.split(":")[1]) for f in fields if f.lower().startswith("content-len")), 0
            )
            await reader.readexactly(length)
            each, tokens, writes = map(int, line.split("/")[1].split("-"))
            if not writes:
                message = {"role": "assistant", "content": "x " * 60}
                choice = {"index": 0, "message": message, "finish_reason": "stop"}
                usage = {"prompt_tokens": 9, "completion_tokens": 60, "total_tokens": 69}
                body = {"id": "1", "model": MODEL, "choices": [choice], "usage": usage}
                whole = json.dumps(body).encode()
                kind = _HEAD % b"application/json"
                writer.write(kind + b"Content-Length: %d\r\n\r\n%s" % (len(whole), whole))
                continue
            writer.write(_HEAD % b"text/event-stream" + b"Transfer-Encoding: chunked\r\n\r\n")
            events = [_event("word " * tokens)] * each
            for _ in range(writes):
                await asyncio.sleep(_PAUSE_S)
                writer.write(_chunk(b"".join(events)))
            writer.write(_chunk(_end(each * tokens * writes)) + b"0\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def _serve(pipe: Any) -> None:
    async def run() -> None:
        server = await asyncio.start_server(_answer, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await asyncio.Event().wait()

    asyncio.run(run())


def _took(work: Callable[[], object]) -> float:
    """Processor seconds of this process."""
    began = time.process_time()
    work()
    return time.process_time() - began


def ours(port: int, how: str, requests: int, slots: int) -> float:
    """Processor seconds of the product's client for so many requests."""
    from heavydistill.config.models import Capabilities

    url = f"http://127.0.0.1:{port}/{how}/v1"
    streams = not how.endswith("-0")
    endpoint = Endpoint(base_url=url, concurrency=slots, capabilities=Capabilities(stream=streams))
    engine = OpenAIEngine(profile_at(MODEL, endpoint), endpoint)
    sampling = Sampling(max_tokens=8192, top_k=0)
    asked = [Request(user_turn(f"What is {n}?"), sampling, n, n) for n in range(requests)]
    engine.generate(asked[:slots])  # connections are open
    try:
        return _took(lambda: engine.generate(asked))
    finally:
        engine.close()


def empty_protocol(port: int, how: str, requests: int, slots: int) -> float:
    """The same for a protocol that receives the writes and does nothing with them."""
    head = f"POST /{how}/v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"

    class Empty(asyncio.Protocol):
        def __init__(self) -> None:
            self.done = asyncio.get_running_loop().create_future()

        def data_received(self, data: bytes) -> None:
            if data.endswith(b"0\r\n\r\n"):
                self.done.set_result(None)

    async def all_of_them() -> None:
        loop = asyncio.get_running_loop()

        async def one() -> None:
            for _ in range(requests // slots):
                transport, protocol = await loop.create_connection(Empty, "127.0.0.1", port)
                transport.write(head.encode())
                await protocol.done
                transport.close()

        await asyncio.gather(*(one() for _ in range(slots)))

    return _took(lambda: asyncio.run(all_of_them()))


def bare_aiohttp(port: int, how: str, requests: int, slots: int) -> float:
    """A loop around aiohttp that reads the text and the usage of each answer."""
    import aiohttp

    async def all_of_them() -> None:
        gate = asyncio.Semaphore(slots)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:

            async def one(number: int) -> int:
                body = {"model": MODEL, "messages": user_turn(f"What is {number}?"), "seed": number}
                url = f"http://127.0.0.1:{port}/{how}/v1/chat/completions"
                async with gate, session.post(url, json=body) as answer:
                    tree = await answer.json()
                    assert tree["choices"][0]["message"]["content"]
                    return int(tree["usage"]["completion_tokens"])

            await asyncio.gather(*(one(number) for number in range(requests)))

    return _took(lambda: asyncio.run(all_of_them()))


def aiohttp_stream(port: int, how: str, requests: int, _: int) -> float:
    """A loop around aiohttp that receives the bytes of each stream."""
    import aiohttp

    async def all_of_them() -> None:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:

            async def one() -> None:
                url = f"http://127.0.0.1:{port}/{how}/v1/chat/completions"
                async with session.post(url, data=b"") as answer:
                    async for _ in answer.content.iter_any():
                        pass

            await asyncio.gather(*(one() for _ in range(requests)))

    return _took(lambda: asyncio.run(all_of_them()))


def bare_openai(port: int, how: str, requests: int, slots: int) -> float:
    """A loop around the openai client."""
    from openai import AsyncOpenAI

    async def all_of_them() -> None:
        gate = asyncio.Semaphore(slots)
        url = f"http://127.0.0.1:{port}/{how}/v1"
        async with AsyncOpenAI(base_url=url, api_key="none") as client:

            async def one(number: int) -> int:
                async with gate:
                    reply = await client.chat.completions.create(
                        model=MODEL, messages=user_turn(f"What is {number}?"), seed=number
                    )
                    return reply.usage.completion_tokens

            await asyncio.gather(*(one(number) for number in range(requests)))

    return _took(lambda: asyncio.run(all_of_them()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slots", type=int, default=64, help="streams in flight")
    chosen = parser.parse_args()
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_serve, args=(there,), daemon=True)
    process.start()
    port, slots = here.recv(), chosen.slots
    streams = {
        "alone, bare": (empty_protocol, 1, 1, 400),
        "alone, aiohttp": (aiohttp_stream, 1, 1, 400),
        "alone": (ours, 1, 1, 400),
        "by eight": (ours, 8, 1, 100),
        "sixteen tokens an event": (ours, 1, 16, 400),
    }
    requests = {"aiohttp": bare_aiohttp, "openai": bare_openai, "heavydistill": ours}
    taken: dict[str, list[float]] = {}
    for _ in range(chosen.rounds):
        for name, (client, each, tokens, writes) in streams.items():
            seconds = client(port, f"{each}-{tokens}-{writes}", slots, slots)
            taken.setdefault(name, []).append(seconds / (slots * each * tokens * writes))
        for name, client in requests.items():
            taken.setdefault(name, []).append(client(port, "1-1-0", 2000, slots) / 2000)
    process.terminate()
    middle = {name: statistics.median(values) * 1e6 for name, values in taken.items()}
    print("processor time of a streamed token, requests included")
    for name in streams:
        print(f"  {name:24} {middle[name]:7.2f} us, {1e6 / middle[name]:>9,.0f} tokens a second")
    for than in ("bare", "aiohttp"):
        print(f"  alone, of {than:14} {middle['alone'] / middle[f'alone, {than}']:7.2f}")
    print("processor time of a request without a stream")
    for name in requests:
        print(
            f"  {name:24} {middle[name]:7.0f} us, {middle[name] / middle['aiohttp']:.2f} of aiohttp"
        )


if __name__ == "__main__":
    main()

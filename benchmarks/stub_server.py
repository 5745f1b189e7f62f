"""An OpenAI-compatible server that costs little, for measuring those who ask it.

It runs in a process of its own. How long a response takes is lognormal, and drawn from the text
of the problem and how often that client asked it before, so whatever else a client sends, all
clients get the same work. A client is told apart by the first part of the path of its base URL. A
request for several samples takes as long as the slowest of them.

A client whose name begins with ``refused-SHARE-`` has that share of its requests refused at once,
whatever else is in flight, with HTTP 429 and a pause of one second, as a busy provider does.

A request with ``stream`` is answered in server-sent events: the tokens in ``chunks`` pieces
spread evenly over the latency, then the usage if it was asked for, then ``[DONE]``.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
import multiprocessing
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

SIGMA = 1.2
MODEL = "stub"
REASONING, ANSWER, TOKENS = "x" * 200, "so \\boxed{1}", 60
_PROBLEM = re.compile(rb"What is \d+ \+ \d+\?")
_PROMPT = 4096  # more than any prompt has, because one of fewer tokens would look cut
_USAGE = {
    "prompt_tokens": _PROMPT,
    "completion_tokens": TOKENS,
    "total_tokens": TOKENS + _PROMPT,
}


def problem(number: int) -> str:
    """The text of one problem; the server looks for it in what a client sends."""
    return f"What is {number} + {number}?"


def latency(text: str, sample: int, mean_s: float) -> float:
    """Seconds that a sample of a problem takes."""
    draw = random.Random(f"{text}#{sample}").lognormvariate(0.0, SIGMA)
    return draw * mean_s / math.exp(SIGMA**2 / 2)


class Server:
    """A server that runs.

    Args:
        pipe: To its process.
    """

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe
        self._port = pipe.recv()

    def url(self, client: str) -> str:
        """The base URL of a client."""
        return f"http://127.0.0.1:{self._port}/{client}/v1"

    def taken(self, client: str) -> tuple[int, float]:
        """(samples that the client was given, CPU seconds of the server since the last call)."""
        self._pipe.send(client)
        samples, seconds = self._pipe.recv()
        return samples, seconds


@contextlib.contextmanager
def serving(mean_s: float, chunks: int) -> Iterator[Server]:
    """Serve until the block ends."""
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_serve, args=(there, mean_s, chunks), daemon=True)
    process.start()
    try:
        yield Server(here)
    finally:
        process.terminate()
        process.join()


def _serve(pipe: Any, mean_s: float, chunks: int) -> None:
    asyncio.run(_Answers(mean_s, chunks).run(pipe))


class _Answers:
    """What the server says, and what it has said."""

    def __init__(self, mean_s: float, chunks: int) -> None:
        self.mean_s = mean_s
        self.asked: dict[str, Counter[bytes]] = {}
        self.arrived: Counter[str] = Counter()
        self.listing = _whole({"object": "list", "data": [{"id": MODEL, "object": "model"}]})
        self.pieces = [_event(delta) for delta in _deltas(chunks)]
        self.last = _event({}, finish_reason="stop")
        self.usage = _piece({**_head("chat.completion.chunk"), "choices": [], "usage": _USAGE})

    async def run(self, pipe: Any) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", 0, backlog=1024)
        pipe.send(server.sockets[0].getsockname()[1])
        reported = time.process_time()

        def report() -> None:
            nonlocal reported
            try:
                client = pipe.recv()
            except EOFError:  # who measures was killed
                raise SystemExit(1) from None
            now = time.process_time()
            pipe.send((sum(self.asked.get(client, Counter()).values()), now - reported))
            reported = now

        loop.add_reader(pipe.fileno(), report)
        await server.serve_forever()

    def refuses(self, client: str) -> bool:
        """Whether the next request of a client is refused."""
        share = client.split("-")[1] if client.startswith("refused-") else "0"
        self.arrived[client] += 1
        return random.Random(f"{client}#{self.arrived[client]}").random() < float(share)

    def seconds(self, client: str, text: bytes, samples: int) -> float:
        """How long so many more samples take."""
        counts = self.asked.setdefault(client, Counter())
        first = counts[text]
        counts[text] += samples
        drawn = (latency(text.decode(), first + i, self.mean_s) for i in range(samples))
        return max(drawn)


class _Connection(asyncio.Protocol):
    """One connection, which carries one request after the other."""

    def __init__(self, answers: _Answers) -> None:
        self.answers = answers
        self.received = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, found, rest = self.received.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *(\d+)", head)
        size = int(length[1]) if length else 0
        if found and len(rest) >= size:
            self.received = rest[size:]
            self._answer(head.split(b" ", 2)[1].decode(), rest[:size])

    def _answer(self, path: str, body: bytes) -> None:
        text = _PROBLEM.search(body)
        if not text:  # who is served, or a client that tries the connection
            self._write(self.answers.listing)
            return
        client = path.split("/")[1]
        if self.answers.refuses(client):
            self._write(_REFUSAL)
            return
        asked = json.loads(body)
        samples = asked.get("n") or 1
        seconds = self.answers.seconds(client, text[0], samples)
        if asked.get("stream"):
            more = bool((asked.get("stream_options") or {}).get("include_usage"))
            self._stream(seconds, 0, self.loop.time(), more)
        else:
            self.loop.call_later(seconds, self._write, _completion(samples))

    def _stream(self, seconds: float, sent: int, started: float, usage: bool) -> None:
        """Send a piece and come back for the next one when it is due."""
        pieces = self.answers.pieces
        if not sent:
            self._write(_STREAM_HEAD)
        else:
            self._write(pieces[sent - 1])
        if sent < len(pieces):
            due = started + seconds * (sent + 1) / len(pieces)
            self.loop.call_at(due, self._stream, seconds, sent + 1, started, usage)
            return
        end = self.answers.last + (self.answers.usage if usage else b"")
        self._write(end + _framed(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    def _write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)


_REFUSAL = (
    b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Type: application/json\r\n"
    b'Content-Length: 35\r\n\r\n{"error": {"message": "slow down"}}'
)
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def _head(kind: str) -> dict[str, Any]:
    return {"id": "r", "object": kind, "created": 0, "model": MODEL}


def _whole(reply: dict[str, Any]) -> bytes:
    data = json.dumps(reply).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(data) + data


def _completion(samples: int) -> bytes:
    message = {"role": "assistant", "content": ANSWER, "reasoning_content": REASONING}
    choices = [
        {"index": index, "finish_reason": "stop", "message": message} for index in range(samples)
    ]
    return _whole({**_head("chat.completion"), "choices": choices, "usage": _USAGE})


def _deltas(chunks: int) -> list[dict[str, str]]:
    """Reasoning and answer in so many pieces, at least one of each."""
    answers = max(1, min(chunks // 12, len(ANSWER)))
    thoughts = max(1, chunks - answers)
    return [
        *({"reasoning_content": part} for part in _cut(REASONING, thoughts)),
        *({"content": part} for part in _cut(ANSWER, answers)),
    ]


def _cut(text: str, parts: int) -> list[str]:
    bounds = [len(text) * part // parts for part in range(parts + 1)]
    return [text[start:end] for start, end in itertools.pairwise(bounds)]


def _event(delta: dict[str, str], finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return _piece({**_head("chat.completion.chunk"), "choices": [choice]})


def _piece(content: dict[str, Any]) -> bytes:
    return _framed(b"data: " + json.dumps(content).encode() + b"\n\n")


def _framed(data: bytes) -> bytes:
    """As one chunk of a response whose length is not known before its end."""
    return b"%x\r\n%s\r\n" % (len(data), data)

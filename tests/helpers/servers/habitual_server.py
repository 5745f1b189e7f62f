"""An OpenAI-compatible server with configurable habits, streaming too: HTTP on the loopback."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from fault_server import message_of, pieces
from loopback import Handler, listening

Body = dict[str, Any]
MODEL = "served"


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How it answers; the defaults are those of a good one.

    ``reasoning`` is a key of ``fault_server.REASONING``; ``n`` is honours, ignores, refuses,
    refuses streamed or copies; ``seed`` is honours, alone (each choice has the text of the seed),
    ignores or fixed; ``stream`` is pieces, whole, refused or thoughtless.
    """

    reasoning: str = "reasoning_content"
    n: str = "honours"
    seed: str = "honours"
    stream: str = "pieces"
    refused: frozenset[str] = frozenset()
    clash: frozenset[str] = frozenset()
    length_name: str = ""
    max_output: int | None = None
    refusal_of_length: str = "the valid range of max_tokens is [1, {most}]"
    listed: Body = field(default_factory=dict)
    usage: bool = True
    usage_in_pieces: bool = True
    written: int = 9  # most tokens of a choice, by its usage
    counts: str = "all"  # the tokens of all choices, or of the "first" alone, as llama.cpp
    tokenize: bool = False
    cut_reason: str = "length"
    end_reason: str = "stop"
    key: str = ""


@dataclass
class Served:
    """What a test sees of it: its address and the bodies of the requests that came."""

    url: str = ""
    asked: list[Body] = field(default_factory=list)
    count: Iterator[int] = field(default_factory=itertools.count)


class Refused(Exception):
    """Status and message."""


@contextlib.contextmanager
def serving(habits: Habits) -> Iterator[Served]:
    """Serve until the block ends."""
    served = Served()

    class _Handler(Handler):
        def do_GET(self) -> None:
            entry = {"id": MODEL, "object": "model", **habits.listed}
            self._answer(lambda: self.send_json(200, {"object": "list", "data": [entry]}))

        def do_POST(self) -> None:
            body = self.body()
            if self.path == "/tokenize":
                tokens = list(body.get("content", "").split()) if habits.tokenize else None
                return self.send_json(200 if habits.tokenize else 404, {"tokens": tokens})
            if body:  # else it is asked whether the key is good
                served.asked.append(body)
            self._answer(lambda: self._complete(body))

        def _answer(self, make: Any) -> None:
            try:
                if habits.key and self.headers["Authorization"] != f"Bearer {habits.key}":
                    raise Refused(401, f"Bad key: {self.headers['Authorization']}")
                make()
            except Refused as refused:
                status, message = refused.args
                message += f" {self.headers['Authorization']}"  # some servers repeat it
                self.send_json(status, {"error": {"message": message, "type": "invalid_request"}})

        def _complete(self, body: Body) -> None:
            completion = complete(habits, served, body)
            if body.get("stream") and habits.stream != "whole":
                pieces = list(in_pieces(habits, body, completion))
                data = "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces)
                data = f"{data}data: [DONE]\n\n"
                self.send(200, data.encode(), "text/event-stream")
            else:
                self.send_json(200, completion)

    with listening(_Handler) as served.url:
        yield served


def complete(habits: Habits, served: Served, body: Body) -> Body:
    _refuse(habits, body)
    prompt = body["messages"][0]["content"]
    most = body.get("max_completion_tokens", body.get("max_tokens"))
    count = body.get("n", 1) if habits.n in ("honours", "refuses streamed", "copies") else 1
    choices = []
    for index in range(count):
        if not choices or habits.n != "copies":
            words = _words(habits, served, body, index)
        # The counting question is the long one.
        is_cut = "1 to 900" in prompt
        choice: Body = {
            "index": index,
            "message": _message(habits, words),
            "finish_reason": habits.cut_reason if is_cut else habits.end_reason,
        }
        choices.append(choice)
    completion: Body = {"id": "c", "object": "chat.completion", "created": 1, "model": MODEL}
    completion["choices"] = choices
    if habits.usage:
        counted = count if habits.counts == "all" else 1
        written = min(most, habits.written) * counted
        completion["usage"] = {"prompt_tokens": 100, "completion_tokens": written}
    return completion


def _refuse(habits: Habits, body: Body) -> None:
    if not body:
        raise Refused(400, "nothing to complete")
    names = set(body)
    if wrong := names & habits.refused:
        raise Refused(400, f"Unsupported parameter: {min(wrong)}")
    if len(habits.clash & names) > 1:
        raise Refused(400, f"{' and '.join(sorted(habits.clash))} cannot both be specified")
    lengths = names & {"max_tokens", "max_completion_tokens"}
    if habits.length_name and lengths != {habits.length_name}:
        raise Refused(400, f"Use {habits.length_name} instead")
    most = habits.max_output
    if most and max(body[name] for name in lengths) > most:
        raise Refused(400, habits.refusal_of_length.format(most=most))
    if body.get("n", 1) > 1 and habits.n == "refuses":
        raise Refused(422, "n must be 1")
    if body.get("n", 1) > 1 and body.get("stream") and habits.n == "refuses streamed":
        raise Refused(400, "n must be 1 in a stream")
    if body.get("stream") and habits.stream == "refused":
        raise Refused(400, "stream is not supported")


def _words(habits: Habits, served: Served, body: Body, index: int) -> str:
    """A text that the seed decides, as far as it does."""
    mark: Any = (body.get("seed"), index)
    if habits.seed == "ignores" or body.get("seed") is None:
        mark = (next(served.count), index)
    elif habits.seed == "alone":
        mark = body["seed"]
    if habits.seed == "fixed":
        mark = index
    return hashlib.sha256(f"{body['messages']}{mark}".encode()).hexdigest()[:12]


def _message(habits: Habits, words: str) -> Body:
    return message_of(habits.reasoning, f"let me see {words}", rf"It is \boxed{{34}} {words}")


def in_pieces(habits: Habits, body: Body, completion: Body) -> Iterator[Body]:
    choices = completion["choices"]
    if habits.stream == "thoughtless":
        texts = [{"role": "assistant", "content": c["message"]["content"]} for c in choices]
        choices = [c | {"message": text} for c, text in zip(choices, texts, strict=True)]
    yield from pieces(choices)
    wants = (body.get("stream_options") or {}).get("include_usage")
    if wants and habits.usage and habits.usage_in_pieces:
        yield {"id": "c", "choices": [], "usage": completion["usage"]}

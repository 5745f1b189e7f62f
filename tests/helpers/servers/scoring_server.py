"""A server with vLLM's ``prompt_logprobs``: real HTTP, log-probabilities by a function, and faults.

Replies and refusals have vLLM's shape: null for the first token, then a mapping from token ids to
log-probabilities with the token itself and the likeliest ones; -9999 for minus infinity.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fake_clock import rest
from loopback import Handler, listening

Body = dict[str, Any]
ERRORS = {
    "busy": (429, "Too many requests"),
    "broken": (500, "EngineDeadError"),
    "key": (401, "Unauthorized"),
}


@dataclass
class ScoringServer:
    """What a test sees of it, and sets; ``logprobs`` gives a row of all words after each token."""

    logprobs: Callable[[list[int]], list[list[float]]]
    split: Callable[[str], list[int]] = lambda text: [*text.encode()]
    words: int = 704
    model: str = "teacher"
    context: int | None = 2048
    max_logprobs: int = 20
    key: str = ""
    offers: bool = True  # whether it knows prompt_logprobs
    plan: Callable[[Body, int], str | None] = lambda body, number: None  # faults, by request
    base_url: str = ""
    asked: list[Body] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def scored(self) -> list[Body]:
        """The requests that ask for log-probabilities of token ids."""
        return [each for each in self.asked if isinstance(each.get("prompt"), list)]

    def listed(self) -> Body:
        """Its models; the first one is another."""
        entry = {"object": "model", "owned_by": "vllm", "parent": None}
        mine = {"id": self.model, "root": "org/teacher"}
        if self.context:
            mine["max_model_len"] = self.context
        first = {"id": "first-of-the-list", "root": "org/first", "max_model_len": 16_384}
        return {"object": "list", "data": [{**entry, **first}, {**entry, **mine}]}

    def refusal(self, body: Body, ids: list[int]) -> str | None:
        """Why the request is refused, if it is."""
        most, top = self.context or 2048, body.get("prompt_logprobs") or 0
        if body["model"] != self.model:
            return f"The model `{body['model']}` does not exist."
        if body["max_tokens"] < 1:
            return "max_tokens must be at least 1, got 0."
        if len(ids) + body["max_tokens"] > most:
            return f"This model's maximum context length is {most} tokens; you have {len(ids)}."
        if (last := max(ids)) >= self.words:
            return f"Token id {last} is out of vocabulary"
        if top > self.max_logprobs:
            return (
                f"Requested prompt logprobs of {top}, which is greater than max allowed: "
                f"{self.max_logprobs}"
            )
        return None

    def reply(self, body: Body, fault: str | None) -> tuple[int, Body]:
        prompt = body["prompt"]
        ids = prompt if isinstance(prompt, list) else self.split(prompt)
        if fault in ERRORS:
            status, text = ERRORS[fault]
            return status, {"error": {"message": text, "type": "x", "code": status}}
        if why := self.refusal(body, ids):
            return 400, {"error": {"message": why, "type": "BadRequestError", "code": 400}}
        choice = {"index": 0, "text": "x", "logprobs": None, "finish_reason": "length"}
        if self.offers and body.get("prompt_logprobs") is not None:
            choice["prompt_logprobs"] = self._entries(ids, body["prompt_logprobs"], fault)
        name = "first-of-the-list" if fault == "other model" else self.model
        told = {"id": "cmpl-1", "object": "text_completion", "created": 0, "model": name}
        return 200, {**told, "choices": [choice], "usage": {"prompt_tokens": len(ids)}}

    def _entries(self, ids: list[int], top: int, fault: str | None) -> list[Body | None]:
        entries: list[Body | None] = [None]
        for token, row in zip(ids[1:], self.logprobs(ids), strict=True):
            best = sorted(range(len(row)), key=lambda word: -row[word])[:top]
            words = dict.fromkeys([token, *best])
            entries.append(
                {
                    str(word): {"logprob": row[word], "rank": 1, "decoded_token": "?"}
                    for word in words
                }
            )
        if fault in ("nan", "-inf"):
            value = float("nan") if fault == "nan" else -9999.0
            entries[-1][str(ids[-1])]["logprob"] = value  # type: ignore[index]
        if fault == "missing":
            entries[-1] = None
        return entries[:-1] if fault == "short" else entries


@contextlib.contextmanager
def scoring(server: ScoringServer, port: int = 0) -> Iterator[ScoringServer]:
    """Serve until the block ends."""

    class _Handler(Handler):
        def do_GET(self) -> None:
            if self._has_key():
                self.send_json(200, server.listed())

        def do_POST(self) -> None:
            body = self.body()
            if not self._has_key():
                return
            if not self.path.endswith("/v1/completions"):
                self.send_json(400, {"error": {"message": "nothing to complete"}})
                return
            with server.lock:
                number = len(server.asked)
                server.asked.append(body)
                server.in_flight += 1
                server.most_in_flight = max(server.most_in_flight, server.in_flight)
            try:
                fault = server.plan(body, number)
                if fault == "slow":
                    rest(self.connection, 1.0)
                status, reply = server.reply(body, fault)
                data = json.dumps(reply).encode()
            finally:
                with server.lock:
                    server.in_flight -= 1
            if fault == "cut":
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data[: len(data) // 2])
            else:
                self.send(status, data, "application/json")

        def _has_key(self) -> bool:
            if server.key and self.headers["authorization"] != f"Bearer {server.key}":
                self.send_json(401, {"error": "Unauthorized"})
                return False
            return True

    with listening(_Handler, port) as server.base_url:
        yield server

"""A small OpenAI-compatible server for tests: real HTTP on the loopback, answers by a function."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from loopback import Handler, listening

Answer = tuple[int, dict[str, Any]]


@dataclass
class FakeServer:
    """What a test sees of it."""

    base_url: str
    requests: list[dict[str, Any]] = field(default_factory=list)  # bodies, in order


def completion(content: str, finish_reason: str = "stop", **message: Any) -> Answer:
    """A chat completion with one choice."""
    choice = {
        "index": 0,
        "finish_reason": finish_reason,
        "message": {"role": "assistant", "content": content, **message},
    }
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    told = {"id": "r", "object": "chat.completion", "created": 0, "model": "m"}
    return 200, {**told, "choices": [choice], "usage": usage}


@contextlib.contextmanager
def serving(
    answer: Callable[[dict[str, Any]], Answer], models: Answer = (404, {}), port: int = 0
) -> Iterator[FakeServer]:
    """Serve until the block ends; ``models`` is the answer to who is served, port 0 any port."""

    server = FakeServer("")

    class _Handler(Handler):
        def do_GET(self) -> None:
            self.send_json(*models)

        def do_POST(self) -> None:
            body = self.body()
            if self.answers_probe(body):
                return
            server.requests.append(body)
            status, reply = answer(body)
            # All prompts count alike; the rest is cached, so that none seems to be cut.
            if (usage := reply.get("usage")) and "messages" in body:
                most = sum(len(turn["content"].encode()) for turn in body["messages"])
                usage.setdefault("prompt_tokens_details", {"cached_tokens": most})
            self.send_json(status, reply)

    with listening(_Handler, port) as server.base_url:
        yield server

"""A small OpenAI-compatible server for tests: real HTTP on the loopback, answers by a function."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = tuple[int, dict[str, Any]]


@dataclass
class FakeServer:
    """What a test sees of it.

    Attributes:
        base_url: Where it is.
        requests: Bodies in the order in which they came.
    """

    base_url: str
    requests: list[dict[str, Any]] = field(default_factory=list)


def completion(content: str, finish_reason: str = "stop", **message: Any) -> Answer:
    """A chat completion with one choice."""
    choice = {
        "index": 0,
        "finish_reason": finish_reason,
        "message": {"role": "assistant", "content": content, **message},
    }
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    return 200, {
        "id": "r",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [choice],
        "usage": usage,
    }


@contextlib.contextmanager
def serving(
    answer: Callable[[dict[str, Any]], Answer], models: Answer = (404, {}), port: int = 0
) -> Iterator[FakeServer]:
    """Serve until the block ends; ``models`` is the answer to who is served, port 0 any port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._say(*models)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            server.requests.append(body)
            self._say(*answer(body))

        def _say(self, status: int, payload: dict[str, Any]) -> None:
            data = json.dumps(payload).encode()
            with contextlib.suppress(ConnectionError):
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 256  # 5 by default: a burst of requests would be refused
        daemon_threads = True

    http = Server(("127.0.0.1", port), Handler)
    server = FakeServer(f"http://127.0.0.1:{http.server_port}/v1")
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()

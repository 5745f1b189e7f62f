"""The HTTP that all servers of the tests have in common: the loopback, threads, a quiet handler."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from heavydistill.models.http.probe import QUESTION


class Handler(BaseHTTPRequestHandler):
    """Reads JSON and sends whole responses; a client that has gone away is not complained about."""

    weights = ""  # what tells the models of one name apart

    def body(self) -> Any:
        """What was posted."""
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def answers_probe(self, body: Any) -> bool:
        """Answer the questions that tell models apart, as a server that has one of each name.

        The tests of the probe have a server of their own; to all others it is no request.
        """
        if self.path.endswith("/completions") and "prompt_logprobs" in body:
            self.send_json(404, {"error": {"message": "Not Found"}})
        elif QUESTION in str(body.get("messages")):
            message = {"role": "assistant", "content": f"I am {body.get('model')}{self.weights}."}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            self.send_json(200, {"object": "chat.completion", "choices": [choice]})
        else:
            return False
        return True

    def send(
        self, status: int, data: bytes, kind: str, headers: dict[str, str] | None = None
    ) -> None:
        """A response in one piece."""
        with contextlib.suppress(ConnectionError):
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

    def send_json(self, status: int, payload: Any, headers: dict[str, str] | None = None) -> None:
        """A response of JSON."""
        self.send(status, json.dumps(payload).encode(), "application/json", headers)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    request_queue_size = 256  # 5 by default: a burst of requests would be refused
    daemon_threads = True


@contextlib.contextmanager
def listening(handler: type[Handler], port: int = 0) -> Iterator[str]:
    """The API's address while the block runs; port 0 is any port."""
    http = _Server(("127.0.0.1", port), handler)
    threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{http.server_port}/v1"
    finally:
        http.shutdown()
        http.server_close()


@contextlib.contextmanager
def redirecting(to: str) -> Iterator[str]:
    """The address of a server that sends everybody elsewhere."""

    class _Redirecting(Handler):
        def do_GET(self) -> None:
            self.send(307, b"", "text/plain", {"Location": to})

        def do_POST(self) -> None:
            self.body()
            self.do_GET()

    with listening(_Redirecting) as url:
        yield url

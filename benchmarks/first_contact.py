"""How long a mistake at a server takes to be reported: seconds from the start of a command.

    python benchmarks/first_contact.py            # each mistake three times

A wrong key, a model that is not served, an address without its ``/v1``, and one at which nothing
answers, each with ``heavydistill generate`` in an empty folder. Prints the seconds of each try and
the message; the aim is 2 s on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMAND = [str(Path(sys.executable).parent / "heavydistill"), "generate", "--limit=4"]
KEY = "right"


class _Server(BaseHTTPRequestHandler):
    """Lists one model for whoever has the key, at /v1 alone."""

    def do_GET(self) -> None:
        if self.path != "/v1/models":
            status, body = 404, {"error": "no such path"}
        elif self.headers["Authorization"] != f"Bearer {KEY}":
            status, body = 401, {"error": "no such key"}
        else:
            status, body = 200, {"data": [{"id": "served", "max_model_len": 32_768}]}
        self._answer(status, body)

    def do_POST(self) -> None:
        self._answer(404, {"error": "no such path"})

    def _answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """The root of a server that runs until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def reported(flags: list[str], key: str) -> tuple[float, str]:
    """(seconds until the command has ended, what it said); it must end with exit code 2."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        done = subprocess.run(
            [*COMMAND, *flags],
            cwd=folder,
            env={**os.environ, "OPENAI_API_KEY": key},
            capture_output=True,
            text=True,
        )
        seconds = time.monotonic() - started
    if done.returncode != 2:
        sys.exit(f"{flags} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return seconds, done.stderr.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tries", type=int, default=3, help="How often each mistake is made.")
    tries = parser.parse_args().tries
    with serving() as root:
        mistakes = {
            "a wrong key": (["--teacher=served", f"--endpoint={root}/v1"], "wrong"),
            "a wrong model": (["--teacher=severd", f"--endpoint={root}/v1"], KEY),
            "no /v1": (["--teacher=served", f"--endpoint={root}"], KEY),
            "a dead address": (["--teacher=served", "--endpoint=http://127.0.0.1:9/v1"], KEY),
        }
        for name, (flags, key) in mistakes.items():
            runs = [reported(flags, key) for _ in range(tries)]
            print(f"{name}: {', '.join(f'{seconds:.1f} s' for seconds, _ in runs)}: {runs[0][1]}")


if __name__ == "__main__":
    main()

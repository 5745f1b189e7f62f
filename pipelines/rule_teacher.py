"""A teacher made of rules: an endpoint whose deliberations a function of yours writes.

    python pipelines/rule_teacher.py --port 8765

It prints the command that asks it about the pools of a run. ``deliberate`` is the part to edit; the
name of the model changes with this file, so that the journal never gives the answers of old rules.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import random
import re
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from heavydistill.text.extraction import boxed

MODEL = f"rules-{hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]}"


def deliberate(problem: str, attempts: list[str], rng: random.Random) -> tuple[str, str]:
    """Return (thinking, answer) for a problem and attempts at it; ``rng`` differs by sample.

    This one takes the most frequent answer, which teaches a student no more than to vote.
    """
    answers = [boxed(attempt) or "none" for attempt in attempts]
    counts = Counter(answer for answer in answers if answer != "none") or Counter(["none"])
    chosen = rng.choice([answer for answer in counts if counts[answer] == max(counts.values())])
    lines = [f"Attempt {number} says {answer}." for number, answer in enumerate(answers, 1)]
    return "\n".join(lines), rf"The answer is \boxed{{{chosen}}}."


def read(prompt: str) -> tuple[str, list[str]]:
    """Return the problem and the attempts in a prompt of a deliberator; no attempts in others."""
    if not (head := re.search(r"^(={4,}) Problem\n", prompt, re.MULTILINE)):
        return prompt, []
    border = rf"\n{head[1]} (?:Attempt \d+|End of attempts)(?:\n|$)"
    problem, *attempts = re.split(border, prompt[head.end() :])
    return problem, attempts[:-1]


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of OpenAI's API that ``heavydistill generate`` sends."""

    def do_GET(self) -> None:
        self._send(200, {"data": [{"id": MODEL, "object": "model", "max_model_len": 1_000_000}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.path.endswith("/chat/completions"):
            return self._send(404, {"error": {"message": "Only chat completions are served."}})
        prompt = body["messages"][-1]["content"]
        problem, attempts = read(prompt)
        if not attempts:
            return self._send(400, {"error": {"message": "The prompt shows no attempts."}})
        choices: list[dict[str, Any]] = []
        for index in range(body.get("n", 1)):
            rng = random.Random(f"{body.get('seed')} {index}")
            thinking, answer = deliberate(problem, attempts, rng)
            turn = {"role": "assistant", "content": answer, "reasoning_content": thinking}
            choices.append({"index": index, "finish_reason": "stop", "message": turn})
        written = sum(len(c["message"]["content"].split()) for c in choices)
        usage = {"prompt_tokens": len(prompt.encode()), "completion_tokens": written}
        self._send(200, {"model": MODEL, "choices": choices, "usage": usage})

    def _send(self, status: int, reply: dict[str, Any]) -> None:
        data = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing for a request."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=8765, help="port on 127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Handler)
    address = f"http://127.0.0.1:{server.server_port}/v1"
    print(
        f"heavydistill generate --pools RUN --deliberator {MODEL} --endpoint {address}"
        " --d 1 --out runs/rules",
        flush=True,
    )
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()

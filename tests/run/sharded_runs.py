"""A run against a server whose answers depend on the request alone, for shards of it."""

import json
import random
import subprocess
import time
from pathlib import Path
from typing import Any

from command_line import MICRO, served
from fake_server import FakeServer, completion
from problem_files import remainders

from heavydistill.config.run import load_config
from heavydistill.run.generate import Plan, check
from heavydistill.store.segment import segments

PROBLEMS, K, D, IN_FLIGHT = 14, 4, 2, 8
TOKENS = 18  # of every response of ``fake_server.completion``


def by_request(body: dict[str, Any]) -> Any:
    """An answer that depends on the request alone."""
    draw = random.Random(json.dumps([body["messages"], body["seed"]]))
    time.sleep(0.02)
    return completion(f"\\boxed{{{draw.randrange(6)}}}", reasoning_content=f"{draw.random()}")


class Slow:
    """Such answers, which take a second; how many were given."""

    def __init__(self) -> None:
        self.given = 0

    def __call__(self, body: dict[str, Any]) -> Any:
        time.sleep(1.0)
        self.given += 1
        return by_request(body)

    def midway(self, process: subprocess.Popen[str], count: int = 2 * IN_FLIGHT) -> None:
        """Wait until a process got so many, or has ended."""
        while self.given < count and process.poll() is None:
            time.sleep(0.05)


def planned(server: FakeServer, folder: Path, **keys: Any) -> Plan:
    keys_of_all = {
        "teacher": "served",
        "endpoint.base_url": server.base_url,
        "endpoint.tokenizer": MICRO,
        "endpoint.concurrency": IN_FLIGHT,
        "problems.source": str(remainders(folder, PROBLEMS)),
        "think.k": K,
        "deliberate.d": D,
        "journal": str(folder / "journal"),
        "verify.timeout_s": 60,
        "out": str(folder / "run"),
    }
    return check(load_config(None, keys_of_all | keys))


def seeds(folder: Path) -> int:
    return sum(len(segment.lines) for segment in segments(folder / "journal"))


def asking(url: str, out: str, *more: str) -> list[str]:
    """Flags of the run that is planned, given in its folder."""
    files = ["--problems=problems.jsonl", f"--out={out}", f"--k={K}", f"--d={D}"]
    sizes = [f"--set=endpoint.concurrency={IN_FLIGHT}", "--set=verify.timeout_s=60"]
    return served(url, *files, *sizes, *more)

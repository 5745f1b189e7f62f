"""What the start of the bundled pair takes, beside loading its libraries and models.

    python benchmarks/serve_start.py

Starts ``heavydistill serve`` and, in turns, a Python that imports torch and transformers and loads
the same two models with them, ``--rounds`` times each. Prints the seconds until ``/health`` answers
at all and until it is ``ok``, and the processor time of both; medians.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import signal
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import Any

from load import COMMAND, ROOT, cpu_s

_TEACHER = ROOT / "heavydistill" / "micro" / "teacher"
_LOADING = f"""
import torch, transformers
for _ in range(2):
    transformers.AutoTokenizer.from_pretrained({str(_TEACHER)!r})
    transformers.AutoModelForCausalLM.from_pretrained({str(_TEACHER)!r})
"""


def _environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}


def _status(address: str) -> str:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=10) as reply:
            body: Any = json.loads(reply.read())
    except urllib.error.HTTPError as error:
        body = json.loads(error.read())
    return str(body["status"])


def start() -> tuple[float, float, float]:
    """(seconds to the first answer, seconds until it is ready, processor seconds until then)."""
    command = [sys.executable, "-c", COMMAND, "serve", "--port", "0"]
    begun = time.monotonic()
    process = subprocess.Popen(command, env=_environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout
    found = re.search(r"(http://\S+)/v1", process.stdout.readline())
    assert found
    status = _status(found[1])
    first = time.monotonic() - begun
    assert status == "loading", status
    while _status(found[1]) != "ok":
        time.sleep(0.05)
    ready, used_s = time.monotonic() - begun, cpu_s(process.pid)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    return first, ready, used_s


def bare() -> float:
    """Processor seconds of the libraries and models alone."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", _LOADING], env=_environment(), check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    rows = [(*start(), bare()) for _ in range(chosen.rounds)]
    first, ready, used_s, alone = map(statistics.median, zip(*rows, strict=True))
    print(f"first answer of /health after {first:.2f} s, ok after {ready:.2f} s")
    print(f"processor time {used_s:.2f} s; libraries and models alone {alone:.2f} s")
    print(f"above them {statistics.median(row[2] - row[3] for row in rows):.2f} s")


if __name__ == "__main__":
    main()

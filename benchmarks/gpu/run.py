"""Checks for one GPU: runs each in a process of its own, and prints one table of what they found.

    python benchmarks/gpu/run.py             # all of them, at most ten minutes each
    python benchmarks/gpu/run.py G1 G5
    python benchmarks/gpu/run.py --tiny      # on the CPU with tiny models, as without a GPU

Nothing is downloaded: the models have weights at random, in sizes of real ones. TMPDIR needs 30 GB
for them. Each check's file states what it measures, why, and the bound. Without a GPU, rows say
``cpu, tiny``: they show that the checks work, and no figure of them is one of a GPU.

Exits with 1 if a check failed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
ROW = "row: "
"""Start of a line with a row of the table, as JSON."""
LIMIT_S = 600
COLUMNS = ("check", "what", "where", "bound", "measured", "verdict")
LAST_LINES = 25


def run(name: str, file: Path, is_tiny: bool) -> list[dict[str, str]]:
    """The rows of a check; what else it prints is shown if it failed."""
    paths = [str(HERE.parents[1]), str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "HF_HUB_OFFLINE": "1",
            "HF_DATASETS_CACHE": f"{folder}/datasets",
            "TRL_EXPERIMENTAL_SILENCE": "1",
            **({"CUDA_VISIBLE_DEVICES": ""} if is_tiny else {}),
        }
        process = subprocess.Popen(
            [sys.executable, file],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
            env=environment,
            start_new_session=True,
        )
        try:
            printed, _ = process.communicate(timeout=LIMIT_S)
            end = f"ended with code {process.returncode}" if process.returncode else ""
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # and what it started
            printed, _ = process.communicate()
            end = f"not done after {LIMIT_S} s"
        except KeyboardInterrupt:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    lines = printed.splitlines()
    rows = [json.loads(line.removeprefix(ROW)) for line in lines if line.startswith(ROW)]
    if end or not rows:
        rows.append(
            dict.fromkeys(COLUMNS, "") | {"what": file.name, "measured": end, "verdict": "failed"}
        )
    if any(row["verdict"] == "failed" for row in rows):
        print(f"{name}:", *lines[-LAST_LINES:], sep="\n  ", file=sys.stderr)
    return [{"check": name} | row for row in rows]


def table(rows: list[dict[str, str]]) -> str:
    """The rows in Markdown, which can be read as it is."""
    cells = [list(COLUMNS), *([row[name] for name in COLUMNS] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    cells.insert(1, ["-" * width for width in widths])
    return "\n".join(
        f"| {' | '.join(f'{cell:<{width}}' for cell, width in zip(line, widths, strict=True))} |"
        for line in cells
    )


def main() -> int:
    files = {file.name.partition("_")[0].upper(): file for file in sorted(HERE.glob("g?_*.py"))}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checks", nargs="*", choices=[[], *files], metavar="CHECK")
    parser.add_argument("--tiny", action="store_true", help="hide the GPU")
    chosen = parser.parse_args()
    rows = []
    for name in chosen.checks or files:
        print(f"{name}: {files[name].name}", file=sys.stderr, flush=True)
        rows += run(name, files[name], chosen.tiny)
    print(table(rows))
    return int(any(row["verdict"] == "failed" for row in rows))


if __name__ == "__main__":
    sys.exit(main())

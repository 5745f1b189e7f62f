"""How much memory a run takes as its rows grow: ``heavydistill generate`` on two sizes.

    python benchmarks/memory.py                     # 2,000 and 20,000 problems

Thinker and deliberator are ``stub_server.py``, which answers at once. Prints, for each process of
a run, the most resident memory at both sizes and what each row more has cost. The process of the
run holds the problems and an index of the journal; all else is meant to be flat.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

import watched
from contestants import write_problems
from stub_server import MODEL, serving
from watched import Watched

ROOT = Path(__file__).parents[1]
COMMAND = "from heavydistill.cli.app import main; main()"


def generate(url: str, folder: Path, problems: int, chosen: argparse.Namespace) -> Watched:
    """A whole run."""
    file = folder / f"{problems}.jsonl"
    write_problems(file, problems)
    flags = {
        "--teacher": MODEL,
        "--endpoint": url,
        "--tokenizer": str(ROOT / "heavydistill" / "micro" / "teacher"),
        "--problems": str(file),
        "--k": str(chosen.k),
        "--d": str(chosen.d),
        "--out": str(folder / f"runs-{problems}" / "run"),
    }
    settings = ["think.min_k=1", "endpoint.concurrency=64", "cache.budget_tokens=960"]
    arguments = [part for flag in flags.items() for part in flag]
    arguments += [part for setting in settings for part in ("--set", setting)]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-c", COMMAND, "generate", *arguments]
    return watched.run(command, {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1"})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", type=int, nargs=2, default=[2000, 20000])
    parser.add_argument("--k", type=int, default=2, help="trajectories a problem")
    parser.add_argument("--d", type=int, default=1, help="deliberations a problem")
    chosen = parser.parse_args()
    few, many = chosen.problems
    peaks: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder, serving(0.01, 4) as server:
        for problems in (few, many):
            took = generate(server.url(str(problems)), Path(folder), problems, chosen)
            print(
                f"{problems} problems: {took.wall_s:.0f} s, {took.cpu_s:.0f} s of CPU", flush=True
            )
            peaks.append({p.name: p.peak_mib for p in took.processes.values()})
    print(f"\n{'process':<18} {few:>8} {many:>8}  ratio  KiB a row more")
    for name in (name for name in peaks[0] if name in peaks[1]):
        before, after = (peak[name] for peak in peaks)
        each = (after - before) * 1024 / (many - few)
        print(f"{name:<18} {before:4.0f} MiB {after:4.0f} MiB {after / before:6.2f} {each:15.2f}")


if __name__ == "__main__":
    main()

"""How time and memory of ``heavydistill build`` grow with its traces, on two sizes.

    python benchmarks/building.py                     # 5,000 and 20,000 traces

The runs are invented (see ``invented.py``): K attempts of about 850 characters, a cache of all
of them, D deliberations. A second build of the smaller run must give the same files, byte for
byte. Prints, for each size, wall time and CPU of the build and the most resident memory of its
largest process, and the time of a trace at both sizes.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tempfile
from pathlib import Path

import watched
from invented import write_run, write_student
from watched import Watched

ROOT = Path(__file__).parents[1]
COMMAND = "from heavydistill.cli.app import main; main()"
MOST_MIB = 2048


def build(run: Path, student: Path, preset: str, out: Path) -> Watched:
    """A whole build."""
    flags = {"--preset": preset, "--student": str(student), "--out": str(out)}
    arguments = [str(run), *(part for flag in flags.items() for part in flag)]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-c", COMMAND, "build", *arguments]
    return watched.run(command, {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1"})


def contents(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file, by its place in the folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=int, nargs=2, default=[5000, 20000])
    parser.add_argument("--k", type=int, default=8, help="trajectories a problem")
    parser.add_argument("--d", type=int, default=4, help="deliberations a problem")
    parser.add_argument("--preset", default="balanced")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        student = write_student(folder / "student")
        took: list[Watched] = []
        print(f"{'traces':>8} {'wall s':>8} {'CPU s':>8} {'ms of CPU a trace':>18} {'MiB':>6}")
        for count in chosen.traces:
            run = folder / f"run-{count}"
            strata = write_run(run, count, chosen.k, chosen.d)
            took.append(build(run, student, chosen.preset, folder / f"sets-{count}"))
            each = took[-1].cpu_s / count * 1000
            print(
                f"{count:>8,} {took[-1].wall_s:>8.1f} {took[-1].cpu_s:>8.1f} {each:>18.2f} "
                f"{took[-1].peak_mib:>6.0f}   pools: "
                + ", ".join(f"{many:,} {stratum}" for stratum, many in sorted(strata.items())),
                flush=True,
            )
        few, many = chosen.traces
        first, again = folder / f"sets-{few}", folder / "again" / f"sets-{few}"
        build(folder / f"run-{few}", student, chosen.preset, again)
        same = contents(first) == contents(again)
    small, large = took
    more = many - few
    print(
        f"A trace of {many:,} against one of {few:,}: wall time "
        f"{large.wall_s / many / (small.wall_s / few):.2f}, CPU "
        f"{large.cpu_s / many / (small.cpu_s / few):.2f}\n"
        f"Each trace more: {(large.wall_s - small.wall_s) / more * 1000:.2f} ms, "
        f"{(large.peak_mib - small.peak_mib) / more * 1024:.2f} KiB\n"
        f"The same run built twice: {'the same bytes' if same else 'OTHER BYTES'}"
    )
    if not same or large.peak_mib > MOST_MIB:
        sys.exit(f"Not as promised: the same bytes, and at most {MOST_MIB:,} MiB")


if __name__ == "__main__":
    main()

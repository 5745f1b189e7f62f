"""What interpreters of the sandbox cost: milliseconds a round, and memory of many at once.

    python benchmarks/sessions.py                      # 256 at once for five minutes
    python benchmarks/sessions.py --minutes 0.5 --sessions 32

Prints, for one interpreter: milliseconds of a round with a cell that does nothing, by the clock
and as processor time of this process and of the interpreter's processes; MiB bare and with sympy
and numpy imported. Then many bare interpreters are open at once and execute cells in turns, as
models that think for a while between two cells; each cell counts on from the one before. Prints
rounds, their milliseconds and MiB each. Memory is that of all processes of an interpreter, where a
page that several of them share is divided among them (PSS).

The program fails if a cell gives a wrong result, if the memory grows by more than 10 % during the
time, or if a process is left at the end. Linux only; run it as root or as an ordinary user.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from heavydistill.sandbox.session import Session, SessionLimits, open_session, require_sessions

_THREADS = 16
_ROUNDS = 2000
_GROWTH = 1.1
_GONE_S = 10.0
_BARE = SessionLimits(memory_mb=40, total_cpu_s=1e6)


def processes(parent: int) -> list[int]:
    """All descendants of a process."""
    found: list[int] = []
    for task in Path(f"/proc/{parent}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *processes(child)]
    return found


def mib(ids: Sequence[int]) -> float:
    """Memory of these processes together."""
    texts = (Path(f"/proc/{each}/smaps_rollup").read_text() for each in ids)
    lines = (line for text in texts for line in text.splitlines() if line.startswith("Pss:"))
    return sum(int(line.split()[1]) for line in lines) / 1024


def cpu_ms(ids: Sequence[int]) -> float:
    """Processor time that these processes have used."""
    return sum(int(Path(f"/proc/{each}/schedstat").read_text().split()[0]) for each in ids) / 1e6


def one() -> None:
    """Print what one interpreter costs."""
    with open_session(SessionLimits(total_cpu_s=1e6)) as session:
        ids = processes(os.getpid())
        print(f"one: {mib(ids):.1f} MiB bare", end="")
        mine, theirs, rounds = 1000 * time.process_time(), cpu_ms(ids), []
        for _ in range(_ROUNDS):
            begun = time.perf_counter()
            session.run("None")
            rounds.append(1000 * (time.perf_counter() - begun))
        mine, theirs = 1000 * time.process_time() - mine, cpu_ms(ids) - theirs
        imported = session.run(
            "import numpy, sympy; sympy.factorint(2 * numpy.prod([3, 5]).item())"
        )
        if imported.output != "{2: 1, 3: 1, 5: 1}\n":
            sys.exit(f"sympy does not work: {imported}")
        print(f", {mib(ids):.1f} with sympy and numpy")
    print(
        f"a round: {statistics.median(rounds):.3f} ms (fastest {min(rounds):.3f}); processor time "
        f"{mine / _ROUNDS:.3f} ms here, {theirs / _ROUNDS:.3f} in the sandbox"
    )


def many(sessions: list[Session], seconds: float) -> None:
    """Let cells be executed in turns for a while, and print what that costs."""
    ids = processes(os.getpid())
    chance, counts = random.Random(0), [0] * len(sessions)
    rounds: list[float] = []

    def turn(number: int) -> None:
        cell = sessions[number].run("x = globals().get('x', 0) + 1; x")
        counts[number] += 1
        if cell.output != f"{counts[number]}\n":
            raise SystemExit(f"interpreter {number} answers {cell}, not {counts[number]}")
        rounds.append(1000 * cell.seconds)

    def pass_through() -> None:
        order = chance.sample(range(len(sessions)), len(sessions))
        list(threads.map(turn, order))

    until = time.monotonic() + seconds
    with ThreadPoolExecutor(_THREADS) as threads:
        pass_through()
        before = mib(ids)
        while time.monotonic() < until:
            pass_through()
            time.sleep(0.5)
        after = mib(ids)
    ordered = sorted(rounds)
    print(
        f"{len(sessions)} at once for {seconds:.0f} s: {len(rounds)} rounds, "
        f"{statistics.median(ordered):.2f} ms, 99th percentile "
        f"{ordered[int(0.99 * len(ordered))]:.2f}; {after / len(sessions):.1f} MiB each "
        f"({before / len(sessions):.1f} at the start)"
    )
    if after > _GROWTH * before:
        sys.exit("the memory grows")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=256)
    parser.add_argument("--minutes", type=float, default=5.0)
    chosen = parser.parse_args()
    require_sessions(_BARE, chosen.sessions)
    one()
    begun = time.perf_counter()
    sessions = [open_session(_BARE) for _ in range(chosen.sessions)]
    print(f"start: {1000 * (time.perf_counter() - begun) / chosen.sessions:.0f} ms each")
    try:
        many(sessions, 60 * chosen.minutes)
    finally:
        for session in sessions:
            session.close()
    until = time.monotonic() + _GONE_S
    while left := processes(os.getpid()):
        if time.monotonic() > until:
            sys.exit(f"{len(left)} processes are left")
    print("no process is left")


if __name__ == "__main__":
    main()

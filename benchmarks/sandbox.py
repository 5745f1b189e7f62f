"""How many programs a second the sandbox runs: starting is most of what a short program costs.

    python benchmarks/sandbox.py                    # 200 runs of each program: a minute

Prints, for a program that does nothing, one that answers ten tests, and the same started without
any sandbox: runs a second by the wall clock, and milliseconds of processor time a run, of which
the start of Python itself takes the larger part. The last line is what a run gets of that: verdicts
a second from the pool, on functions with assertions as in HumanEval.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from heavydistill.config.run import Sandboxing, Verifying
from heavydistill.sandbox import Limits, bubblewrap, open_sandbox
from heavydistill.schema import Problem
from heavydistill.verifiers.pool import VerdictPool

LIMITS = Limits(cpu_s=10, wall_s=60, memory_mb=512, output_bytes=1 << 20)
TRIVIAL = "print(0)\n"
TYPICAL = """
import collections, heapq, itertools, json, math, sys
from typing import *

class Solution:
    def distances(self, edges: List[Tuple[int, int, int]], size: int) -> List[int]:
        around = collections.defaultdict(list)
        for a, b, cost in edges:
            around[a].append((b, cost))
            around[b].append((a, cost))
        best, heap = {}, [(0, 0)]
        while heap:
            so_far, at = heapq.heappop(heap)
            if at in best:
                continue
            best[at] = so_far
            for other, cost in around[at]:
                heapq.heappush(heap, (so_far + cost, other))
        return [best.get(node, -1) for node in range(size)]

for size in json.load(open("sizes.json")):
    edges = [(node, (node * 7 + 3) % size, node % 5 + 1) for node in range(size)]
    print(json.dumps(Solution().distances(edges, size)))
"""
SIZES = "[10, 20, 50, 100, 200, 300, 400, 500, 600, 700]"

Run = Callable[[str], bytes]


def boxed() -> Run:
    """Runs in the sandbox."""
    place = open_sandbox(Sandboxing())
    if reason := place.unavailable():
        sys.exit(reason)

    def run(program: str) -> bytes:
        ran = place.run({"main.py": program, "sizes.json": SIZES}, LIMITS)
        if (ran.ended, ran.exit_code) != ("exit", 0):
            sys.exit(f"a run failed: {ran}")
        return ran.stdout

    return run


def bare(folder: Path) -> Run:
    """Starts the same interpreter on the same program, with nothing around it."""
    python = bubblewrap.interpreter()[0]
    (folder / "sizes.json").write_text(SIZES, encoding="utf-8")

    def run(program: str) -> bytes:
        file = folder / f"{abs(hash(program))}.py"
        if not file.exists():
            file.write_text(program, encoding="utf-8")
        command = [python, "-s", "-S", "-P", "-B", str(file)]
        return subprocess.run(command, cwd=folder, capture_output=True, check=True).stdout

    return run


def measured(run: Run, program: str, runs: int, at_once: int) -> tuple[float, float]:
    """(runs a second, milliseconds of processor time a run, this process's share included)."""
    expected = run(program)
    used, begun = _cpu_s(), time.perf_counter()
    with ThreadPoolExecutor(at_once) as threads:
        for said in threads.map(lambda _: run(program), range(runs)):
            assert said == expected
    return runs / (time.perf_counter() - begun), 1000 * (_cpu_s() - used) / runs


def verdicts_a_second(count: int, workers: int) -> float:
    """Of answers that all differ; their problem has seven assertions."""
    asserts = "".join(f"    assert candidate({n}) == {n * n}\n" for n in range(7))
    args = {"test": f"def check(candidate):\n{asserts}", "entry_point": "square"}
    problem = Problem(
        id="p", text="Write it.", reference="", verifier="code", verifier_args=json.dumps(args)
    )
    answer = "```python\ndef square(n):\n    return n * n + {} - {}\n```"
    with VerdictPool(Verifying(workers=workers)) as pool:
        pool.judge_all([(problem, answer.format(0, 0))])
        begun = time.perf_counter()
        verdicts = pool.judge_all([(problem, answer.format(n, n)) for n in range(1, count + 1)])
        taken = time.perf_counter() - begun
    assert {judged.verdict.label for judged in verdicts} == {"correct"}
    return count / taken


def _cpu_s() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200)
    chosen = parser.parse_args()
    print(f"{'where':10}{'program':10}{'at once':>8}{'runs/s':>9}{'CPU ms/run':>12}")
    with tempfile.TemporaryDirectory() as folder:
        for where, run in (("sandbox", boxed()), ("bare", bare(Path(folder)))):
            for name, program in (("trivial", TRIVIAL), ("typical", TYPICAL)):
                for at_once in (1, 2):
                    rate, cpu_ms = measured(run, program, chosen.runs, at_once)
                    print(f"{where:10}{name:10}{at_once:>8}{rate:>9.1f}{cpu_ms:>12.1f}", flush=True)
    for workers in (1, 2):
        rate = verdicts_a_second(chosen.runs, workers)
        print(f"{'pool':10}{'verdicts':10}{workers:>8}{rate:>9.1f}", flush=True)


if __name__ == "__main__":
    main()

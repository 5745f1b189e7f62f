"""How long requests take through the pipeline, beside other clients, on the same work.

    python benchmarks/throughput.py --problems 2000
    python benchmarks/throughput.py --problems 2000 --stock --curator curator/bin/python

``stub_server.py`` answers each request after a lognormal time. One after the other, each in a
process of its own that is timed from its start to its end, imports and all:

- bare: an asyncio loop around the openai client;
- bare, streaming (``--stream``): the same, with the responses in pieces;
- ours: ``SampleTrajectories`` in a ``HeavyPipeline``, with journal and account, as in a run;
- ours, no journal: the same without the journal;
- ours, again: the same with the journal full, which asks for nothing;
- ours, 5% refused (``--refused 0.05``): ours, where the server refuses that share of all requests
  with ``Retry-After: 1``, however many are in flight;
- stock (``--stock``): distilabel's own ``OpenAILLM`` and ``TextGeneration``, batches of 50;
- curator (``--curator PYTHON``): see ``curator_client.py`` for how to install it.

``ideal`` is the sum of all latencies over the number of slots. Prints for each the wall time, its
ratio to the bare client, the CPU time of its processes and of the server meanwhile, and the memory
of its largest process. With ``--rounds`` all take turns so often, and medians are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import watched
from contestants import write_problems
from stub_server import TOKENS, Server, latency, problem, serving
from watched import Watched

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Result:
    """One turn of one client."""

    took: Watched
    server_cpu_s: float


class Course:
    """The work, and who does it how.

    Args:
        chosen: The command line.
        server: Asked by all.
        folder: For files.
    """

    def __init__(self, chosen: argparse.Namespace, server: Server, folder: Path) -> None:
        self.chosen = chosen
        self.server = server
        self.folder = folder
        self.turns = 0
        self.file = folder / "problems.jsonl"
        write_problems(self.file, chosen.problems)

    def clients(self) -> dict[str, Callable[[], Result]]:
        """What is run in a round, in this order."""
        found = {"bare": lambda: self.client("bare")}
        if self.chosen.stream:
            found["bare, streaming"] = lambda: self.client("bare", stream=True)
        journal = self.folder / f"journal-{self.turns}"
        found["ours"] = lambda: self.ours(journal)
        found["ours, no journal"] = lambda: self.ours(None)
        found["ours, again"] = lambda: self.ours(journal, samples=0)
        for share in self.chosen.refused:
            place = self.folder / f"journal-{self.turns}-{share}"
            found[f"ours, {share:.0%} refused"] = partial(self.ours, place, refused=share)
        if self.chosen.stock:
            found["stock"] = lambda: self.client("stock")
        if self.chosen.curator:
            found["curator"] = self.curator
        return found

    def client(self, name: str, **more: object) -> Result:
        return self.turn([sys.executable, str(HERE / "contestants.py"), name], **more)

    def ours(
        self, journal: Path | None, samples: int | None = None, refused: float = 0.0
    ) -> Result:
        command = [sys.executable, str(HERE / "contestants.py"), "ours"]
        return self.turn(
            command,
            samples,
            journal=str(journal) if journal else None,
            account=str(self.folder / f"account-{self.turns}"),
            file=str(self.file),
            asked=self.chosen.problems * self.chosen.k if samples is None else samples,
            refused=refused,
        )

    def curator(self) -> Result:
        return self.turn([self.chosen.curator, str(HERE / "curator_client.py")])

    def turn(self, command: list[str], samples: int | None = None, **more: object) -> Result:
        """Run a client, and check that it was given what it says: so many samples, or all."""
        refused = more.get("refused")
        client = f"refused-{refused}-{self.turns}" if refused else f"client{self.turns}"
        self.turns += 1
        chosen = self.chosen
        work = {
            "url": self.server.url(client),
            "problems": chosen.problems,
            "k": chosen.k,
            "slots": chosen.slots,
        }
        self.server.taken(client)
        took = watched.run([*command, json.dumps(work | more)], {"PYTHONPATH": _path()})
        given, server_cpu_s = self.server.taken(client)
        wanted = chosen.problems * chosen.k if samples is None else samples
        if given != wanted:
            raise RuntimeError(f"{command} was given {given} samples, not {wanted}")
        return Result(took, server_cpu_s)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", type=int, default=500)
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--slots", type=int, default=64, help="requests in flight")
    parser.add_argument("--mean-s", type=float, default=0.3, help="mean seconds of a response")
    parser.add_argument(
        "--chunks", type=int, default=TOKENS, help=f"pieces of a stream; {TOKENS} is one a token"
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument(
        "--refused", type=float, nargs="*", default=[], metavar="SHARE", help="shares of refusals"
    )
    parser.add_argument("--stream", action="store_true", help="the bare client streams too")
    parser.add_argument("--stock", action="store_true", help="run stock distilabel too; slow")
    parser.add_argument("--curator", metavar="PYTHON", help="interpreter that has curator")
    chosen = parser.parse_args()
    print(
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}; {chosen.problems} problems x {chosen.k}, "
        f"{chosen.slots} in flight, mean {chosen.mean_s} s, {chosen.chunks} pieces a stream"
    )
    drawn = [
        latency(problem(number), sample, chosen.mean_s)
        for number in range(chosen.problems)
        for sample in range(chosen.k)
    ]
    print(f"ideal {sum(drawn) / chosen.slots:.1f} s, longest response {max(drawn):.1f} s")
    results: dict[str, list[Result]] = {}
    with tempfile.TemporaryDirectory() as folder, serving(chosen.mean_s, chosen.chunks) as server:
        course = Course(chosen, server, Path(folder))
        for _ in range(chosen.rounds):
            for name, run in course.clients().items():
                results.setdefault(name, []).append(run())
                print(f"  {name}: {results[name][-1].took.wall_s:.1f} s", flush=True)
    _print_table(results, chosen.problems * chosen.k)


def _print_table(results: dict[str, list[Result]], requests: int) -> None:
    print(f"\n{'client':<18} wall s  of bare  CPU s  ms/request  server CPU s  largest MiB")
    bare = results["bare"]
    for name, turns in results.items():
        wall = statistics.median(turn.took.wall_s for turn in turns)
        ratio = statistics.median(
            turn.took.wall_s / base.took.wall_s for turn, base in zip(turns, bare, strict=True)
        )
        cpu = statistics.median(turn.took.cpu_s for turn in turns)
        server = statistics.median(turn.server_cpu_s for turn in turns)
        peak = max(turn.took.peak_mib for turn in turns)
        print(
            f"{name:<18} {wall:6.1f} {ratio:8.3f} {cpu:6.1f} {cpu / requests * 1000:11.2f} "
            f"{server:13.1f} {peak:12.0f}"
        )
    cost = statistics.median(
        turn.took.wall_s / without.took.wall_s - 1
        for turn, without in zip(results["ours"], results["ours, no journal"], strict=True)
    )
    print(f"\nthe journal's cost: {cost:+.1%} of the wall time")
    for name in (name for name in results if name.endswith(" refused")):
        ratio = statistics.median(
            without.took.wall_s / turn.took.wall_s
            for turn, without in zip(results[name], results["ours"], strict=True)
        )
        print(f"throughput of {name}: {ratio:.3f} of that without refusals")
    print("ours, by process: " + ", ".join(_parts(results["ours"][-1].took)))


def _parts(took: Watched) -> list[str]:
    return [
        f"{process.name} {process.cpu_s:.1f} s {process.peak_mib:.0f} MiB"
        for process in took.processes.values()
    ]


def _path() -> str:
    """This checkout first, whatever is installed."""
    before = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(HERE.parent), *([before] if before else [])])


if __name__ == "__main__":
    main()

"""Every thinker with every deliberator on the same problems: whose attempts, whose deliberation.

A row is a thinker with its own metrics, a cell what a deliberator makes of that thinker's pools.
Cells of a row are paired by problem, and so are cells of a column.

Not covered: the runs themselves (``pipeline.crossing``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import heavydistill
from heavydistill.metrics import estimators
from heavydistill.metrics.intervals import Interval, bootstrap_difference, bootstrap_mean
from heavydistill.schema import Trace
from heavydistill.versioned import read_versioned

FORMAT = "heavydistill-crossing/1"
CROSSING = "crossing.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinker:
    """A row.

    Attributes:
        name: Of the model.
        mean_at_k: M@K.
        vote_at_k: V@K.
        pass_at_k: P@K, of the whole pool.
    """

    name: str
    mean_at_k: Interval
    vote_at_k: Interval
    pass_at_k: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What a deliberator makes of a thinker's pools.

    Attributes:
        thinker: Name of the row.
        deliberator: Name of the column.
        heavy_mean_at_d: HM@D of the last round.
        heavy_pass_at_d: HP@D likewise.
        heavy_minus_vote: HM@D - V@K, paired by problem.
    """

    thinker: str
    deliberator: str
    heavy_mean_at_d: Interval
    heavy_pass_at_d: Interval
    heavy_minus_vote: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """The whole table; rows and columns in the order in which they were named."""

    format: str = FORMAT
    heavydistill: str
    problems: int
    k: int
    d: int
    rounds: int
    prompts: list[str]
    verifiers: list[str]
    thinkers: list[Thinker]
    cells: list[Cell]


def cross(runs: Mapping[tuple[str, str], Iterable[Trace]], k: int, d: int, rounds: int) -> Crossing:
    """The table of runs by (thinker, deliberator), each row whole.

    Args:
        runs: All traces of each run, on the same problems.
        k: Trajectories a problem.
        d: Deliberations a cache.
        rounds: Of which the last counts.
    """
    thinkers: dict[str, Thinker] = {}
    cells, problems = [], 0
    prompts: set[str] = set()
    verifiers: set[str] = set()
    for (thinker, deliberator), traces in runs.items():
        values = _Values(rounds)
        for trace in traces:
            values.add(trace)
        prompts |= values.prompts
        verifiers |= values.verifiers
        problems = len(values.vote)
        thinkers.setdefault(thinker, values.thinker(thinker))
        cells.append(values.cell(thinker, deliberator))
    return Crossing(
        heavydistill=heavydistill.__version__,
        problems=problems,
        k=k,
        d=d,
        rounds=rounds,
        prompts=sorted(prompts),
        verifiers=sorted(verifiers),
        thinkers=list(thinkers.values()),
        cells=cells,
    )


def read_crossing(path: Path) -> Crossing:
    """What ``write_versioned`` wrote.

    Raises:
        ConfigError: There is no such file, or it is of another version.
    """
    fix = "Give the file that `heavydistill cross` wrote, or cross again."
    return read_versioned(path, Crossing, FORMAT, what="crossing", missing=fix, other=fix)


class _Values:
    """What each problem of a run counts for, in the order of the traces."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self.mean: list[float] = []
        self.vote: list[float] = []
        self.any_right: list[float] = []
        self.heavy_mean: list[float] = []
        self.heavy_pass: list[float] = []
        self.prompts: set[str] = set()
        self.verifiers: set[str] = set()

    def add(self, trace: Trace) -> None:
        self.mean.append(estimators.mean_at_k(trace))
        self.vote.append(estimators.vote_at_k(trace))
        self.any_right.append(estimators.pass_at_k(trace))
        self.heavy_mean.append(estimators.heavy_mean_at_d(trace, self._rounds))
        self.heavy_pass.append(estimators.heavy_pass_at_d(trace, self._rounds))
        self.prompts |= {trace.thinker_prompt_version} - {""}
        self.prompts |= {cache.prompt_version for cache in trace.caches}
        judged = (one.verdict for one in (*trace.pool, *trace.deliberations))
        self.verifiers |= {verdict.verifier for verdict in judged if verdict}

    def thinker(self, name: str) -> Thinker:
        return Thinker(
            name=name,
            mean_at_k=bootstrap_mean(self.mean),
            vote_at_k=bootstrap_mean(self.vote),
            pass_at_k=bootstrap_mean(self.any_right),
        )

    def cell(self, thinker: str, deliberator: str) -> Cell:
        return Cell(
            thinker=thinker,
            deliberator=deliberator,
            heavy_mean_at_d=bootstrap_mean(self.heavy_mean),
            heavy_pass_at_d=bootstrap_mean(self.heavy_pass),
            heavy_minus_vote=bootstrap_difference(self.heavy_mean, self.vote),
        )

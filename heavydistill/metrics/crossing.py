"""The table of every thinker with every deliberator on the same problems.

A row is a thinker with its metrics; a cell has the metrics of a deliberator on that thinker's
pools. All cells are over the same problems: a problem that a deliberator did not get, because a
step failed on it, counts as wrong. Each interval belongs to one cell. Sampling that the
configuration does not set comes from each model's profile, so models may be sampled differently;
the table records how.

Not covered: the runs themselves (``run.experiments.crossing``); differences between cells, for
which ``comparison`` compares two of the runs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import heavydistill
from heavydistill.config.versioned import read_versioned
from heavydistill.metrics.counts import GenerationCounts
from heavydistill.metrics.intervals import Interval
from heavydistill.metrics.problem_figures import ProblemFigures, RunTally
from heavydistill.metrics.summary import HEAVY, NAMES, measure
from heavydistill.schema import Trace

FORMAT = "heavydistill-crossing/2"
CROSSING = "crossing.json"

Samplings = dict[str, dict[str, dict[str, Any]]]
"""For each stage, thinking and deliberating, how each model was sampled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinker:
    """A row of the table."""

    name: str  # name of the model
    mean_at_k: Interval  # M@K
    vote_at_k: Interval  # V@K
    pass_at_k: Interval  # P@K, of the whole pool
    samples: GenerationCounts | None = None  # trajectories; None in files of earlier versions


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Metrics of a deliberator on the pools of a thinker."""

    thinker: str  # name of the row
    deliberator: str  # name of the column
    heavy_mean_at_d: Interval  # HM@D of the last round
    heavy_pass_at_d: Interval  # HP@D of the last round
    heavy_minus_vote: Interval  # HM@D - V@K, paired by problem
    unasked: int  # problems that were not deliberated on
    samples: GenerationCounts | None = None  # deliberations of all rounds; None as above


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """The whole table, rows and columns in the order of the command."""

    format: str = FORMAT
    heavydistill: str
    problems: int
    k: int
    d: int
    rounds: int
    prompts: list[str]
    verifiers: list[str]
    sampling: Samplings  # empty if not known
    thinkers: list[Thinker]
    cells: list[Cell]

    @property
    def samples(self) -> dict[str, GenerationCounts]:
        """Counts of the samples of each row and cell, as far as known."""
        found = {f"trajectories of {thinker.name}": thinker.samples for thinker in self.thinkers}
        found |= {
            f"deliberations of {cell.deliberator} on {cell.thinker}": cell.samples
            for cell in self.cells
        }
        return {name: counts for name, counts in found.items() if counts}


def cross(
    runs: Mapping[tuple[str, str], Iterable[Trace]],
    k: int,
    d: int,
    rounds: int,
    sampling: Samplings | None = None,
) -> Crossing:
    """The table of runs by (thinker, deliberator), each row whole.

    Args:
        runs: All traces of each run, a thinker's own run first; the others read its pools, and lack
            the problems that a step of it failed on.
        k: Trajectories a problem.
        d: Deliberations a cache.
        rounds: Rounds of deliberation, of which the last counts.
        sampling: How each model was sampled; None if not known.
    """
    pools: dict[str, dict[str, ProblemFigures]] = {}
    thinkers: list[Thinker] = []
    cells: list[Cell] = []
    prompts: set[str] = set()
    verifiers: set[str] = set()
    for (thinker, deliberator), traces in runs.items():
        tally = RunTally(traces)
        prompts |= tally.prompts
        verifiers |= tally.verifiers
        rows = {row.problem: row for row in tally.rows}
        own = pools.setdefault(thinker, rows)
        # A missing problem has no deliberations.
        whole = [rows.get(id) or dataclasses.replace(row, rounds=()) for id, row in own.items()]
        metrics = measure(whole, rounds, k, d)
        if own is rows:
            values = {name: metrics[name] for name in NAMES if name not in HEAVY}
            thinkers.append(Thinker(name=thinker, **values, samples=tally.trajectories))
        cells.append(
            Cell(
                thinker=thinker,
                deliberator=deliberator,
                **{name: metrics[name] for name in HEAVY},
                unasked=sum(row.round(rounds).d == 0 for row in whole),
                samples=tally.deliberations,
            )
        )
    return Crossing(
        heavydistill=heavydistill.__version__,
        problems=len(next(iter(pools.values()))),
        k=k,
        d=d,
        rounds=rounds,
        prompts=sorted(prompts),
        verifiers=sorted(verifiers),
        sampling=sampling or {},
        thinkers=thinkers,
        cells=cells,
    )


def read_crossing(path: Path) -> Crossing:
    """Read a crossing; raises ConfigError if there is none or it is of another version."""
    fix = "Give the file that `heavydistill cross` wrote, or cross again."
    return read_versioned(path, Crossing, FORMAT, what="crossing", missing=fix, other=fix)

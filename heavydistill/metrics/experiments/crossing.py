"""Table of metrics for every pair of thinker and deliberator on the same problems.

A row is a thinker with its metrics; a cell has the metrics of a deliberator on that thinker's
trajectories. All cells use the same problems: a problem that is missing for a deliberator because a
step failed counts as wrong. Each interval applies to one cell only. Sampling parameters that the
configuration does not set come from each model's profile, so they may differ between models; the
table records them.

Not covered: the runs themselves (``experiments.crossing``); differences between cells (use
``comparison`` on two of the runs).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import heavydistill
from heavydistill.config.versioned import read_versioned
from heavydistill.metrics.counts import GenerationCounts
from heavydistill.metrics.intervals import Interval
from heavydistill.metrics.problem_figures import ProblemFigures, RunTally, on_same_pools
from heavydistill.metrics.summary import HEAVY, NAMES, measure
from heavydistill.schema import Trace

FORMAT = "heavydistill-crossing/2"
CROSSING = "crossing.json"

Samplings = dict[str, dict[str, dict[str, object]]]
"""Sampling parameters by stage (thinking, deliberating), then by model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinker:
    """A row of a ``Crossing``: a thinker and its metrics."""

    name: str  # name of the model
    mean_at_k: Interval  # M@K
    vote_at_k: Interval  # V@K
    pass_at_k: Interval  # P@K of all K trajectories
    samples: GenerationCounts  # counts of trajectories


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Metrics of a deliberator on the trajectories of a thinker."""

    thinker: str  # name of the row
    deliberator: str  # name of the column
    heavy_mean_at_d: Interval  # HM@D of the last round
    heavy_pass_at_d: Interval  # HP@D of the last round
    heavy_minus_vote: Interval  # HM@D - V@K, paired by problem
    unasked: int  # problems without deliberations
    samples: GenerationCounts  # counts of deliberations


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """A table with a row per thinker and a column per deliberator, in the order of the command."""

    format: str = FORMAT
    heavydistill: str
    problems: int
    k: int
    d: int
    rounds: int
    prompts: list[str]
    verifiers: list[str]
    sampling: Samplings
    thinkers: list[Thinker]
    cells: list[Cell]

    @property
    def samples(self) -> dict[str, GenerationCounts]:
        """Counts of the samples of each row and cell."""
        samples = {f"trajectories of {thinker.name}": thinker.samples for thinker in self.thinkers}
        return samples | {
            f"deliberations of {cell.deliberator} on {cell.thinker}": cell.samples
            for cell in self.cells
        }


def cross(
    runs: Mapping[tuple[str, str], Iterable[Trace]],
    k: int,
    d: int,
    rounds: int,
    sampling: Samplings,
) -> Crossing:
    """Build a table from runs by (thinker, deliberator); every pair must have a run.

    Args:
        runs: All traces of each run. The run that generated a thinker's trajectories is first in
            its row; the others read them, and lack the problems on which a step of that run failed.
        k: Number of trajectories per problem.
        d: Number of deliberations per cache.
        rounds: Number of deliberation rounds; the last round is used.
        sampling: Sampling parameters of each model.
    """
    pools: dict[str, list[ProblemFigures]] = {}
    thinkers: list[Thinker] = []
    cells: list[Cell] = []
    prompts: set[str] = set()
    verifiers: set[str] = set()
    for (thinker, deliberator), traces in runs.items():
        tally = RunTally(traces)
        prompts |= tally.prompts
        verifiers |= tally.verifiers
        own = pools.setdefault(thinker, tally.rows)
        whole = list(on_same_pools(own, tally.rows).values())
        metrics = measure(whole, rounds, k, d)
        if own is tally.rows:
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
        sampling=sampling,
        thinkers=thinkers,
        cells=cells,
    )


def read_crossing(path: Path) -> Crossing:
    """Read a crossing; raises ConfigError if the file is missing or of another version."""
    fix = "Give the file that `heavydistill cross` wrote, or cross again."
    return read_versioned(path, Crossing, FORMAT, what="crossing", missing=fix, other=fix)

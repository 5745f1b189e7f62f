"""A run before and one after, on the same problems, compared problem by problem.

A difference is after minus before, with the interval of pairs: each problem stands against itself.
What failed counts as wrong in both, and a problem that was not deliberated is worth 0 there (see
``estimators``). V, P and HP change with their size, so runs of different sizes are compared at the
smaller one, with the expected value of so many samples of the larger. Where there is one answer a
problem, as of the vote of a whole pool and of the first deliberation, McNemar's counts stand
beside. Any two runs can be compared, by two teachers for instance; then ``before`` is the one that
the other is compared with. ``dataclasses.asdict`` of a comparison is what ``evaluation.json``
holds: the same runs give the same bytes, and nothing in it is a path or an address.

What may be compared is said in ``comparable``. Not covered: more than two runs.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import heavydistill
from heavydistill.config.versioned import read_versioned
from heavydistill.metrics.comparable import (
    Asked,
    Model,
    Side,
    asked_differently,
    refuse_other_problems,
)
from heavydistill.metrics.groups import NAMES, grouped, values_of
from heavydistill.metrics.intervals import Interval, bootstrap_difference, bootstrap_mean
from heavydistill.metrics.mcnemar import Pairs, paired
from heavydistill.metrics.row import Row
from heavydistill.metrics.summary import Summary
from heavydistill.schema import FAILED

FORMAT = "heavydistill-evaluation/3"
COMPARISON = "evaluation.json"
MEANINGS = dict(
    zip(
        NAMES,
        (
            "the thinker's own pass@1",
            "the vote is right",
            "any trajectory is right",
            "a deliberation is right",
            "any deliberation is right",
            "what deliberation adds",
        ),
        strict=True,
    )
)
_HALF = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One of the two runs.

    Attributes:
        name: As of ``Side``, like the next three.
        heavydistill: Likewise.
        thinker: Likewise.
        deliberator: Likewise.
        summary: Of the run. Traces that a step failed on have the status ``failed``.
        left_out: As of ``Side``; None in files from before it was told, too.
    """

    name: str
    heavydistill: str
    thinker: Model | None
    deliberator: Model | None
    summary: Summary
    left_out: int | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A metric, as a share or a difference of shares.

    Attributes:
        before: None if there was no run before.
        after: Of the run after.
        difference: ``after - before``, paired by problem; None likewise.
    """

    before: Interval | None
    after: Interval
    difference: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The metrics of a group of problems.

    Attributes:
        problems: In the group.
        mean_at_k: M@K, which is the thinker's own pass@1.
        vote_at_k: V@K, of the smaller K of the two runs, as of ``groups.Metrics``.
        pass_at_k: P@K, likewise.
        heavy_mean_at_d: HM@D of the last round; None if one of the runs has no deliberations.
        heavy_pass_at_d: HP@D of the last round, of the smaller D; None likewise.
        heavy_minus_vote: HM@D - V@K, paired by problem within each run; None likewise.
    """

    problems: int
    mean_at_k: Change
    vote_at_k: Change
    pass_at_k: Change
    heavy_mean_at_d: Change | None
    heavy_pass_at_d: Change | None
    heavy_minus_vote: Change | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Changes):
    """All of it: the metrics of all problems, and what else there is to say.

    Attributes:
        format: Of the file.
        heavydistill: Version that compared.
        versions: Of what else ran the models, as far as it is known.
        config: How the run after was asked, as of ``Side``.
        asked_differently: In what the run before was not asked alike.
        before: None if one run alone was measured.
        after: The run after, or the only one.
        by_verifier: The metrics of the problems of each verifier.
        by_family: Likewise of each family of procedural problems.
        vote_pairs: Whose vote is right, where a tie is not, of the problems whose vote is V@K in
            both runs; None if there was no run before, or if K is not the same in both.
        deliberation_pairs: Whose first deliberation of the last round is right; None if there was
            no run before, or if one of the runs has no deliberations.
    """

    format: str = FORMAT
    heavydistill: str
    versions: dict[str, str]
    config: dict[str, Any]
    asked_differently: list[Asked]
    before: Measured | None
    after: Measured
    by_verifier: dict[str, Changes]
    by_family: dict[str, Changes]
    vote_pairs: Pairs | None
    deliberation_pairs: Pairs | None

    @property
    def metrics(self) -> list[tuple[str, str, Change]]:
        """(name, what it says, change) of each metric, in the order in which they are shown."""
        changes = [(MEANINGS[key], getattr(self, key)) for key in NAMES]
        return [
            (name, meaning, change)
            for name, (meaning, change) in zip(self.names, changes, strict=True)
            if change
        ]

    @property
    def names(self) -> list[str]:
        """Of the metrics; where sizes differ, those of both runs, or the one that is compared."""
        runs = [run.summary for run in (self.before, self.after) if run]
        of_both, d = (
            "/".join(dict.fromkeys(map(str, sizes)))
            for sizes in ([run.k for run in runs], [run.d for run in runs])
        )
        k, fewest = min(run.k for run in runs), min(run.d for run in runs)
        return [f"M@{of_both}", f"V@{k}", f"P@{k}", f"HM@{d}", f"HP@{fewest}", f"HM@{d} - V@{k}"]

    @property
    def unpaired_votes(self) -> int:
        """Problems that are not in ``vote_pairs``."""
        pairs = self.vote_pairs
        return self.problems - (pairs.problems if pairs else 0)


def compare(after: Side, before: Side | None, versions: dict[str, str]) -> Comparison:
    """Measure a run, and compare it with another one if there is one.

    Args:
        after: The run.
        before: What it is compared with.
        versions: Of what ran the models.

    Raises:
        ConfigError: The two are not over the same problems.
    """
    sides = [before, after] if before else [after]
    asked = []
    if before:
        refuse_other_problems(before, after)
        asked = asked_differently(before, after)
    rows = [{row.problem: row for row in side.tally.rows} for side in sides]
    rounds = [side.tally.rounds for side in sides]
    sizes = [min(getattr(side.summary, size) for side in sides) for size in ("k", "d")]

    def changes(problems: Iterable[str]) -> dict[str, Any]:
        return _changes([[of[problem] for problem in problems] for of in rows], rounds, *sizes)

    def by(grouping: str) -> dict[str, Changes]:
        groups = grouped(after.tally.rows, grouping)
        return {name: Changes(**changes([r.problem for r in of])) for name, of in groups.items()}

    return Comparison(
        heavydistill=heavydistill.__version__,
        versions=versions,
        config=after.config,
        asked_differently=asked,
        before=_measured(before) if before else None,
        after=_measured(after),
        **changes(rows[-1]),
        by_verifier=by("verifier"),
        by_family=by("family"),
        **_pairs(
            [[of[problem] for problem in rows[-1]] for of in rows],
            rounds,
            [side.summary.k for side in sides],
        ),
    )


def read_comparison(path: Path) -> Comparison:
    """The comparison in a file that ``write_versioned`` wrote.

    Raises:
        ConfigError: There is none, or it is of another version.
    """
    fix = "Give the file that `heavydistill evaluate` wrote, or evaluate again."
    return read_versioned(path, Comparison, FORMAT, what="evaluation", missing=fix, other=fix)


def _changes(
    runs: Sequence[Sequence[Row]], rounds: Sequence[int], k: int, d: int
) -> dict[str, Any]:
    """The fields of ``Changes``; position i of each run is the same problem."""
    values = [
        [values_of(row, of_run if all(rounds) else 0, k, d) for row in rows]
        for rows, of_run in zip(runs, rounds, strict=True)
    ]

    def change(name: str) -> Change | None:
        if name not in values[0][0]:
            return None
        told = [[value[name] for value in of_run] for of_run in values]
        now = bootstrap_mean(told[-1])
        if len(told) == 1:
            return Change(None, now, None)
        return Change(bootstrap_mean(told[0]), now, bootstrap_difference(told[1], told[0]))

    return {"problems": len(runs[-1]), **{name: change(name) for name in NAMES}}


def _pairs(
    runs: Sequence[Sequence[Row]], rounds: Sequence[int], sizes: Sequence[int]
) -> dict[str, Any]:
    """``vote_pairs`` and ``deliberation_pairs``; ``sizes`` are the K of each run."""
    if len(runs) == 1:
        return {"vote_pairs": None, "deliberation_pairs": None}
    k, is_one_size = min(sizes), len(set(sizes)) == 1
    # A vote of some of a pool is no one answer: it is right with a chance.
    voting = [each for each in zip(*runs, strict=True) if max(row.k for row in each) <= k]
    votes = [[row.vote > _HALF for row in rows] for rows in zip(*voting, strict=True)]
    first = [
        [row.round(of_run).first_right for row in rows]
        for rows, of_run in zip(runs, rounds, strict=True)
    ]
    return {
        "vote_pairs": paired(*votes) if is_one_size and voting else None,
        "deliberation_pairs": paired(*first) if all(rounds) else None,
    }


def _measured(side: Side) -> Measured:
    return Measured(
        name=side.name,
        heavydistill=side.heavydistill,
        thinker=side.thinker,
        deliberator=side.deliberator,
        summary=dataclasses.replace(side.summary, statuses=dict(_statuses(side.summary))),
        left_out=side.left_out,
    )


def _statuses(summary: Summary) -> Counter[str]:
    """Without the messages of faults, in which there may be paths."""
    counts: Counter[str] = Counter()
    for status, count in summary.statuses.items():
        counts["failed" if status.startswith(FAILED) else status] += count
    return counts

"""Compares a run "after" (e.g. a training) with a run "before", problem by problem.

A difference is after minus before, paired by problem. Failed samples count as wrong in both runs,
and a problem without deliberations has the value 0. V, P and HP depend on the number of samples, so
runs of different sizes are compared at the smaller size; for the larger run, the expected value for
that many samples is used. Both runs must have the same problems, verifier versions and judge;
otherwise a changed verdict could be due to the verifier instead of the answer.

A better thinker makes better deliberations, and a vote that is harder to beat. So ``frozen`` has
the deliberators of both runs on the same trajectories, those of the run before.

``evaluation.json`` holds ``dataclasses.asdict`` of a comparison. The same runs give the same bytes.
The file contains no paths or addresses.

Not covered: more than two runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import heavydistill
from heavydistill.config.versioned import read_versioned
from heavydistill.errors import ConfigError
from heavydistill.metrics.claims import ClaimFigures, claim_differences, claim_metrics
from heavydistill.metrics.intervals import (
    Interval,
    Pairs,
    bootstrap_difference,
    bootstrap_mean,
    paired,
)
from heavydistill.metrics.problem_figures import ProblemFigures, RunTally, on_same_pools
from heavydistill.metrics.steps import step_shares
from heavydistill.metrics.summary import NAMES, Summary, grouped, values_of

FORMAT = "heavydistill-evaluation/3"
COMPARISON = "evaluation.json"
MEANINGS = {
    "mean_at_k": "the thinker's own pass@1",
    "vote_at_k": "the vote is right",
    "pass_at_k": "any trajectory is right",
    "heavy_mean_at_d": "a deliberation is right",
    "heavy_pass_at_d": "any deliberation is right",
    "heavy_minus_vote": "what deliberation adds",
}
_Run = tuple[dict[str, ProblemFigures], int]
"""Figures of a run by problem, and its last round."""
_JUDGE_AGAIN = (
    "Judge them with this version: `heavydistill replay RUN --out FOLDER` sends no request (import "
    "an imported pool again)."
)
_MOST_LISTED = 3
_HALF = 0.5
_POOLS = "pools_sha256"
# Configuration keys that have no meaning for a run that reads the trajectories of another run.
_NOT_OF_POOLS = ("problems.", "think.sampling.", _POOLS)


@dataclass(frozen=True, slots=True)
class Model:
    """A model used in a run."""

    name: str  # name of a profile or folder, or an id on the Hub
    revision: str  # identifies the weights; empty for a served model, whose weights are unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMetrics:
    """One run of a comparison; the keys of its statuses come from ``counts.statuses_alone``."""

    name: str  # "before" or "after", "A" or "B"
    heavydistill: str  # version that made the run; empty if unknown
    thinker: Model | None  # None if it read the trajectories of another run
    deliberator: Model | None  # None if the run has no deliberations
    summary: Summary
    left_out: int | None = None  # rows of its source that cannot be judged; None if unknown


@dataclass(frozen=True, slots=True)
class Side:
    """A run to compare."""

    run: RunMetrics
    config: dict[str, Any]  # configuration without models, folders and addresses
    tally: RunTally  # counts, with the figures of each problem
    minus_controls: dict[str, dict[str, float]] = field(default_factory=dict)
    """See ``controls.minus_controls``; empty for a run without controls."""


@dataclass(frozen=True, slots=True)
class ConfigDifference:
    """A configuration key that differs between the runs; null on the side where it is missing."""

    key: str
    before: Any
    after: Any


def asked_differently(before: Side, after: Side) -> list[ConfigDifference]:
    """List the keys in which the configurations of two runs differ.

    If only one run was imported, it has no configuration, and the only key is ``configuration``.

    If a run read the trajectories of another run, keys about trajectories are not compared.
    """
    if not (before.config and after.config):
        made = ["generated" if side.config else "imported" for side in (before, after)]
        return [ConfigDifference("configuration", *made)] if made[0] != made[1] else []
    then, now = dict(leaves(before.config)), dict(leaves(after.config))
    one_took_pools = bool(then.get(_POOLS)) != bool(now.get(_POOLS))
    passed_over = _NOT_OF_POOLS if one_took_pools else ()
    return [
        ConfigDifference(key, then.get(key), now.get(key))
        for key in {**then, **now}
        if then.get(key) != now.get(key) and not key.startswith(passed_over)
    ]


def leaves(tree: dict[str, Any], at: str = "") -> Iterator[tuple[str, object]]:
    """Yield (dotted key, value) of each value that is not a mapping."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{at}{key}.")
        else:
            yield f"{at}{key}", value


def refuse_other_ways(before: Side, after: Side) -> None:
    """Raise a ConfigError if the configurations of the runs differ."""
    if differences := asked_differently(before, after):
        keys = [
            f"{each.key} ({each.before!r} before, {each.after!r} after)" for each in differences
        ]
        raise ConfigError(
            f"The configurations of the runs differ: {_listed(keys)}",
            "Compare runs of one configuration that differ only in their models.",
        )


def refuse_other_problems(before: Side, after: Side) -> None:
    """Raise a ConfigError if the runs do not have the same problems.

    Problems are the same if id, text, reference, verifier and its arguments are equal.
    """
    then, now = ({row.problem: row.question for row in side.tally.rows} for side in (before, after))
    if differing := [
        problem for problem in {**then, **now} if then.get(problem) != now.get(problem)
    ]:
        raise ConfigError(
            "The runs do not have the same problems. These are missing in one run, or have another "
            f"text, reference, verifier or verifier arguments there: {_listed(differing)}",
            "Compare runs on the same problems.",
        )


def refuse_other_verdicts(before: Side, after: Side) -> None:
    """Raise a ConfigError if a run has no verdicts, or the runs' verifiers or judges differ."""
    sides = (before, after)
    for side in sides:
        if not side.tally.verifiers:
            raise ConfigError(
                f"The run {side.run.name} has no verdicts: none of its samples was judged",
                _JUDGE_AGAIN,
            )
    rules = sorted(before.tally.rules | after.tally.rules)
    versions = Counter(rule.partition("@")[0] for rule in rules)
    if mixed := [rule for rule in rules if versions[rule.partition("@")[0]] > 1]:
        listed = [
            f"{rule} ({' and '.join(side.run.name for side in sides if rule in side.tally.rules)})"
            for rule in mixed
        ]
        raise ConfigError(
            f"The runs were judged by different versions of a verifier: {', '.join(listed)}",
            _JUDGE_AGAIN,
        )
    judges = {side.run.name: sorted(side.tally.judging.judges) for side in sides}
    # A judge does not affect a run without undecided verdicts.
    needs_both = all(judges[side.run.name] or side.tally.left_open for side in sides)
    if needs_both and judges[before.run.name] != judges[after.run.name]:
        listed = [f"{', '.join(each) or 'nobody'} ({name})" for name, each in judges.items()]
        raise ConfigError(
            f"Undecided verdicts were decided by different judges: {', '.join(listed)}",
            "Compare runs with the same judge, or without one.",
        )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_LISTED:,} more" if len(names) > _MOST_LISTED else ""
    return ", ".join(names[:_MOST_LISTED]) + more


@dataclass(frozen=True, slots=True)
class Change:
    """A metric of the run before and the run after, as shares from 0 to 1, and the difference."""

    before: Interval | None  # None if there is no run before
    after: Interval
    difference: Interval | None  # `after - before`, paired by problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Changes of ``summary.Metrics`` for a group of problems, at the smaller K and D of the runs.

    Metrics of deliberation are None if a run has no deliberations.
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
    """Metrics of all problems and of groups, and how both runs were made."""

    format: str = FORMAT
    heavydistill: str  # version that made the comparison
    versions: dict[str, str]  # versions of the packages that ran the models, if known
    config: dict[str, Any]  # configuration of the run after, as in ``Side``
    asked_differently: list[ConfigDifference]
    before: RunMetrics | None  # None if only one run was measured
    after: RunMetrics
    by_verifier: dict[str, Changes]
    by_family: dict[str, Changes]
    vote_pairs: Pairs | None
    """Numbers of problems whose vote is right (a tie is not) in both, one or neither run, among
    those whose vote is V@K in both; None if only one run was measured, or if K differs."""
    deliberation_pairs: Pairs | None
    """Numbers of problems whose first deliberation of the last round is right in both, one or
    neither run; None if only one run was measured, or if a run has no deliberations."""
    claim_coverage: Change | None = None
    """Metrics of ``claims``, as the next six, over the problems with complete deliberations in
    each run; None if the run after has no value."""
    claim_balanced_accuracy: Change | None = None
    self_contradiction_share: Change | None = None
    claim_vote_accuracy: Change | None = None
    claim_accuracy_when_wrong: Change | None = None
    leak_in_answer: Change | None = None
    leak_in_thinking: Change | None = None
    steps: dict[str, Change] = field(default_factory=dict)
    """Shares of ``steps.step_shares``, ``step_vote`` and ``heavy_minus_step_vote``; those of the
    vote are over the problems where it is defined in each run."""
    frozen: Changes | None = None
    """Changes on the trajectories of the run before, which the deliberator after read too; None if
    it did not, or if the runs have one thinker or one deliberator."""
    frozen_steps: dict[str, Change] = field(default_factory=dict)
    """``steps`` on these trajectories; empty if ``frozen`` is None."""
    minus_controls: dict[str, Change] = field(default_factory=dict)
    """HM@D minus each control of both runs, and changes by transplants; the keys are those of
    ``controls.minus_controls``."""

    @property
    def metrics(self) -> list[tuple[str, str, Change]]:
        """(name, meaning, change) of each metric, in the order in which tables show them."""
        changes = [(MEANINGS[key], getattr(self, key)) for key in NAMES]
        return [
            (name, meaning, change)
            for name, (meaning, change) in zip(self.names, changes, strict=True)
            if change
        ]

    @property
    def names(self) -> list[str]:
        """Names of the metrics with the values of K and D.

        If K is 8 and 4: ``M@8/4``, ``V@4``, ``P@4``. HM shows both values of D, HP the smaller one.
        """
        runs = [run.summary for run in (self.before, self.after) if run]
        of_both, d = (
            "/".join(dict.fromkeys(map(str, sizes)))
            for sizes in ([run.k for run in runs], [run.d for run in runs])
        )
        k, fewest = min(run.k for run in runs), min(run.d for run in runs)
        return [f"M@{of_both}", f"V@{k}", f"P@{k}", f"HM@{d}", f"HP@{fewest}", f"HM@{d} - V@{k}"]

    @property
    def unpaired_votes(self) -> int:
        """Number of problems that are not in ``vote_pairs``."""
        pairs = self.vote_pairs
        return self.problems - (pairs.problems if pairs else 0)


def compare_sides(
    after: Side, before: Side | None, versions: dict[str, str], frozen: Side | None = None
) -> Comparison:
    """Measure a run and, if ``before`` is given, compare both runs.

    Args:
        after: The run that is measured.
        before: The run with which it is compared; None measures only ``after``.
        versions: Versions of the packages that ran the models.
        frozen: Run of the deliberator after on the trajectories of ``before``, if there is one.

    Raises:
        ConfigError: The runs do not have the same problems.
    """
    sides = [before, after] if before else [after]
    if before:
        refuse_other_problems(before, after)
    deliberated = all(side.tally.rounds for side in sides)
    runs: list[_Run] = [
        ({row.problem: row for row in side.tally.rows}, side.tally.rounds * deliberated)
        for side in sides
    ]
    k, d = (min(getattr(side.run.summary, size) for side in sides) for size in ("k", "d"))

    def changes(problems: Sequence[str], runs: Sequence[_Run] = runs) -> dict[str, Any]:
        """Compute the fields of ``Changes`` for these problems."""
        values = [[values_of(rows[id], last, k, d) for id in problems] for rows, last in runs]
        differences = {
            name: _change(*([each[name] for each in of_run] for of_run in values))
            for name in values[0][0]
        }
        return {"problems": len(problems), **dict.fromkeys(NAMES), **differences}

    def by(grouping: str) -> dict[str, Changes]:
        groups = grouped(after.tally.rows, grouping)
        return {name: Changes(**changes([r.problem for r in of])) for name, of in groups.items()}

    problems = [row.problem for row in after.tally.rows]
    on_before: list[_Run] = []
    if before and frozen:
        rows = on_same_pools(before.tally.rows, frozen.tally.rows)
        on_before = [runs[0], (rows, frozen.tally.rounds)]
    return Comparison(
        heavydistill=heavydistill.__version__,
        versions=versions,
        config=after.config,
        asked_differently=asked_differently(before, after) if before else [],
        before=before.run if before else None,
        after=after.run,
        **changes(problems),
        by_verifier=by("verifier"),
        by_family=by("family"),
        vote_pairs=_vote_pairs(sides, runs, problems),
        deliberation_pairs=_deliberation_pairs(runs, problems) if deliberated else None,
        **_claim_changes(
            *([rows[id].round(last).claims for id in problems] for rows, last in runs)
        ),
        steps=_step_changes(problems, runs),
        frozen=Changes(**changes(problems, on_before)) if on_before else None,
        frozen_steps=_step_changes(problems, on_before) if on_before else {},
        minus_controls=_control_changes(before, after) if before else {},
    )


def _vote_pairs(
    sides: Sequence[Side], runs: Sequence[_Run], problems: Sequence[str]
) -> Pairs | None:
    """The votes of two runs with the same K, paired by problem."""
    k, *others = (side.run.summary.k for side in sides)
    if others != [k]:
        return None
    # The vote of a subset of the trajectories is not a single answer, only an expected value.
    voting = [id for id in problems if max(rows[id].k for rows, _ in runs) <= k]
    if not voting:
        return None
    return paired(*([rows[id].vote > _HALF for id in voting] for rows, _ in runs))


def _deliberation_pairs(runs: Sequence[_Run], problems: Sequence[str]) -> Pairs | None:
    """The first deliberations of two runs, paired by problem."""
    if len(runs) == 1:
        return None
    return paired(*([rows[id].round(last).first_right for id in problems] for rows, last in runs))


def read_comparison(path: Path) -> Comparison:
    """Read a comparison; raises ConfigError if the file is missing or of another version."""
    fix = "Give the file that `heavydistill evaluate` wrote, or evaluate again."
    return read_versioned(path, Comparison, FORMAT, what="evaluation", missing=fix, other=fix)


def _change(*runs: list[float]) -> Change:
    """The change of a metric, from its values per problem in one run or in two."""
    after = bootstrap_mean(runs[-1])
    if len(runs) == 1:
        return Change(None, after, None)
    return Change(bootstrap_mean(runs[0]), after, bootstrap_difference(runs[1], runs[0]))


def _control_changes(before: Side, after: Side) -> dict[str, Change]:
    """The changes of what deliberation adds over each control, on the problems of both runs."""
    changes = {}
    for name, new in after.minus_controls.items():
        old = before.minus_controls.get(name, {})
        if problems := [problem for problem in new if problem in old]:
            changes[name] = _change(*([of[problem] for problem in problems] for of in (old, new)))
    return changes


def _claim_changes(*runs: list[ClaimFigures | None]) -> dict[str, Any]:
    """The changes of the claims' metrics, from the figures per problem in one run or in two."""
    problems = [[each for each in of_runs if each] for of_runs in zip(*runs, strict=True)]
    paired = [each for each in problems if len(each) == len(runs)]
    *before, after = ([each[number] for each in paired] for number in range(len(runs)))
    old, new = claim_metrics(before[0]) if before else {}, claim_metrics(after)
    differences = claim_differences(after, before[0]) if before else {}
    return {
        name: Change(old.get(name), value, old.get(name) and differences[name]) if value else None
        for name, value in new.items()
    }


def _step_changes(problems: Sequence[str], runs: Sequence[_Run]) -> dict[str, Change]:
    """The changes of the step table and of the step vote, in one run or in two."""
    rounds = [[rows[id].round(last) for id in problems] for rows, last in runs]
    figures = [[each.steps for each in of_run] for of_run in rounds]
    shares = [step_shares(each) for each in figures]
    added = step_shares(figures[-1], figures[0]) if len(runs) > 1 else {}
    changes = {
        name: Change(shares[0].get(name) if added else None, value, added.get(name))
        for name, value in shares[-1].items()
    }
    voted = [
        [
            (each.steps.step_vote, each.mean)
            for each in of_problem
            if each.steps.step_vote is not None
        ]
        for of_problem in zip(*rounds, strict=True)
    ]
    if of_runs := list(zip(*(each for each in voted if len(each) == len(runs)), strict=True)):
        changes["step_vote"] = _change(*([vote for vote, _ in each] for each in of_runs))
        over = ([mean - vote for vote, mean in each] for each in of_runs)
        changes["heavy_minus_step_vote"] = _change(*over)
    return changes

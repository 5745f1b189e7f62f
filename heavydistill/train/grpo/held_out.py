"""What a GRPO training is measured on meanwhile: caches and problems that it never learns from.

HM is the share of deliberations that are right, V the vote of the attempts that they read, and
pass@1 the share of a thinker's attempts that are right, all on problems of the validation split
(``measuring``). The caches are those that the runs made, one a problem, whatever its success:
unlike the prompts of the set ``rl``, they are not chosen for being answered rightly at times, nor
by stratum, so HM - V is that of the problems. A problem for which no run made a cache has one that
the build drew, if it drew any; how many those are is said.

Caches are made anew where a folder of a run is given: of its pools, as everywhere else.

Not covered: several rounds; problems that differ in a word from those that are learnt from.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heavydistill.errors import BudgetError, ConfigError
from heavydistill.heavy.voting import vote_value
from heavydistill.schema import Cache, Generation, Problem, Trajectory, content_id, from_row
from heavydistill.store.sets.folder import MANIFEST, read_rows
from heavydistill.store.sets.rows import USED, CacheRow, ProblemRow, TrajectoryRow
from heavydistill.store.traces import read_columns, read_traces

# Labels of ``rl`` that say how a cache fares or how many are wanted, and not that it is unfit.
FIT = frozenset(
    {
        USED,
        "always_right",
        "never_right",
        "unmeasured",
        "duplicate",
        "over_bound",
        "not_admitted",
        "over_cap",
    }
)
Row = dict[str, Any]
ThinkerPrompt = Callable[[Problem], str]
"""What a thinker is asked about a problem."""
CacheOf = Callable[[Problem, Sequence[Trajectory]], Cache]
"""The cache of a pool, for the student; may raise ``BudgetError``."""


@dataclass
class HeldOutArguments:
    """What the training is measured on meanwhile."""

    held_out: int = field(
        default=128,
        metadata={
            "help": "With eval_strategy: most held-out caches, and most problems, that an "
            "evaluation asks about, each num_generations_eval times."
        },
    )
    held_out_from: str | None = field(
        default=None,
        metadata={
            "help": "Folder of sets whose validation problems are held out, or, for thinkers "
            "and joint, of another run, all of whose problems are. [default: that of dataset_name]"
        },
    )


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Prompts to measure on.

    Attributes:
        deliberator: Rows with ``prompt`` (one user turn), ``problem``, ``text``, ``reference``,
            ``verifier``, ``verifier_args``, ``cache`` (its id) and ``vote`` (V of its attempts).
        thinker: Rows with the first six of these.
        drawn: Of the caches, those that no run made but the build.
        too_long: Rows that are left out because they do not fit, and of a run's problems those of
            which no cache could be made that fits.
        unusable: Of a run's problems, those of which no attempt can be shown. HM and V are without
            them.
    """

    deliberator: list[Row]
    thinker: list[Row]
    drawn: int = 0
    too_long: int = 0
    unusable: int = 0

    @property
    def roles(self) -> dict[str, list[Row]]:
        """The rows of each role."""
        return {"deliberator": self.deliberator, "thinker": self.thinker}

    def that_fit(self, fits: Callable[[str, Row], bool]) -> HeldOut:
        """Without the rows that do not, each of a role, which are counted."""
        deliberator, thinker = (
            [row for row in rows if fits(role, row)] for role, rows in self.roles.items()
        )
        lost = len(self.deliberator) - len(deliberator) + len(self.thinker) - len(thinker)
        return HeldOut(deliberator, thinker, self.drawn, self.too_long + lost, self.unusable)

    @property
    def texts(self) -> set[str]:
        """Of the problems."""
        return {row["text"] for row in (*self.deliberator, *self.thinker)}


def held_out(
    folder: Path,
    most: int,
    thinker_prompt: ThinkerPrompt | None,
    cache_of: CacheOf | None = None,
    learnt: Collection[str] = (),
) -> HeldOut:
    """The prompts of a folder of sets, or of a run.

    Args:
        folder: Likewise.
        most: Most rows of each kind; more are left out by a hash of the problem's id, so that the
            same ones stay with every seed.
        thinker_prompt: None if no thinker is measured.
        cache_of: Needed for a run.
        learnt: Texts of the problems that are learnt from.

    Raises:
        ConfigError: The folder is neither; there is nothing to hold out in it, or it lacks the
            attempts behind its caches; or one of its problems is learnt from.
    """
    if most < 1:
        raise ConfigError(f"held_out: {most} is below 1", "Give 1 or more.")
    if (folder / MANIFEST).is_file():
        found = _of_sets(folder, most, thinker_prompt)
    elif cache_of:
        found = _of_run(folder, most, thinker_prompt, cache_of)
    else:
        raise ConfigError(
            f"held_out_from: {folder} holds no sets: it has no {MANIFEST}",
            "Give the folder that `heavydistill build --out FOLDER` wrote; a run's does only "
            "where thinkers learn, or episodes, for which its caches are made anew.",
        )
    if both := sorted(found.texts & set(learnt)):
        raise ConfigError(
            f"held_out_from: {len(both)} of the held-out problems are learnt from, such as "
            f"{both[0][:80]!r}",
            "Give a folder with other problems; beside dataset_name it may be left out, and the "
            "validation split is held out.",
        )
    return found


def _of_sets(folder: Path, most: int, thinker_prompt: ThinkerPrompt | None) -> HeldOut:
    rows = (from_row(ProblemRow, row) for row in read_rows(folder, "problems"))
    problems = {row.id: row for row in rows if row.split == "validation"}
    if not problems:
        raise ConfigError(
            f"held_out: {folder} has no problem in its validation split",
            "Build the sets with --set validation=0.05 or more, give another folder with "
            "--held_out_from, or give --eval_strategy no.",
        )
    chosen = dict(sorted(problems.items(), key=lambda one: content_id("held", one[0])))
    caches: dict[str, CacheRow] = {}
    for row in read_rows(folder, "caches"):
        if row["problem"] not in chosen or row["rl_label"] not in FIT or row["round"] > 1:
            continue
        before = caches.get(row["problem"])
        if before is None or (before.drawn and not row["drawn"]):
            caches[row["problem"]] = from_row(CacheRow, row)
    kept = [caches[problem] for problem in chosen if problem in caches][:most]
    attempts = _attempts(folder, {item.generation for cache in kept for item in cache.items})
    return HeldOut(
        [
            _cache_row(
                problems[cache.problem], cache, [attempts[i.generation] for i in cache.items]
            )
            for cache in kept
        ],
        _thinker_rows(list(chosen.values())[:most], thinker_prompt),
        drawn=sum(cache.drawn for cache in kept),
    )


def _attempts(folder: Path, wanted: set[str]) -> dict[str, TrajectoryRow]:
    """The attempts with these ids.

    Raises:
        ConfigError: Some are not there.
    """
    found = {
        row["id"]: from_row(TrajectoryRow, row)
        for row in read_rows(folder, "trajectories")
        if row["id"] in wanted
    }
    if found.keys() != wanted:
        raise ConfigError(
            f"held_out: {folder} has caches without their attempts, whose vote is looked at",
            "A refilter leaves them out: give the folder of the build with --held_out_from.",
        )
    return found


def _of_run(
    folder: Path, most: int, thinker_prompt: ThinkerPrompt | None, cache_of: CacheOf
) -> HeldOut:
    ids = {row["problem"]["id"] for row in read_columns(folder, ["problem.id"])}
    chosen = sorted(ids, key=lambda one: content_id("held", one))[:most]
    traces = {
        trace.problem.id: trace for trace in read_traces(folder) if trace.problem.id in chosen
    }
    deliberator: list[Row] = []
    too_long = unusable = 0
    for problem, pool in ((traces[one].problem, traces[one].pool) for one in chosen):
        try:
            cache = cache_of(problem, pool)
        except BudgetError:
            too_long += 1
            continue
        shown = {item.generation for item in cache.items}
        if shown:
            attempts = [attempt for attempt in pool if attempt.id in shown]
            deliberator.append(_cache_row(problem, cache, attempts))
        else:
            unusable += 1
    if not deliberator:
        raise ConfigError(
            f"held_out_from: of no pool in {folder} could a cache be made "
            f"({too_long} do not fit the student, {unusable} have no usable attempt)",
            "Give a run with usable attempts, or a smaller max_completion_length.",
        )
    thinker = _thinker_rows([traces[one].problem for one in chosen], thinker_prompt)
    return HeldOut(deliberator, thinker, too_long=too_long, unusable=unusable)


def _thinker_rows(problems: Sequence[Problem], thinker_prompt: ThinkerPrompt | None) -> list[Row]:
    if thinker_prompt is None:
        return []
    return [_row(problem, thinker_prompt(problem)) for problem in problems]


def _cache_row(problem: Problem, cache: Cache, attempts: Sequence[Generation]) -> Row:
    return {**_row(problem, cache.prompt), "cache": cache.id, "vote": vote_value(attempts)}


def _row(problem: Problem, prompt: str) -> Row:
    return {
        "prompt": [{"role": "user", "content": prompt}],
        "problem": problem.id,
        "text": problem.text,
        "reference": problem.reference,
        "verifier": problem.verifier,
        "verifier_args": problem.verifier_args,
    }

"""The pools of an earlier run or of an import, used instead of new trajectories.

Problems and trajectories come from its traces, whether or not that run deliberated on them;
``think.min_k`` of this run decides which problems continue. A verdict is still valid if it comes
from the current version of the problem's verifier and none of the judge's votes for it failed;
trajectories without a valid verdict are judged. Caches and deliberations are new.

With ``cache.attempts``, a control replaces trajectories by others (see ``experiments.controls``);
problems for which it has none are left out.

Not covered: rows on which a step of that run failed, which are only counted; whether references
suit their verifiers, which was checked when they were loaded there.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from heavydistill.config.files import sha256_of
from heavydistill.config.run import EACH_MODEL, Attempts, RunConfig, load_config
from heavydistill.config.yaml import parse
from heavydistill.errors import ConfigError, ImpossibleControlError, ProblemsError
from heavydistill.experiments.controls import other_pools
from heavydistill.heavy.judge_votes import FAILED, rule_of
from heavydistill.metrics.controls import kind_of
from heavydistill.schema import UNKNOWN_MODEL, Problem, Trace, Trajectory, from_row
from heavydistill.store.traces import (
    REJECTS_FOLDER,
    count_rows,
    read_columns,
    read_traces,
    trace_files,
)
from heavydistill.verifiers import registry

_READ = ("problem", "pool.id", "pool.model", "pool.verdict.verifier", "pool.verdict.reason")
_NO_BOX = (
    "no cache has an attempt with a final box",
    "Use problems whose answers are asked for in a box",
)
_NO_OTHER: dict[str, tuple[str, str]] = {
    "garbled": (
        "no cache has final answers that can all be garbled",
        "Use problems with numbers, letters or words as final answers",
    ),
    "foreign": (
        "no two of the problems are of one kind",
        "Use more problems of one verifier and family",
    ),
    "transplant": (
        "no cache has a minority of right attempts, or only wrong ones where the pool has a right "
        "one",
        "Use more problems, or sample more attempts than a cache shows, e.g. --k 16 --set "
        "cache.width=8",
    ),
    "empty": ("the run has no caches", "Use a run with deliberations"),
    "answers": _NO_BOX,
    "steps": _NO_BOX,
    "outputs": (
        "no cache has an attempt whose code printed a value",
        "Use a run whose thinker ran code (--tools python)",
    ),
    "planted": (
        "no pool without failed attempts has so many in a cache and a right one with steps such as "
        "3 + 4 = 7, on which its final box depends",
        "Use problems that are calculated in steps, and one round",
    ),
}
"""Why a control has no pools at all, and the fix, by the first word of ``cache.attempts``."""


@dataclass(slots=True)
class PoolsOfRun:
    """The pools of another run."""

    problems: dict[str, Problem] = field(default_factory=dict)  # by id, in the order of the run
    k: int = 0  # size of the largest pool
    models: set[str] = field(default_factory=set)  # models that wrote the trajectories
    unjudged: int = 0  # trajectories without a verdict, or with failed votes of a judge
    outdated: Counter[str] = field(default_factory=Counter)
    """Numbers of trajectories with an outdated verdict, by the verifier version that gave it."""
    voted: set[str] = field(default_factory=set)
    """Ids of trajectories whose valid verdict involved a judge."""
    rejects: int = 0  # rows left out because a step of that run failed on them
    unsuited: int = 0  # problems left out because a control has no other attempts for them

    def add(self, problem: Problem, pool: list[dict[str, Any]]) -> None:
        """Add a trace; its trajectories need only the columns in ``_READ``."""
        self.problems[problem.id] = problem
        self.k = max(self.k, len(pool))
        now = verifier_now(problem)
        for trajectory in pool:
            self.models.add(trajectory["model"])
            verdict = trajectory["verdict"]
            if is_current(verdict, now):
                self.voted |= {trajectory["id"]} if verdict["verifier"] != now else set()
            elif verdict and rule_of(verdict["verifier"]) != now:
                self.outdated[verdict["verifier"]] += 1
            else:
                self.unjudged += 1


def read_pools(config: RunConfig) -> PoolsOfRun:
    """Read the pools of ``config.pools``, up to ``problems.limit``; own verifiers must be loaded.

    Raises:
        ConfigError: The folder has no traces that this version can read, a problem twice, or no
            pools for the control.
        ProblemsError: A verifier is unknown.
    """
    run, pools, attempts = Path(config.pools or ""), PoolsOfRun(), config.cache.attempts
    pools.rejects = count_rows(run / REJECTS_FOLDER)
    limit, suited = config.problems.limit, set[str]()
    if kind_of(attempts) in _NO_OTHER:
        suited = {trace.problem.id for trace, _ in shown_pools(run, attempts, limit)}
    for row in itertools.islice(read_columns(run, _READ), limit):
        problem = from_row(Problem, row["problem"])
        if kind_of(attempts) in _NO_OTHER and problem.id not in suited:
            pools.unsuited += 1
            continue
        if problem.id in pools.problems:
            raise ConfigError(
                f"pools: {run} has two traces of problem {problem.id}",
                "Give the folder of a single run.",
            )
        try:
            pools.add(problem, row["pool"])
        except ProblemsError as error:
            raise ProblemsError(
                f"pools: {run}, problem {problem.id}: {error.what}",
                f"{error.fix} Set verify.own to load a verifier of your own.",
            ) from error
    if pools.unsuited and not pools.problems:
        refuse_control(attempts, f"the run {run.name}")
    if not pools.problems:
        raise ConfigError(f"pools: {run} holds no traces", "Give the folder of another run.")
    return pools


def refuse_control(attempts: Attempts, what: str) -> NoReturn:
    """Raise ImpossibleControlError for a control that has no pools on ``what``."""
    why, fix = _NO_OTHER[kind_of(attempts)]
    raise ImpossibleControlError(
        f"The control {attempts} is not possible on {what}: {why}",
        f"{fix}; or repeat the command without {attempts} in --controls or cache.attempts: no "
        "request is sent twice.",
    )


def shown_pools(
    run: Path, attempts: Attempts, limit: int | None
) -> Iterator[tuple[Trace, list[Trajectory]]]:
    """Yield the traces of a run, up to ``limit``, each with the pool that its caches show."""
    traces = itertools.islice(read_traces(run), limit)
    if kind_of(attempts) in _NO_OTHER:
        return other_pools(attempts, traces)
    return ((trace, trace.pool) for trace in traces)


def with_pools(config: RunConfig, pools: PoolsOfRun) -> RunConfig:
    """Return the configuration with the K and the hash of the pools.

    Raises:
        ConfigError: The configuration sets another K or hash, or contradicts the pools otherwise.
    """
    whole = hashlib.sha256()
    for path in trace_files(Path(config.pools or "")):
        whole.update(bytes.fromhex(sha256_of(path)))
    digest = whole.hexdigest()
    if config.pools_sha256 not in (None, digest):
        raise ConfigError(
            f"pools: {config.pools} no longer holds the traces whose hash is pools_sha256",
            "Give the folder of those traces, or set pools_sha256 to null to use the new ones.",
        )
    if pools.k < 2:
        raise ConfigError(
            f"pools: {config.pools} has one attempt per problem, and a deliberation reads several",
            "Give a run with K of 2 or more. Worked solutions are for `heavydistill build`.",
        )
    if "k" in config.think.model_fields_set and config.think.k != pools.k:
        raise ConfigError(
            f"think.k is {config.think.k}, but the pools of {config.pools} have {pools.k} "
            "trajectories",
            "Remove think.k (--k); cache.width sets the number of attempts in a cache.",
        )
    tree = config.model_dump()
    tree["think"]["k"], tree["pools_sha256"] = pools.k, digest
    fix = f"The pools have up to {pools.k} trajectories; correct the key, or give other pools."
    return parse(RunConfig, tree, f"pools {config.pools}: ", fix)


def require_models(config: RunConfig, pools: PoolsOfRun | None) -> None:
    """Raise ConfigError if caches are to show each model, but there is one, or one has no name."""
    models = pools.models if pools else {*config.attempts_by_thinker}
    fix = "Choose another cache.selection, or "
    if config.cache.selection != EACH_MODEL:
        return
    if models & {"", UNKNOWN_MODEL}:
        why = "there are trajectories without a model's name"
        fix += "import them with --columns model=COLUMN."
    elif len(models) == 1:
        why, fix = f"all trajectories are by {min(models)}", f"{fix}name several: --thinker a,b."
    else:
        return
    raise ConfigError(f"cache.selection is {EACH_MODEL}, but {why}", fix)


def run_behind(config: RunConfig) -> RunConfig | None:
    """Return the configuration of the run that made the problems and trajectories of a run: its
    own, or that of its pools, which may be from pools themselves.

    None if they were imported, or if that run is not there any more.
    """
    while config.pools:
        file = Path(config.pools) / "config.yaml"
        if not file.is_file():
            return None
        config = load_config(file)
    return config


def is_current(verdict: dict[str, Any] | None, now: str) -> bool:
    """Return whether a verdict, as a row, is from the current verifier version ``name@version``."""
    if verdict is None or verdict["reason"] == FAILED:
        return False
    return rule_of(verdict["verifier"]) == now


def verifier_now(problem: Problem) -> str:
    """Return ``name@version`` of the current verifier of a problem.

    Raises:
        ProblemsError: The verifier is unknown.
    """
    verifier = registry.get(problem.verifier)
    return f"{verifier.name}@{verifier.version}"

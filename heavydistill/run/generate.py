"""Runs a configuration from checked problems to a folder on disk.

The folder of a run, which appears under its name when all of it is written (see ``store.atomic``):

    config.yaml    the resolved configuration; ``generate --config`` repeats the run from it
    traces/        parquet, one row a problem; ``datasets.load_dataset`` reads it
    rejects/       rows that a step failed on, if there are any, with the reason in ``status``
    summary.json   the metrics, counts, tokens and cost, and the models and version that made it

``check`` finds what a user can fix before anything is spent. Given a ``Contact`` it asks the
servers first of all, before anything large is imported. A run that was broken off goes on
when the same command is given again: its responses are in the journal (see ``store.journal``),
and its folder is replaced when the new one is whole (see ``result``).

Not covered: whether a cache has room for the final answers, which ``heavy.cache`` finds; before
that only its frame is known: the wording, the problem and the headers of its attempts.
"""

from __future__ import annotations

import bisect
import contextlib
import importlib.util
import logging
import operator
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heavydistill import problems as problem_sources
from heavydistill.config.run import RunConfig
from heavydistill.errors import (
    BudgetError,
    ConfigError,
    StoppedError,
    TeacherError,
)
from heavydistill.heavy import prompts
from heavydistill.heavy.cache import fence_for, frame_tokens
from heavydistill.metrics.summary import Summary
from heavydistill.models.contact import Contact
from heavydistill.models.local.engine import require_template
from heavydistill.models.resolve import ResolvedRun, resolve
from heavydistill.models.tokenizer import ESTIMATED, SERVER, ServerTokenizer, reader_of
from heavydistill.models.vllm.server import OnStart
from heavydistill.run.interrupts import loading
from heavydistill.run.pools import PoolsOfRun, read_pools, with_pools
from heavydistill.run.result import earlier, write
from heavydistill.run.shards import ProcessPool, ShardPool, run_shards, shards_of, with_server
from heavydistill.run.status import STATUS, OnStatus, StatusWriter
from heavydistill.schema import OK, Problem
from heavydistill.store import segment
from heavydistill.store.atomic import Workplace, recover, require_writable
from heavydistill.store.traces import LEAF_FOLDER
from heavydistill.verifiers import registry

if TYPE_CHECKING:
    from heavydistill.run.runner import HeavyPipeline

PipelineOf = Callable[[ResolvedRun], "HeavyPipeline"]

_ANSWER_TOKENS = 32  # of each attempt, for which a cache should have room beside its frame
_NARROWEST = 2  # attempts; see ``config.run.CacheChoice.width``
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked run."""

    run: ResolvedRun  # its models, and the configuration with everything filled in
    problems: list[Problem]
    folder: Path
    journal: Path
    server_log: Path  # beside the folder, which appears at the end alone
    unfit: dict[int, str] = field(default_factory=dict)  # number of a row left out, and why
    server: list[str] | None = None  # command that serves its teacher, if one is to be started
    pools: PoolsOfRun | None = None  # pools of another run in place of thinking
    pools_at: Path | None = None
    """Where that run lies while this one is made, if not where its configuration says."""
    outside: int = 0  # rows of the source that were not asked for
    contact: Contact | None = None  # has asked the servers; None if nothing was sent
    changed: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """What another run in the folder asked otherwise, as in ``Earlier``; that stays as it is until
    this one is whole."""

    @property
    def config(self) -> RunConfig:
        return self.run.config


@dataclass(frozen=True, slots=True)
class Finished:
    """What came of a run."""

    folder: Path
    summary: Summary  # over all rows, failed ones too
    rejects: int  # rows that a step failed on
    missing: int  # problems that the run never finished, because it was interrupted

    @property
    def is_complete(self) -> bool:
        """Whether every problem has a trace with at least ``min_k`` usable trajectories."""
        return not self.missing and set(self.summary.statuses) == {OK}


def check(
    config: RunConfig,
    asks: bool = True,
    on_checked: problem_sources.OnChecked | None = None,
    contact: Contact | None = None,
) -> Plan:
    """Resolve a configuration, load its problems and check that each fits its prompt.

    A model must be there unless ``asks`` is false. ``on_checked`` is called with (references
    checked, all of them). ``contact`` asks the servers what they serve and how much context it
    takes; None sends nothing.

    Raises:
        UserError: Whatever a user can fix; nothing was written.
    """
    if asks and (config.pools or config.thinker or config.deliberator):
        config.refuse_unnamed()
    registry.load_own(config.verify.own)
    pools = read_pools(config) if config.pools else None
    if pools:
        config = with_pools(config, pools)
    name = Path(config.roles[1] if pools else config.teacher).name
    folder = Path(config.out or f"runs/{name}-{time.strftime('%Y%m%d-%H%M%S')}")
    journal = Path(config.journal or folder.parent / "journal")
    config = config.model_copy(update={"out": str(folder), "journal": str(journal)})
    if folder.is_mount():
        raise ConfigError(
            f"out: {folder} cannot be replaced by another folder, because a disk begins there",
            "Name a folder in it.",
        )
    if asks:
        require_writable(folder)
    segment.require(journal, writes=asks)
    run = with_tokenizer(resolve(config, contact))
    config = run.config
    for model in run.models:
        if asks and model.is_local:  # loading it would find this later
            require_template(model.profile.model)
    if contact:
        require_endpoints(run, contact)
    recover(folder)
    changed = _changed(config, folder)
    if pools:
        loaded = problem_sources.Loaded(list(pools.problems.values()))
    else:
        loaded = problem_sources.load_fit(config.problems, config.verify, on_checked=on_checked)
    check_room(run, loaded.problems, asks=contact is not None)
    return Plan(
        run=run,
        problems=loaded.problems,
        folder=folder,
        journal=journal,
        server_log=folder.with_name(f"{folder.name}.vllm.log"),
        unfit=loaded.unfit,
        server=run.server_command() if config.endpoint.start_vllm and asks else None,
        pools=pools,
        outside=loaded.outside,
        contact=contact,
        changed=changed,
    )


def _changed(config: RunConfig, folder: Path) -> dict[str, tuple[Any, Any]]:
    """``Plan.changed``. Raises ConfigError if the folder is taken."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return {}
    before = earlier(config, folder)
    if before and before.may_go_on:
        return before.changed
    found = "holds a finished run" if before else "is not empty and holds no run"
    if before and before.changed:
        found = f"holds a run that differs in {', '.join(before.changed)}"
    raise ConfigError(
        f"out: {folder} {found}",
        "Give another --out, or remove this folder. A run can be continued if it is unfinished, or "
        "if only k, d, limit, seed, max_tokens or timeout_s differ.",
    )


def run(
    plan: Plan,
    on_status: OnStatus | None = None,
    replay: bool = False,
    ray: str | None = None,
    on_start: OnStart | None = None,
    pipeline_of: PipelineOf | None = None,
) -> Finished:
    """Run a plan and write its folder.

    Args:
        plan: From ``check``.
        on_status: Called with how far the run is every ``status.EVERY_S`` seconds, and at its end.
        replay: Send no request; take every response from the journal.
        ray: Address of a Ray cluster that runs the shards, or ``local``.
        on_start: As in ``models.vllm.server.served``, if a server is to be started.
        pipeline_of: Makes the pipeline, in place of ``recipe.build_heavy_pipeline``; such a run is
            not divided into shards.

    Raises:
        TeacherError: An endpoint cannot be asked, or the server cannot be started; nothing was
            asked.
        ConfigError: The same run is in progress, or another one into the same folder; Ray is not
            installed or cannot be joined; or there are shards and a ``pipeline_of``.
        RunError: The pipeline broke, the server that was started ended, the disk is full, or rows
            are missing from the result. The folder is as it was.
        KeyboardInterrupt, StoppedError: After the finished rows were written, if there were any
            and no other run is in the folder; so is a TeacherError in the midst of a run.
    """
    pays, place = plan.run.asks_servers and not replay, Workplace(plan.folder)
    status = StatusWriter(place.path / STATUS, plan.run, len(plan.problems), pays, on_status)
    run = plan.run.with_config(pools=str(plan.pools_at)) if plan.pools_at else plan.run
    with contextlib.ExitStack() as stack:
        pool = None if replay else _pool(plan, run, ray)
        if pool:
            if pipeline_of:
                raise ConfigError("A pipeline of your own runs in one process", "Set processes: 1.")
            stack.callback(pool.close)
        command = None if replay or ray else plan.server
        # The address is of this run alone, so it is not in the configuration that is saved.
        run, failure = stack.enter_context(with_server(run, command, plan.server_log, on_start))
        if pays and not run.config.endpoint.start_vllm:
            require_endpoints(run, plan.contact or Contact())
        with loading():
            from heavydistill.run.recipe import build_heavy_pipeline, paying
        if pays:
            stack.enter_context(paying(run))
        stack.enter_context(place.claimed())
        stack.enter_context(status.writing())
        try:
            if pool:
                shards = shards_of(run, pool, place.rows, tuple(plan.unfit), plan.server)
                run_shards(pool, shards, status.on_batch, status.on_sample, failure)
            else:
                if pipeline_of:
                    pipeline = pipeline_of(run)
                    pipeline.on_batch = status.on_batch
                else:
                    pipeline = build_heavy_pipeline(run, status.on_batch, replay, list(plan.unfit))
                pipeline.keep_in(place.rows)
                pipeline.on_sample = status.on_sample
                pipeline.watch = failure
                pipeline.run_to_files()
        except (KeyboardInterrupt, StoppedError, TeacherError):
            if not plan.changed and any((place.rows / LEAF_FOLDER).glob("*.parquet")):
                _publish(plan, place, interrupted=True)
            raise
        return _publish(plan, place, interrupted=False)


def _pool(plan: Plan, run: ResolvedRun, ray: str | None) -> ShardPool | None:
    """Whatever runs the shards of a run; None if it is not divided.

    Raises:
        ConfigError: Ray is not installed, or cannot be joined.
    """
    processes = run.config.processes
    if not ray:
        return ProcessPool(processes) if processes > 1 else None
    if not importlib.util.find_spec("ray"):
        raise ConfigError(
            "--ray is given, but Ray is not installed",
            "Install it on all nodes: pip install 'distilabel[ray]==1.5.3'.",
        )
    if processes > 1:
        raise ConfigError(
            "--processes and --ray are given, and each says how many shards there are",
            "Give one of them; a cluster has a shard on each node, or on each GPU.",
        )
    from heavydistill.run.ray import RayPool

    return RayPool(ray, run, plan.server)


def _publish(plan: Plan, place: Workplace, interrupted: bool) -> Finished:
    old = plan.folder if interrupted else None
    rows, voted = place.rows / LEAF_FOLDER, plan.pools.voted if plan.pools else None
    counts = write(plan.run, plan.problems, rows, place.new, old, len(plan.unfit), voted)
    place.publish()
    return Finished(plan.folder, *counts)


def require_endpoints(run: ResolvedRun, contact: Contact) -> None:
    """Ask each server of a run once, by ``contact``.

    Raises:
        TeacherError: A server cannot be asked, or does not serve a model of the run.
    """
    config = run.config
    # A problem is as long as it is; a cache has its budget.
    deliberator = (run.deliberator if config.rounds else None, config.cache.budget_tokens or 0)
    for model, prompt in (deliberator, (run.thinker, 0), (run.judge, 0)):
        if model and not model.is_local:
            needed = prompt + model.sampling.max_tokens
            contact.require(model.profile.model, model.endpoint, needed)


def with_tokenizer(run: ResolvedRun) -> ResolvedRun:
    """The run with a tokenizer that is at hand, or TeacherError.

    Where a profile of a served model names one that this machine cannot reach, the server counts
    in its place, and a warning says so; one that the user names must be there.
    """
    deliberator, endpoint = run.deliberator.profile, run.config.endpoint
    try:
        reader_of(deliberator.tokenizer)
    except TeacherError as error:
        if deliberator.kind != "endpoint" or endpoint.tokenizer:
            raise
        _log.warning(
            "%s Tokens are counted by the server of %s where it does that, else estimated; "
            "--tokenizer FOLDER names another.",
            error.what,
            deliberator.name,
        )
        return run.at(endpoint.model_copy(update={"tokenizer": SERVER}))
    return run


def check_room(run: ResolvedRun, problems: Sequence[Problem], asks: bool = True) -> None:
    """Check a run whose tokenizer is at hand against the problem that leaves the least room.

    ``asks`` says whether a server that counts tokens may be asked. If not, or if it is still to be
    started, nothing is refused for an estimate alone, which is never less than the count.

    Raises:
        TeacherError: The tokenizer of a model cannot be loaded.
        BudgetError: The cache has no room for all attempts; the message says for how many it has.
        ConfigError: There is no wording for a problem's domain.
    """
    config, deliberator = run.config, run.deliberator.profile
    reader = reader_of(deliberator.tokenizer)
    if run.judge:  # its control tokens are needed
        reader_of(run.judge.profile.tokenizer)
    for problem in problems:
        prompts.for_thinker(problem, config)
    if not config.rounds:
        return
    # From the second round on, deliberations stand beside the selected trajectories.
    carried = config.deliberate.d if config.deliberate.rounds > 1 else 0
    attempts = (config.cache.width or config.think.k) + carried
    budget = config.cache.budget_tokens or 0

    def frame(problem: Problem, attempts: int) -> int:
        return frame_tokens(problem, attempts, prompts.for_reader(problem, config), reader)

    # Headers of many attempts take long to count, and are the same wherever wording and fence are.
    longest: dict[tuple[str, str], Problem] = {}
    for problem in sorted(problems, key=lambda each: frame(each, 1), reverse=True):
        longest.setdefault((problem.domain, fence_for([problem.text])), problem)
    sizes = ((frame(each, attempts), each) for each in longest.values())
    needed, worst = max(sizes, key=operator.itemgetter(0))
    if needed > budget and reader.name == ESTIMATED:
        if not (asks and config.endpoint.urls):
            return
        reader = ServerTokenizer(deliberator.model, config.endpoint)
        needed = frame(worst, attempts)
    if needed <= budget:
        return

    def enough(count: int) -> int:
        return frame(worst, count) + count * _ANSWER_TOKENS

    if (whole := enough(attempts)) <= run.deliberator.room:
        fix = f"set cache.budget_tokens to {whole} or more"
    else:
        fix = "lower deliberate.sampling.max_tokens, or use a deliberator with more context"
    fitting = bisect.bisect_right(range(1, attempts), budget, key=enough) - carried
    if fitting >= _NARROWEST:
        fit, fix = f"At most {fitting}", f"--set cache.width={fitting}, or {fix}"
    else:
        fit = f"Not even {_NARROWEST}"
    estimated = f" ({ESTIMATED})" if reader.name == ESTIMATED else ""
    beside = f" and {carried} deliberations of the round before" if carried else ""
    raise BudgetError(
        f"{worst.source}: problem {worst.id} and the frame of {attempts - carried} attempts"
        f"{beside} need {needed} tokens{estimated}, but cache.budget_tokens is {budget}",
        f"{fit} attempts of {_ANSWER_TOKENS} tokens fit: {fix}.",
    )

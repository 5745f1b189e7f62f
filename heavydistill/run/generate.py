"""Executes a configuration: from checked problems to the folder of a run.

The folder of a run, which gets its final name when all of it is written (see ``store.atomic``):

    config.yaml    the resolved configuration; ``generate --config`` repeats the run from it
    traces/        parquet, one row per problem; ``datasets.load_dataset`` reads it
    rejects/       rows on which a step failed, if any, with the reason in ``status``
    summary.json   metrics, counts, tokens and cost, and the models and version that made them

``check`` reports everything that the user can fix before any request is billed. With a
``ServerProbe`` it contacts the servers first, before anything large is imported. An interrupted run
continues when the same command is repeated: its responses are in the journal (see
``store.journal``), and its folder is replaced when the new one is complete (see ``result``).

Not covered: whether a cache has room for the final answers, which ``heavy.cache`` checks. Before
the run only the fixed parts of the cache are known: wording, problem and headers of the attempts.
"""

from __future__ import annotations

import bisect
import contextlib
import dataclasses
import importlib.util
import logging
import operator
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heavydistill import problems as problem_sources
from heavydistill.config.run import RunConfig
from heavydistill.errors import BudgetError, ConfigError, StoppedError, TeacherError
from heavydistill.heavy import prompts
from heavydistill.heavy.cache import ANSWER_TOKENS, frame_tokens
from heavydistill.metrics.mixing import Mixing
from heavydistill.metrics.summary import Summary
from heavydistill.models.contact import ServerProbe
from heavydistill.models.identity import identified
from heavydistill.models.local.engine import require_roles, require_template
from heavydistill.models.request import conversation
from heavydistill.models.resolve import ResolvedRun, resolve
from heavydistill.models.tokenizer import ESTIMATED, SERVER, ServerTokenizer, reader_of
from heavydistill.models.vllm.server import KeptServer, OnStart
from heavydistill.run.batches import in_passes, is_batched
from heavydistill.run.interrupts import loading
from heavydistill.run.pools import PoolsOfRun, read_pools, require_models, with_pools
from heavydistill.run.result import context_before, earlier, write
from heavydistill.run.shards import (
    ProcessPool,
    ShardPool,
    Watch,
    run_shards,
    shards_of,
    with_server,
)
from heavydistill.run.status import STATUS, OnStatus, StatusWriter
from heavydistill.sandbox.session import SessionLimits, require_sessions
from heavydistill.schema import OK, Problem, Turn
from heavydistill.skill.prompt import for_reader
from heavydistill.store import segment
from heavydistill.store.atomic import Workplace, recover, require_writable
from heavydistill.store.traces import LEAF_FOLDER
from heavydistill.verifiers import registry

if TYPE_CHECKING:
    from heavydistill.models.batch.queue import BatchQueue
    from heavydistill.run.runner import HeavyPipeline

PipelineOf = Callable[[ResolvedRun], "HeavyPipeline"]

_NARROWEST = 2  # attempts; see ``config.run.CacheChoice.width``
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plan:
    """A run whose configuration, models and problems have been checked; input of ``run``."""

    run: ResolvedRun  # models and complete configuration
    problems: list[Problem]
    folder: Path
    journal: Path
    server_log: Path  # log of the server that the run starts
    unfit: dict[int, str] = field(default_factory=dict)  # rows left out: row number and reason
    server: list[str] | None = None  # command that starts the teacher's server; None for no server
    pools: PoolsOfRun | None = None  # pools of another run; None for new trajectories
    pools_at: Path | None = None  # folder of that run, if not yet ``config.pools``
    outside: int = 0  # rows of the source outside ``problems.within``
    rejected: int = 0  # problems that ``problems.rewrite`` left out
    marker: str = ""  # marker of the references that nobody configured
    contact: ServerProbe | None = None  # has contacted the servers; None if nothing was sent
    changed: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """Keys in which this run differs from the run that it replaces; see ``ExistingRun.changed``."""

    @property
    def config(self) -> RunConfig:
        return self.run.config


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run."""

    folder: Path
    summary: Summary  # over all rows, rejects included
    rejects: int  # rows on which a step failed
    missing: int  # problems that an interrupted run has not finished
    mixing: Mixing | None = None  # comparison of the models in its pools; None for one model

    @property
    def is_complete(self) -> bool:
        """Return whether every problem has a trace with at least ``min_k`` usable trajectories."""
        return not self.missing and set(self.summary.statuses) == {OK}


def check(
    config: RunConfig,
    asks: bool = True,
    on_checked: problem_sources.OnChecked | None = None,
    contact: ServerProbe | None = None,
) -> Plan:
    """Resolve a configuration, load its problems and check that each problem fits into its prompts.

    Args:
        config: Configuration of the run.
        asks: Whether requests will be sent; then the models must be available.
        on_checked: Called with (number of checked references, number of all references).
        contact: Queries the servers for their models and contexts; None sends nothing.

    Raises:
        UserError: The user has to fix something; nothing was written.
    """
    if asks and (config.pools or config.thinker or config.deliberator):
        config.refuse_unnamed()
    config.load_plugins()
    registry.load_own(config.verify.own)
    pools = read_pools(config) if config.pools else None
    if pools:
        config = with_pools(config, pools)
    require_models(config, pools)
    folder, journal = _places(config, asks)
    config = config.model_copy(update={"out": str(folder), "journal": str(journal)})
    context = context_before(config, folder)
    run = with_tokenizer(resolve(config, contact, context=context, starts=asks))
    config = run.config
    for model in run.models:
        if asks and model.is_local:  # before the model is loaded
            require_template(model.profile.model)
    server = run.server_command() if asks else []
    if contact:
        require_endpoints(run, contact)
        run = identified(run, contact)
        config = run.config
    recover(folder)
    changed = _changed(config, folder)
    if pools:
        loaded = problem_sources.LoadedProblems(list(pools.problems.values()))
    else:
        loaded = problem_sources.load_fit(config.problems, config.verify, on_checked=on_checked)
    if asks and not config.judge:
        source = config.pools or config.problems.source
        registry.require_judge({problem.verifier for problem in loaded.problems}, source)
    if asks:
        _check_roles(run, loaded.problems)
        _check_tools(run, loaded.problems)
    check_room(run, loaded.problems, asks=contact is not None)
    return Plan(
        run=run,
        problems=loaded.problems,
        folder=folder,
        journal=journal,
        server_log=folder.with_name(f"{folder.name}.vllm.log"),
        unfit=loaded.unfit,
        server=server or None,
        pools=pools,
        outside=loaded.outside,
        rejected=loaded.rejected,
        marker=loaded.marker,
        contact=contact,
        changed=changed,
    )


def _places(config: RunConfig, writes: bool) -> tuple[Path, Path]:
    """Return the folders of a run and of its journal; raises ConfigError if they cannot be used."""
    name = Path(config.roles[1] if config.pools else config.teacher).name
    folder = Path(config.out or f"runs/{name}-{time.strftime('%Y%m%d-%H%M%S')}")
    if folder.is_mount():
        raise ConfigError(
            f"out: {folder} is the root of a mounted disk, which cannot be replaced",
            "Name a folder inside it.",
        )
    if writes:
        require_writable(folder)
    journal = Path(config.journal or folder.parent / "journal")
    segment.require(journal, writes=writes)
    return folder, journal


def _check_roles(run: ResolvedRun, problems: Sequence[Problem]) -> None:
    """Check that the conversations can be asked; raises ConfigError if not.

    Not covered: the chat templates of served models, which are not known here.
    """
    system = run.config.system
    with_turns = problems if system else [each for each in problems if each.history_json]
    own = (each for each in with_turns if each.history[:1] and each.history[0].role == "system")
    if system and (first := next(own, None)):
        raise ConfigError(
            f"system is set, but the messages of problem {first.id} begin with a system message",
            "Leave one of them out.",
        )
    for model in (*run.thinkers, run.deliberator):
        if with_turns and model.is_local:
            asked = (conversation(each.text, each.history, system) for each in with_turns)
            require_roles(model.profile.model, asked)


def _check_tools(run: ResolvedRun, problems: Sequence[Problem]) -> None:
    """Check that the thinker can use its tools; raises ConfigError if not."""
    config, tool = run.config, run.config.think.tools.python
    if not (tool and run.thinker):
        return
    if run.thinker.endpoint.is_batched and not run.thinker.is_local:
        raise ConfigError(
            "--batch: a thinker with tools needs an answer for each round, and a batch takes hours",
            "Leave out --batch or --tools.",
        )
    sandboxing = config.verify.sandbox
    require_sessions(SessionLimits.of(tool, sandboxing), config.processes, sandboxing)
    if tool.calls != "fence":
        return
    if program := next((each for each in problems if each.verifier == "code"), None):
        raise ConfigError(
            f"think.tools: the answer to problem {program.id} is a program, which cannot be told "
            "from a block that calls the tool",
            "Use a server with tool calls (think.tools.python.calls: server), or leave out "
            "--tools.",
        )
    if run.thinker.is_local:
        turns = [Turn(role="assistant", text="?"), Turn(role="user", text="?")]
        require_roles(run.thinker.profile.model, [conversation("?", turns)])


def _changed(config: RunConfig, folder: Path) -> dict[str, tuple[object, object]]:
    """Return ``Plan.changed``; raises ConfigError if the folder has anything other than a run."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return {}
    before = earlier(config, folder)
    if before and before.may_go_on:
        return before.changed
    state = "holds a finished run" if before else "is not empty and holds no run"
    if before and before.changed:
        state = f"holds a run that differs in {', '.join(before.changed)}"
    raise ConfigError(
        f"out: {folder} {state}",
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
    kept: KeptServer | None = None,
    waits: bool = True,
) -> RunResult:
    """Execute a plan and write the run's folder.

    Args:
        plan: From ``check``.
        on_status: Called with the progress every ``status.EVERY_S`` seconds and at the end.
        replay: Whether to read every response from the journal, without a request.
        ray: Address of a Ray cluster that runs the shards, or ``local``.
        on_start: Passed to ``models.vllm.server.served`` if a server is started.
        pipeline_of: Builds the pipeline instead of ``recipe.build_heavy_pipeline``; such a run is
            not divided into shards.
        kept: Has the server for further runs too, if one is started.
        waits: Whether to wait for batches; otherwise the run stops once they are sent.

    Raises:
        TeacherError: An endpoint does not work, has another model than the journal, or the server
            cannot be started (no request was sent); or the endpoint refuses all requests during
            the run.
        ConfigError: The same run, or another one into the same folder, is in progress; Ray is not
            installed or cannot be joined; or there are shards and a ``pipeline_of``.
        RunError: The pipeline failed, the started server ended, the disk is full, or rows are
            missing. The folder is unchanged.
        KeyboardInterrupt, StoppedError: The run was interrupted or cannot continue. Finished rows
            were written, unless the folder has another run.
    """
    pays, place = plan.run.asks_servers and not replay, Workplace(plan.folder)
    status = StatusWriter(place.path / STATUS, plan.run, len(plan.problems), pays, on_status)
    with contextlib.ExitStack() as stack:
        pool = None if replay else _pool(plan, ray)
        if pool:
            if pipeline_of:
                raise ConfigError("A pipeline of your own runs in one process", "Set processes: 1.")
            stack.callback(pool.close)
        command = None if replay or ray else plan.server
        started = with_server(plan.run, command, plan.server_log, on_start, kept)
        run, failure = stack.enter_context(started)
        if pays:
            run, plan = _identified(run, plan)
        if plan.pools_at:
            run = run.with_config(pools=str(plan.pools_at))
        with loading():
            from heavydistill.run.recipe.pipeline import build_heavy_pipeline, paying
        if pays:
            stack.enter_context(paying(run))
        stack.enter_context(place.claimed())
        stack.enter_context(status.writing())
        try:
            if pool:
                shards = shards_of(run, pool, place.rows, tuple(plan.unfit), plan.server)
                run_shards(pool, shards, status.on_batch, status.on_sample, failure)
            else:
                build = pipeline_of or partial(
                    build_heavy_pipeline, replay=replay, known_unfit=list(plan.unfit)
                )
                execute = partial(_execute, build, run, place, status, failure)
                if replay:
                    execute()
                else:
                    in_passes(run, execute, waits, status.wait_for)
        except (KeyboardInterrupt, StoppedError, TeacherError):
            if not plan.changed and any((place.rows / LEAF_FOLDER).glob("*.parquet")):
                _publish(plan, place, interrupted=True)
            raise
        return _publish(plan, place, interrupted=False)


def _execute(
    build: PipelineOf,
    run: ResolvedRun,
    place: Workplace,
    status: StatusWriter,
    failure: Watch,
    queue: BatchQueue | None = None,
) -> None:
    """Run a pipeline, whose rows replace those of an earlier pass; see ``batches``."""
    shutil.rmtree(place.rows / LEAF_FOLDER, ignore_errors=True)
    status.begin()
    pipeline = build(run)
    pipeline.keep_in(place.rows)
    pipeline.on_batch, pipeline.on_sample = status.on_batch, status.on_sample
    pipeline.watch, pipeline.queue = failure, queue
    pipeline.run_to_files()


def _identified(run: ResolvedRun, plan: Plan) -> tuple[ResolvedRun, Plan]:
    """Return run and plan with the models that the servers have now; the journal records them.

    ``run`` is that of the plan, at the address of the server that was started for it, if any. The
    configuration of the plan is saved, so it does not get this address.

    Raises the same errors as ``require_endpoints`` and ``identified``.
    """
    contact, own = plan.contact or ServerProbe(), plan.config.endpoint
    if not run.config.endpoint.start_vllm:
        require_endpoints(run, contact)
    run = identified(run, contact, saves=True)
    place = {"start_vllm": own.start_vllm, "base_url": own.base_url}
    endpoint = run.config.endpoint.model_copy(update=place)
    saved = run.with_endpoint(endpoint) if own.start_vllm else run
    return run, dataclasses.replace(plan, run=saved)


def _pool(plan: Plan, ray: str | None) -> ShardPool | None:
    """Return the pool that runs the shards of a run; None if the run is not divided.

    Raises:
        ConfigError: Ray is not installed, or cannot be joined.
    """
    processes = plan.config.processes
    if is_batched(plan.run) and (ray or processes > 1):
        raise ConfigError(
            "A run in batches is not divided into shards", "Leave out --processes and --ray."
        )
    if not ray:
        return ProcessPool(processes) if processes > 1 else None
    if not importlib.util.find_spec("ray"):
        raise ConfigError(
            "--ray is given, but Ray is not installed",
            "Install it on all nodes: pip install 'distilabel[ray]==1.5.3'.",
        )
    if processes > 1:
        raise ConfigError(
            "--processes and --ray are given, but both set the number of shards",
            "Give one of them; a cluster has one shard per node or per GPU.",
        )
    from heavydistill.run.ray import RayPool

    return RayPool(ray, plan.run)


def _publish(plan: Plan, place: Workplace, interrupted: bool) -> RunResult:
    old = plan.folder if interrupted else None
    rows, voted = place.rows / LEAF_FOLDER, plan.pools.voted if plan.pools else None
    counts = write(plan.run, plan.problems, rows, place.new, old, len(plan.unfit), voted)
    place.publish()
    return RunResult(plan.folder, *counts)


def require_endpoints(run: ResolvedRun, contact: ServerProbe) -> None:
    """Contact each server of a run once.

    Raises:
        TeacherError: A server does not answer, or does not serve a model of the run.
    """
    config = run.config
    # A deliberator's prompt may use the whole token budget of its cache.
    deliberator = (run.deliberator if config.rounds else None, config.cache.budget_tokens or 0)
    for model, prompt in (deliberator, *((each, 0) for each in (*run.thinkers, run.judge))):
        if model and not model.is_local:
            needed = prompt + model.sampling.max_tokens
            contact.require(model.profile.model, model.endpoint, needed)
            if model.endpoint.batch:
                contact.require_batches(model.endpoint)


def with_tokenizer(run: ResolvedRun) -> ResolvedRun:
    """Return the run with a tokenizer that can be loaded.

    If the tokenizer named in a served model's profile cannot be loaded, the server counts tokens
    and a warning is logged.

    Raises:
        TeacherError: The tokenizer of a local model, or one that the user named, cannot be loaded.
    """
    deliberator, endpoint = run.deliberator.profile, run.config.endpoint
    try:
        reader_of(deliberator.tokenizer)
    except TeacherError as error:
        if deliberator.kind != "endpoint" or endpoint.tokenizer:
            raise
        _log.warning(
            "%s The server of %s counts tokens if it can, otherwise they are estimated; "
            "--tokenizer FOLDER names another tokenizer.",
            error.what,
            deliberator.name,
        )
        return run.with_endpoint(endpoint.model_copy(update={"tokenizer": SERVER}))
    return run


def check_room(run: ResolvedRun, problems: Sequence[Problem], asks: bool = True) -> None:
    """Check that the cache has room for the problem whose fixed parts are longest.

    ``asks``: whether the server may be asked to count tokens. If not, or if it is not running yet,
    token numbers are estimates. An estimate may exceed the true count, so it never causes an error.

    Raises:
        TeacherError: The tokenizer of a model cannot be loaded.
        BudgetError: The cache has no room for all attempts; the message says how many fit.
        ConfigError: There is no wording for a problem's domain.
    """
    config, deliberator = run.config, run.deliberator.profile
    reader = reader_of(deliberator.tokenizer)
    if run.judge:  # its control tokens are needed
        reader_of(run.judge.profile.tokenizer)
    _check_wordings(run, problems)
    if not config.rounds:
        return
    # From the second round on, a cache has deliberations in addition to the selected trajectories.
    carried = config.deliberate.d if config.deliberate.rounds > 1 else 0
    attempts = (config.cache.width or config.think.k) + carried
    budget = config.cache.budget_tokens or 0

    def frame(problem: Problem, attempts: int) -> int:
        return frame_tokens(problem, attempts, for_reader(problem, config), reader)

    # Counting the headers of many attempts is slow; they depend only on wording and fence.
    longest: dict[tuple[str, str], Problem] = {}
    for problem in sorted(problems, key=lambda each: frame(each, 1), reverse=True):
        longest.setdefault((problem.domain, prompts.fence_for([problem.text])), problem)
    sizes = ((frame(each, attempts), each) for each in longest.values())
    needed, worst = max(sizes, key=operator.itemgetter(0))
    if needed > budget and reader.name == ESTIMATED:
        if not (asks and config.endpoint.urls):
            return
        reader = ServerTokenizer(deliberator.model, config.endpoint)
        needed = frame(worst, attempts)
    if needed > budget:
        estimated = f" ({ESTIMATED})" if reader.name == ESTIMATED else ""
        beside = f" and {carried} deliberations of the round before" if carried else ""
        raise BudgetError(
            f"{worst.source}: problem {worst.id} and the headers of {attempts - carried} "
            f"attempts{beside} need {needed} tokens{estimated}, but cache.budget_tokens is "
            f"{budget}",
            _fix_of_room(run, attempts, carried, lambda count: frame(worst, count)),
        )


def _check_wordings(run: ResolvedRun, problems: Sequence[Problem]) -> None:
    """Raise ConfigError if there is no wording for the domain of a problem."""
    for problem in {each.domain: each for each in problems}.values():
        if run.thinkers:
            prompts.for_thinker(problem, run.config)
        if run.config.rounds:
            for_reader(problem, run.config)


def _fix_of_room(run: ResolvedRun, attempts: int, carried: int, frame: Callable[[int], int]) -> str:
    """Return how ``attempts``, of which ``carried`` are deliberations, fit into a cache.

    ``frame`` is the number of tokens of the fixed parts of a cache with so many attempts.
    """

    def enough(count: int) -> int:
        return frame(count) + count * ANSWER_TOKENS

    config = run.config
    budget = config.cache.budget_tokens or 0
    if (whole := enough(attempts)) <= run.deliberator.max_prompt_tokens - config.system_tokens:
        fix = f"set cache.budget_tokens to {whole} or more"
    else:
        fix = "lower deliberate.sampling.max_tokens, or use a deliberator with more context"
    fitting = bisect.bisect_right(range(1, attempts), budget, key=enough) - carried
    if fitting >= _NARROWEST:
        fit, fix = f"At most {fitting}", f"--set cache.width={fitting}, or {fix}"
    else:
        fit = f"Not even {_NARROWEST}"
    return f"{fit} attempts of {ANSWER_TOKENS} tokens fit: {fix}."

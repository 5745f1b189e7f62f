"""Runs a configuration from checked problems to a folder on disk.

The folder of a run, which appears under its name only when all of it is written:

    config.yaml    the resolved configuration; ``generate --config`` repeats the run from it
    traces/        parquet, one row a problem; ``datasets.load_dataset`` reads it
    rejects/       rows that a step failed on, if there are any, with the reason in ``status``
    summary.json   the metrics, counts, tokens and cost

``check`` finds what a user can mend before anything is spent. A run that was broken off goes on
when the same command is given again: its responses are in the journal (see ``engine.journal``),
and its folder is replaced when the new one is whole.
Traces stand in the order of the problems, however long each took.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heavydistill import problems as problem_sources
from heavydistill.config import RunConfig, dump_config, load_config
from heavydistill.engine.ledger import Ledger, account_of
from heavydistill.engine.preflight import require
from heavydistill.errors import ConfigError, HeavydistillError, RunError, StoppedError
from heavydistill.metrics.summary import Summary, summarize
from heavydistill.pipeline.processes import loading, start_server
from heavydistill.pipeline.room import check_room
from heavydistill.schema import FAILED, OK, Problem, Trace, from_row
from heavydistill.storage import TRACES_FOLDER, write_traces
from heavydistill.teachers import serving
from heavydistill.teachers.complete import complete, sampling_of
from heavydistill.teachers.registry import find

if TYPE_CHECKING:
    from heavydistill.pipeline.flow import HeavyBase

REJECTS_FOLDER = "rejects"

OnBatch = Callable[[str, list[dict[str, Any]]], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked run.

    Attributes:
        config: With everything filled in.
        problems: All of them, in order.
        folder: Where the run will be.
        journal: Where its responses are kept.
        server: The command that serves its teacher, if one is to be started.
    """

    config: RunConfig
    problems: list[Problem]
    folder: Path
    journal: Path
    server: list[str] | None = None

    @property
    def server_log(self) -> Path:
        """What that server prints: beside the folder, which appears at the end alone."""
        return self.folder.with_name(f"{self.folder.name}.vllm.log")


@dataclass(frozen=True, slots=True)
class Finished:
    """What came of a run.

    Attributes:
        folder: Where it is.
        summary: Over all rows, failed ones too.
        rejects: Rows that a step failed on.
        missing: Problems that the run never finished, because it was interrupted.
        batches_of_nodes: What each node of a Ray cluster did.
    """

    folder: Path
    summary: Summary
    rejects: int
    missing: int
    batches_of_nodes: dict[str, int]

    @property
    def is_complete(self) -> bool:
        """Whether every problem has a trace with at least ``min_k`` usable trajectories."""
        return not self.missing and set(self.summary.statuses) == {OK}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the row of a problem is among the files that the pipeline left."""

    problem: str
    status: str
    file: Path
    group: int
    row: int


def check(config: RunConfig, asks: bool = True) -> Plan:
    """Complete a configuration, load its problems and check that each fits its prompt.

    Args:
        config: As the user gave it.
        asks: Whether somebody will be asked, who must be there.

    Raises:
        UserError: Whatever a user can mend; nothing was written.
    """
    config = complete(config)
    folder = Path(
        config.out or f"runs/{Path(config.teacher).name}-{time.strftime('%Y%m%d-%H%M%S')}"
    )
    journal = Path(config.journal or folder.parent / "journal")
    config = config.model_copy(update={"out": str(folder), "journal": str(journal)})
    if folder.exists() and not (folder.is_dir() and _may_go_on(config, folder)):
        raise ConfigError(
            f"out: {folder} exists and is not empty, nor a run of this configuration that lacks "
            "something",
            "Name another folder or remove this one.",
        )
    server = serving.command(config) if config.endpoint.serve and asks else None
    loaded = problem_sources.load(config.problems)
    check_room(config, loaded)
    return Plan(config, loaded, folder, journal, server)


def run(
    plan: Plan,
    on_batch: OnBatch | None = None,
    replay: bool = False,
    ray: str | None = None,
    on_start: serving.OnStart | None = None,
) -> Finished:
    """Run a plan and write its folder.

    Args:
        plan: From ``check``.
        on_batch: Called with (step name, rows) for each batch that leaves a step.
        replay: Ask nobody; take every response from the journal.
        ray: Address of a Ray cluster that the steps are spread over, or ``local``.
        on_start: As of ``teachers.serving.served``, if a server is to be started.

    Raises:
        TeacherError: An endpoint cannot be asked, or the server cannot be started; nothing was
            asked.
        ConfigError: The same run is in progress, or Ray is not installed or cannot be joined.
        RunError: The pipeline broke, the server that was started ended, or rows are missing from
            the result.
        KeyboardInterrupt, StoppedError: After the finished rows were written, if there were any.
    """
    if replay or not plan.server:
        return _run(plan, plan.config, on_batch, replay, ray)
    if ray not in (None, "local"):
        raise ConfigError(
            "--serve starts a server that only this machine reaches, and --ray spreads the run",
            "Start the server yourself and name its address with --endpoint, or use --ray local.",
        )
    with serving.served(plan.config, plan.server_log, on_start) as server:
        # The address is of this run alone, so it is not in the configuration that is saved.
        config = plan.config.model_copy(update={"endpoint": server.endpoint})
        return _run(plan, config, on_batch, ray=ray, watch=server.failure)


def _run(
    plan: Plan,
    config: RunConfig,
    on_batch: OnBatch | None,
    replay: bool = False,
    ray: str | None = None,
    watch: Callable[[], HeavydistillError | None] | None = None,
) -> Finished:
    """Run a plan with a configuration that says where everyone is."""
    start_server()
    with loading():
        from heavydistill.pipeline.build import build_heavy_pipeline

    with contextlib.ExitStack() as held:
        if config.endpoint.is_served and not replay:
            _require_endpoints(config)
            account = Ledger(account_of(config))
            held.callback(account.close)
            held.enter_context(account.running())
        pipeline = build_heavy_pipeline(config, on_batch, replay, ray)
        if watch:
            pipeline.watch = watch
        return _piped(plan, pipeline)


def _piped(plan: Plan, pipeline: HeavyBase) -> Finished:
    try:
        pipeline.run_to_files()
        return _write(plan, pipeline, interrupted=False)
    except (KeyboardInterrupt, StoppedError):
        if any(pipeline.leaf_files.glob("*.parquet")):
            _write(plan, pipeline, interrupted=True)
        raise
    finally:
        pipeline.discard()


def _may_go_on(config: RunConfig, folder: Path) -> bool:
    """Whether the folder is empty, or holds a run of this configuration that lacks something."""
    if not any(folder.iterdir()):
        return True
    try:
        same = load_config(folder / "config.yaml").identity == config.identity
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        failed = sum(summary[stage]["failed"] for stage in ("trajectories", "deliberations"))
        lacks = summary["missing"] + summary["rejects"] + failed
    # It is no run, or one of another version.
    except (ConfigError, OSError, ValueError, LookupError, TypeError):
        return False
    return same and bool(lacks)


def _require_endpoints(config: RunConfig) -> None:
    think, deliberate = sampling_of(config.think), sampling_of(config.deliberate)
    thinker, deliberator = config.thinker or config.teacher, config.deliberator or config.teacher
    most = {deliberator: (config.cache.budget_tokens or 0) + deliberate.max_tokens}
    # A problem is as long as it is; a cache has its budget.
    most[thinker] = max(think.max_tokens, most.get(thinker, 0))
    for name, most_tokens in most.items():
        profile = find(name, config.endpoint)
        if profile.kind == "endpoint":
            require(profile.model, config.endpoint, most_tokens)


def _write(plan: Plan, pipeline: HeavyBase, interrupted: bool) -> Finished:
    """Write the run under a temporary name, check it, and give it its name."""
    unfinished = plan.folder.with_name(f".{plan.folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    leaf = list(_leaf(pipeline))
    missing = _check_rows(plan, [place.problem for place in leaf], interrupted)
    order = {problem.id: position for position, problem in enumerate(plan.problems)}
    leaf.sort(key=lambda place: order[place.problem])  # rows came as they were finished
    kept = [place for place in leaf if not place.status.startswith(FAILED)]
    rejected = [place for place in leaf if place.status.startswith(FAILED)]
    write_traces(_traces(kept), unfinished / TRACES_FOLDER)
    if rejected:
        write_traces(_traces(rejected), unfinished / REJECTS_FOLDER)
    summary = _priced(summarize(_traces(leaf)), plan.config)
    (unfinished / "config.yaml").write_text(dump_config(plan.config), encoding="utf-8")
    record = {**dataclasses.asdict(summary), "rejects": len(rejected), "missing": missing}
    (unfinished / "summary.json").write_text(json.dumps(record, indent=2), encoding="utf-8")
    replaced = plan.folder.with_name(f".{plan.folder.name}.replaced")
    if plan.folder.exists():
        plan.folder.rename(replaced)
    unfinished.rename(plan.folder)
    shutil.rmtree(replaced, ignore_errors=True)
    nodes = dict(pipeline.batches_of_nodes)
    return Finished(plan.folder, summary, len(rejected), missing, nodes)


def _priced(summary: Summary, config: RunConfig) -> Summary:
    """With the cost of each stage, where its price and any of its tokens are known."""
    models = {"thinking": config.thinker, "deliberating": config.deliberator}
    usage = {}
    for stage, used in summary.usage.items():
        model = find(models[stage] or config.teacher, config.endpoint)
        cost = model.usd(used.prompt, used.completion)
        known = used.unknown_completion < used.requests or not used.requests
        usage[stage] = dataclasses.replace(
            used, cost_usd=round(cost, 6) if cost is not None and known else None
        )
    return dataclasses.replace(summary, usage=usage)


def _check_rows(plan: Plan, out: list[str], interrupted: bool) -> int:
    """How many problems have no row; raise unless rows out are rows in."""
    wanted = {problem.id for problem in plan.problems}
    missing = len(wanted - set(out))
    if len(out) != len(set(out)) or not set(out) <= wanted or (missing and not interrupted):
        raise RunError(
            f"{len(plan.problems)} problems went in and {len(out)} rows came out, "
            f"{missing} problems are missing",
            "This is a defect, please report it; nothing was written.",
        )
    return missing


def _leaf(pipeline: HeavyBase) -> Iterator[_Place]:
    import pyarrow.parquet as pq

    for path in sorted(pipeline.leaf_files.glob("*.parquet")):
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=["problem", "status"])
            for number, row in enumerate(table.to_pylist()):
                yield _Place(row["problem"]["id"], row["status"], path, group, number)


def _traces(places: Sequence[_Place]) -> Iterator[Trace]:
    """The traces at these places, a few groups of rows in memory at a time."""
    import pyarrow.parquet as pq

    @lru_cache(maxsize=32)
    def rows(file: Path, group: int) -> list[dict[str, Any]]:
        return list(pq.ParquetFile(file).read_row_group(group).to_pylist())

    for place in places:
        yield from_row(Trace, rows(place.file, place.group)[place.row])

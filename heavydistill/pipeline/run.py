"""Runs a configuration from checked problems to a folder on disk.

The folder of a run, which appears under its name only when all of it is written:

    config.yaml    the resolved configuration; ``generate --config`` repeats the run from it
    traces/        parquet, one row a problem; ``datasets.load_dataset`` reads it
    rejects/       rows that a step failed on, if there are any, with the reason in ``status``
    summary.json   the metrics, counts and tokens

``check`` finds what a user can mend before anything is spent. A run that was broken off goes on
when the same command is given again: its responses are in the journal (see ``engine.journal``),
and its folder is replaced when the new one is whole.
Traces stand in the order of the problems, however long each took.
"""

from __future__ import annotations

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
from heavydistill.config import RunConfig, dump_config
from heavydistill.engine.preflight import require
from heavydistill.engine.tokenizer import ReaderTokenizer
from heavydistill.errors import BudgetError, ConfigError, RunError
from heavydistill.heavy import prompts
from heavydistill.heavy.cache import frame_tokens
from heavydistill.metrics.summary import Summary, summarize
from heavydistill.schema import FAILED, OK, Problem, Trace, from_row
from heavydistill.storage import TRACES_FOLDER, write_traces
from heavydistill.teachers.registry import complete, find

if TYPE_CHECKING:
    from heavydistill.pipeline.flow import HeavyBase

REJECTS_FOLDER = "rejects"


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked run.

    Attributes:
        config: With everything filled in.
        problems: All of them, in order.
        folder: Where the run will be.
        journal: Where its responses are kept.
    """

    config: RunConfig
    problems: list[Problem]
    folder: Path
    journal: Path

    @property
    def thinker_requests(self) -> int:
        return len(self.problems) * self.config.think.k

    @property
    def deliberator_requests(self) -> int:
        return len(self.problems) * self.config.deliberate.d * self.config.deliberate.rounds


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


def check(config: RunConfig) -> Plan:
    """Complete a configuration, load its problems and check that each fits its prompt.

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
    loaded = problem_sources.load(config.problems)
    _check_budget(config, loaded)
    return Plan(config, loaded, folder, journal)


def run(
    plan: Plan,
    on_batch: Callable[[str, list[dict[str, Any]]], None] | None = None,
    replay: bool = False,
    ray: str | None = None,
) -> Finished:
    """Run a plan and write its folder.

    Args:
        plan: From ``check``.
        on_batch: Called with (step name, rows) for each batch that leaves a step.
        replay: Ask nobody; take every response from the journal.
        ray: Address of a Ray cluster that the steps are spread over, or ``local``.

    Raises:
        ConfigError: Ray is not installed, or cannot be joined.
        TeacherError: An endpoint cannot be asked; nothing was.
        RunError: The pipeline broke, or rows are missing from its result.
        KeyboardInterrupt: After the finished rows were written, if there were any.
    """
    from heavydistill.pipeline.build import build_heavy_pipeline

    if not replay:
        _require_endpoints(plan.config)
    pipeline = build_heavy_pipeline(plan.config, on_batch, replay, ray)
    try:
        pipeline.run()
        return _write(plan, pipeline, interrupted=False)
    except KeyboardInterrupt:
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
        same = (folder / "config.yaml").read_text(encoding="utf-8") == dump_config(config)
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        failed = sum(summary[stage]["failed"] for stage in ("trajectories", "deliberations"))
        lacks = summary["missing"] + summary["rejects"] + failed
    except (OSError, ValueError, LookupError, TypeError):  # no run, or one of another version
        return False
    return same and bool(lacks)


def _require_endpoints(config: RunConfig) -> None:
    for name in {config.thinker or config.teacher, config.deliberator or config.teacher}:
        profile = find(name, config.endpoint)
        if profile.kind == "endpoint":
            require(profile.model, config.endpoint)


def _check_budget(config: RunConfig, loaded: Sequence[Problem]) -> None:
    reader = ReaderTokenizer(find(config.deliberator or config.teacher, config.endpoint).tokenizer)
    attempts = config.cache.width or config.think.min_k
    budget = config.cache.budget_tokens or 0
    for problem in loaded:
        domain = problem.domain or config.domain or "general"
        prompts.load("thinker", domain, config.language)
        prompt = prompts.load("deliberator", domain, config.language)
        frame = frame_tokens(problem, attempts, prompt, reader)
        if frame > budget:
            raise BudgetError(
                f"{problem.source}: problem {problem.id} and the frame of {attempts} attempts need "
                f"{frame} tokens, but cache.budget_tokens is {budget}",
                f"Set cache.budget_tokens above {frame}, or use a deliberator with more context.",
            )


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
    summary = summarize([_lean(trace) for trace in _traces(leaf)])
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


def _lean(trace: Trace) -> Trace:
    """The trace without its long texts, which the metrics do not read."""
    pool = [dataclasses.replace(t, reasoning="") for t in trace.pool]
    deliberations = [dataclasses.replace(d, reasoning="") for d in trace.deliberations]
    caches = [dataclasses.replace(c, prompt="") for c in trace.caches]
    return dataclasses.replace(trace, pool=pool, deliberations=deliberations, caches=caches)

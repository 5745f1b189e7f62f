"""Writes the folder of a run from the rows of its pipeline.

``generate`` lists the files. Traces are in the order of the problems, not in the order in which
they finished. An interrupted run also keeps the rows of the folder that it continues, so that a
finished problem stays until there is a newer row for it.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import heavydistill
from heavydistill.config.files import json_of, text_in
from heavydistill.config.run import RunConfig, dump_config, load_config
from heavydistill.errors import ConfigError, RunError
from heavydistill.metrics.comparison import Model, leaves
from heavydistill.metrics.counts import Usage
from heavydistill.metrics.mixing import Mixing, mixing_of
from heavydistill.metrics.problem_figures import RunTally
from heavydistill.metrics.summary import Summary, summary_of
from heavydistill.metrics.tool_use import ToolUse
from heavydistill.models.registry import revision_of
from heavydistill.models.resolve import ResolvedModel, ResolvedRun
from heavydistill.problems.options import orders_kept
from heavydistill.schema import FAILED, Problem, Trace, from_row
from heavydistill.store.traces import (
    REJECTS_FOLDER,
    TRACES_FOLDER,
    read_traces,
    reading,
    write_traces,
    writing,
)

# Keys that only affect the number and choice of samples, not models or problems.
_MAY_CHANGE = {
    "think.k",
    "think.sampling.max_tokens",
    "deliberate.d",
    "deliberate.sampling.max_tokens",
    "cache.budget_tokens",  # follows from the longest response
    "problems.limit",
    "seed",
    "verify.timeout_s",
}
_IDENTITIES = "endpoint.identities."
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Place:
    """Position of a problem's row in the row files."""

    problem: str
    status: str
    file: Path
    group: int
    row: int


def write(
    run: ResolvedRun,
    problems: list[Problem],
    rows: Path,
    folder: Path,
    old: Path | None,
    left_out: int = 0,
    voted: Collection[str] | None = None,
) -> tuple[Summary, int, int, Mixing | None]:
    """Write the folder of a run, and check that every problem has exactly one row.

    Args:
        run: Models and configuration.
        problems: All problems, in order.
        rows: Folder with the parquet files of the pipeline.
        folder: Folder of the run, which must not exist.
        old: Folder that an interrupted run continues; None if every problem must have a row.
        left_out: Number of rows of the source that are left out of the run.
        voted: See ``summarize``.

    Returns:
        (summary over all rows, number of rejects, number of problems without a row, comparison of
        the models in the pools if there are several).

    Raises:
        RunError: Rows are missing, or the disk is full.
    """
    wanted = {problem.id: problem for problem in problems}
    places = [place for place, _ in _places(sorted(rows.glob("*.parquet")))]
    _check_rows(wanted, [place.problem for place in places], interrupted=old is not None)
    if old is not None:
        places += _carried(old, wanted, {place.problem for place in places})
    order = {name: position for position, name in enumerate(wanted)}
    places.sort(key=lambda place: order[place.problem])  # replaces the order in which they finished
    kept = [place for place in places if not place.status.startswith(FAILED)]
    rejected = [place for place in places if place.status.startswith(FAILED)]
    used = ToolUse()
    tally = RunTally(used.counted(_traces(places)), voted)
    mixing = _priced_models(mixing_of(tally), run)
    summary = _priced(summary_of(tally), mixing, run)
    missing = len(wanted) - len(places)
    write_traces(_traces(kept), folder / TRACES_FOLDER)
    if rejected:
        write_traces(_traces(rejected), folder / REJECTS_FOLDER)
    record = {
        **made_by(run),
        **dataclasses.asdict(summary),
        "rejects": len(rejected),
        "missing": missing,
        "option_orders_kept": orders_kept(problems),
        "left_out": left_out,
    }
    if used.trajectories or run.config.think.tools.python:
        record["tools"] = dataclasses.asdict(used)
    if mixing:
        record["mixing"] = dataclasses.asdict(mixing)
    if licences := _licences(run.config.pools):
        record["licences"] = licences
    with writing(folder):
        (folder / "config.yaml").write_text(dump_config(run.config), encoding="utf-8")
        (folder / "summary.json").write_text(json.dumps(record, indent=2), encoding="utf-8")
    return summary, len(rejected), missing, mixing


def _licences(pools: str | None) -> list[str]:
    """Return the licences of imported answers among the pools of a run."""
    file = Path(pools or "") / "summary.json"
    return json_of(text_in(file)).get("licences", []) if pools and file.is_file() else []


def tools_used(run: Path) -> ToolUse | None:
    """What the thinkers of a written run did with their tools; None if they had none.

    Raises:
        ConfigError: The summary is damaged.
    """
    found = json_of(text_in(run / "summary.json")).get("tools")
    return ToolUse(**found) if found else None


def all_traces(run: Path) -> Iterator[Trace]:
    """Yield all rows that ``write`` wrote, rejects included; its summary covers these rows.

    Raises:
        ConfigError: A file cannot be read.
    """
    return _traces([place for place, _ in _places(_files(run))])


def made_by(run: ResolvedRun) -> dict[str, object]:
    """Return version and models of a run as in ``summary.json``, without folders.

    The thinker is null for pools of another run; the deliberator is null if D is 0.
    """

    def made(models: Sequence[ResolvedModel]) -> dict[str, object] | None:
        if not models:
            return None
        revisions = (revision_of(model.profile, model.endpoint) for model in models)
        names = " and ".join(model.profile.name for model in models)
        return dataclasses.asdict(Model(names, " and ".join(filter(None, revisions))))

    return {
        "heavydistill": heavydistill.__version__,
        "thinker": made(run.thinkers),
        "deliberator": made([run.deliberator] if run.config.rounds else []),
    }


@dataclass(frozen=True, slots=True)
class ExistingRun:
    """The existing run in a folder, compared with a new configuration."""

    lacks: int  # missing rows and failed samples, which the same command requests again
    changed: dict[str, tuple[Any, Any]]
    """Keys in which the new configuration differs, with (old value, new value)."""

    @property
    def may_go_on(self) -> bool:
        """Return whether the new run may replace the existing run, whose gaps it fills or whose
        sample counts it changes."""
        keys = {key for key in self.changed if not key.startswith(_IDENTITIES)}
        if keys != self.changed.keys() and not self.lacks:  # a finished run of another model
            return False
        return keys <= _MAY_CHANGE if self.changed else bool(self.lacks)


def context_before(config: RunConfig, folder: Path) -> int | None:
    """The context that the run in a folder used with the same models; None if there is none."""
    try:
        saved = load_config(folder / "config.yaml")
    except ConfigError:  # there is no run, or a run of another version
        return None
    return saved.endpoint.context if saved.roles == config.roles else None


def earlier(config: RunConfig, folder: Path) -> ExistingRun | None:
    """Compare the run in a folder with a new configuration; None if there is no readable run."""
    try:
        saved = load_config(folder / "config.yaml")
        was, now = dict(leaves(saved.identity_fields)), dict(leaves(config.identity_fields))
        for name in saved.endpoint.identities.keys() & config.endpoint.identities.keys():
            was[_IDENTITIES + name] = saved.endpoint.identities[name] or "1"
            now[_IDENTITIES + name] = config.endpoint.identities[name] or "1"
        summary = json_of(text_in(folder / "summary.json"))
        # Trajectories of given pools are not requested again.
        asked = ("deliberations",) if config.pools else ("trajectories", "deliberations")
        failed = sum(summary[stage]["failed"] for stage in asked)
        lacks = summary["missing"] + summary["rejects"] + failed + summary["judging"]["failed"]
        read_traces(folder)
    # no run, or a run of another version
    except (ConfigError, OSError, ValueError, LookupError, TypeError):
        return None
    keys = sorted(was.keys() | now.keys())
    pairs = {key: (was.get(key), now.get(key)) for key in keys}
    return ExistingRun(lacks, {key: pair for key, pair in pairs.items() if pair[0] != pair[1]})


def _carried(old: Path, wanted: dict[str, Problem], have: set[str]) -> list[_Place]:
    """Return the earlier folder's rows for problems that have no new row."""
    carried, changed = [], 0
    for place, problem in _places(_files(old)):
        if place.problem in have:
            continue
        if problem == wanted.get(place.problem):
            carried.append(place)
        else:
            changed += 1
    if changed:
        why = "because their problems are no longer in the run or have changed"
        _log.warning("%d row(s) of %s are left out, %s", changed, old, why)
    return carried


def _files(run: Path) -> list[Path]:
    """Return the files with the rows of a run, rejects included."""
    names = (TRACES_FOLDER, REJECTS_FOLDER)
    return [path for name in names for path in sorted(run.glob(f"{name}/*.parquet"))]


def _check_rows(wanted: dict[str, Problem], out: list[str], interrupted: bool) -> None:
    missing = len(wanted.keys() - set(out))
    if len(out) != len(set(out)) or not set(out) <= wanted.keys() or (missing and not interrupted):
        raise RunError(
            f"The run has {len(wanted)} problems and {len(out)} rows; {missing} problems have none",
            "This is a defect, please report it; nothing was written.",
        )


def _priced(summary: Summary, mixing: Mixing | None, run: ResolvedRun) -> Summary:
    """Return the summary with the cost of each stage whose price and tokens are known."""
    usage = dict(summary.usage)
    if mixing and len(run.thinkers) > 1:
        usage["thinking"] = _sum_of_costs(usage["thinking"], [m.usage for m in mixing.models])
    else:
        usage["thinking"] = _with_cost(usage["thinking"], [*run.thinkers, run.deliberator][0])
    for stage, model in (("deliberating", run.deliberator), ("judging", run.judge)):
        if model and stage in usage:
            usage[stage] = _with_cost(usage[stage], model)
    return dataclasses.replace(summary, usage=usage)


def _priced_models(mixing: Mixing | None, run: ResolvedRun) -> Mixing | None:
    """Return the comparison with the cost of each thinker whose price and tokens are known."""
    if not mixing:
        return None
    thinkers = {thinker.profile.name: thinker for thinker in run.thinkers}
    models = [
        dataclasses.replace(each, usage=_with_cost(each.usage, thinkers[each.name]))
        if each.name in thinkers
        else each
        for each in mixing.models
    ]
    return dataclasses.replace(mixing, models=models)


def _with_cost(used: Usage, model: ResolvedModel) -> Usage:
    profile = model.profile
    cost = profile.usd(used.prompt, used.completion, used.cached)
    known = used.unknown_completion < used.requests or not used.requests
    return dataclasses.replace(
        used,
        cost_usd=round(cost, 6) if cost is not None and known else None,
        has_cached_price=bool(profile.price and profile.price.usd_per_mtok_cached is not None),
    )


def _sum_of_costs(used: Usage, parts: Sequence[Usage]) -> Usage:
    """Return the usage of several models with the sum of their costs, if each is known."""
    costs = [part.cost_usd for part in parts if part.cost_usd is not None]
    return dataclasses.replace(
        used,
        cost_usd=round(sum(costs), 6) if len(costs) == len(parts) else None,
        has_cached_price=all(part.has_cached_price for part in parts if part.cost_usd),
    )


def _places(files: Iterable[Path]) -> Iterator[tuple[_Place, Problem]]:
    for path in files:
        with reading(path) as file:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, columns=["problem", "status"])
                for number, row in enumerate(table.to_pylist()):
                    problem = from_row(Problem, row["problem"])
                    yield _Place(problem.id, row["status"], path, group, number), problem


def _traces(places: Sequence[_Place]) -> Iterator[Trace]:
    """Yield the traces at these places; only a few row groups are in memory at once."""

    @lru_cache(maxsize=32)
    def rows(path: Path, group: int) -> list[dict[str, object]]:
        with reading(path) as file:
            return list(file.read_row_group(group).to_pylist())

    for place in places:
        yield from_row(Trace, rows(place.file, place.group)[place.row])

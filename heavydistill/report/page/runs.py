"""The runs of a report: where their rows lie on disk, how far they got, and their figures.

A finished run is its folder. The finished rows of one that is in progress, or was killed, lie in
the hidden folder beside it (see ``store.atomic``); what was answered since is in the journal alone,
by the content of its requests, and shows in no report. An evaluation or a crossing has several,
and is reported when it is whole.

Figures come from the rows, so that a run in progress has them too. What rows do not say is
taken from the run's ``summary.json`` where there is one: prices, and problems without a row.

Not covered: the journal; runs on other machines of which this one sees no folder.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from heavydistill.config.run import load_config
from heavydistill.errors import ConfigError
from heavydistill.metrics.comparison import COMPARISON
from heavydistill.metrics.counts import Usage
from heavydistill.metrics.crossing import CROSSING
from heavydistill.metrics.problem_figures import RunTally
from heavydistill.metrics.summary import Summary, summary_of
from heavydistill.report.grid import counted, listed
from heavydistill.schema import Trace
from heavydistill.store.atomic import Workplace
from heavydistill.store.portable import portable_config
from heavydistill.store.traces import LEAF_FOLDER, REJECTS_FOLDER, TRACES_FOLDER

SIDES = ("before", "after")
"""Folders of an evaluation that stand before its others."""
_CONFIG, _SUMMARY = "config.yaml", "summary.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedRun:
    """A run to report."""

    name: str  # name of its folder, behind that of its evaluation or crossing
    files: Sequence[Path]  # files with its rows
    unfinished: str = ""  # how far a run got that is not whole
    config: str = ""  # its configuration as YAML without places; empty if not known
    recorded: dict[str, Any] = field(default_factory=dict)  # contents of its `summary.json`

    @property
    def written(self) -> datetime | None:
        """When the last of its files was written; None if it has none."""
        times = [file.stat().st_mtime for file in self.files]
        return datetime.fromtimestamp(max(times), UTC) if times else None

    @property
    def label(self) -> str:
        """The name, and whether the run is whole."""
        return f"{self.name} (unfinished)" if self.unfinished else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """What is computed from the rows of a run."""

    summary: Summary  # with the `usage` of the run's own summary where there is one
    is_own_usage: bool  # whether there is; rows include what another run paid for the pools
    thinkers: list[str]
    deliberators: list[str]
    problems: frozenset[int]  # hashes of the problems, which differ in another process


def figures(source: ReportedRun, traces: Iterable[Trace]) -> RunFigures:
    """The figures of a run, whose traces are read once and not kept.

    Raises:
        ConfigError: The run is whole and has no verdicts.
        RunError: There are no traces.
    """
    tally = RunTally(traces)
    summary = summary_of(tally)
    if not (tally.verifiers or source.unfinished):  # an unfinished run may get some yet
        raise _nothing_judged(source.name, summary)
    try:  # the run's own summary knows prices and what was paid elsewhere
        usage = TypeAdapter(dict[str, Usage]).validate_python(source.recorded["usage"])
    except (KeyError, ValidationError):
        usage = None
    return RunFigures(
        summary=summary if usage is None else dataclasses.replace(summary, usage=usage),
        is_own_usage=usage is not None,
        thinkers=sorted({name_of(model) for model in tally.thinkers}),
        deliberators=sorted({name_of(model) for model in tally.deliberators}),
        problems=frozenset(hash((row.problem, *row.question)) for row in tally.rows),
    )


def _nothing_judged(name: str, summary: Summary) -> ConfigError:
    problems = counted(summary.problems, "problem")
    failed = summary.trajectories.failures
    requests = f" (failed requests: {listed(failed)})" if failed else ""
    return ConfigError(
        f"{name} has no verdicts: no response to its {problems} was judged{requests}",
        "Give its command again, which asks anew for what failed; `heavydistill generate --pools "
        "RUN` judges what has no verdict.",
    )


def find(folder: Path, name: str = "") -> list[ReportedRun]:
    """The run in a folder, or the runs of the evaluation or the crossing in it.

    Raises:
        ConfigError: There is neither, or nothing of it is on the disk yet.
    """
    name = name or folder.absolute().name
    is_several = any((folder / file).is_file() for file in (COMPARISON, CROSSING))
    if is_several and (runs := _members(folder)):
        return [_finished(folder / run, f"{name} / {run}") for run in runs]
    if (folder / TRACES_FOLDER).is_dir():
        return [_finished(folder, name)]
    place = Workplace(folder)
    if place.lacks_its_name:  # whole, and its writer was killed before it was renamed
        return find(place.new, name)
    if files := sorted((place.rows / LEAF_FOLDER).glob("*.parquet")):
        state = "is in progress" if place.is_claimed else "was killed and has not gone on"
        progress = (
            f"The run {state}: these are the rows that it had written when this report was made, "
            f"in {len(files):,} files. Which problems come first depends on how long they take, so "
            "figures over them favour the quick ones."
        )
        return [ReportedRun(name=name, files=files, unfinished=progress)]
    raise _nothing(folder, place)


def _members(folder: Path) -> list[str]:
    """Names of the runs in the folder of an evaluation or a crossing, in the report's order."""
    names = [traces.parent.name for traces in folder.glob(f"[!.]*/{TRACES_FOLDER}")]
    return sorted(names, key=lambda name: (name not in SIDES, name == SIDES[-1], name))


def _finished(run: Path, name: str) -> ReportedRun:
    files = [
        path
        for part in (TRACES_FOLDER, REJECTS_FOLDER)
        for path in sorted(run.glob(f"{part}/*.parquet"))
    ]
    if not files:
        raise ConfigError(
            f"{run} is not the folder of a run: it has no {TRACES_FOLDER}/*.parquet",
            "Give the folder that `heavydistill generate --out FOLDER` wrote.",
        )
    recorded = _recorded(run / _SUMMARY)
    missing, lacks = recorded.get("missing", 0), []
    if missing:
        lacks.append(f"{missing:,} problems have no row: the run was stopped.")
    if Workplace(run).is_claimed:
        lacks.append("The same command is going on just now; its new rows are not in this report.")
    try:
        tree = portable_config(load_config(run / _CONFIG))
        config = str(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True))
    except ConfigError:  # another version of heavydistill wrote it
        config = ""
    unfinished = " ".join(lacks)
    return ReportedRun(
        name=name, files=files, unfinished=unfinished, config=config, recorded=recorded
    )


def _nothing(folder: Path, place: Workplace) -> ConfigError:
    if place.path.is_dir():
        state = "is in progress" if place.is_claimed else "was killed"
        return ConfigError(
            f"{folder} {state} and has no row on the disk yet; what was answered is in its journal",
            "Wait for the first rows of a run, or for the end of an evaluation or a crossing; or "
            "give its command again: nothing is asked twice.",
        )
    if not folder.exists():
        return ConfigError(f"{folder} does not exist", "Name the folder of a run.")
    return ConfigError(
        f"{folder} is not the folder of a run: it has no {TRACES_FOLDER}/*.parquet, and of an "
        f"evaluation no {COMPARISON}",
        "Give the folder that `heavydistill generate` or `heavydistill evaluate` wrote.",
    )


def _recorded(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(
            f"{path} is no JSON: {error}", "Take it away; figures come from the traces."
        ) from error
    return tree if isinstance(tree, dict) else {}


def name_of(model: str) -> str:
    """A model without the folder that it lies in on some machine."""
    path = PurePosixPath(model)
    return path.name if path.is_absolute() else model

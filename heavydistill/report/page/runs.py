"""The runs of a report: the files of their rows, their progress, and their metrics.

The rows of a finished run are in its folder. For a run that is in progress or was killed, the
finished rows are in the hidden folder next to it (see ``store.atomic``); later responses are only
in the journal and are not reported. Evaluations and crossings consist of several runs and are
reported when they are finished.

Metrics are computed from the rows, so that a run in progress has them too. ``summary.json``, if it
exists, adds prices and the number of problems without a row.

Not covered: the journal; runs on other machines whose folder is not visible here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from heavydistill.config.files import json_of, text_in
from heavydistill.config.run import load_config
from heavydistill.errors import ConfigError
from heavydistill.metrics.comparison import COMPARISON
from heavydistill.metrics.counts import Usage
from heavydistill.metrics.experiments.crossing import CROSSING
from heavydistill.metrics.mixing import Mixing, mixing_of
from heavydistill.metrics.problem_figures import RunTally
from heavydistill.metrics.summary import Summary, summary_of
from heavydistill.metrics.tool_use import ToolUse
from heavydistill.report.grid import counted, listed
from heavydistill.schema import Trace
from heavydistill.store.atomic import Workplace
from heavydistill.store.redact import portable_config
from heavydistill.store.traces import LEAF_FOLDER, REJECTS_FOLDER, TRACES_FOLDER

SIDES = ("before", "after")
"""The folders of an evaluation that come first."""
_MOST_LISTED = 5
_CONFIG, _SUMMARY = "config.yaml", "summary.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedRun:
    """A run to report."""

    name: str  # name of its folder, prefixed by its evaluation or crossing
    files: Sequence[Path]  # files with its rows
    unfinished: str = ""  # progress of an unfinished run, as sentences
    config: str = ""  # its configuration as YAML without paths; empty if unknown
    recorded: dict[str, Any] = field(default_factory=dict)  # content of its `summary.json`

    @property
    def written(self) -> datetime | None:
        """Return the time at which the run's last file was written; None without files."""
        times = [file.stat().st_mtime for file in self.files]
        return datetime.fromtimestamp(max(times), UTC) if times else None

    @property
    def label(self) -> str:
        """Return the name, marked if the run is unfinished."""
        return f"{self.name} (unfinished)" if self.unfinished else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """The metrics of a run, computed from its rows."""

    summary: Summary  # includes the recorded `usage` of the run, if any
    is_own_usage: bool  # whether `usage` is the recorded one; rows also count reused pools
    thinkers: list[str]
    deliberators: list[str]
    mixing: Mixing | None  # comparison of the models in its pools; None for one model
    tools: ToolUse | None  # what its thinkers did with tools; None if they had none
    problems: frozenset[int]  # hashes of the problems, valid only in this process


def figures(source: ReportedRun, traces: Iterable[Trace]) -> RunFigures:
    """Compute the metrics of a run; the traces are read once and not kept.

    Raises:
        ConfigError: The run is finished and has no verdicts.
        RunError: There are no traces.
    """
    tools = ToolUse()
    tally = RunTally(tools.counted(traces))
    summary = summary_of(tally)
    if not (tally.verifiers or source.unfinished):  # an unfinished run may still get verdicts
        raise _nothing_judged(source.name, summary)
    try:  # the run's summary has prices, and excludes the cost of reused pools
        usage = TypeAdapter(dict[str, Usage]).validate_python(source.recorded["usage"])
    except (KeyError, ValidationError):
        usage = None
    try:
        recorded = TypeAdapter(Mixing).validate_python(source.recorded["mixing"])
    except (KeyError, ValidationError):
        recorded = None
    return RunFigures(
        summary=summary if usage is None else dataclasses.replace(summary, usage=usage),
        is_own_usage=usage is not None,
        thinkers=sorted({name_of(model) for model in tally.thinkers}),
        deliberators=sorted({name_of(model) for model in tally.deliberators}),
        mixing=recorded or mixing_of(tally),
        tools=tools if tools.trajectories or "tools" in source.recorded else None,
        problems=frozenset(hash((row.problem, *row.question)) for row in tally.rows),
    )


def _nothing_judged(name: str, summary: Summary) -> ConfigError:
    problems = counted(summary.problems, "problem")
    failed = summary.trajectories.failures
    requests = f" (failed requests: {listed(failed)})" if failed else ""
    return ConfigError(
        f"{name} has no verdicts: no response to its {problems} was judged{requests}",
        "Repeat its command, which sends failed requests again; `heavydistill generate --pools "
        "RUN` judges responses without a verdict.",
    )


def find(folder: Path, name: str = "") -> list[ReportedRun]:
    """Return the run in a folder, or the runs of the evaluation or crossing in the folder.

    Raises:
        ConfigError: There is no run, or it has no rows on disk yet.
    """
    name = name or folder.absolute().name
    is_several = any((folder / file).is_file() for file in (COMPARISON, CROSSING))
    if is_several and (runs := _members(folder)):
        return [_finished(folder / run, f"{name} / {run}") for run in runs]
    if (folder / TRACES_FOLDER).is_dir():
        return [_finished(folder, name)]
    place = Workplace(folder)
    if place.lacks_its_name:  # finished, but its process was killed before the renaming
        return find(place.new, name)
    if files := sorted((place.rows / LEAF_FOLDER).glob("*.parquet")):
        state = "is in progress" if place.is_claimed else "was killed and not continued"
        progress = (
            f"The run {state}: this report covers the rows that it had written so far, in "
            f"{len(files):,} files. Quick problems finish first, so the figures favour them."
        )
        return [ReportedRun(name=name, files=files, unfinished=progress)]
    raise _nothing(folder, place)


def _members(folder: Path) -> list[str]:
    """Return the names of the runs of an evaluation or crossing, in the order of the report."""
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
            "Give a folder that `heavydistill generate --out FOLDER` wrote.",
        )
    recorded = _recorded(run / _SUMMARY)
    missing, lacks = recorded.get("missing", 0), []
    if missing:
        lacks.append(f"{missing:,} problems have no row: the run was stopped.")
    if Workplace(run).is_claimed:
        lacks.append("The run is being continued; its new rows are not in this report.")
    try:
        tree = portable_config(load_config(run / _CONFIG))
        config = str(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True))
    except ConfigError:  # written by another version of heavydistill
        config = ""
    unfinished = " ".join(lacks)
    return ReportedRun(
        name=name, files=files, unfinished=unfinished, config=config, recorded=recorded
    )


def _nothing(folder: Path, place: Workplace) -> ConfigError:
    if place.path.is_dir():
        state = "is in progress" if place.is_claimed else "was killed"
        return ConfigError(
            f"{folder} {state} and has no rows on the disk yet; its responses are in the journal",
            "Wait for the first rows of a run, or for the end of an evaluation or crossing; if it "
            "was killed, repeat its command: no request is sent twice.",
        )
    if not folder.exists():
        return ConfigError(f"{folder} does not exist", "Give the folder of a run.")
    runs = sorted({str(file.parents[1]) for file in folder.glob(f"*/{TRACES_FOLDER}/*.parquet")})
    if runs:
        listed = ", ".join(runs[:_MOST_LISTED])
        return ConfigError(f"{folder} is a folder of runs", f"Give one of them, e.g. {listed}.")
    return ConfigError(
        f"{folder} is neither a run, which has {TRACES_FOLDER}/*.parquet, nor an evaluation, which "
        f"has {COMPARISON}",
        "Give a folder that `heavydistill generate` or `heavydistill evaluate` wrote.",
    )


def _recorded(path: Path) -> dict[str, object]:
    if not path.is_file():
        return {}
    try:
        tree = json_of(text_in(path))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} cannot be read as JSON: {error}", "Remove it; figures come from the traces."
        ) from error
    return tree if isinstance(tree, dict) else {}


def name_of(model: str) -> str:
    """Return the name of a model, without its local folder."""
    path = PurePosixPath(model)
    return path.name if path.is_absolute() else model

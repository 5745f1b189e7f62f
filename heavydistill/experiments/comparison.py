"""Compares two runs on disk, without sending requests or judging again.

Configuration, models and version of a run are read from its folder (see ``run``); its metrics are
computed from its traces, rejects included. Imported pools count as a run without configuration and
deliberations. An unfinished run is refused, because its finished problems are a biased sample. The
evaluated run of an evaluation has its controls in the same folder, which are compared too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path, PurePath

from pydantic import TypeAdapter, ValidationError

from heavydistill.config.files import json_of, text_in
from heavydistill.config.run import load_config
from heavydistill.errors import ConfigError
from heavydistill.metrics.comparison import (
    COMPARISON,
    Comparison,
    Model,
    RunMetrics,
    Side,
    compare_sides,
    refuse_other_verdicts,
)
from heavydistill.metrics.controls import (
    ALONE,
    CONTROLS,
    NAMES,
    WORDINGS,
    alone_name,
    minus_controls,
)
from heavydistill.metrics.counts import Usage, statuses_alone
from heavydistill.metrics.problem_figures import RunTally
from heavydistill.metrics.summary import summary_of
from heavydistill.run.result import all_traces
from heavydistill.store.atomic import Workplace, recover
from heavydistill.store.redact import portable_config
from heavydistill.store.traces import trace_files

A, B = "A", "B"
AFTER = "after"  # folder of the evaluated run of an evaluation
# Configuration keys that do not affect how samples and verdicts are requested.
_NOT_ASKED = ("teacher", "thinker", "deliberator", "endpoint", "budget")
_FINISH = "Repeat the same command: it goes on, and nothing is billed twice."
_A_RUN = "Give the folder that `heavydistill generate --out FOLDER` wrote."


def compare(a: str | Path, b: str | Path) -> Comparison:
    """Compare the run in folder ``b`` with the run in folder ``a``.

    Raises:
        ConfigError: A folder has no finished run, or the runs cannot be compared.
    """
    for folder in (a, b):
        refuse_unfinished(Path(folder))
    before, after = side_of(Path(a), A), side_of(Path(b), B)
    refuse_other_verdicts(before, after)
    return compare_sides(after, before, {})


def side_of(run: Path, name: str) -> Side:
    """Read the finished run in a folder as one side of a comparison, called ``name``.

    Raises:
        ConfigError: The folder has no run, or a run of another version.
    """
    trace_files(run)
    record = _record(run)
    file = run / "config.yaml"
    config = load_config(file) if file.is_file() else None
    asked = portable_config(config) if config else {}
    # A run on pools does not know which rows of the source were left out.
    taken = config is not None and config.pools is not None
    not_asked = {*_NOT_ASKED, "problems"} if taken else _NOT_ASKED
    tally = RunTally(all_traces(run))
    if not tally.rows:
        raise ConfigError(f"{run} holds no traces", _A_RUN)
    summary = summary_of(tally)
    try:
        usage = TypeAdapter(dict[str, Usage]).validate_python(record.get("usage", summary.usage))
        thinker = _model_of(record, "thinker", tally.thinkers)
        deliberator = _model_of(record, "deliberator", tally.deliberators)
        left_out = TypeAdapter(int | None).validate_python(
            None if taken else record.get("left_out")
        )
    except ValidationError as error:
        raise ConfigError(f"{run / 'summary.json'} is not the summary of a run", _A_RUN) from error
    # Traces of a run on pools also contain the usage of the run that made the pools.
    statuses = statuses_alone(summary.statuses)
    measured = RunMetrics(
        name=name,
        heavydistill=str(record.get("heavydistill", "")),
        thinker=thinker,
        deliberator=deliberator,
        summary=dataclasses.replace(summary, usage=usage, statuses=statuses),
        left_out=left_out,
    )
    compared = {key: value for key, value in asked.items() if key not in not_asked}
    return Side(measured, compared, tally, _minus_controls(run, tally.rounds))


def _model_of(record: Mapping[str, object], role: str, names: set[str]) -> Model | None:
    """Return the recorded model; if none, the samples' authors, without folder or revision."""
    alone = sorted({PurePath(name).name for name in names})
    written = {"name": " and ".join(alone), "revision": ""} if alone else None
    return TypeAdapter(Model | None).validate_python(record.get(role, written))


def _minus_controls(run: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Return what the deliberations of an evaluated run add over its controls."""
    if run.name != AFTER or not (run.parent / CONTROLS).is_file():
        return {}
    names = [*map(alone_name, WORDINGS), *(name for name in NAMES if name != ALONE)]
    folders = {name: run.parent / name for name in names if (run.parent / name).is_dir()}
    traces = {name: all_traces(folder) for name, folder in folders.items()}
    return minus_controls(all_traces(run), rounds, traces)


def refuse_unfinished(run: Path) -> None:
    """Raise ConfigError if a folder is not that of a finished run."""
    recover(run)
    if Workplace(run).is_claimed:
        raise ConfigError(f"{run} is still being written by a run", "Wait until it ends.")
    if not run.exists() and Workplace(run).path.exists():
        raise ConfigError(f"The run {run} was interrupted before its folder was written", _FINISH)
    if (run / COMPARISON).is_file():
        raise ConfigError(
            f"{run} is an evaluation of several runs",
            f"Give one of them, e.g. {run / 'after'}.",
        )
    trace_files(run)
    if missing := _record(run).get("missing"):
        raise ConfigError(
            f"The run {run} was interrupted: {missing:,} of its problems have no trace", _FINISH
        )


def _record(run: Path) -> dict[str, object]:
    """Return the content of a run's ``summary.json``."""
    path = run / "summary.json"
    try:
        tree = json_of(text_in(path))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{run} is not the folder of a finished run: {path.name} cannot be read", _A_RUN
        ) from error
    return tree if isinstance(tree, dict) else {}

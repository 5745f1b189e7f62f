"""Two runs that are there, compared: nobody is asked, and nothing is judged anew.

What a run was asked, of whom and by which version, is read from its folder (see ``run``), and its
figures are computed from its traces, those included that a step failed on. Imported pools are a
run without configuration and deliberations. A run that is not finished is refused: a comparison
of what is there by chance would look like one of runs.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path, PurePath
from typing import Any

from pydantic import TypeAdapter, ValidationError

from heavydistill.config.run import load_config
from heavydistill.errors import ConfigError
from heavydistill.metrics.comparison import (
    COMPARISON,
    Comparison,
    Measured,
    Model,
    Side,
    compare,
    refuse_other_verdicts,
)
from heavydistill.metrics.counts import Usage, statuses_alone
from heavydistill.metrics.problem_figures import RunTally
from heavydistill.metrics.summary import summary_of
from heavydistill.run.result import all_traces
from heavydistill.store.atomic import Workplace, recover
from heavydistill.store.portable import portable_config
from heavydistill.store.traces import trace_files

A, B = "A", "B"
# What a configuration says beside how problems, models and verdicts are asked for.
_NOT_ASKED = ("teacher", "thinker", "deliberator", "endpoint", "budget")
_FINISH = "Give the same command again: it goes on, and pays for nothing twice."
_A_RUN = "Give the folder that `heavydistill generate --out FOLDER` wrote."


def compare_runs(a: Path, b: Path) -> Comparison:
    """What is different in the run in folder ``b`` from that in ``a``.

    Raises:
        ConfigError: A folder holds no finished run, or they cannot be compared.
    """
    for folder in (a, b):
        _refuse_unfinished(folder)
    before, after = side_of(a, A), side_of(b, B)
    refuse_other_verdicts(before, after)
    return compare(after, before, {})


def side_of(run: Path, name: str) -> Side:
    """The finished run in a folder, as the side of that name in a comparison.

    Raises:
        ConfigError: The folder holds no run, or one of another version.
    """
    trace_files(run)
    record = _record(run)
    file = run / "config.yaml"
    config = load_config(file) if file.is_file() else None
    asked = portable_config(config) if config else {}
    # A run on the pools of another reads no source, and does not know what that left out.
    taken = config is not None and config.pools is not None
    not_asked = {*_NOT_ASKED, "problems"} if taken else _NOT_ASKED
    tally = RunTally(all_traces(run))

    def model_of(role: str, names: set[str]) -> Model | None:
        """Whoever wrote samples, where a run does not say it: without folders, and no revision."""
        alone = sorted({PurePath(name).name for name in names})
        written = {"name": " and ".join(alone), "revision": ""} if alone else None
        return TypeAdapter(Model | None).validate_python(record.get(role, written))

    if not tally.rows:
        raise ConfigError(f"{run} holds no traces", _A_RUN)
    summary = summary_of(tally)
    try:
        usage = TypeAdapter(dict[str, Usage]).validate_python(record.get("usage", summary.usage))
        thinker = model_of("thinker", tally.thinkers)
        deliberator = model_of("deliberator", tally.deliberators)
        left_out = TypeAdapter(int | None).validate_python(
            None if taken else record.get("left_out")
        )
    except ValidationError as error:
        raise ConfigError(f"{run / 'summary.json'} is not that of a run", _A_RUN) from error
    # What a run took that has its pools from another one, its traces do not tell.
    statuses = statuses_alone(summary.statuses)
    measured = Measured(
        name=name,
        heavydistill=str(record.get("heavydistill", "")),
        thinker=thinker,
        deliberator=deliberator,
        summary=dataclasses.replace(summary, usage=usage, statuses=statuses),
        left_out=left_out,
    )
    compared = {key: value for key, value in asked.items() if key not in not_asked}
    return Side(measured, compared, tally)


def _refuse_unfinished(run: Path) -> None:
    recover(run)
    if Workplace(run).is_claimed:
        raise ConfigError(f"{run} is still being written by a run", "Wait for its end.")
    if not run.exists() and Workplace(run).path.exists():
        raise ConfigError(f"The run {run} was broken off before its folder was there", _FINISH)
    if (run / COMPARISON).is_file():
        raise ConfigError(
            f"{run} is an evaluation of several runs",
            f"Give one of them, e.g. {run / 'after'}.",
        )
    trace_files(run)
    if missing := _record(run).get("missing"):
        raise ConfigError(
            f"The run {run} was broken off: {missing:,} of its problems have no trace", _FINISH
        )


def _record(run: Path) -> dict[str, Any]:
    """Content of a run's ``summary.json``."""
    path = run / "summary.json"
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{run} is not the folder of a finished run: {path.name} cannot be read", _A_RUN
        ) from error
    return tree if isinstance(tree, dict) else {}

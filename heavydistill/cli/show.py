"""``heavydistill show``: one trace that a person can read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heavydistill.errors import ConfigError


def show(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    problem: Annotated[
        str | None, typer.Option(help="Id of a problem; the first if left out.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Print reasoning whole.")] = False,
) -> None:
    """Print one trace: problem, trajectories, caches, deliberations, verdicts."""
    from rich.console import Console

    from heavydistill.report.trace import print_trace
    from heavydistill.storage import read_traces

    ids = []
    for trace in read_traces(run):
        if problem is None or trace.problem.id == problem:
            print_trace(trace, Console(), full=full)
            return
        ids.append(trace.problem.id)
    raise ConfigError(
        f"{run} has no trace of problem {problem!r}",
        f"It has {len(ids)}, for instance {', '.join(ids[:3])}." if ids else "It has none.",
    )

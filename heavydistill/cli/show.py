"""``heavydistill show``: one trace, or one row of a set, that a person can read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heavydistill.errors import ConfigError


def show(
    folder: Annotated[Path, typer.Argument(help="Folder of a run, or of sets that were built.")],
    problem: Annotated[
        str | None, typer.Option(help="Id of a problem; the first if left out.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Print long texts whole.")] = False,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Of sets: show which tokens of a row are learnt.")
    ] = False,
    set_name: Annotated[
        str | None,
        typer.Option("--set", help="Of sets: which one; the first to train on if left out."),
    ] = None,
    student: Annotated[
        str | None,
        typer.Option(
            help="With --tokens: checkpoint folder or Hub id of the student, if it is not found "
            "under the name that the sets give it."
        ),
    ] = None,
) -> None:
    """Print one trace of a run, or one row of a set.

    A trace is its problem, trajectories, caches, deliberations and verdicts. With --tokens, a row
    is printed as the student reads it: what is learnt in colour, or in [[ ]] where there is none.
    """
    from rich.console import Console

    from heavydistill.store.sets.folder import MANIFEST

    if (folder / MANIFEST).is_file():
        from heavydistill.report.row import print_row, print_tokens

        if student and not tokens:
            raise ConfigError("--student is given without --tokens", "Give --tokens, too.")
        if tokens:
            print_tokens(folder, set_name, problem, Console(), full, student)
        else:
            print_row(folder, set_name, problem, Console(), full)
        return
    if tokens or set_name or student:
        raise ConfigError(
            f"{folder} holds no sets: it has no {MANIFEST}",
            "--tokens, --set and --student need the folder that `heavydistill build RUN --out "
            "FOLDER` wrote.",
        )
    _show_trace(folder, problem, full)


def _show_trace(run: Path, problem: str | None, full: bool) -> None:
    from rich.console import Console

    from heavydistill.report.trace import print_trace
    from heavydistill.store.traces import read_traces

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

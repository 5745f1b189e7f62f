"""``heavydistill replay``: a run again from its journal alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heavydistill.config.run import load_config, refuse_code_of
from heavydistill.errors import ConfigError


def replay(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    out: Annotated[str, typer.Option(help="Folder of the rebuilt run.")],
    journal: Annotated[
        str | None, typer.Option(help="Its journal, if it was moved. [default: as it was]")
    ] = None,
    run_verifiers: Annotated[
        bool,
        typer.Option(
            "--run-verifiers",
            help="Run the Python files that the run names as verifiers of its own (verify.own).",
        ),
    ] = False,
) -> None:
    """Rebuild the dataset of a run from its journal, byte for byte, without sending a request.

    What the verifiers and the heavy core of this version make of the same responses is in the
    result; a request that the journal does not hold is a failure in it.
    """
    from rich.console import Console

    from heavydistill.cli.generate import print_ending
    from heavydistill.cli.plan import print_warnings
    from heavydistill.cli.progress import Progress, checked
    from heavydistill.report.summary import print_summary
    from heavydistill.run.generate import run as run_plan
    from heavydistill.store.atomic import recover

    recover(run)
    config = run / "config.yaml"
    if not config.is_file():
        raise ConfigError(f"{run} is no run: it has no config.yaml", "Give the folder of a run.")
    moved = {"out": out} | ({"journal": journal} if journal else {})
    console = Console()
    saved = load_config(config, moved)
    if not run_verifiers:
        refuse_code_of(run, saved, "add --run-verifiers")
    plan = checked(saved, console, asks=False)
    if plan.changed:
        raise ConfigError(f"out: {out} holds another run", "Name another folder.")
    print_warnings(plan, console)
    if not plan.journal.is_dir():
        raise ConfigError(f"There is no journal {plan.journal}", "Give its folder with --journal.")
    with Progress(console, plan) as progress:
        finished = run_plan(plan, progress.on_batch, replay=True)
    print_summary(finished.summary, console)
    print_ending(finished, plan, console)
    if not finished.is_complete:
        raise typer.Exit(1)

"""``heavydistill cross``: every thinker with every deliberator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from heavydistill.cli.flags import with_run_flags
from heavydistill.config.run import RunConfig

if TYPE_CHECKING:
    from heavydistill.run.generate import Finished
    from heavydistill.run.generate import Plan as RunPlan

_MODELS = "Models"


@with_run_flags
def cross(
    config: RunConfig,
    *,
    thinkers: Annotated[
        str,
        typer.Option(
            help="Models that think, with commas between, each as --teacher names one.",
            rich_help_panel=_MODELS,
        ),
    ],
    deliberators: Annotated[
        str,
        typer.Option(help="Models that deliberate, likewise.", rich_help_panel=_MODELS),
    ],
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check everything, show it, ask nobody."),
    ] = False,
) -> None:
    """Measure every thinker with every deliberator on the same problems.

    Each thinker is asked once, and all deliberators read its attempts. The result is a folder with
    a run for each pair and crossing.json. --budget holds for each of these runs by itself, not for
    all of them together. Ctrl-C and a kill lose nothing that was answered: the same command goes
    on.
    """
    from rich.console import Console

    from heavydistill.cli.asking import ending_early
    from heavydistill.cli.ending import end
    from heavydistill.cli.generate import print_reused
    from heavydistill.cli.plan import print_heading, print_line
    from heavydistill.cli.progress import Progress, checking
    from heavydistill.models.contact import Contact
    from heavydistill.report.controls import print_crossing
    from heavydistill.report.terminal import plain
    from heavydistill.run import crossing
    from heavydistill.run.estimate import estimate
    from heavydistill.run.generate import run

    console = Console()
    contact = None if dry_run else Contact()
    with checking(console) as on_checked:
        models = _names(thinkers), _names(deliberators)
        plan = crossing.check(config, *models, on_checked, contact)
    for name, each in plan.asked.items():
        console.rule(plain(f"plan: {name}"))
        print_heading(each, console)
        print_line(estimate(each), each, console)
    if (readers := list(plan.deliberators)[1:]) and dry_run:
        told = f"Then {', '.join(readers)} on the same attempts of each."
        console.print(told, markup=False, highlight=False, soft_wrap=True)
    if dry_run:
        return
    finished: dict[str, Finished] = {}

    def run_one(name: str, each: RunPlan) -> Finished:
        console.rule(plain(f"run: {name}"))
        with Progress(console, each) as progress:
            finished[name] = run(
                each, progress.on_batch, on_start=progress.on_start, on_work=progress.on_work
            )
        print_reused(progress, console)
        return finished[name]

    with ending_early(console, plan.folder, plan.journal):
        table = crossing.crossed(plan, run_one)
    console.rule("crossing")
    print_crossing(table, console)
    end("Crossing", plan.folder, plan.journal, finished, console)


def _names(given: str) -> list[str]:
    return [name.strip() for name in given.split(",") if name.strip()]

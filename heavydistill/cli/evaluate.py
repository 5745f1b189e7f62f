"""``heavydistill evaluate``: what a trained model does, beside what its base did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from heavydistill.cli.flags import with_run_flags
from heavydistill.config.run import RunConfig

if TYPE_CHECKING:
    from heavydistill.run.generate import Finished
    from heavydistill.run.generate import Plan as RunPlan


@with_run_flags
def evaluate(
    config: RunConfig,
    *,
    before: Annotated[
        str | None,
        typer.Option(
            help="The model before training, as both thinker and deliberator. What is left open "
            "of prompts and sampling is taken from its profile for both runs, and so is a role "
            "that nobody is named for.",
            rich_help_panel="Models",
        ),
    ] = None,
    controls: Annotated[
        str | None,
        typer.Option(
            help="Runs that the deliberation is held against, with commas between: alone (the "
            "deliberator without attempts), chain (one long chain, which may have the tokens of "
            "all), choose (the best attempt, as the deliberator names it), or all. [default: none]",
            rich_help_panel="Controls",
        ),
    ] = None,
    orders: Annotated[
        int,
        typer.Option(
            help="Read the same caches in so many orders, and tell what the order changes.",
            min=1,
            rich_help_panel="Controls",
        ),
    ] = 1,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check everything, show it, ask nobody."),
    ] = False,
) -> None:
    """Measure a thinker and a deliberator, and compare them with the model --before training.

    Both runs have the same problems, seed, prompts and sampling, so that they differ in the models
    alone. The result is a folder with both runs and evaluation.json: each metric before and after,
    and the difference, with 95 % intervals. Controls are runs in which the coordination alone
    differs; they are in controls.json. --budget holds for each of these runs by itself, not for all
    of them together. Ctrl-C and a kill lose nothing that was answered: the same command goes on.
    """
    from rich.console import Console

    from heavydistill.cli.asking import ending_early
    from heavydistill.cli.ending import end
    from heavydistill.cli.generate import print_reused
    from heavydistill.cli.plan import print_heading, print_line
    from heavydistill.cli.progress import Progress, checking
    from heavydistill.models.contact import Contact
    from heavydistill.report.comparison import print_comparison
    from heavydistill.report.controls import print_controlled
    from heavydistill.report.summary import print_summary
    from heavydistill.run import evaluation
    from heavydistill.run.controls import names_of
    from heavydistill.run.estimate import estimate
    from heavydistill.run.generate import run

    console = Console()
    contact = None if dry_run else Contact()
    with checking(console) as on_checked:
        names = names_of(controls.split(",")) if controls else []
        plan = evaluation.check(config, before, names, orders, on_checked, contact)
    for which, each in plan.runs.items():
        console.rule(f"plan: {which}")
        print_heading(each, console)
        print_line(estimate(each), each, console)
    for control in plan.controls:
        console.rule(f"plan: {control.name}")
        most = control.requests(len(plan.runs[evaluation.AFTER].problems))
        told = f"{control.told}: up to {most:,} requests"
        console.print(told, markup=False, highlight=False, soft_wrap=True)
    if dry_run:
        return
    finished: dict[str, Finished] = {}

    def run_one(which: str, each: RunPlan) -> Finished:
        console.rule(f"run: {which}")
        with Progress(console, each) as progress:
            finished[which] = run(
                each, progress.on_batch, on_start=progress.on_start, on_work=progress.on_work
            )
        print_reused(progress, console)
        return finished[which]

    with ending_early(console, plan.folder, plan.journal):
        evaluated = evaluation.evaluate(plan, run_one)
    console.rule("evaluation")
    if evaluated.comparison.before:
        print_comparison(evaluated.comparison, console)
    else:
        print_summary(finished[evaluation.AFTER].summary, console, breakdown=True)
    if evaluated.controlled:
        print_controlled(evaluated.controlled, console)
    end("Evaluation", plan.folder, plan.journal, finished, console)

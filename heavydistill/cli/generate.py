"""``heavydistill generate``: problems in, traces and the table out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from heavydistill.cli.flags import with_run_flags
from heavydistill.config.run import RunConfig, dump_config
from heavydistill.errors import StoppedError
from heavydistill.schema import TOO_FEW_USABLE

if TYPE_CHECKING:
    from rich.console import Console

    from heavydistill.cli.progress import Progress
    from heavydistill.run.generate import Finished, Plan


@with_run_flags
def generate(
    config: RunConfig,
    *,
    ray: Annotated[
        str | None,
        typer.Option(
            help="Spread the work over a Ray cluster: local, auto, HOST:6379 or "
            "ray://HOST:10001; see configs/ray.",
            rich_help_panel="Run",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check everything, show it, ask nobody."),
    ] = False,
) -> None:
    """Let a teacher answer each problem K times and deliberate on its answers D times.

    Without flags the bundled micro teacher works on bundled problems: no key, no GPU, no
    download. The result is a folder with traces (parquet), the resolved configuration and the
    figures of the table.
    """
    from rich.console import Console

    from heavydistill.cli.plan import print_estimate, print_heading, print_line
    from heavydistill.cli.progress import Progress, checked
    from heavydistill.models.contact import Contact
    from heavydistill.report.summary import print_summary
    from heavydistill.run.estimate import estimate
    from heavydistill.run.generate import run

    console = Console()
    plan = checked(config, console, contact=None if dry_run else Contact())
    print_heading(plan, console)
    if dry_run:
        print_estimate(estimate(plan), plan, console)
        console.rule("resolved configuration")
        console.print(dump_config(plan.config), markup=False, highlight=False, soft_wrap=True)
        if not plan.pools:
            _print_first_prompt(plan, console)
        return
    print_line(estimate(plan), plan, console)
    try:
        with Progress(console, plan) as progress:
            finished = run(
                plan,
                progress.on_batch,
                ray=ray,
                on_start=progress.on_start,
                on_work=progress.on_work,
            )
    except (KeyboardInterrupt, StoppedError) as end:
        stopped = isinstance(end, StoppedError)
        if plan.changed:
            kept = f"{plan.folder} is as it was"
        elif plan.folder.exists():
            kept = f"what was finished is in {plan.folder}"
        else:
            kept = "nothing was finished"
        message = (
            f"Stopped: {end} For now {kept}, and every response is in {plan.journal}."
            if stopped
            else f"Interrupted: {kept}. The same command goes on from {plan.journal}."
        )
        console.print(message, markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(1 if stopped else 130) from None
    print_summary(finished.summary, console)
    print_reused(progress, console)
    print_marker(finished, plan, console)
    print_ending(finished, plan, console)
    if not finished.is_complete:
        raise typer.Exit(1)


def _print_first_prompt(plan: Plan, console: Console) -> None:
    from heavydistill.heavy import prompts

    problem, config = plan.problems[0], plan.config
    prompt = prompts.load("thinker", problem.domain or config.domain or "general", config.language)
    console.rule(f"first prompt ({prompt.version})")
    console.print(prompts.thinker_prompt(problem.text, prompt), markup=False, highlight=False)


def print_reused(progress: Progress, console: Console) -> None:
    reused = [f"{count:,} of {total:,} in {stage}" for stage, count, total in progress.reused()]
    if reused:
        console.print(
            f"Paid for earlier, from the journal: {', '.join(reused)}",
            highlight=False,
            soft_wrap=True,
        )


def print_marker(finished: Finished, plan: Plan, console: Console) -> None:
    """Name the marker that the answers share, where many hold no final answer.

    Pools that were taken over keep the arguments of their verifiers, so none is named for them.
    """
    samples = finished.summary.samples.values()
    if plan.pools or not any(counts.has_many_unanswered for counts in samples):
        return
    from heavydistill.report.summary import marker_found, marker_value
    from heavydistill.store.traces import read_traces
    from heavydistill.verifiers.markers import shared_marker

    config = plan.config
    traces = read_traces(finished.folder)
    marker = shared_marker(traces, config.problems.verifier_args, config.verify)
    if marker:
        lines = [
            marker_found(marker),
            "To judge by this marker, with the responses of the journal, give the same command "
            f"with another --out and --set problems.verifier_args={marker_value(marker)}",
        ]
        for line in lines:
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def print_ending(finished: Finished, plan: Plan, console: Console) -> None:
    from heavydistill.cli.remarks import remarks

    lines = [f"Traces: {finished.folder}"]
    lines += [f"One of them: heavydistill show {finished.folder} --problem {plan.problems[0].id}"]
    few = finished.summary.statuses.get(TOO_FEW_USABLE, 0)
    if few:
        lines += [
            f"{few} problem(s) had fewer than {plan.config.think.min_k} usable trajectories and "
            "were not deliberated: see the failures above."
        ]
    if finished.rejects:
        lines += [f"{finished.rejects} row(s) failed in a step: see {finished.folder}/rejects."]
    if places := finished.shards_of_places:
        shards = ", ".join(f"{place}: {count}" for place, count in sorted(places.items()))
        lines += [f"Shards that each Ray node finished: {shards}"]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for line in remarks(finished.summary, plan.run):
        console.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)

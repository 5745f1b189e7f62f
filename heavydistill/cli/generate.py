"""``heavydistill generate``: problems in, traces and the table out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heavydistill.config import load_config, parse_assignment
from heavydistill.schema import TOO_FEW_USABLE

if TYPE_CHECKING:
    from rich.console import Console

    from heavydistill.pipeline.run import Finished, Plan

_MODELS, _RUN = "Models", "Run"


def generate(
    config: Annotated[
        Path | None, typer.Option(help="YAML file of the run; flags win over it.")
    ] = None,
    teacher: Annotated[
        str | None,
        typer.Option(
            help="Profile (`heavydistill teachers` lists them) or YAML file with one, checkpoint "
            "folder or Hub id; with --base-url also a served name. [default: micro]",
            rich_help_panel=_MODELS,
        ),
    ] = None,
    thinker: Annotated[
        str | None, typer.Option(help="Who thinks, if not the teacher.", rich_help_panel=_MODELS)
    ] = None,
    deliberator: Annotated[
        str | None,
        typer.Option(help="Who deliberates, if not the teacher.", rich_help_panel=_MODELS),
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(
            help="An OpenAI-compatible server, e.g. http://localhost:8000/v1.",
            rich_help_panel=_MODELS,
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="Tokenizer of the served model, if no profile names it: folder or Hub id.",
            rich_help_panel=_MODELS,
        ),
    ] = None,
    problems: Annotated[
        str | None,
        typer.Option(
            help="micro, a .jsonl or .parquet file, hub:ORG/NAME, or gym:FAMILY,... "
            "[default: micro]"
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Take the first so many problems.")] = None,
    k: Annotated[
        int | None, typer.Option("--k", help="Trajectories a problem. [default: 8]")
    ] = None,
    d: Annotated[
        int | None, typer.Option("--d", help="Deliberations a cache. [default: 4]")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of deliberation. [default: 1]")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the run. [default: 0]")] = None,
    out: Annotated[
        str | None,
        typer.Option(help="Folder of the run. [default: runs/TEACHER-TIME]", rich_help_panel=_RUN),
    ] = None,
    journal: Annotated[
        str | None,
        typer.Option(
            help="Folder that keeps every response. [default: journal beside the run]",
            rich_help_panel=_RUN,
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(
            help="Spread the work over a Ray cluster: local, auto, HOST:6379 or "
            "ray://HOST:10001; see configs/ray.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Any other key, e.g. --set cache.pruning=head_tail; may be repeated.",
            rich_help_panel=_RUN,
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Check everything, show it, ask nobody.", rich_help_panel=_RUN
        ),
    ] = False,
) -> None:
    """Let a teacher answer each problem K times and deliberate on its answers D times.

    Without flags the bundled micro teacher works on bundled problems: no key, no GPU, no
    download. The result is a folder with traces (parquet), the resolved configuration and the
    figures of the table.
    """
    from rich.console import Console

    from heavydistill.cli.progress import Progress
    from heavydistill.pipeline.run import check, run
    from heavydistill.report.table import print_summary

    flags = {
        "teacher": teacher,
        "thinker": thinker,
        "deliberator": deliberator,
        "endpoint.base_url": base_url,
        "endpoint.tokenizer": tokenizer,
        "problems.source": problems,
        "problems.limit": limit,
        "think.k": k,
        "deliberate.d": d,
        "deliberate.rounds": rounds,
        "seed": seed,
        "out": out,
        "journal": journal,
    }
    chosen: dict[str, Any] = dict(map(parse_assignment, assignments or []))
    chosen |= {key: value for key, value in flags.items() if value is not None}
    plan = check(load_config(config, chosen))
    console = Console()
    _print_plan(plan, console)
    if dry_run:
        _print_first_prompt(plan, console)
        return
    try:
        with Progress(console, plan) as progress:
            finished = run(plan, progress.on_batch, ray=ray)
    except KeyboardInterrupt:
        kept = (
            f"what was finished is in {plan.folder}"
            if plan.folder.exists()
            else "nothing was finished"
        )
        message = f"Interrupted: {kept}. The same command goes on from {plan.journal}."
        console.print(message, markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(130) from None
    print_summary(finished.summary, console)
    print_ending(finished, plan, console)
    if not finished.is_complete:
        raise typer.Exit(1)


def _print_plan(plan: Plan, console: Console) -> None:
    config = plan.config
    console.print(
        f"{len(plan.problems)} problems, K={config.think.k} trajectories by {config.thinker}, "
        f"D={config.deliberate.d} deliberations by {config.deliberator}, "
        f"{config.deliberate.rounds} round(s): {plan.thinker_requests} + "
        f"{plan.deliberator_requests} responses",
        markup=False,
        highlight=False,
    )


def _print_first_prompt(plan: Plan, console: Console) -> None:
    from heavydistill.config import dump_config
    from heavydistill.heavy import prompts

    problem, config = plan.problems[0], plan.config
    prompt = prompts.load("thinker", problem.domain or config.domain or "general", config.language)
    console.rule("resolved configuration")
    console.print(dump_config(config), markup=False, highlight=False)
    console.rule(f"first prompt ({prompt.version})")
    console.print(prompts.thinker_prompt(problem.text, prompt), markup=False, highlight=False)


def print_ending(finished: Finished, plan: Plan, console: Console) -> None:
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
    if nodes := finished.batches_of_nodes:
        work = ", ".join(f"{node}: {batches}" for node, batches in sorted(nodes.items()))
        lines += [f"Batches worked off by each Ray node: {work}"]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

"""``heavydistill refilter``: the prompts of RL anew, for what the student can do by now."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from heavydistill.config.run import parse_assignment

if TYPE_CHECKING:
    from rich.console import Console

    from heavydistill.curate.redeliberation.deliberator import Deliberator
    from heavydistill.curate.redeliberation.refilter import Outcome, Plan

_MODEL, _MONEY, _FILES = "Model", "Money", "Files"


def refilter(
    sets: Annotated[Path, typer.Argument(help="Folder of sets, of a build or a refilter.")],
    checkpoint: Annotated[
        str,
        typer.Option(
            help="Folder of the checkpoint or adapter, Hub id or profile; with --endpoint also a "
            "served name.",
        ),
    ],
    out: Annotated[str, typer.Option(help="Folder of the new sets.")],
    d: Annotated[int | None, typer.Option(help="Deliberations a cache. [default: 8]")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of sampling. [default: 0]")] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            help="An OpenAI-compatible server that has the checkpoint, or several with commas "
            "between.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            help="Tokenizer of the served checkpoint. [default: the student's]",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    student: Annotated[
        str | None,
        typer.Option(
            help="The student of the sets, if it is not found under the name that they give it.",
            rich_help_panel=_MODEL,
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Most that a served checkpoint may cost, all resumptions included, e.g. 25usd or "
            "40Mtok.",
            rich_help_panel=_MONEY,
        ),
    ] = None,
    price_in: Annotated[
        float | None,
        typer.Option(help="US dollars for a million tokens of prompts.", rich_help_panel=_MONEY),
    ] = None,
    price_out: Annotated[
        float | None,
        typer.Option(help="US dollars for a million tokens of responses.", rich_help_panel=_MONEY),
    ] = None,
    journal: Annotated[
        str | None,
        typer.Option(
            help="Folder that keeps every response. [default: journal beside the new sets]",
            rich_help_panel=_FILES,
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Any other key, e.g. --set sampling.max_tokens=2048; may be repeated.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check everything, tell what it takes, ask nobody."),
    ] = False,
) -> None:
    """Keep the RL prompts that a checkpoint gets right sometimes, and not always.

    The checkpoint deliberates on every cache that can be a prompt of RL, also on those that were
    always or never right before. The new folder has the problems, the caches with their new success
    and the new prompts. Ctrl-C and a kill lose nothing that was answered: the same command goes on.
    """
    flags: dict[str, Any] = {
        "sets": str(sets),
        "checkpoint": checkpoint,
        "out": out,
        "d": d,
        "seed": seed,
        "endpoint.base_url": endpoint,
        "endpoint.tokenizer": tokenizer,
        "endpoint.price_in": price_in,
        "endpoint.price_out": price_out,
        "student": student,
        "budget": budget,
        "journal": journal,
    }
    chosen = dict(map(parse_assignment, assignments or []))
    _refilter(chosen | {key: value for key, value in flags.items() if value is not None}, dry_run)


def _refilter(keys: dict[str, Any], dry_run: bool) -> None:
    from rich.console import Console

    from heavydistill.cli.asking import AskingProgress, ending_early, print_volume
    from heavydistill.config.sets import load_refilter_config
    from heavydistill.curate.redeliberation import refilter
    from heavydistill.curate.redeliberation.deliberator import Deliberator
    from heavydistill.hub.card import write_card
    from heavydistill.models.contact import Contact

    console = Console()
    plan = refilter.check(load_refilter_config(keys), None if dry_run else Contact())
    for warning in plan.warnings:
        told = f"Warning: {warning}"
        console.print(told, style="yellow", markup=False, highlight=False, soft_wrap=True)
    print_volume(plan.volume, plan.asking, console)
    if dry_run:
        return
    with (
        ending_early(console, plan.out, plan.asking.journal),
        AskingProgress(console, plan.volume.caches) as progress,
        Deliberator(plan.asking, plan.config.verify, longest=plan.volume.longest) as model,
    ):
        outcome = refilter.refilter(plan, model, lambda: progress.show(model), write_card)
    _print_table(outcome, console)
    _print_ending(plan, outcome, model, console)


def _print_table(outcome: Outcome, console: Console) -> None:
    from heavydistill.curate.redeliberation.refilter import ASKED_ABOUT
    from heavydistill.report.text import print_table, table
    from heavydistill.schema import Stratum

    columns = ("before", *(label or "after" for label in ASKED_ABOUT))
    rows = table(console, "RL prompts", *(name.replace("_", " ") for name in columns))
    there = {stratum for stratum, _ in outcome.after}
    for stratum in (*(name for name in get_args(Stratum) if name in there), None):
        after = [outcome.labelled(label, stratum) for label in ASKED_ABOUT]
        before = outcome.before[stratum] if stratum else outcome.before.total()
        rows.add_row(stratum or "all", *(f"{count:,}" for count in (before, *after)))
    print_table(rows, console)


def _print_ending(plan: Plan, outcome: Outcome, model: Deliberator, console: Console) -> None:
    asked, tally = model.asked, model.tally
    parts = [f"{asked.deliberations:,} deliberations by {asked.model}"]
    counts = {
        "failed": tally.failed,
        "cut off": tally.cut_off,
        "undecided": outcome.undecided,
        "unanswered": outcome.unanswered,
        "paid for earlier": tally.from_journal,
    }
    parts += [f"{count:,} {name}" for name, count in counts.items() if count]
    parts += [f"{asked.prompt_tokens:,} tokens in, {asked.completion_tokens:,} out"]
    parts += [f"{asked.cost_usd:,.2f} USD"] if asked.cost_usd else []
    rows = ", ".join(f"{count:,} {split}" for split, count in sorted(outcome.rows.items()))
    for line in (f"Asked: {', '.join(parts)}", f"Prompts of RL: {rows}, in {plan.out}"):
        console.print(line, markup=False, highlight=False, soft_wrap=True)

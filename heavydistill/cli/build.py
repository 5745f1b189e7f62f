"""``heavydistill build``: runs in, training sets out."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from heavydistill.config.run import parse_assignment


def build(
    runs: Annotated[
        list[str] | None, typer.Argument(help="Folders of runs, unless --config names them.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="Mixture: balanced, agglm, pacore, genselect, heavyskill or natural. "
            "[default: balanced]"
        ),
    ] = None,
    student: Annotated[
        str | None,
        typer.Option(
            help="Model that is to be trained: profile, checkpoint folder or Hub id. Its tokenizer "
            "counts, its chat template renders. [default: micro-student, of runs of the bundled "
            "micro models; needed for others]"
        ),
    ] = None,
    chat_template: Annotated[
        str | None, typer.Option(help="Jinja file in place of the student's own template.")
    ] = None,
    cache_from: Annotated[
        str | None,
        typer.Option(
            help="Whose attempts may stand in a set: any, student or teacher. [default: any]"
        ),
    ] = None,
    redeliberate: Annotated[
        bool,
        typer.Option(
            "--redeliberate",
            help="Ask about sets that have no deliberation to learn from; --teacher, --endpoint "
            "and --budget imply it.",
            rich_help_panel="Asking",
        ),
    ] = False,
    teacher: Annotated[
        str | None,
        typer.Option(
            help="Who is asked: profile, checkpoint folder or Hub id; with --endpoint also a "
            "served name. [default: the run's deliberator]",
            rich_help_panel="Asking",
        ),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            help="Where it is served: an address or a provider's name. [default: where the run's "
            "was]",
            rich_help_panel="Asking",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Most that this and its resumptions may cost, e.g. 25usd or 40Mtok. "
            "[default: no limit]",
            rich_help_panel="Asking",
        ),
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            help="Benchmark that no problem may stand in: file of hashes or of texts; may be "
            "repeated. [default: those that come with heavydistill]"
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all draws. [default: 0]")] = None,
    out: Annotated[
        str | None,
        typer.Option(
            help="Folder of the sets; must not be there or be empty. Needed, here or in --config."
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="YAML file of the build; flags win over it.")
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other key, e.g. --set retention=0.3; may be repeated."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be there; ask nobody, keep nothing.")
    ] = False,
) -> None:
    """Make training sets for both roles, and prompts for RL, of one or more runs.

    The unit is a candidate set: a problem with some of the attempts at it. A preset says which
    strata are learnt from and how many of each. What is left out is labelled, counted and kept.
    """
    from rich.console import Console

    from heavydistill.cli.asking import ending_early, print_volume
    from heavydistill.cli.bar import Bar
    from heavydistill.config.sets import load_build_config
    from heavydistill.curate.build import EmptyError, build_sets
    from heavydistill.curate.redeliberation.asking import journal_of
    from heavydistill.hub.card import write_card
    from heavydistill.report.sets import print_manifest

    given: dict[str, Any] = {
        "runs": runs,
        "preset": preset,
        "student": student,
        "chat_template": chat_template,
        "sets.written_by": cache_from,
        "redeliberate.teacher": teacher,
        "redeliberate.endpoint.base_url": endpoint,
        "redeliberate.budget": budget,
        "against": against,
        "seed": seed,
        "out": out,
    }
    chosen = {key: value for key, value in given.items() if value is not None}
    chosen |= dict(map(parse_assignment, assignments or []))
    asks = redeliberate or bool(teacher or endpoint or budget)
    resolved = load_build_config(config, chosen, asks)
    console = Console()

    out_folder = Path(resolved.out)
    wanted = resolved.redeliberate
    journal = journal_of(wanted, out_folder) if wanted and not dry_run else None
    try:
        with ending_early(console, out_folder, journal), Bar(console) as bar:
            manifest = build_sets(
                resolved,
                bar.show,
                lambda asking, volume: print_volume(volume, asking, console),
                write_card,
                dry_run,
            )
    except EmptyError as empty:
        print_manifest(empty.manifest, console)
        raise
    print_manifest(manifest, console)
    if dry_run:
        console.print("Nothing was written, and nobody was asked.")
        return
    show = ["heavydistill", "show", resolved.out, "--tokens"]
    if resolved.student and Path(resolved.student).is_dir():  # the sets keep its name alone
        show += ["--student", resolved.student]
    for line in (
        f"Sets: {resolved.out}",
        f"A row as the student sees it: {shlex.join(show)}",
    ):
        console.print(line, markup=False, highlight=False, soft_wrap=True)

"""``heavydistill journal``: what a journal holds, whether it is whole, and fewer files of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heavydistill.errors import JournalError

journal = typer.Typer(
    name="journal",
    help="Look after the folder that keeps every response.",
    no_args_is_help=True,
)

Folder = Annotated[Path, typer.Argument(help="Folder of a journal, e.g. runs/journal.")]


@journal.command()
def stats(folder: Folder) -> None:
    """What each model was asked, and what it wrote."""
    from rich.console import Console

    from heavydistill.engine.upkeep import usage
    from heavydistill.report.text import plain, print_table, table

    console = Console()
    columns = ("responses", "failed", "prompt tokens", "completion tokens")
    rows = table(console, "Model", *columns)
    for model, used in sorted(usage(_existing(folder)).items()):
        counts = (used.responses, used.failed, used.prompt_tokens, used.completion_tokens)
        rows.add_row(plain(model), *(f"{count:,}" for count in counts))
    print_table(rows, console)


@journal.command()
def check(folder: Folder) -> None:
    """Check every line. Exit code 1 if one is damaged; an unfinished last line is no damage."""
    from heavydistill.engine.segment import segments

    damaged = 0
    for segment in segments(_existing(folder)):
        notes = [f"{len(segment.lines):,} records"]
        if segment.torn:
            notes += [f"{segment.torn} bytes of an unfinished last line, dropped"]
        if segment.damaged:
            notes += [f"damaged lines: {', '.join(map(str, segment.damaged))}"]
        damaged += len(segment.damaged)
        typer.echo(f"{segment.path.name}: {'; '.join(notes)}")
    if damaged:
        typer.echo(f"{damaged} record(s) are lost; their requests are asked again.")
        raise typer.Exit(1)


@journal.command()
def compact(folder: Folder) -> None:
    """Put all that is of use into one file; files that a run still writes to stay as they are."""
    from heavydistill.engine.upkeep import compact as compact_journal

    done = compact_journal(_existing(folder))
    typer.echo(
        f"{done.segments} segment(s) became one, {done.dropped} record(s) of no further use "
        f"dropped, {done.busy} segment(s) in use left alone."
    )


def _existing(folder: Path) -> Path:
    if not folder.is_dir():
        raise JournalError(f"There is no folder {folder}", "Give the folder of a journal.")
    return folder

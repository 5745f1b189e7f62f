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
    """Print what each model was asked, and what it wrote."""
    from rich.console import Console

    from heavydistill.report.terminal import plain, print_table, table
    from heavydistill.store.journal import usage

    console = Console()
    columns = ("responses", "failed", "prompt tokens", "completion tokens")
    rows = table(console, "Model", *columns)
    models, unread = usage(_existing(folder))
    for model, used in sorted(models.items()):
        counts = (used.responses, used.failed, used.prompt_tokens, used.completion_tokens)
        rows.add_row(plain(model), *(f"{count:,}" for count in counts))
    print_table(rows, console)
    if unread:
        typer.echo(
            f"{unread:,} line(s) cannot be read and are not in the table: `heavydistill journal "
            f"check {folder}` lists them."
        )


@journal.command()
def check(folder: Folder) -> None:
    """Check every line. Exit code 1 if one cannot be read; an unfinished last line does not count.

    Runs skip what cannot be read, and send its requests again where they need them.
    """
    from heavydistill.store.journal import segments_of

    unread = 0
    for segment in segments_of(_existing(folder)):
        notes = [f"{len(segment.lines):,} records"]
        if segment.torn:
            notes += [f"{segment.torn} bytes of an unfinished last line, dropped"]
        if segment.damaged:
            notes += [f"damaged lines: {', '.join(map(str, segment.damaged))}"]
        if segment.foreign:
            notes += [f"lines that hold no record: {', '.join(map(str, segment.foreign))}"]
        unread += segment.skipped
        typer.echo(f"{segment.path.name}: {'; '.join(notes)}")
    if unread:
        typer.echo(f"{unread} record(s) cannot be read; their requests are asked again.")
        raise typer.Exit(1)


@journal.command()
def compact(folder: Folder) -> None:
    """Put all that is of use into one file; files that a run still writes to stay as they are.

    Drops records that are kept twice, failures of requests that were answered later, and
    unfinished last lines. Keeps lines that cannot be read as they are.
    """
    from heavydistill.store.journal import compact as compact_journal

    done = compact_journal(_existing(folder))
    typer.echo(
        f"{done.segments} segment(s) became one, {done.dropped} record(s) of no further use "
        f"dropped, {done.busy} segment(s) in use or not writable left alone."
    )
    if done.unread:
        typer.echo(f"{done.unread} line(s) that cannot be read are kept as they are.")


def _existing(folder: Path) -> Path:
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "is not there"
        raise JournalError(f"{folder} {what}", "Give the folder of a journal.")
    return folder

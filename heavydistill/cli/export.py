"""``heavydistill export``: the sets of a build in the form that another trainer reads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    sets: Annotated[Path, typer.Argument(help="Folder that `heavydistill build` wrote.")],
    to: Annotated[str, typer.Option("--to", help="trl, verl, llamafactory, ms-swift or axolotl.")],
    out: Annotated[Path, typer.Option("--out", help="Folder to write; not there, or empty.")],
) -> None:
    """Write training sets for TRL, verl, LLaMA-Factory, ms-swift or axolotl.

    The folder holds the rows, a configuration for each set, the reward for RL, and a README.md
    with the commands to train with.
    """
    from rich.console import Console

    from heavydistill.curate.exports.export import export as write
    from heavydistill.report.text import print_table, table

    written = write(sets, to, out)
    console = Console()
    rows = table(console, "Set", "train", "validation")
    for name, counts in written.rows.items():
        rows.add_row(name, f"{counts['train']:,}", f"{counts.get('validation', 0):,}")
    print_table(rows, console)
    for name, why in written.absent.items():
        typer.echo(f"Left out: {name}, because {why}.")
    typer.echo(f"How to train with them: {out}/README.md")

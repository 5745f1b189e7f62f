"""``heavydistill report``: runs as one HTML file that a person opens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folders of runs, evaluations or crossings."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The HTML file. [default: beside the first RUN]"),
    ] = None,
) -> None:
    """Write runs as one HTML file: figures with intervals, plots, and every trace to look at.

    The file needs no network and nothing beside it. An evaluation or a crossing gives all of its
    runs. One that is in progress or was broken off is reported as far as it got, and marked so.
    """
    from rich.console import Console

    from heavydistill.report.grid import counted
    from heavydistill.report.page.writer import write_report
    from heavydistill.report.terminal import plain

    first = runs[0].absolute()
    written = write_report(runs, out or first.with_name(f"{first.name}.html"))
    console = Console()
    for source, figures in zip(written.runs, written.figures, strict=True):
        told = f"{source.name}: {counted(figures.summary.problems, 'problem')}"
        console.print(plain(told), soft_wrap=True)
        if source.unfinished:
            console.print(
                plain(f"  Unfinished. {source.unfinished}", style="yellow"), soft_wrap=True
            )
    size = written.file.stat().st_size / 1e6
    console.print(plain(f"Report: {written.file} ({size:,.1f} MB)"), soft_wrap=True)

"""``heavydistill compare``: what is different in another run on the same problems."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heavydistill.errors import ConfigError


def compare(
    a: Annotated[Path, typer.Argument(help="Folder of the run that the other is compared with.")],
    b: Annotated[Path, typer.Argument(help="Folder of the other run.")],
    markdown: Annotated[
        Path | None, typer.Option(help="File for the tables as Markdown; replaced if it is there.")
    ] = None,
    json: Annotated[
        Path | None,
        typer.Option(help="File for all figures as JSON; A is `before` in it, and B `after`."),
    ] = None,
) -> None:
    """Compare two runs on the same problems, problem by problem; differences are B - A.

    For a model before and after training, two teachers, two deliberators: every metric with the
    95 % interval of its difference, McNemar's counts for the vote (of runs with the same K) and for
    the first deliberation, each kind of problem, and the versions behind it all. Nobody is asked.
    What the runs were asked differently is listed; other problems or other versions of a verifier
    are refused. The same runs give the same files.
    """
    from rich.console import Console

    from heavydistill.config.versioned import as_json
    from heavydistill.report.comparison import as_markdown, print_comparison
    from heavydistill.run.comparison import compare_runs

    for flag, file in (("--markdown", markdown), ("--json", json)):
        if file and (file.is_dir() or not file.absolute().parent.is_dir()):
            raise ConfigError(
                f"{flag}: {file} cannot be a file", "Name one in a folder that is there."
            )
    comparison = compare_runs(a, b)
    if markdown:
        _write(markdown, as_markdown(comparison))
    if json:
        _write(json, as_json(comparison))
    print_comparison(comparison, Console())  # whoever reads the beginning alone has the files


def _write(file: Path, text: str) -> None:
    """In one piece."""
    from heavydistill.store.traces import writing

    new = file.with_name(f".{file.name}.new")
    with writing(file):
        new.write_text(text, encoding="utf-8")
        new.replace(file)

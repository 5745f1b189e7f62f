"""The verbs of the command line. What a verb needs is imported when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

import heavydistill
from heavydistill.cli.catalog import benchmarks, teachers
from heavydistill.cli.doctor import doctor
from heavydistill.cli.experiments import compare, cross, evaluate
from heavydistill.cli.inspect import journal, report, show
from heavydistill.cli.publish import publish
from heavydistill.cli.runs import generate, replay
from heavydistill.cli.sets import build, export, import_, refilter
from heavydistill.cli.watch import watch

app = typer.Typer(
    name="heavydistill",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _print_version(is_given: bool) -> None:
    if is_given:
        print(f"heavydistill {heavydistill.__version__}")
        raise typer.Exit


@app.callback(help="Turn a strong teacher's parallel reasoning into small models that deliberate.")
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Stands before every verb."""


for verb in (generate, doctor, watch, show, report, build, evaluate, compare, cross, replay):
    app.command()(verb)
app.command("import")(import_)
for verb in (refilter, export, publish, teachers, benchmarks):
    app.command()(verb)
app.add_typer(journal)

"""The verbs of the command line. What a verb needs is imported when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

import heavydistill
from heavydistill.cli.benchmarks import benchmarks
from heavydistill.cli.build import build
from heavydistill.cli.compare import compare
from heavydistill.cli.cross import cross
from heavydistill.cli.doctor import doctor
from heavydistill.cli.evaluate import evaluate
from heavydistill.cli.export import export
from heavydistill.cli.generate import generate
from heavydistill.cli.import_ import import_
from heavydistill.cli.journal import journal
from heavydistill.cli.plan import plan
from heavydistill.cli.publish import publish
from heavydistill.cli.refilter import refilter
from heavydistill.cli.replay import replay
from heavydistill.cli.report import report
from heavydistill.cli.show import show
from heavydistill.cli.teachers import teachers
from heavydistill.cli.watch import watch

app = typer.Typer(
    name="heavydistill",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


def _tell_version(asked: bool) -> None:
    if asked:
        print(f"heavydistill {heavydistill.__version__}")
        raise typer.Exit


@app.callback(help="Turn a strong teacher's parallel reasoning into small models that deliberate.")
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_tell_version, is_eager=True, help="Say the version and exit."
        ),
    ] = False,
) -> None:
    """Stands before every verb."""


app.command()(generate)
app.command()(plan)
app.command()(doctor)
app.command()(evaluate)
app.command()(compare)
app.command()(cross)
app.command()(replay)
app.command()(build)
app.command("import")(import_)
app.command()(show)
app.command()(watch)
app.command()(report)
app.command()(export)
app.command()(refilter)
app.command()(teachers)
app.command()(benchmarks)
app.command()(publish)
app.add_typer(journal)

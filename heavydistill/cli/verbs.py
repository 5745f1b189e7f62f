"""The verbs of the command line. What a verb needs is imported when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

import heavydistill
from heavydistill.cli.benchmarks import benchmarks
from heavydistill.cli.compare import compare
from heavydistill.cli.cross import cross
from heavydistill.cli.doctor import doctor
from heavydistill.cli.evaluate import evaluate
from heavydistill.cli.flags import refuse_retired
from heavydistill.cli.generate import generate
from heavydistill.cli.journal import journal
from heavydistill.cli.plan import plan
from heavydistill.cli.publish import publish
from heavydistill.cli.replay import replay
from heavydistill.cli.report import report
from heavydistill.cli.sets import build, export, import_, refilter
from heavydistill.cli.show import show
from heavydistill.cli.teachers import teachers
from heavydistill.cli.watch import watch
from heavydistill.config.retired import RETIRED

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


for verb in (generate, plan, doctor, evaluate, compare, cross, replay, build):
    app.command()(verb)
app.command("import")(import_)
for verb in (show, watch, report, export, refilter, teachers, benchmarks, publish):
    app.command()(verb)
app.add_typer(journal)


def _refuse(ctx: typer.Context) -> None:
    refuse_retired(str(ctx.info_name))


for name in RETIRED:
    if name.isalpha():
        anything = {"allow_extra_args": True, "ignore_unknown_options": True}
        app.command(name, hidden=True, context_settings=anything)(_refuse)

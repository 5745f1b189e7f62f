"""Entry point of the command line. What a verb needs is imported when it runs.

Exit codes: 0 done; 1 the run ended with less than it should have, or broke; 2 the user can mend
it; 130 interrupted.
"""

from __future__ import annotations

import shlex
import sys
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
from heavydistill.errors import HeavydistillError, MissingModelError, UserError

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


def main() -> None:
    """Run the command line and turn what is raised into a message and an exit code."""
    try:
        app()
    except UserError as error:
        _say(f"Error: {error}")
        if isinstance(error, MissingModelError):
            _say(f"    {shlex.join(['heavydistill', *sys.argv[1:]])} {error.flags}")
        sys.exit(2)
    except HeavydistillError as error:
        _say(f"The run broke: {error}")
        sys.exit(1)


def _say(message: str) -> None:
    print(message, file=sys.stderr)

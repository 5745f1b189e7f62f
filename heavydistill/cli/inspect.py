"""Subcommands that read what lies on disk: ``show``, ``report``, ``watch`` and ``journal``."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from heavydistill.cli.verbs import Group, Verb
from heavydistill.config.files import json_of, text_in
from heavydistill.errors import ConfigError, JournalError
from heavydistill.report.grid import counted, listed
from heavydistill.report.terminal import plain, print_command, print_lines, print_table, say, table
from heavydistill.schema import Trace
from heavydistill.store.journal import usage
from heavydistill.store.segment import segments
from heavydistill.store.traces import read_files, read_traces

if TYPE_CHECKING:
    from heavydistill.run.status import Status

_LOOKS_EVERY_S = 1.0
_PATIENCE_S = 10.0  # maximum seconds without a status between two runs of an evaluation

# (name of a run inside an evaluation, its status or None while it sends no request, whether a
# process works on it).
_Seen = tuple[str, "Status | None", bool]


def show(
    folder: Annotated[Path, typer.Argument(help="Folder of a run, or of sets from `build`.")],
    problem: Annotated[
        str | None, typer.Option(help="Problem whose trace, or first row in a set, is printed.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Print long texts in full.")] = False,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Show which tokens of a row the student learns.")
    ] = False,
    set_name: Annotated[
        str | None,
        typer.Option(
            "--set", help="Set whose row is printed (default: first training set with the row)."
        ),
    ] = None,
    student: Annotated[
        str | None, typer.Option(help="Folder or Hub id of the student for --tokens, if it moved.")
    ] = None,
) -> None:
    """Print all tables of a run or of sets; with --problem one trace, or one row of a set.

    A trace has the problem, trajectories, caches, deliberations and verdicts. With --tokens, a row
    is printed as the student reads it, with learnt tokens in colour, or in [[ ]] without colours.
    """
    from heavydistill.report.sets import print_manifest
    from heavydistill.report.trace import print_trace
    from heavydistill.report.training_row import print_row, print_tokens
    from heavydistill.store.sets.folder import MANIFEST, read_manifest

    if student and not tokens:
        raise ConfigError("--student is given without --tokens", "Add --tokens.")
    console, is_sets = Console(), (folder / MANIFEST).is_file()
    if tokens:
        print_tokens(folder, set_name, problem, console, full, student)
    elif set_name or (is_sets and problem):
        print_row(folder, set_name, problem, console, full)
    elif is_sets:
        print_manifest(read_manifest(folder), console, full=True)
    elif problem is None:
        print_figures(folder, console)
    else:
        print_trace(_trace(folder, problem), console, full=full)


def _trace(run: Path, problem: str) -> Trace:
    """Return the trace of a problem; raises ConfigError if there is none."""
    ids = []
    for trace in read_traces(run):
        if trace.problem.id == problem:
            return trace
        ids.append(trace.problem.id)
    raise ConfigError(
        f"{run} has no trace of problem {problem!r}",
        f"It has {len(ids)}, for instance {', '.join(ids[:3])}." if ids else "It has none.",
    )


def print_figures(folder: Path, console: Console) -> None:
    """Print all tables of a run, an evaluation or a crossing on disk."""
    from heavydistill.metrics.comparison import COMPARISON, read_comparison
    from heavydistill.metrics.controls import CONTROLS, read_controlled
    from heavydistill.metrics.experiments.crossing import CROSSING, read_crossing
    from heavydistill.metrics.experiments.widths import WIDTHS, read_widths
    from heavydistill.report import comparison
    from heavydistill.report.controls import print_controlled, print_headline
    from heavydistill.report.experiments.widths import print_widths
    from heavydistill.report.page.runs import figures, find
    from heavydistill.report.summary import print_summary, tool_lines

    changed, controls = folder / COMPARISON, folder / CONTROLS
    controlled = read_controlled(controls) if controls.is_file() else None
    if controlled:
        print_headline(controlled, console)
    if changed.is_file() and (compared := read_comparison(changed)).before:
        comparison.print_comparison(compared, console, full=True)
    elif (crossed := folder / CROSSING).is_file():
        comparison.print_crossing(read_crossing(crossed), console)
    else:
        source = find(folder)[0]
        print_lines(filter(None, [source.unfinished]), console)
        found = figures(source, read_files(source.files))
        print_summary(found.summary, console, full=True)
        comparison.print_mixing(found.mixing, console, full=True)
        print_lines(tool_lines(found.tools), console)
    if controlled:
        print_controlled(controlled, console)
    if (widths := folder / WIDTHS).is_file():
        print_widths(read_widths(widths), console)


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, evaluations or crossings.")],
    out: Annotated[
        Path | None, typer.Option(help="HTML file to write. [default: beside the first run]")
    ] = None,
) -> None:
    """Write runs into one HTML file: figures with intervals, plots, and every trace.

    The file is self-contained and needs no network. An evaluation or a crossing adds all of its
    runs. An unfinished run is reported as far as it got, and marked as unfinished.
    """
    from heavydistill.report.page.writer import write_report

    written = write_report(runs, out)
    console = Console()
    for source, figures in zip(written.runs, written.figures, strict=True):
        say(f"{source.name}: {counted(figures.summary.problems, 'problem')}", console)
        if source.unfinished:
            say(f"  Unfinished. {source.unfinished}", console, "yellow")
    size = written.file.stat().st_size / 1e6
    say(f"Report: {written.file} ({size:,.1f} MB)", console)


def watch(
    run: Annotated[
        Path, typer.Argument(help="Folder of a run or an evaluation, as given to --out.")
    ],
) -> None:
    """Show the progress of a run: pace, failures, tokens, cost, time left, M@K.

    On a terminal it is updated until the run ends; Ctrl-C ends the display, not the run. Without a
    terminal it is printed once. M@K so far comes from the quickest problems and does not estimate
    the result.
    """
    from heavydistill.report.status import lines_of

    console = Console()
    seen = _look(run)
    if seen and console.is_terminal:
        seen = _follow(run, seen, console)
    elif seen:
        print_lines(lines_of(*seen), console)
    if seen is None:
        _print_end(run, console)
    elif not seen[2]:
        raise typer.Exit(1)


def _look(run: Path) -> _Seen | None:
    """Return the run in progress; wait if an evaluation is between two runs."""
    from heavydistill.run.status import running
    from heavydistill.store.atomic import Workplace

    latest = time.monotonic() + _PATIENCE_S
    while True:
        latest_status, is_alive = running(run), Workplace(run).is_claimed
        if latest_status and not is_alive:
            latest_status = running(run)  # the run has ended meanwhile, unless it was killed
        if latest_status:
            return *latest_status, is_alive
        if not is_alive:
            return None
        if time.monotonic() > latest:
            return str(run), None, True
        time.sleep(_LOOKS_EVERY_S)


def _follow(run: Path, seen: _Seen | None, console: Console) -> _Seen | None:
    """Update the display until the run ends or is found to be killed."""
    from rich.live import Live

    from heavydistill.report.status import picture_of

    try:
        with Live(console=console, auto_refresh=False) as live:
            while seen:
                live.update(picture_of(*seen), refresh=True)
                if not seen[2]:
                    break
                time.sleep(_LOOKS_EVERY_S)
                seen = _look(run)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    return seen


def _print_end(run: Path, console: Console) -> None:
    """Print how a run ended, or each run of an evaluation.

    Raises:
        ConfigError: There is no such run.
        Exit: The run was interrupted; code 1.
    """
    from heavydistill.store.atomic import Workplace

    files = [run / "summary.json", *sorted(run.glob("*/summary.json"))]
    if not (files := [file for file in files if file.is_file()]):
        raise ConfigError(
            f"There is no run {run}: neither {run}/summary.json nor {Workplace(run).path} exists",
            "Give the folder given to --out or printed by the run. A run can be watched once it "
            "sends requests; a run stopped before its first problem ends leaves no folder.",
        )
    lacking = 0
    for file in files:
        try:
            summary = json_of(text_in(file))
            failed = summary["trajectories"]["failed"] + summary["deliberations"]["failed"]
            missing, total, rejects = summary["missing"], summary["problems"], summary["rejects"]
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise ConfigError(
                f"{file} cannot be read: {type(error).__name__}: {error}",
                "Read it with the version of heavydistill that wrote it.",
            ) from error
        lacking += missing
        counts = {"problems": total, "problems missing": missing, "rows rejected": rejects}
        end = "was interrupted" if missing else "is finished"
        say(f"{file.parent} {end}: {listed(counts | {'requests failed': failed})}", console)
    if lacking:
        raise typer.Exit(1)


journal = typer.Typer(
    name="journal",
    cls=Group,
    help="Inspect the folder that keeps every response.",
    add_completion=False,
    rich_markup_mode=None,
)

_Journal = Annotated[Path, typer.Argument(help="Folder of a journal, e.g. runs/journal.")]


@journal.command(cls=Verb)
def stats(folder: _Journal) -> None:
    """Print the number of responses and tokens of each model."""
    console = Console()
    columns = ("responses", "failed", "prompt tokens", "completion tokens")
    rows = table(console, "Model", *columns)
    models, unread = usage(_existing(folder))
    for model, used in sorted(models.items()):
        counts = (used.responses, used.failed, used.prompt_tokens, used.completion_tokens)
        rows.add_row(plain(model), *(f"{count:,}" for count in counts))
    print_table(rows, console)
    if unread:
        say(f"{unread:,} line(s) cannot be read and are not in the table", console)
        print_command("Next", ["heavydistill", "journal", "check", folder], console)


@journal.command(cls=Verb)
def check(folder: _Journal) -> None:
    """Check every line of a journal; the exit code is 1 if one cannot be read.

    Runs skip such lines and send their requests again. A partial last line does not count.
    """
    unread = 0
    for segment in segments(_existing(folder), thorough=True):
        notes = [f"{len(segment.lines):,} records"]
        if segment.torn:
            notes += [f"{segment.torn} bytes of a partial last line, dropped"]
        if segment.damaged:
            notes += [f"damaged lines: {', '.join(map(str, segment.damaged))}"]
        if segment.foreign:
            notes += [f"lines that hold no record: {', '.join(map(str, segment.foreign))}"]
        unread += segment.skipped
        say(f"{segment.path.name}: {'; '.join(notes)}", Console())
    if unread:
        say(f"{unread} record(s) cannot be read; runs send their requests again.", Console())
        raise typer.Exit(1)


def _existing(folder: Path) -> Path:
    if (folder / "config.yaml").is_file():
        raise JournalError(
            f"{folder} is a run, not a journal",
            f"Give the folder of its journal, as a rule {folder.parent / 'journal'}.",
        )
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "does not exist"
        raise JournalError(f"{folder} {what}", "Give the folder of a journal, e.g. runs/journal.")
    return folder

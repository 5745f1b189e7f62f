"""Subcommands that compare runs: ``evaluate``, ``cross`` and ``compare``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console

from heavydistill.cli.flags import (
    Benchmark,
    DryRun,
    EvaluationFile,
    Full,
    run_config,
    run_flags,
    with_flags,
)
from heavydistill.cli.plan import print_plan
from heavydistill.cli.progress import checking, ending_early, same_command
from heavydistill.cli.runs import run_shown
from heavydistill.config.files import new_file
from heavydistill.config.run import RunConfig
from heavydistill.config.versioned import as_json
from heavydistill.errors import ConfigError
from heavydistill.report.terminal import plain, print_command, print_lines, say
from heavydistill.store.traces import writing

if TYPE_CHECKING:
    from heavydistill.experiments.evaluation import EvaluationPlan
    from heavydistill.experiments.folder import ExperimentFolder, RunOne
    from heavydistill.run.generate import Plan, RunResult

Result = TypeVar("Result")


@with_flags(
    RunConfig,
    run_flags("--thinker", "--deliberator", "--problems", "--limit", "--out"),
    "deliberate.sampling.max_tokens=4096",
)
def evaluate(
    keys: dict[str, object],
    *,
    before: Annotated[
        str | None,
        typer.Option(
            help="Model before training, to compare with. Its profile applies to both runs, and it "
            "takes every role for which no model is given."
        ),
    ] = None,
    controls: Annotated[
        str | None,
        typer.Option(
            help="Control runs, with commas between: alone (no attempts), chain (one long chain of "
            "thought with as many tokens), choose (pick an attempt), garbled (attempts with other "
            "values), foreign (attempts at another problem), transplant (right attempts taken out "
            "or put in), empty (attempts without text), answers (their final boxes alone), steps "
            "(without these), planted (a wrong step that some right attempts share), skill (the "
            "whole protocol in one response), all of these, or wording (the same attempts with "
            "other instructions or none)."
        ),
    ] = None,
    orders: Annotated[
        int,
        typer.Option(
            help="Number of orders of the attempts in which each cache is deliberated on.",
            min=1,
            rich_help_panel="Controls",
        ),
    ] = 1,
    widths: Annotated[
        str | None,
        typer.Option(
            help="Numbers of attempts in a cache, with commas between, to compare on the same "
            "attempts; K is the largest if --k is not given.",
            rich_help_panel="Width and depth",
        ),
    ] = None,
    depths: Annotated[
        str | None,
        typer.Option(
            help="With --widths: numbers of deliberations that vote, with commas between; D is the "
            "largest if --d is not given. [default: 1, 2, 4, ... and D]",
            rich_help_panel="Width and depth",
        ),
    ] = None,
    selections: Annotated[
        str | None,
        typer.Option(
            help="With --widths: further selections of the attempts of caches narrower than K, "
            "e.g. max_diversity, to compare with cache.selection.",
            rich_help_panel="Width and depth",
        ),
    ] = None,
    adaptive: Annotated[
        Path | None,
        typer.Option(
            help="Folder of a finished run, instead of models. Measures without a request what is "
            "saved and lost if an answer on which the first attempts agree is not deliberated on.",
            rich_help_panel="Controls",
        ),
    ] = None,
    benchmark: Benchmark = None,
    config: EvaluationFile = None,
    dry_run: DryRun = False,
    full: Full = False,
) -> None:
    """Measure a thinker and a deliberator, and compare them with the model given by --before.

    Both runs have the same problems, seed, prompts and sampling, so that they differ only in the
    models. If both roles differ, the deliberator also reads the attempts of the run before: what is
    better there is not due to a better thinker. The result is a folder with all runs and
    evaluation.json: each metric before and after, and the difference, with 95 % intervals. Controls
    are runs that differ only in the coordination or the attempts in the caches; they are in
    controls.json. With --widths, further runs deliberate on caches of other sizes of the same
    attempts; what width and depth buy is in widths.json. --budget applies to each run separately.
    After Ctrl-C or a kill, the same command continues, and no response is lost.
    """
    # Errors are reported before the slow imports.
    asked = run_config(keys, config, benchmark, "evaluate")
    if adaptive:
        others = [before, controls, benchmark, config, dry_run, orders > 1, full, {*keys} - {"out"}]
        others += [widths, depths, selections]
        _stop_early(adaptive, asked, any(others))
        return
    from heavydistill.experiments import evaluation
    from heavydistill.experiments.comparison import AFTER
    from heavydistill.experiments.widths import CacheSizes
    from heavydistill.models.contact import ServerProbe
    from heavydistill.report.comparison import print_comparison
    from heavydistill.report.controls import print_controlled, print_headline
    from heavydistill.report.experiments.widths import print_widths
    from heavydistill.report.summary import print_summary

    console, sizes = Console(), CacheSizes.of(widths, depths, selections)
    with checking(console) as on_checked:
        contact = None if dry_run else ServerProbe()
        names = () if controls is None else controls
        plan = evaluation.check(asked, before, names, orders, on_checked, contact, sizes)
    _print_plans(plan.runs, console)
    _print_further(plan, len(plan.runs[AFTER].problems), console)
    if dry_run:
        print_command("Next", same_command(), console)
        return
    make = functools.partial(evaluation.evaluate, plan)
    evaluated, finished = _made(plan.place, make, console)
    console.rule("evaluation")
    if evaluated.controlled:
        print_headline(evaluated.controlled, console)
    if evaluated.comparison.before:
        print_comparison(evaluated.comparison, console, full=full)
    else:
        print_summary(finished[AFTER].summary, console, full=full, is_student=True)
    if evaluated.controlled:
        print_controlled(evaluated.controlled, console)
    if evaluated.widths:
        print_widths(evaluated.widths, console)
    _end("Evaluation", plan.place, finished, console)


def _print_further(plan: EvaluationPlan, problems: int, console: Console) -> None:
    """Print what the runs on the attempts of other runs ask for."""
    total = sum(control.requests(problems) for control in plan.controls)
    for run in [*filter(None, [plan.frozen]), *plan.controls, *plan.caches.values()]:
        console.rule(f"plan: {run.name}")
        requests = "" if run.not_asked else f": up to {run.requests(problems):,} requests"
        say(f"{run.description}{requests}", console)
    if total:
        say(f"All controls: up to {total:,} requests", console)


def _stop_early(run: Path, asked: RunConfig, has_others: bool) -> None:
    """Measure early stopping on a finished run, and write its folder."""
    if has_others:
        raise ConfigError(
            "--adaptive reads a finished run and sends no request, so other flags have no effect",
            "Give only --out with it.",
        )
    from heavydistill.experiments.adaptive import measure_stopping
    from heavydistill.experiments.folder import ExperimentFolder
    from heavydistill.metrics.experiments.stopping import ADAPTIVE
    from heavydistill.report.experiments.adaptive import print_stopping

    out, console = ExperimentFolder.of(asked, "adaptive").folder, Console()
    print_stopping(measure_stopping(run, out), console)
    say(f"Figures, and the rule for a service: {out / ADAPTIVE}", console)


@with_flags(
    RunConfig,
    run_flags("--problems", "--limit", "--endpoint", "--out"),
    "deliberate.sampling.max_tokens=4096",
)
def cross(
    keys: dict[str, object],
    *,
    thinkers: Annotated[
        str, typer.Option(help="Models for the thinker role, with commas between.")
    ],
    deliberators: Annotated[
        str, typer.Option(help="Models for the deliberator role, with commas between.")
    ],
    benchmark: Benchmark = None,
    config: EvaluationFile = None,
    dry_run: DryRun = False,
) -> None:
    """Measure every thinker with every deliberator on the same problems.

    Each thinker is sampled once, and all deliberators read its attempts. The result is a folder
    with a run for each pair and crossing.json. --budget applies to each run separately. After
    Ctrl-C or a kill, the same command continues, and no response is lost.
    """
    # Errors are reported before the slow imports.
    asked = run_config(keys, config, benchmark, "evaluate")
    from heavydistill.experiments import crossing
    from heavydistill.models.contact import ServerProbe
    from heavydistill.report.comparison import print_crossing

    console = Console()
    with checking(console) as on_checked:
        contact = None if dry_run else ServerProbe()
        names = [list(filter(None, map(str.strip, t.split(",")))) for t in (thinkers, deliberators)]
        plan = crossing.check(asked, names[0], names[1], on_checked, contact)
    _print_plans(plan.asked, console)
    if dry_run:
        if others := list(plan.deliberators)[1:]:
            say(f"Further deliberators on the same attempts: {', '.join(others)}.", console)
        print_command("Next", same_command(), console)
        return
    table, finished = _made(plan.place, functools.partial(crossing.crossed, plan), console)
    console.rule("crossing")
    print_crossing(table, console)
    _end("Crossing", plan.place, finished, console)


def compare(
    a: Annotated[Path, typer.Argument(help="Folder of the run to compare with.")],
    b: Annotated[Path, typer.Argument(help="Folder of the other run.")],
    markdown: Annotated[
        Path | None,
        typer.Option(help="File for the tables in Markdown; an existing file is replaced."),
    ] = None,
    json: Annotated[
        Path | None,
        typer.Option(help="File for all figures as JSON, with A as `before` and B as `after`."),
    ] = None,
    full: Full = False,
) -> None:
    """Compare two runs on the same problems, problem by problem; differences are B - A.

    Use it for a model before and after training, two teachers or two deliberators. It prints every
    metric with the 95 % interval of its difference, McNemar's counts for the vote (if K is equal)
    and for the first deliberation, each kind of problem, and all versions. No request is sent.
    Different settings are listed; different problems or versions of a verifier are refused.
    """
    from heavydistill.experiments.comparison import compare
    from heavydistill.report.comparison import as_markdown, print_comparison

    for flag, file in (("--markdown", markdown), ("--json", json)):
        if file and (file.is_dir() or not file.absolute().parent.is_dir()):
            raise ConfigError(
                f"{flag}: {file} cannot be written as a file", "Give a file in an existing folder."
            )
    comparison = compare(a, b)
    for file, printed in ((markdown, as_markdown), (json, as_json)):
        if file:
            with writing(file), new_file(file) as opened:
                opened.write(printed(comparison).encode("utf-8"))
    console = Console()  # after the files are written, since the reader may close the pipe
    print_comparison(comparison, console, full=full)
    print_command("Next", ["heavydistill", "report", a, b], console)


def _made(
    place: ExperimentFolder, make: Callable[[RunOne], Result], console: Console
) -> tuple[Result, dict[str, RunResult]]:
    """Execute an experiment and show the progress of its runs: return (result, runs by name)."""
    from heavydistill.models.vllm.server import KeptServer

    finished: dict[str, RunResult] = {}

    def run(name: str, plan: Plan) -> RunResult:
        console.rule(plain(f"run: {name}"))
        finished[name] = run_shown(plan, console, kept=kept)
        return finished[name]

    with ending_early(console, place.folder, place.journal), KeptServer() as kept:
        return make(run), finished


def _end(what: str, place: ExperimentFolder, runs: dict[str, RunResult], console: Console) -> None:
    """Print the failures of an experiment, its folder and the next command.

    Exits with code 1 if anything failed, or no answer of the evaluated models could be judged.
    """
    from heavydistill.experiments.comparison import AFTER
    from heavydistill.report.faults import unjudged_lines
    from heavydistill.report.summary import headline

    lines = []
    for name, each in runs.items():
        summary = each.summary
        failed = summary.deliberations.failed + summary.judging.failed
        # Trajectories of a run on pools are counted in the run that sampled them.
        failed += summary.trajectories.failed if summary.usage["thinking"].requests else 0
        if failed or each.rejects:
            failures = f"{failed:,} request(s) and {each.rejects:,} row(s) failed"
            lines += [f"Run {name}: {failures}, and count as wrong."]
    # A model before training may well give no answer that can be read.
    evaluated = {AFTER: runs[AFTER]} if AFTER in runs else runs
    unread = {name: each.summary for name, each in evaluated.items() if each.summary.is_unread}
    for name, summary in unread.items():
        say(f"Run {name}: {headline(summary)[0]}.", console, "bold red")
        print_lines(unjudged_lines(summary, place.folder / name), console)
    if lines:
        again = f"To repeat them, remove {place.folder} and run the same command"
        lines += [f"{again}; all other responses are in {place.journal}."]
    print_lines(lines, console)
    say(f"{what}: {place.folder} (its runs: {', '.join(runs)})", console)
    print_command("All tables", ["heavydistill", "show", place.folder], console)
    print_command("Next", ["heavydistill", "report", place.folder], console)
    if lines or unread:
        raise typer.Exit(1)


def _print_plans(plans: Mapping[str, Plan], console: Console) -> None:
    for name, plan in plans.items():
        console.rule(plain(f"plan: {name}"))
        print_plan(plan, console)

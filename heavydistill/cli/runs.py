"""Subcommands that make a run: ``generate``, and ``replay`` from a journal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from heavydistill.cli.flags import (
    DryRun,
    Full,
    OtherBenchmark,
    RunFile,
    run_config,
    run_flags,
    with_flags,
)
from heavydistill.cli.plan import print_plan, print_warnings
from heavydistill.cli.progress import (
    Progress,
    checking,
    ending_early,
    remarks_without_thinking,
    same_command,
)
from heavydistill.config.run import RunConfig, dump_config, load_config, refuse_code_of
from heavydistill.errors import ConfigError
from heavydistill.report.terminal import plain, print_command, print_lines, say
from heavydistill.schema import TOO_FEW_USABLE
from heavydistill.store.atomic import recover
from heavydistill.store.traces import read_traces

if TYPE_CHECKING:
    from heavydistill.metrics.summary import Summary
    from heavydistill.models.resolve import ResolvedRun
    from heavydistill.run.generate import Plan, RunResult


@with_flags(
    RunConfig,
    run_flags(
        *("--problems", "--teacher", "--endpoint", "--k", "--d", "--limit", "--budget", "--out")
    ),
    "cache.pruning=head_tail",
)
def generate(
    keys: dict[str, object],
    *,
    config: RunFile = None,
    benchmark: OtherBenchmark = None,
    ray: Annotated[
        str | None,
        typer.Option(
            help="Ray cluster to run on: local, auto, HOST:6379 or ray://HOST:10001.",
            rich_help_panel="Run",
        ),
    ] = None,
    no_wait: Annotated[
        bool,
        typer.Option(
            "--no-wait",
            help="Send batches and end; the same command later takes the answers.",
            rich_help_panel="Batches",
        ),
    ] = False,
    dry_run: DryRun = False,
    full: Full = False,
) -> None:
    """Sample K answers per problem from a teacher, and D deliberations on them.

    Without flags the bundled micro teacher works on bundled problems, without a key, a GPU or a
    download. The result is a folder with traces (parquet), the resolved configuration and all
    figures. --dry-run prints plan, cost, resolved configuration and the first prompt.
    """
    asked = run_config(keys, config, benchmark)  # reports errors before the slow imports
    from heavydistill.heavy import prompts
    from heavydistill.models.contact import ServerProbe
    from heavydistill.models.request import conversation, texts_of
    from heavydistill.run.batches import is_batched
    from heavydistill.run.generate import check

    console = Console()
    with checking(console) as on_checked:
        plan = check(asked, True, on_checked, None if dry_run else ServerProbe())
    if no_wait and not is_batched(plan.run):
        raise ConfigError("--no-wait is given, but no model is asked in batches", "Add --batch.")
    print_plan(plan, console, in_full=dry_run)
    if dry_run:
        console.rule("resolved configuration")
        console.print(plain(dump_config(plan.config)), soft_wrap=True)
        if not plan.pools:
            problem = plan.problems[0]
            prompt = prompts.for_thinker(problem, plan.config)
            console.rule(f"first prompt ({prompt.version})")
            text = prompts.thinker_prompt(problem.text, prompt)
            messages = conversation(text, problem.history, plan.config.system)
            *before, last = texts_of(messages)
            for message, before_message in zip(messages, before, strict=False):
                console.print(plain(f"[{message['role']}]\n{before_message}\n"), soft_wrap=True)
            console.print(plain(last), soft_wrap=True)
        print_command("Next", same_command(), console)
        return
    with ending_early(console, plan.folder, plan.journal, is_replaced=bool(plan.changed)):
        finished = run_shown(plan, console, ray=ray, waits=not no_wait)
    _print_finished(finished, plan, console, full)


def replay(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    out: Annotated[str, typer.Option(help="Folder for the rebuilt run.")],
    journal: Annotated[
        str | None, typer.Option(help="Folder of the journal, if it moved.", show_default=False)
    ] = None,
    run_verifiers: Annotated[
        bool,
        typer.Option("--run-verifiers", help="Execute the Python files in verify.own and plugins."),
    ] = False,
    full: Full = False,
) -> None:
    """Rebuild the dataset of a run from its journal, byte for byte, without sending a request.

    The installed version's verifiers and caches are applied to the recorded responses. A request
    that the journal does not hold is a failure in the result.
    """
    from heavydistill.run.generate import check

    recover(run)
    config = run / "config.yaml"
    if not config.is_file():
        raise ConfigError(f"{run} is not a run: it has no config.yaml", "Give the folder of a run.")
    saved = load_config(config, {"out": out} | ({"journal": journal} if journal else {}))
    if not run_verifiers:
        refuse_code_of(run, saved, "add --run-verifiers")
    if journal and not Path(journal).is_dir():
        raise ConfigError(f"--journal: there is no folder {journal}", "Give the run's journal.")
    console = Console()
    with checking(console) as on_checked:
        plan = check(saved, False, on_checked)
    if plan.changed:
        raise ConfigError(f"--out: {out} holds another run", "Give another --out.")
    print_warnings(plan, console)
    if not plan.journal.is_dir():
        raise ConfigError(f"There is no journal {plan.journal}", "Give its folder with --journal.")
    finished = run_shown(plan, console, replay=True)
    _print_finished(finished, plan, console, full)


def run_shown(plan: Plan, console: Console, **how: Any) -> RunResult:
    """Execute a plan and show its progress; ``how`` are arguments of ``run.generate.run``."""
    from heavydistill.run.batches import is_batched
    from heavydistill.run.generate import run

    with Progress(console, plan) as progress:
        finished = run(plan, on_status=progress.on_status, on_start=progress.on_start, **how)
    if not is_batched(plan.run) and (reused := progress.reused()):
        say(reused, console)
    return finished


def _print_marker(finished: RunResult, plan: Plan, console: Console) -> None:
    """Suggest the answer marker that the answers share, if many have no final answer.

    Not for pools of another run, whose verifiers keep their arguments.
    """
    samples = finished.summary.samples.values()
    if plan.pools or not any(counts.has_many_unanswered for counts in samples):
        return
    from heavydistill.report.summary import marker_found, marker_value
    from heavydistill.verifiers.markers import shared_marker

    args, traces = plan.config.problems.verifier_args, read_traces(finished.folder)
    if marker := shared_marker(traces, args, plan.config.verify):
        say(marker_found(marker), console)
        assignment = f"problems.verifier_args={marker_value(marker)}"
        words = same_command("--out", f"{plan.folder}-marker", "--set", assignment)
        print_command("To judge by this marker, without new requests", words, console)


def _print_finished(finished: RunResult, plan: Plan, console: Console, full: bool) -> None:
    """Print the result, the folder and the next commands; exit with code 1 if incomplete."""
    from heavydistill.problems.procedural import MICRO_MODELS
    from heavydistill.report.comparison import print_mixing
    from heavydistill.report.faults import unjudged_lines
    from heavydistill.report.summary import print_summary, tool_lines
    from heavydistill.run.result import tools_used

    folder, summary = finished.folder, finished.summary
    print_summary(summary, console, full=full)
    print_mixing(finished.mixing, console, full=full)
    if few := summary.statuses.get(TOO_FEW_USABLE, 0):
        least = f"fewer than {plan.config.think.min_k} usable trajectories"
        say(f"Not deliberated on: {few} problem(s) with {least}", console)
    if finished.rejects:
        say(f"Failed in a step: {finished.rejects} row(s), see {folder}/rejects", console)
    print_lines(tool_lines(tools_used(folder)), console)
    print_lines(unjudged_lines(summary, folder), console)
    _print_marker(finished, plan, console)
    for line in remarks(summary, plan.run):
        say(line, console, "yellow")
    say(f"Traces: {folder}", console)
    print_command("All tables", ["heavydistill", "show", folder], console)
    print_command("Next", ["heavydistill", "report", folder], console)
    measured = (summary.pass_at_k, summary.heavy_mean_at_d)
    if plan.config.rounds and any(share and share.mean for share in measured):
        is_micro = not plan.pools and MICRO_MODELS.issuperset(plan.config.model_names)
        student = [] if is_micro else ["--student", _student_at_hand(plan.config)]
        build = ["heavydistill", "build", folder, *student, "--out", f"sets/{folder.name}"]
        print_command("Then", build, console)
    if not finished.is_complete or summary.is_unread:
        raise typer.Exit(1)


def _student_at_hand(config: RunConfig) -> str:
    """Return the model of a run that can be trained on it: one on this machine, or an example."""
    from heavydistill.problems.procedural import MICRO_MODELS
    from heavydistill.run.pools import run_behind

    behind = run_behind(config)
    names = behind.model_names[:1] if behind else []
    for name in [*names, config.roles[1]]:
        if name in MICRO_MODELS:
            return "micro-student"
        if name and Path(name).is_dir():
            return name
    return "Qwen/Qwen3-4B"


def remarks(summary: Summary, run: ResolvedRun) -> list[str]:
    """Return warnings about the server of a run, for users of its traces."""
    answered = summary.trajectories.total - summary.trajectories.failed
    lines = list[str]()
    if answered and not summary.thoughts:
        lines += remarks_without_thinking(run).values()
    if summary.same_texts and any(each.sampling.temperature > 0 for each in run.thinkers):
        names = " and ".join(each.profile.name for each in run.thinkers)
        lines.append(
            f"In {summary.same_texts:,} of {summary.problems:,} problems all trajectories of "
            f"{names} are the same text, although their seeds differ: check for a "
            "proxy that caches responses, or a server that forces temperature 0."
        )
    return lines

"""Verbs that list what is bundled: ``teachers`` with a profile, and public ``benchmarks``."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from heavydistill.cli.progress import wide_console
from heavydistill.config.run import load_config
from heavydistill.config.shipped import shipped
from heavydistill.models import registry
from heavydistill.models.profiles import PROVIDERS, ProfileFile, serve_command
from heavydistill.report.terminal import plain, print_table, table

_NARROW = 120  # a terminal of fewer columns has no room for Hub ids beside the rest


def teachers(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Profile to print, with the commands that serve it: a name or your own YAML file."
        ),
    ] = None,
) -> None:
    """List the teachers with a profile: context, licence, terms and GPUs.

    A printed profile is a starting point for your own.
    """
    console = wide_console()
    if name is not None:
        profile = registry.profile_of(name)
        _print_file(shipped("configs/teachers").get(name, Path(name)), _serving(profile), console)
        return
    columns = ("Name", "Context", "Licence", "Distillation", "80 GB GPUs", "Hub id")
    shown = len(columns) - (console.width < _NARROW)
    rows = []
    for profile in map(registry.profile_of, shipped("configs/teachers")):
        licence, terms = profile.licence or "unknown", profile.terms.distillation
        context, hub = f"{profile.context:,}", profile.hub or "-"
        rows.append((profile.name, context, licence, terms, _gpus(profile), hub)[:shown])
    _print_list(columns[:shown], rows, 2, console)


def benchmarks(
    name: Annotated[str | None, typer.Argument(help="Benchmark whose file is printed.")] = None,
) -> None:
    """List the public benchmarks for `--benchmark`: size, verifier, licence, Hub id."""
    from heavydistill.problems.benchmarks import benchmark

    console = wide_console()
    if name is not None:
        gated = benchmark(name).gated
        terms = ["Gated: accept its terms on the Hub and set HF_TOKEN."] if gated else []
        _print_file(shipped("configs/benchmarks")[name], terms, console)
        return
    rows = []
    for known in map(benchmark, shipped("configs/benchmarks")):
        run = load_config(preset=known.preset)
        size = f"{known.size:,}" if known.size else "unknown"
        samples = f"{run.think.k} x {run.deliberate.d}"
        token = "needed" if known.gated else "no"
        hub = known.problems.source.removeprefix("hub:")
        licence = known.licence or "unknown"
        rows.append((known.name, size, samples, known.verifier, licence, token, hub))
    columns = ("Name", "Problems", "K x D", "Verifier", "Licence", "Token", "Hub id")
    _print_list(columns, rows, 3, console)


def _print_list(
    columns: Iterable[str], rows: Iterable[Iterable[str]], numbers: int, console: Console
) -> None:
    """Print a table whose columns from ``numbers`` on are texts."""
    shown = table(console, *columns)
    for column in shown.columns[numbers:]:
        column.justify = "left"
    for row in rows:
        shown.add_row(*row)
    print_table(shown, console)


def _print_file(file: Path, notes: Iterable[str], console: Console) -> None:
    """Print a YAML file as it stands, and below it the notes as comments."""
    lines = file.read_text(encoding="utf-8").splitlines()
    for line in (*lines, *(f"# {note}" for note in notes)):
        console.print(plain(line), soft_wrap=True)


def _gpus(profile: ProfileFile) -> str:
    if profile.folder:
        return "none needed"
    if not profile.hub:
        return "hosted only"
    if not profile.vllm:
        return "unknown"
    fitting = [count for count, setup in profile.vllm.gpus.items() if setup]
    return str(min(fitting)) if fitting else f"more than {max(profile.vllm.gpus)}"


def _serving(profile: ProfileFile) -> Iterator[str]:
    """Where a model can be asked: addresses of its providers, and commands to serve it."""
    for provider in profile.providers:
        if known := PROVIDERS.get(provider):
            yield f"{provider}: {known.base_url}, key in {known.key_env}"
    for count in profile.vllm.gpus if profile.vllm else ():
        command = serve_command(profile, count)
        yield f"{count} GPU(s): {shlex.join(command) if command else 'does not fit'}"

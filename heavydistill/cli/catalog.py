"""Verbs that list what is bundled: ``teachers`` with a profile, and public ``benchmarks``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import Console

    from heavydistill.models.profiles import ProfileFile
    from heavydistill.problems.benchmarks import Benchmark

_WIDE = 160  # columns where there is no terminal: no line is folded there
_NARROW = 120  # a terminal of fewer columns has no room for Hub ids beside the rest

_Name = Annotated[str | None, typer.Argument(help="Name of one, to print its file.")]


def teachers(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Name of one, or your own YAML file, to print the profile and how to serve it."
        ),
    ] = None,
) -> None:
    """List the teachers with a profile: context, licence, terms and GPUs.

    With a name, print its profile, to start your own from, and the commands that serve it.
    """
    from heavydistill.models.registry import profile_of, shipped

    console = _console()
    if name is not None:
        profile = profile_of(name)
        _print_file(shipped().get(name, Path(name)), _serving(profile), console)
        return
    columns = ("Name", "Context", "Licence", "Distillation", "80 GB GPUs", "Hub id")
    rows = (
        (
            profile.name,
            f"{profile.context:,}",
            profile.licence or "unknown",
            profile.terms.distillation,
            _gpus(profile),
            profile.hub or "-",
        )
        for profile in map(profile_of, shipped())
    )
    shown = len(columns) - (console.width < _NARROW)
    _print_list(columns[:shown], (row[:shown] for row in rows), 2, console)


def benchmarks(name: _Name = None) -> None:
    """List the public benchmarks that `--benchmark NAME` knows: size, verifier, licence, Hub id."""
    from heavydistill.problems.benchmarks import benchmark, shipped

    console = _console()
    if name is not None:
        gated = benchmark(name).gated
        terms = ["Gated: accept its terms on the Hub and set HF_TOKEN."] if gated else []
        _print_file(shipped()[name], terms, console)
        return
    columns = ("Name", "Problems", "K x D", "Verifier", "Licence", "Token", "Hub id")
    rows = (
        (
            known.name,
            _size(known),
            _k_and_d(known),
            _verifier(known),
            known.licence or "unknown",
            "needed" if known.gated else "no",
            _hub(known),
        )
        for known in map(benchmark, shipped())
    )
    _print_list(columns, rows, 3, console)


def _console() -> Console:
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=_WIDE)


def _print_list(
    columns: Iterable[str], rows: Iterable[Iterable[str]], numbers: int, console: Console
) -> None:
    """Print a table whose columns from ``numbers`` on are texts."""
    from heavydistill.report.terminal import print_table, table

    shown = table(console, *columns)
    for column in shown.columns[numbers:]:
        column.justify = "left"
    for row in rows:
        shown.add_row(*row)
    print_table(shown, console)


def _print_file(file: Path, notes: Iterable[str], console: Console) -> None:
    """Print a YAML file as it stands, and below it the notes as comments."""
    from heavydistill.report.terminal import plain

    for line in file.read_text(encoding="utf-8").splitlines():
        console.print(plain(line), soft_wrap=True)
    for note in notes:
        console.print(plain(f"# {note}"), soft_wrap=True)


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
    from heavydistill.models.profiles import PROVIDERS, serve_command

    for provider in profile.providers:
        if known := PROVIDERS.get(provider):
            yield f"{provider}: {known.base_url}, key in {known.key_env}"
    for count in profile.vllm.gpus if profile.vllm else ():
        command = serve_command(profile, count)
        yield f"{count} GPU(s): {shlex.join(command) if command else 'does not fit'}"


def _size(known: Benchmark) -> str:
    return f"{known.size:,}" if known.size else "unknown"


def _hub(known: Benchmark) -> str:
    return known.problems.source.removeprefix("hub:")


def _verifier(known: Benchmark) -> str:
    from heavydistill.problems.columns import DEFAULT_VERIFIER, OPTIONS_VERIFIER

    asks = "options" in known.problems.columns or known.problems.shape == "gpqa"
    return OPTIONS_VERIFIER if asks else known.problems.verifier or DEFAULT_VERIFIER


def _k_and_d(known: Benchmark) -> str:
    from heavydistill.config.run import load_config

    run = load_config(preset=known.preset)
    return f"{run.think.k} x {run.deliberate.d}"

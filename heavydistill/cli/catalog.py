"""Subcommands that list bundled files: ``teachers`` (profiles) and public ``benchmarks``."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from heavydistill import plugins as registered
from heavydistill.config.run import load_config
from heavydistill.config.shipped import shipped
from heavydistill.errors import ProblemsError
from heavydistill.models import registry
from heavydistill.models.profiles import PROVIDERS, ProfileFile, serve_command
from heavydistill.report.terminal import (
    going_on,
    plain,
    print_command,
    print_lines,
    print_table,
    say,
    table,
)

if TYPE_CHECKING:
    from heavydistill.problems.benchmarks import Benchmark

_MOST_REFUSED = 3  # rows of a benchmark that are listed with why they cannot be judged


def teachers(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Profile (name or YAML file) to print, with the commands that serve its model."
        ),
    ] = None,
) -> None:
    """List the teachers with a profile: context, licence, terms and GPUs.

    A printed profile is a starting point for your own.
    """
    console = Console()
    if name is not None:
        profile = registry.profile_of(name)
        _print_file(registry.path_of(name), _serving(profile), console)
        return
    columns = ("Name", "Context", "Licence", "Distillation", "80 GB GPUs")
    rows = table(console, *columns, numbers=2)
    for known in registry.profiles():
        profile = registry.profile_of(known)
        licence, terms = profile.licence or "unknown", profile.terms.distillation
        rows.add_row(known, f"{profile.context:,}", licence, terms, _gpus(profile))
    print_table(rows, console)
    print_command("One of them", ["heavydistill", "teachers", known], console)


def benchmarks(
    name: Annotated[
        str | None, typer.Argument(help="Benchmark whose file is printed, or that is checked.")
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Load them from the Hub and check every reference: rows, columns, refused rows.",
        ),
    ] = False,
) -> None:
    """List the public benchmarks for `--benchmark`: size, verifier, licence, Hub id.

    With --check, the exit code is 1 if one cannot be loaded or has another size than its file says.
    """
    from heavydistill.problems.benchmarks import benchmark

    console = Console()
    if check:
        names = [name] if name else shipped("configs/benchmarks")
        if not all([_is_as_described(benchmark(each), console) for each in names]):
            raise typer.Exit(1)
        return
    if name is not None:
        gated = benchmark(name).gated
        terms = ["Gated: accept its terms on the Hub and set HF_TOKEN."] if gated else []
        _print_file(shipped("configs/benchmarks")[name], terms, console)
        return
    columns = ("Name", "Problems", "K x D", "Verifier", "Licence", "Token")
    rows = table(console, *columns, numbers=3)
    for known in map(benchmark, shipped("configs/benchmarks")):
        run = load_config(preset=known.preset)
        size = f"{known.size:,}" if known.size else "unknown"
        samples = f"{run.think.k} x {run.deliberate.d}"
        token, licence = "needed" if known.gated else "no", known.licence or "unknown"
        rows.add_row(known.name, size, samples, known.verifier, licence, token)
    print_table(rows, console)
    print_command("One of them", ["heavydistill", "benchmarks", known.name], console)


def _is_as_described(known: Benchmark, console: Console) -> bool:
    """Print what a benchmark's source has; False if it cannot be loaded or has another size."""
    from heavydistill.problems.loading import check

    try:
        with going_on(f"Loading {known.name}"):
            found = check(known.problems)
    except ProblemsError as error:
        say(f"{known.name}: {error}", console, "red")
        return False
    is_size = known.size in (None, found.rows)
    outside = f", {found.outside:,} more outside the range" if found.outside else ""
    differs = "" if is_size else f"; its file says {known.size:,}"
    refused = f"{len(found.refused):,} cannot be judged"
    rows = f"{found.rows:,} rows{outside}{differs}"
    say(f"{known.name}: {rows}; {refused}; columns {', '.join(found.columns)}", console)
    print_lines((f"  {why}" for why in found.refused[:_MOST_REFUSED]), console)
    return is_size


def plugins(
    files: Annotated[list[Path] | None, typer.Argument(help="Python files with plug-ins.")] = None,
) -> None:
    """List plug-ins: those of installed packages and of files, and what is shipped.

    The exit code is 1 if the plug-ins of a package cannot be used.
    """
    from heavydistill.curate.exports import export  # noqa: F401, what these ship is listed
    from heavydistill.problems import tables  # noqa: F401

    registered.load_installed()
    registered.load_files(map(str, files or ()))
    console = Console()
    rows = table(console, "Kind", "Name", "From", numbers=1)
    for each in registered.loaded.values():
        rows.add_row(each.kind, each.name, plain(each.place))
    for kind, names in registered.shipped.items():
        rows.add_row(kind, ", ".join(names), "shipped")
    print_table(rows, console)
    for place, why in registered.broken.items():
        say(f"The plug-ins of {place} cannot be used: {why}", console, "red")
    if registered.broken:
        raise typer.Exit(1)


def _print_file(file: Path, notes: Iterable[str], console: Console) -> None:
    """Print a YAML file unchanged, followed by the notes as comments."""
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
    """Yield the addresses of a model's providers, and commands to serve the model."""
    for provider in profile.providers:
        if known := PROVIDERS.get(provider):
            yield f"{provider}: {known.base_url}, key in {known.key_env}"
    for count in profile.vllm.gpus if profile.vllm else ():
        command = serve_command(profile, count)
        yield f"{count} GPU(s): {shlex.join(command) if command else 'does not fit'}"

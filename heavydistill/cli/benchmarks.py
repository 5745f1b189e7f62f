"""``heavydistill benchmarks``: the public benchmarks there are, or all that is known of one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from heavydistill.problems.benchmarks import Benchmark

_WIDE = 160  # columns where there is no terminal: no line is folded there


def benchmarks(
    name: Annotated[str | None, typer.Argument(help="Print everything known of this one.")] = None,
) -> None:
    """List the public benchmarks that `--benchmark NAME` knows: size, verifier, licence, Hub id."""
    from rich.console import Console

    from heavydistill.problems.benchmarks import benchmark, shipped

    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDE)
    if name is None:
        _print_list([benchmark(each) for each in shipped()], console)
    else:
        _print_one(benchmark(name), console)


def _print_list(known: list[Benchmark], console: Console) -> None:
    from heavydistill.report.terminal import print_table, table

    rows = table(console, "Name", "Problems", "K x D", "Verifier", "Licence", "Token", "Hub id")
    for column in rows.columns[3:]:
        column.justify = "left"
    for each in known:
        rows.add_row(
            each.name,
            f"{each.size:,}" if each.size else "unknown",
            _widths(each),
            _verifier(each),
            each.licence or "unknown",
            "needed" if each.gated else "no",
            _hub(each),
        )
    print_table(rows, console)


def _print_one(known: Benchmark, console: Console) -> None:
    from heavydistill.report.terminal import plain

    lines = [(label, value) for label, value in _lines(known) if value]
    width = max(len(label) for label, _ in lines)
    for label, value in lines:
        console.print(plain(f"{label:<{width}}  {value}"), soft_wrap=True)


def _lines(known: Benchmark) -> Iterator[tuple[str, str]]:
    """(what, all that is known of it)."""
    problems = known.problems
    yield "name", known.name
    yield "title", known.title
    yield "problems", f"{known.size:,}" if known.size else "unknown"
    subset = f", subset {problems.subset}" if problems.subset else ""
    token = "; accept its terms on the Hub and set HF_TOKEN" if known.gated else ""
    yield "Hub", f"{_hub(known)}{subset}, split {problems.split}{token}"
    yield "columns", ", ".join(f"{field} = {name}" for field, name in problems.columns.items())
    yield "shape", problems.shape or ""
    yield "within", json.dumps(problems.within) if problems.within else ""
    args = json.dumps(problems.verifier_args, ensure_ascii=False) if problems.verifier_args else ""
    yield "verifier", f"{_verifier(known)} {args}".strip()
    yield "unfit rows", "left out" if problems.unfit == "leave_out" else "refused"
    yield "settings", json.dumps(known.settings)
    yield "licence", known.licence or "unknown"
    yield "citation", known.citation
    yield "source", known.source
    yield "notes", known.notes


def _hub(known: Benchmark) -> str:
    return known.problems.source.removeprefix("hub:")


def _verifier(known: Benchmark) -> str:
    from heavydistill.problems.columns import DEFAULT_VERIFIER, OPTIONS_VERIFIER

    asks = "options" in known.problems.columns or known.problems.shape == "gpqa"
    return OPTIONS_VERIFIER if asks else known.problems.verifier or DEFAULT_VERIFIER


def _widths(known: Benchmark) -> str:
    from heavydistill.config.run import load_config

    run = load_config(preset=known.preset)
    return f"{run.think.k} x {run.deliberate.d}"

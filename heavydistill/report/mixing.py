"""Pools of several models as lines and a table; ``metrics.mixing`` computes the figures."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from heavydistill.metrics.mixing import Alone, Mixing
from heavydistill.report.grid import (
    Grid,
    IntervalCell,
    Line,
    bracketed,
    counted,
    difference,
    few_note,
    marked_problems,
    percent,
)
from heavydistill.report.summary import cost
from heavydistill.report.terminal import print_grid, print_lines


def print_mixing(mixing: Mixing | None, console: Console, *, full: bool = False) -> None:
    """Print what models contribute to pools and what mixing them gains; nothing for one model."""
    print_lines(lines(mixing), console)
    if full:
        print_grid(grid := table(mixing), console)
        print_lines(few_note([grid]), console)


def lines(mixing: Mixing | None) -> Iterator[str]:
    """Yield the accuracy of each model, and what mixing gains; none for pools of one model."""
    if not mixing:
        return
    if mixing.unnamed:
        yield (
            f"Models are not compared, because {mixing.unnamed:,} trajectories have no model's "
            "name: import them again with --columns model=COLUMN, or --model NAME for those of one "
            "model"
        )
        return
    shares = ", ".join(f"{each.name} {percent(each.mean_at_k.mean)}" for each in mixing.models)
    yield f"Models, M: {shares}"
    gains = {"V": mixing.vote_gain, "P": mixing.pass_gain}
    named = [f"{name} {bracketed(gain, signed=True)}" for name, gain in gains.items() if gain]
    if named:
        yield f"Mixed - best model, each at K={mixing.k}: {', '.join(named)} points"
    else:
        yield (
            f"Mixing is not compared: the pools have {mixing.k} of some model, and a comparison "
            "with each alone needs 2 of each, or 3 for the vote"
        )


def table(mixing: Mixing | None) -> Grid:
    """Return a row for each model, for the mixed pools, and for their gain; else no rows."""
    if not mixing or mixing.unnamed:
        return Grid([], [])
    k = mixing.k
    rows = [
        Line(
            each.name,
            [*_shares(each), f"{each.only:,}", f"{each.usage.requests:,}", cost(each.usage)],
        )
        for each in mixing.models
    ]
    rows.append(Line("mixed", [*_shares(mixing), *3 * [""]]))
    gains = (difference(gain, narrow=True) for gain in (mixing.vote_gain, mixing.pass_gain))
    rows.append(Line("mixed - best", ["", *gains, *3 * [""]], marked_problems(mixing.problems)))
    head = ["Model", "M", f"V@{k}", f"P@{k}", "Only it", "Samples", "USD"]
    note = (
        f"V@{k} and P@{k}: of {counted(k, 'attempt')} drawn from one model's, or from the mixed "
        f"pool, on the {counted(mixing.problems, 'problem')} with {k} of each model. Only it: "
        "problems that no other model has right. Best: the model with the highest figure."
    )
    left = f"Left out: {counted(mixing.left_out, 'problem')} with fewer."
    return Grid(head, rows, [note, *([left] if mixing.left_out else [])])


def _shares(of: Alone | Mixing) -> list[IntervalCell]:
    values = of.mean_at_k, of.vote_at_k, of.pass_at_k
    return [IntervalCell(value, narrow=True) for value in values]

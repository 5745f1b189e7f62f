"""A comparison as a person reads it: in the terminal, and as Markdown for papers and reviews.

Not covered: the numbers themselves, which ``metrics.comparison`` computes; a run that is compared
with nothing, whose table is that of ``table``.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from heavydistill.metrics.comparison import Comparison
from heavydistill.metrics.counts import unanswered_facts
from heavydistill.metrics.intervals import FEW_PROBLEMS, FEW_WARNING, Interval
from heavydistill.metrics.summary import NAMES
from heavydistill.report import markdown
from heavydistill.report.breakdown import matched_lines, ranged
from heavydistill.report.comparison_tables import Layout, grids, runs_of
from heavydistill.report.samples import print_unanswered
from heavydistill.report.text import (
    FEW_NOTE,
    counted,
    percent,
    plain,
    points,
    print_if_few,
    print_table,
    sampled,
)
from heavydistill.report.text import table as new_table


def _two_lines(value: Interval | None, signed: bool) -> str:
    if value is None:
        return "-"
    told = points if signed else percent
    ends = " to ".join(told(end).rstrip("%") for end in (value.low, value.high))
    return f"{told(value.mean)}\n{ends}"


def _two_short_lines(value: Interval | None, signed: bool) -> str:
    """With the interval in whole points."""
    mean, *_ = _two_lines(value, signed).partition("\n")
    return f"{mean}\n{100 * value.low:+.0f} to {100 * value.high:+.0f}" if value else mean


# P and HP of groups have no room beside the others.
_TERMINAL = Layout(
    cell=_two_lines,
    narrow=_two_short_lines,
    of_groups=[name for name in NAMES if "pass" not in name],
)
_MARKDOWN = Layout(cell=ranged, narrow=ranged, of_groups=NAMES)


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print what changed.

    Raises:
        ValueError: There is no run before.
    """
    _require_before(comparison)
    console.print(Text(_heading(comparison), style="bold"))
    for line in _how(comparison):
        console.print(plain(line), soft_wrap=True)
    shown = list(grids(comparison, _TERMINAL))
    for grid in shown:
        rows = new_table(console, *grid.head)
        for label, note, cells in grid.rows:
            first = plain(label).append(f"\n  {note}" if note else "")
            rows.add_row(first, *map(plain, cells))
        print_table(rows, console)
        if grid.below:
            console.print(plain(grid.below))
    if any(grid.has_few for grid in shown):
        console.print(plain(f"\n{FEW_NOTE}"))
    _print_reading(comparison, console)
    print_if_few(comparison.problems, console)
    worth = list(_worth(comparison))
    if worth:
        console.print()
    for line in worth:
        console.print(plain(line))
    console.print(plain(f"\n{_compared_by(comparison)}"), soft_wrap=True)
    for run in runs_of(comparison):
        print_unanswered(run.summary, console, of=run.name.capitalize())


def as_markdown(comparison: Comparison) -> str:
    """The same tables as Markdown, without folders.

    Raises:
        ValueError: There is no run before.
    """
    _require_before(comparison)
    parts = [f"**{markdown.text(_heading(comparison))}**"]
    parts += [markdown.text(line) for line in _how(comparison)]
    shown = list(grids(comparison, _MARKDOWN))
    for grid in shown:
        rows = [
            [markdown.text(f"{label}, {note}" if note else label), *map(markdown.text, cells)]
            for label, note, cells in grid.rows
        ]
        parts.append(markdown.table([markdown.text(title) for title in grid.head], rows))
        parts += [markdown.text(grid.below)] if grid.below else []
    if any(grid.has_few for grid in shown):
        parts.append(markdown.text(FEW_NOTE))
    parts += [markdown.text(f"{word}: {', '.join(names)}.") for word, names in _read(comparison)]
    parts += [markdown.text(f"{line}.") for line in _worth(comparison)]
    parts += [
        markdown.text(f"{run.name.capitalize()}: {line}")
        for run in runs_of(comparison)
        for line in unanswered_facts(run.summary.samples, run.summary.by_verifier)
    ]
    parts.append(
        "In brackets: 95% intervals, bootstrapped over problems, Wilson's of rescue, regress and "
        "emergent; differences are in points and paired by problem. McNemar's p is exact and "
        "two-sided."
        + (f" {FEW_WARNING}" if comparison.problems < FEW_PROBLEMS else "")
        + f" {markdown.text(_compared_by(comparison))}"
    )
    return "\n\n".join(parts) + "\n"


def _compared_by(comparison: Comparison) -> str:
    ran = ", ".join(f"{name} {version}" for name, version in comparison.versions.items())
    told = f"Compared by heavydistill {comparison.heavydistill}"
    return f"{told}; the models ran with {ran}." if ran else f"{told}."


def _require_before(comparison: Comparison) -> None:
    if comparison.before is None:
        raise ValueError("There is no run before to compare with")


def _heading(comparison: Comparison) -> str:
    summaries = [run.summary for run in runs_of(comparison)]

    def both(size: str) -> str:
        return "/".join(dict.fromkeys(str(getattr(summary, size)) for summary in summaries))

    parts = [
        counted(comparison.problems, "problem"),
        f"K={both('k')} trajectories",
        f"D={both('d')} deliberations",
        f"{both('rounds')} round{'' if both('rounds') == '1' else 's'}",
    ]
    return ", ".join(parts)


def _how(comparison: Comparison) -> Iterator[str]:
    """How both were asked, where they were asked alike."""
    config = comparison.config
    if comparison.asked_differently or not config:
        return
    yield f"Asked alike, with the prompts {config['domain']} ({config['language']}):"
    # Who took pools from another run asked nobody to think.
    runs = runs_of(comparison)
    took_pools = [run.name for run in runs if not run.thinker]
    if not took_pools:
        yield f"  thinking: {sampled(config['think']['sampling'])}"
    elif len(took_pools) < len(runs):
        yield f"  thinking: not compared, the run {took_pools[0]} has the pools of another one"
    yield f"  deliberating: {sampled(config['deliberate']['sampling'])}"


def _read(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """Which differences the intervals show."""
    readings: dict[str, list[str]] = {"Better": [], "Worse": [], "No difference shown": []}
    for name, _, change in comparison.metrics:
        interval = change.difference
        is_better, is_worse = interval and interval.low > 0, interval and interval.high < 0
        word = "Better" if is_better else "Worse" if is_worse else "No difference shown"
        readings[word].append(name)
    return [(word, names) for word, names in readings.items() if names]


def _print_reading(comparison: Comparison, console: Console) -> None:
    styles = {"Better": "green", "Worse": "red"}
    console.print()
    for word, names in _read(comparison):
        console.print(Text(f"{word}: {', '.join(names)}", style=styles.get(word, "")))


def _worth(comparison: Comparison) -> Iterator[str]:
    """What the tokens of a deliberation are worth in votes, of each run."""
    for run in runs_of(comparison):
        yield from (f"{run.name.capitalize()}: {line}" for line in matched_lines(run.summary))

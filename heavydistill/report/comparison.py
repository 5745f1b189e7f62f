"""The table of an evaluation: what a model did before, what it does after, and the difference.

Not covered: the numbers themselves, which ``metrics.comparison`` computes; a run that is compared
with nothing, whose table is that of ``table``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.text import Text

from heavydistill.metrics.comparison import Comparison, Measured
from heavydistill.metrics.intervals import Interval
from heavydistill.report.table import print_samples
from heavydistill.report.text import counted, percent, plain, points, print_if_few, print_table
from heavydistill.report.text import table as new_table

# Values that change nothing, so that they need not be shown.
_OFF = {"min_p": 0, "repetition_penalty": 1}


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print what changed.

    Raises:
        ValueError: There is no run before.
    """
    if comparison.before is None:
        raise ValueError("There is no run before to compare with")
    runs = {"before": comparison.before, "after": comparison.after}
    for line in _heading(comparison, runs):
        console.print(line, soft_wrap=True)
    _print_changes(comparison, console)
    _print_reading(comparison, console)
    print_if_few(comparison.problems, console)
    samples = {f"trajectories {name}": run.trajectories for name, run in runs.items()}
    samples |= {f"deliberations {name}": run.deliberations for name, run in runs.items()}
    print_samples(samples, console)


def _heading(comparison: Comparison, runs: dict[str, Measured]) -> Iterator[Text]:
    config = comparison.config
    parts = [
        counted(comparison.problems, "problem"),
        f"K={comparison.k} trajectories",
        f"D={comparison.d} deliberations",
        counted(comparison.rounds, "round"),
    ]
    yield Text(", ".join(parts), style="bold")
    for name, run in runs.items():
        thinker = run.thinker.name if run.thinker else "another run"
        told = f"trajectories by {thinker}, deliberations by {run.deliberator.name}"
        yield plain(f"{name.capitalize()}: {told}")
    yield plain(f"Asked alike, with the prompts {config['domain']} ({config['language']}):")
    if comparison.after.thinker:
        yield plain(f"  thinking: {_sampling(config['think']['sampling'])}")
    yield plain(f"  deliberating: {_sampling(config['deliberate']['sampling'])}")


def _sampling(chosen: dict[str, Any]) -> str:
    shown = {name: value for name, value in chosen.items() if _OFF.get(name) != value}
    return ", ".join(f"{name} {value:g}" for name, value in shown.items())


def _print_changes(comparison: Comparison, console: Console) -> None:
    """A metric in two lines, the second with the 95 % intervals."""
    changes = new_table(console, "Metric, 95% intervals", "Before", "After", "Points")
    for name, meaning, change in comparison.metrics:
        is_share = change is not comparison.heavy_minus_vote
        cells = [
            _cell(value, is_share and value is not change.difference)
            for value in (change.before, change.after, change.difference)
            if value
        ]
        changes.add_row(f"{name}\n  {meaning}", *cells)
    print_table(changes, console)


def _cell(value: Interval, is_share: bool) -> str:
    told = percent if is_share else points
    ends = " to ".join(told(end).rstrip("%") for end in (value.low, value.high))
    return f"{told(value.mean)}\n{ends}"


def _print_reading(comparison: Comparison, console: Console) -> None:
    """Which differences the intervals show."""
    readings: dict[str, list[str]] = {"Better": [], "Worse": [], "No difference shown": []}
    for name, _, change in comparison.metrics:
        interval = change.difference
        is_better, is_worse = interval and interval.low > 0, interval and interval.high < 0
        word = "Better" if is_better else "Worse" if is_worse else "No difference shown"
        readings[word].append(name)
    styles = {"Better": "green", "Worse": "red"}
    console.print()
    for word, names in readings.items():
        if names:
            console.print(Text(f"{word}: {', '.join(names)}", style=styles.get(word, "")))

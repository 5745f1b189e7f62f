"""Tables as grids of cells, and number formatting.

A table is computed once, as a ``Grid``; ``terminal``, ``markdown`` and ``page`` print it. A cell is
a text, whose second and later lines explain the first, or an ``IntervalCell``, which each printer
formats. All texts here are ASCII.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from heavydistill.metrics.intervals import FEW_PROBLEMS, FEW_WARNING, Interval

UNKNOWN = "-"
FEW = "(few)"
"""Mark of numbers over so few problems that their intervals are unreliable."""
FEW_NOTE = f"{FEW}: fewer than {FEW_PROBLEMS} problems, too few to rely on the interval."
# Sampling parameters with these values have no effect and are not shown.
_NEUTRAL = {"min_p": 0, "repetition_penalty": 1}


@dataclass(frozen=True, slots=True)
class IntervalCell:
    """A share with its interval, or a difference of shares in percentage points."""

    value: Interval | None  # None is printed as "-"
    signed: bool = False  # whether the value is a difference
    narrow: bool = False  # whether the interval ends may be rounded to whole numbers to save width
    note: str = ""  # printed below the value

    def lines(self, sign: str = "") -> list[str]:
        """Return mean, interval and note as lines; ``sign`` follows the interval of a share."""
        note = [self.note] if self.note else []
        if self.value is None:
            return [UNKNOWN, *note]
        mean = mean_and_ends(self.value, signed=self.signed)[0]
        return [mean, bare_ends(self.value, signed=self.signed) + sign * (not self.signed), *note]


Value = str | IntervalCell


class Line(NamedTuple):
    """A row of a ``Grid``: its label and its cells."""

    label: str
    cells: Sequence[Value]
    note: str = ""  # explanation of the label


@dataclass(frozen=True, slots=True)
class Grid:
    """A table of a result, which the terminal, Markdown and the HTML report show."""

    head: Sequence[str]
    lines: Sequence[Line]
    notes: Sequence[str] = ()  # explanations of the table
    wordy: bool = False  # whether the last column has words, which are left-aligned

    @property
    def has_few(self) -> bool:
        """Return whether any cell or label is marked with ``FEW``."""
        return any(
            FEW in (cell.note if isinstance(cell, IntervalCell) else cell)
            for line in self.lines
            for cell in (line.note, *line.cells)
        )


def share(value: Interval | None) -> IntervalCell:
    return IntervalCell(value)


def difference(value: Interval | None, *, narrow: bool = False) -> IntervalCell:
    """Return a cell with a difference in percentage points."""
    return IntervalCell(value, signed=True, narrow=narrow)


def mean_and_ends(value: Interval, *, signed: bool = False) -> list[str]:
    """Return the cells of two columns: a share or difference, and its interval."""
    return [points(value.mean) if signed else percent(value.mean), ends(value, signed=signed)]


def percent(value: float | None) -> str:
    """Format a share in per cent; ``-`` for None."""
    return UNKNOWN if value is None else f"{100 * value:.1f}%"


def points(value: float) -> str:
    """Format a difference of shares in percentage points with its sign; 0.0 has no sign."""
    rounded = round(100 * value, 1)
    return f"{rounded:+.1f}" if rounded else "0.0"


def ends(value: Interval, *, signed: bool = False) -> str:
    """Format the ends of an interval with per cent signs."""
    written = points if signed else percent
    return f"{written(value.low)} to {written(value.high)}"


def bare_ends(value: Interval, *, signed: bool = False) -> str:
    """Format the ends of an interval without per cent signs."""
    return ends(value, signed=signed).replace("%", "")


def bracketed(value: Interval, *, signed: bool = False) -> str:
    """Format a share or difference with its interval on one line."""
    return f"{mean_and_ends(value, signed=signed)[0]} ({bare_ends(value, signed=signed)})"


def part(count: int, whole: int) -> str:
    """Format a count, its total and its share; the share of an empty total is ``-``.

    Only all are 100.0%, and only none are 0.0%.
    """
    share = percent(count / whole if whole else None)
    if 0 < count < whole and share in ("0.0%", "100.0%"):
        share = "under 0.1%" if share == "0.0%" else "over 99.9%"
    return f"{count:,} of {whole:,} ({share})"


def count(value: int | None) -> str:
    """Format a number with thousands separators; ``-`` for None."""
    return UNKNOWN if value is None else f"{value:,}"


def counted(number: int, noun: str) -> str:
    """Format a number with its noun, in the singular or plural."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def sizes(problems: int, k: object, d: object, rounds: object) -> list[str]:
    """Return problems, K, D and rounds of a run or of several runs, as texts."""
    return [
        counted(problems, "problem"),
        f"K={k} trajectories",
        f"D={d} deliberations",
        f"{rounds} round{'' if str(rounds) == '1' else 's'}",
    ]


def reading(difference: Interval | None) -> str:
    """Return ``better`` or ``worse`` for a difference; empty if its interval includes 0."""
    if difference and difference.low > 0:
        return "better"
    return "worse" if difference and difference.high < 0 else ""


def support(added: Interval, problems: int) -> str:
    """Format the numbers behind a headline: a difference, its interval and the problem count."""
    shown, ends = mean_and_ends(added, signed=True)
    zero = "" if reading(added) else ", which includes 0"
    over = f"over {counted(problems, 'problem')}."
    return " ".join([f"{shown} points, 95% interval {ends}{zero},", over, *few_warning(problems)])


def marked(text: str, problems: int) -> str:
    """Return the text, with the mark ``FEW`` if the number of problems is small."""
    return f"{text} {FEW}" if 0 < problems < FEW_PROBLEMS else text


def marked_problems(problems: int) -> str:
    """Format a number of problems, with the mark ``FEW`` if it is small."""
    return marked(counted(problems, "problem"), problems)


def few_note(grids: Iterable[Grid]) -> list[str]:
    """Return the explanation of the mark ``FEW``, if one of the grids has the mark."""
    return [FEW_NOTE] if any(grid.has_few for grid in grids) else []


def few_warning(problems: int) -> list[str]:
    """Return the warning that intervals are unreliable, if there are few problems; else empty."""
    return [FEW_WARNING] if problems < FEW_PROBLEMS else []


def p_value(value: float) -> str:
    """Format a p-value with three decimals; a value below 0.001 as ``< 0.001``."""
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def listed(counts: Mapping[str, int | None]) -> str:
    """Format counts with their names on one line, without counts that are 0 or unknown."""
    return ", ".join(f"{number:,} {name}" for name, number in counts.items() if number)


def sampled(parameters: dict[str, object]) -> str:
    """Format sampling parameters on one line, without those that have no effect."""
    shown = {
        name: value
        for name, value in parameters.items()
        if value is not None and _NEUTRAL.get(name) != value
    }
    return ", ".join(f"{name} {value:g}" for name, value in shown.items())


def versions(prompts: Iterable[str], verifiers: Iterable[str]) -> str:
    """Return names and versions of prompt templates and verifiers as a sentence."""
    asked, judged = (", ".join(names) or "unknown" for names in (prompts, verifiers))
    return f"Prompts {asked}; verdicts by {judged}."

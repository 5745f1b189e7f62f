"""What the page shows of runs: sections of cards, each with plots, tables and notes.

Tables are the grids that the terminal prints. The numbers of every plot stand in a table beside it.
An evaluation or a crossing has a section of its own: what changed from before to after, what other
ways to answer are worth, and which deliberator makes what of whose attempts, from the files that
lie in its folder once all of its runs are done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from heavydistill.errors import ConfigError
from heavydistill.metrics.comparison import COMPARISON, read_comparison
from heavydistill.metrics.controls import CONTROLS, read_controlled
from heavydistill.metrics.counts import statuses_alone
from heavydistill.metrics.crossing import CROSSING, read_crossing
from heavydistill.metrics.summary import NAMES, NO_LABEL, STRATA, Summary
from heavydistill.report import comparison as compared
from heavydistill.report import summary as run
from heavydistill.report.grid import (
    Grid,
    Line,
    counted,
    difference,
    few_warning,
    listed,
    marked,
    share,
    versions,
)
from heavydistill.report.page import plots
from heavydistill.report.page.runs import ReportedRun, RunFigures

_NUMBERS = "The numbers"
_FROM_ROWS = (
    "Added up over the responses in this report, for the run has left no summary of its own: where "
    "its pools are those of another run, what that one paid is in it."
)
_ALONE = "Each interval is of a run by itself; `heavydistill compare` pairs two runs by problem."
_OTHER_PROBLEMS = (
    "The runs are over different problems, or the same with other references or verifiers, "
    "so that differences between these rows may be those of the problems."
)
_OTHER_VERIFIERS = (
    "The runs were judged by different verifiers or versions of them, so that differences "
    "between these rows may be those of the verdicts."
)


@dataclass(frozen=True, slots=True)
class Card:
    """Part of a section, in this order."""

    title: str
    plot: Markup | None = None
    legend: Sequence[tuple[str, str]] = ()  # class of a mark, and what it means
    tables: Sequence[Grid] = ()
    folded: Sequence[tuple[str, Grid]] = ()  # tables that a click on their title opens
    config: str = ""
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    wide: bool = False  # whether it stands over the whole width


@dataclass(frozen=True, slots=True)
class PageSection:
    """A part of the page with a heading."""

    title: str
    cards: Sequence[Card]
    number: int | None = None  # number of the run; None if it is about several
    facts: str = ""
    banners: Sequence[tuple[str, str]] = ()  # first words, and the others


def of_run(number: int, source: ReportedRun, figures: RunFigures) -> PageSection:
    """The section of a run; ``number`` is in its id."""
    summary = figures.summary
    banners = []
    if source.unfinished:
        problems = counted(summary.problems, "problem")
        banners.append(("Unfinished. ", f"{source.unfinished} In this report: {problems}."))
    if warning := run.unanswered_warning(summary):
        banners.append(("Unanswered. ", " ".join(warning)))
    facts = " · ".join(_facts(source, figures))
    return PageSection(source.name, list(_cards(source, figures)), number, facts, banners)


def _cards(source: ReportedRun, figures: RunFigures) -> Iterator[Card]:
    summary, shares = figures.summary, run.named_metrics(figures.summary)
    compared, labels = run.differences(summary), run.labels(summary)
    yield Card(
        "Metrics",
        plots.shares_plot("Metrics with 95 % intervals", shares),
        tables=[run.metrics(summary), compared, run.rounds(summary)],
        notes=[] if compared.lines else [run.NO_DELIBERATION],
        warnings=few_warning(summary.problems),
        wide=True,
    )
    if grids := list(run.group_grids(summary)):
        folded = [(f"Metrics by {grid.head[0].lower()}", grid) for grid in grids]
        yield Card("Parts of the run", folded=folded, wide=True)
    yield _curve(summary)
    outcomes = [outcome for outcome, count in summary.outcomes.items() if count]
    strata = [
        (name, {outcome: summary.outcomes_by_stratum[name][outcome] for outcome in outcomes})
        for name in (*STRATA, NO_LABEL)
        if summary.strata[name]
    ]
    title = "Strata and outcomes"
    yield Card(
        title,
        plots.stacked_plot(title, strata),
        list(zip(outcomes, labels.head[1:-1], strict=True)),
        folded=[(_NUMBERS, labels)],
    )
    title, rates = "Rescue and regress", [(name, getattr(summary, name)) for name in run.RATES]
    shown = [(name, rate.interval) for name, rate in rates if rate.interval]
    yield Card(title, plots.shares_plot(title, shown), tables=[run.rates(summary)])
    yield Card(
        "Cost",
        tables=[run.usage(summary)],
        notes=[
            *run.unreported_lines(summary),
            *[_FROM_ROWS] * (not figures.is_own_usage),
            *run.estimated_lines(summary),
        ],
    )
    yield Card(
        "What failed",
        tables=[run.samples(summary.samples)],
        notes=[*run.failure_lines(summary), *run.judging_lines(summary)],
    )
    yield Card(
        "How it was asked",
        config=source.config,
        notes=[
            versions(summary.prompts, summary.verifiers),
            *["There is no configuration that can be read."] * (not source.config),
        ],
    )


def of_all(sources: Sequence[ReportedRun], figures: Sequence[RunFigures]) -> Iterator[PageSection]:
    """The runs beside each other, and whether that compares anything; nothing for a single one."""
    if len(sources) < 2:
        return
    same = len({each.problems for each in figures}) == 1
    judges = {tuple(each.summary.verifiers) for each in figures if each.summary.verifiers}
    warnings = [_OTHER_PROBLEMS] * (not same) + [_OTHER_VERIFIERS] * (len(judges) > 1)
    lines = [
        Line(
            source.label,
            [
                marked(f"{summary.problems:,}", summary.problems),
                str(summary.k),
                str(summary.d),
                *(share(getattr(summary, key)) for key in NAMES[:-1]),
                difference(summary.heavy_minus_vote),
                ", ".join(summary.verifiers) or "-",
                ", ".join(summary.prompts) or "-",
            ],
        )
        for source, summary in zip(sources, (each.summary for each in figures), strict=True)
    ]
    head = ["Run", "Problems", "K", "D", "M@K", "V@K", "P@K", "HM@D", "HP@D", "HM - V"]
    grid = Grid([*head, "Verifiers", "Prompts"], lines)
    card = Card("Metrics of each run", tables=[grid], notes=[_ALONE], warnings=warnings, wide=True)
    yield PageSection("Runs", [card])


def of_folder(folder: Path) -> Iterator[PageSection]:
    """The section of an evaluation or a crossing; nothing if the folder is neither.

    A file that cannot be read, such as one of another version, is named in its place.
    """
    cards: list[Card] = []
    for name, made in ((COMPARISON, _changes), (CONTROLS, _controls), (CROSSING, _crossing)):
        if (folder / name).is_file():
            try:
                cards += made(folder / name)
            except ConfigError as error:
                cards.append(Card(name, warnings=[str(error)], wide=True))
    if cards:
        yield PageSection(f"{folder.absolute().name}: its runs together", cards)


def _facts(source: ReportedRun, figures: RunFigures) -> Iterator[str]:
    summary = figures.summary
    statuses = statuses_alone(summary.statuses)
    problems, thinking, deliberating, rounds = run.sizes_of(summary)
    yield problems
    yield f"{thinking} by {', '.join(figures.thinkers) or 'nobody'}"
    yield f"{deliberating} by {', '.join(figures.deliberators) or 'nobody'}"
    yield rounds
    yield f"traces: {listed(statuses).replace('_', ' ')}"
    if left_out := source.recorded.get("left_out"):
        yield f"{counted(left_out, 'row')} of the source left out"


def _curve(summary: Summary) -> Card:
    title, curve = "Accuracy over tokens", summary.curve
    points = [point for point in curve.points if point.tokens] if curve else []
    if not curve or not points:
        return Card(title, notes=["No problem has all its tokens counted."])
    legend = [("vote", "vote of k attempts"), ("pass", "any of k is right")]
    if summary.rounds:
        legend.append(("deliberation", "one deliberation on k, and votes of several"))
    legend.append(("vote outdone", "hollow: something else is as often right for less"))
    problems = counted(curve.problems, "problem")
    return Card(
        title,
        plots.curve_plot(points),
        legend,
        folded=[(_NUMBERS, run.curve(curve, passes=True))],
        notes=[f"Over {problems}, from the one pool of each.", *run.matched_lines(summary)],
    )


def _changes(file: Path) -> Iterator[Card]:
    """All tables of a comparison; those beside the metrics are folded. Nothing of one run alone."""
    comparison = read_comparison(file)
    if not comparison.before:
        return
    grids = list(compared.grids(comparison, NAMES))
    problems = counted(comparison.problems, "problem")
    yield Card(
        "Before and after",
        tables=[grid for grid in grids if grid.head[0] == compared.METRICS_TITLE],
        folded=[(grid.head[0], grid) for grid in grids if grid.head[0] != compared.METRICS_TITLE],
        notes=[f"{problems}; points are paired by problem."],
        warnings=few_warning(comparison.problems),
        wide=True,
    )


def _controls(file: Path) -> Iterator[Card]:
    """Each way to answer with what it costs."""
    controlled = read_controlled(file)
    yield Card(
        "What else the same models do",
        tables=[compared.controls(controlled)],
        notes=[
            *compared.control_lines(controlled),
            versions(controlled.prompts, controlled.verifiers),
        ],
        warnings=few_warning(controlled.problems),
        wide=True,
    )


def _crossing(file: Path) -> Iterator[Card]:
    """A row for each thinker, a column for each deliberator."""
    crossing = read_crossing(file)
    yield Card(
        "Thinkers and deliberators",
        tables=[compared.crossed(crossing)],
        notes=[
            counted(crossing.problems, "problem"),
            versions(crossing.prompts, crossing.verifiers),
        ],
        warnings=[
            *compared.not_alike(crossing.sampling),
            *compared.crossing_lines(crossing),
            *few_warning(crossing.problems),
        ],
        wide=True,
    )

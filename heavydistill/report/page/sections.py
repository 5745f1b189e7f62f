"""What the page shows of runs: sections of cards, each with plots, tables and notes.

A section begins with the result as a sentence and as tiles. Tables are the grids that the terminal
prints; the numbers of every plot are in a table of the same card. An evaluation or a crossing has a
section of its own, from the files in its folder: the changes from before to after, the controls,
and the deliberators crossed with the thinkers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from markupsafe import Markup

from heavydistill.errors import ConfigError
from heavydistill.metrics.comparison import COMPARISON, Comparison, read_comparison
from heavydistill.metrics.controls import CONTROLS, Controlled, read_controlled
from heavydistill.metrics.counts import statuses_alone
from heavydistill.metrics.crossing import CROSSING, Crossing, read_crossing
from heavydistill.metrics.curve import Point
from heavydistill.metrics.summary import NAMES, NO_LABEL, STRATA, Summary
from heavydistill.report import comparison as compared
from heavydistill.report import summary as run
from heavydistill.report.grid import (
    UNKNOWN,
    Grid,
    Line,
    Value,
    counted,
    difference,
    few_warning,
    listed,
    marked,
    mean_and_ends,
    reading,
    share,
)
from heavydistill.report.page import plots
from heavydistill.report.page.html import tag
from heavydistill.report.page.runs import ReportedRun, RunFigures

_NUMBERS = "The numbers"
_MOST_OPEN = 12  # rows of a table of groups that is not folded
_STRATA = (
    "Behind each bar: its problems. Strata: how many attempts of a pool are right, and whether the "
    "vote is. Outcomes: kept, vote and deliberation right; rescued, only the deliberation right; "
    "emergent, rescued although no attempt is right; overturned, only the vote right; lost, "
    "neither right."
)
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


_SHARES = "Right answers, with 95% intervals"
_MARKS = {
    "vote": "vote of 1, 2, ... attempts",
    "deliberation": "one deliberation, then votes of several",
    "filled": "no other way is right as often with fewer tokens",
    "outdone": "another way is right as often with fewer tokens",
}
_ANY = {"pass": "any attempt is right: no choice among them can beat it"}
_CLAIMS = {
    "better": "deliberation better than the vote",
    "worse": "deliberation worse than the vote",
    "": "no difference shown",
}
_WORDS = {
    "M": "attempt",
    "V": "vote",
    "P": "any attempt",
    "HM": "deliberation",
    "HP": "any deliberation",
}


class Tile(NamedTuple):
    """A figure beside the headline."""

    name: str
    value: str
    note: str = ""
    mark: str = ""  # class: "better", "worse", or "words" for what is no number


class Figure(NamedTuple):
    """A plot with the meaning of its marks (see ``plots.key``)."""

    plot: Markup
    legend: Mapping[str, str] = MappingProxyType({})
    title: str = ""

    @property
    def keys(self) -> list[tuple[Markup, str]]:
        """Each mark as it is drawn, and what it means."""
        return [(plots.key(mark), meaning) for mark, meaning in self.legend.items()]


@dataclass(frozen=True, slots=True)
class Card:
    """Part of a section, in this order."""

    title: str
    plots: Sequence[Figure] = ()
    tables: Sequence[Grid] = ()
    folded: Sequence[tuple[str, Grid]] = ()  # tables that a click on their title opens
    texts: Sequence[tuple[str, str]] = ()  # likewise
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    wide: bool = False  # whether it takes the whole width


@dataclass(frozen=True, slots=True)
class PageSection:
    """A part of the page with a heading."""

    title: str  # the result as a sentence
    cards: Sequence[Card]
    about: str = ""  # name of the run or folder
    number: int | None = None  # number of the run; None if it is about several
    support: str = ""  # the figures behind the title
    tiles: Sequence[Tile] = ()
    facts: str = ""
    banners: Sequence[tuple[str, str]] = ()  # first words, and the others


def of_run(number: int, source: ReportedRun, figures: RunFigures) -> PageSection:
    """The section of a run; ``number`` is in its id."""
    summary = figures.summary
    title, support = run.headline(summary)
    banners = []
    if source.unfinished:
        problems = counted(summary.problems, "problem")
        banners.append(("Unfinished. ", f"{source.unfinished} In this report: {problems}."))
    if warning := run.unanswered_warning(summary):
        banners.append(("Unanswered. ", " ".join(warning)))
    return PageSection(
        title,
        list(_cards(source, figures)),
        source.name,
        number,
        support,
        list(_tiles(source, figures)),
        " \u00b7 ".join(_facts(source, summary)),
        banners,
    )


def _tiles(source: ReportedRun, figures: RunFigures) -> Iterator[Tile]:
    summary = figures.summary
    for name, value, signed in (
        (f"Vote (V@{summary.k})", summary.vote_at_k, False),
        (f"Deliberation (HM@{summary.d})", summary.heavy_mean_at_d, False),
        ("Difference, in points", summary.heavy_minus_vote, True),
    ):
        if value:
            shown, ends = mean_and_ends(value, signed=signed)
            yield Tile(name, shown, f"95%: {ends}", reading(value) if signed else "")
    cost = run.cost(*summary.usage.values())
    written = sum(used.completion for used in summary.usage.values())
    tokens = f"{written:,} tokens written"
    yield Tile("Cost, USD", "unknown" if cost == UNKNOWN else cost, tokens)
    if at := source.written:
        yield Tile("Date", f"{at.day} {at:%b %Y}", f"{at:%H:%M} UTC, last rows", "words")
    thinker, reader = (", ".join(m) or "-" for m in (figures.thinkers, figures.deliberators))
    is_one = thinker == reader
    note = "thinks and deliberates" if is_one else f"deliberator: {reader}"
    yield Tile("Model" if is_one else "Models", thinker, note, "words")


def _cards(source: ReportedRun, figures: RunFigures) -> Iterator[Card]:
    summary = figures.summary
    named = [
        (f"{_WORDS[name.partition('@')[0]]}, {name}", value)
        for name, value in run.named_metrics(summary)
    ]
    yield Card(
        "Metrics",
        [Figure(plots.shares_plot("Metrics with 95% intervals", _SHARES, named))],
        [run.metrics(summary), run.differences(summary), run.rounds(summary)],
    )
    yield _curve(summary)
    labels = run.labels(summary)
    outcomes = [outcome for outcome, count in summary.outcomes.items() if count]
    strata = [
        (name, {outcome: summary.outcomes_by_stratum[name][outcome] for outcome in outcomes})
        for name in (*STRATA, NO_LABEL)
        if summary.strata[name]
    ]
    title = "Strata and outcomes"
    yield Card(
        title,
        [Figure(plots.stacked_plot(title, strata), _kinds(outcomes))],
        folded=[(_NUMBERS, labels)],
        notes=[_STRATA],
    )
    title, rates = "Rescue and regress", [(name, getattr(summary, name)) for name in run.RATES]
    shown = [(name, rate.interval) for name, rate in rates if rate.interval]
    plot = plots.shares_plot(title, "Share of the problems, with 95% intervals", shown)
    yield Card(title, [Figure(plot)], [run.rates(summary)])
    texts = [_versions(summary.prompts, summary.verifiers)]
    yield Card(
        "Requests, cost and failures",
        tables=[run.usage(summary), run.samples(summary.samples)],
        texts=[*texts, *[("Configuration", source.config)] * bool(source.config)],
        notes=[
            *run.unreported_lines(summary),
            *[_FROM_ROWS] * (not figures.is_own_usage),
            *run.estimated_lines(summary),
            *run.failure_lines(summary),
            *run.judging_lines(summary),
            *["There is no configuration that can be read."] * (not source.config),
        ],
    )
    groups = [(f"By {grid.head[0].lower()}", grid) for grid in run.group_grids(summary)]
    few = [grid for _, grid in groups if len(grid.lines) <= _MOST_OPEN]
    many = [(title, grid) for title, grid in groups if grid not in few]
    if groups:
        yield Card("Metrics by kind of problem", tables=few, folded=many, wide=True)


def _versions(prompts: Sequence[str], verifiers: Sequence[str]) -> tuple[str, str]:
    return "Prompts and verifiers", "\n".join([*prompts, *verifiers])


def _reading(summary: Summary) -> str | None:
    """What deliberation adds to the vote: see ``grid.reading``; None if there is none."""
    return reading(summary.heavy_minus_vote) if summary.heavy_minus_vote else None


def _kinds(kinds: Iterable[str]) -> dict[str, str]:
    return {kind: "not deliberated" if kind == NO_LABEL else kind for kind in kinds}


def of_all(sources: Sequence[ReportedRun], figures: Sequence[RunFigures]) -> Iterator[PageSection]:
    """The runs side by side, and whether that compares anything; nothing for a single one."""
    if len(sources) < 2:
        return
    names = [source.label for source in sources]
    if len({name.partition(" / ")[0] for name in names}) == 1:  # of one evaluation or crossing
        names = [name.partition(" / ")[2] or name for name in names]
    summaries = {name: each.summary for name, each in zip(names, figures, strict=True)}
    same = len({each.problems for each in figures}) == 1
    judges = {tuple(each.verifiers) for each in summaries.values() if each.verifiers}
    warnings = [_OTHER_PROBLEMS] * (not same) + [_OTHER_VERIFIERS] * (len(judges) > 1)
    lines, versions = [], []
    for number, (label, summary) in enumerate(summaries.items()):
        cells: list[Value] = [
            marked(f"{summary.problems:,}", summary.problems),
            str(summary.k),
            str(summary.d),
            *(share(getattr(summary, key)) for key in NAMES[:-1]),
            difference(summary.heavy_minus_vote),
        ]
        lines.append(Line(tag("a", label, href=f"#summary/{number}"), cells))
        versions.append(f"{label}: {', '.join([*summary.prompts, *summary.verifiers])}")
    head = ["Run", "Problems", "K", "D", "M@K", "V@K", "P@K", "HM@D", "HP@D", "HM - V"]
    cards = [
        Card(
            "Metrics of each run",
            tables=[Grid(head, lines)],
            texts=[("Prompts and verifiers", "\n".join(versions))],
            notes=[_ALONE],
            warnings=warnings,
            wide=True,
        )
    ]
    curves = {label: points for label, each in summaries.items() if (points := _points(each))}
    if curves:
        cards.append(Card("Accuracy over tokens", [Figure(plots.curve_plot(curves), _MARKS)]))
    bars = []
    for title, attribute in (("Strata", "strata"), ("Outcomes", "outcomes")):
        counts = {label: getattr(each, attribute) for label, each in summaries.items()}
        kinds = [kind for kind in counts[label] if any(of[kind] for of in counts.values())]
        rows = [(label, {kind: of[kind] for kind in kinds}) for label, of in counts.items()]
        plot = plots.stacked_plot(f"{title} of each run", rows, shares=True)
        bars.append(Figure(plot, _kinds(kinds), title))
    cards.append(Card("Strata and outcomes", bars, notes=[_STRATA]))
    support = [
        f"{counted(len(names), 'run')} with {claim}: {', '.join(names)}."
        for word, claim in _CLAIMS.items()
        if (names := [n for n, each in summaries.items() if _reading(each) == word])
    ]
    yield PageSection(f"{len(sources)} runs side by side", cards, support=" ".join(support))


def of_folder(folder: Path) -> Iterator[PageSection]:
    """The section of an evaluation or a crossing; nothing if the folder is neither.

    A file that cannot be read, such as one of another version, is named in its place.
    """
    name = folder.absolute().name
    cards: list[Card] = []
    title, support, about = f"{name}: its runs together", "", ""
    makers: Sequence[tuple[str, Callable[[Path], Any], Callable[[Any], Iterator[Card]]]] = (
        (COMPARISON, read_comparison, _changes),
        (CONTROLS, read_controlled, _controls),
        (CROSSING, read_crossing, _crossing),
    )
    for file, read, made in makers:
        if not (folder / file).is_file():
            continue
        try:
            found = read(folder / file)
        except ConfigError as error:
            cards.append(Card(file, warnings=[str(error)], wide=True))
            continue
        cards += made(found)
        if file == COMPARISON and found.before:
            about, (title, support) = name, compared.headline(found)
    if cards:
        yield PageSection(title, cards, about, support=support)


def _facts(source: ReportedRun, summary: Summary) -> Iterator[str]:
    yield from run.sizes_of(summary)
    yield f"traces: {listed(statuses_alone(summary.statuses)).replace('_', ' ')}"
    if left_out := source.recorded.get("left_out"):
        yield f"{counted(left_out, 'row')} of the source left out"


def _points(summary: Summary) -> list[Point]:
    """The points of the curve whose tokens are known."""
    return [point for point in summary.curve.points if point.tokens] if summary.curve else []


def _curve(summary: Summary) -> Card:
    title, curve, points = "Accuracy over tokens", summary.curve, _points(summary)
    if not curve or not points:
        return Card(title, notes=["No problem has all its tokens counted."])
    marks = {**_MARKS, **_ANY}
    if not summary.rounds:
        del marks["deliberation"]
    return Card(
        title,
        [Figure(plots.curve_plot({"": points}), marks)],
        folded=[(_NUMBERS, run.curve(curve, passes=True))],
        notes=[
            f"Over {counted(curve.problems, 'problem')}, from the one pool of each.",
            *run.matched_lines(summary),
        ],
    )


def _changes(comparison: Comparison) -> Iterator[Card]:
    """All tables of a comparison; those beside the metrics are folded. Nothing of one run alone."""
    if not comparison.before:
        return
    grids = list(compared.grids(comparison, NAMES))
    problems = counted(comparison.problems, "problem")
    yield Card(
        "Before and after",
        tables=[grid for grid in grids if grid.head[0] == compared.METRICS_TITLE],
        folded=[(grid.head[0], grid) for grid in grids if grid.head[0] != compared.METRICS_TITLE],
        notes=[f"{problems}; points are paired by problem."],
        wide=True,
    )


def _controls(controlled: Controlled) -> Iterator[Card]:
    """Each way to answer with what it costs."""
    yield Card(
        "What else the same models do",
        tables=[compared.controls(controlled)],
        texts=[_versions(controlled.prompts, controlled.verifiers)],
        notes=list(compared.control_lines(controlled)),
        warnings=few_warning(controlled.problems),
        wide=True,
    )


def _crossing(crossing: Crossing) -> Iterator[Card]:
    """A row for each thinker, a column for each deliberator."""
    yield Card(
        "Thinkers and deliberators",
        tables=[compared.crossed(crossing)],
        texts=[_versions(crossing.prompts, crossing.verifiers)],
        notes=[counted(crossing.problems, "problem")],
        warnings=[
            *compared.not_alike(crossing.sampling),
            *compared.crossing_lines(crossing),
            *few_warning(crossing.problems),
        ],
        wide=True,
    )

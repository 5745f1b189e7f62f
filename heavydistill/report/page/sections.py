"""The sections of the summary: a run, runs side by side, an evaluation or a crossing.

Their layout is in ``web/sections.html``; this module computes the content. Tables are the same
grids as on the terminal, and the numbers of every plot are in a table on the same card. Evaluations
and crossings are read from the files in their folder.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from heavydistill.errors import ConfigError
from heavydistill.metrics.comparison import COMPARISON, read_comparison
from heavydistill.metrics.controls import CONTROLS, PARTIAL, kind_of, read_controlled
from heavydistill.metrics.counts import statuses_alone
from heavydistill.metrics.curve import Point
from heavydistill.metrics.experiments.crossing import CROSSING, read_crossing
from heavydistill.metrics.experiments.widths import WIDTHS, read_widths
from heavydistill.metrics.intervals import Interval
from heavydistill.metrics.summary import NAMES, NO_LABEL, STRATA, Summary
from heavydistill.report import comparison as compared
from heavydistill.report import controls as controlled
from heavydistill.report import grid as grids
from heavydistill.report import steps
from heavydistill.report import summary as run
from heavydistill.report.experiments import widths
from heavydistill.report.grid import Grid, Line, Value, counted, difference, listed, marked, share
from heavydistill.report.page import plots
from heavydistill.report.page.html import column_classes, lines, narrow, shipped, tag
from heavydistill.report.page.runs import ReportedRun, RunFigures

_OTHER_PROBLEMS = (
    "The runs have different problems, or the same with other references or verifiers, so that "
    "differences between the rows may come from the problems."
)
_OTHER_VERIFIERS = (
    "The runs were judged by different verifiers or versions of them, so that differences between "
    "the rows may come from the verdicts."
)
_WORDS = {
    "M": "attempt",
    "V": "vote",
    "P": "any attempt",
    "HM": "deliberation",
    "HP": "any deliberation",
}
_CLAIMS = {
    "better": "deliberation better than the vote",
    "worse": "deliberation worse than the vote",
    "": "no difference shown",
}
_Bars = list[tuple[str, dict[str, int]]]
"""Rows of ``plots.stacked_plot``."""


def of_run(number: int, source: ReportedRun, figures: RunFigures) -> Markup:
    """Return the HTML section of a run; its id contains ``number``."""
    return _rendered("run", number, source, figures)


def of_all(sources: Sequence[ReportedRun], figures: Sequence[RunFigures]) -> Iterator[Markup]:
    """Yield HTML with the runs side by side, and whether they are comparable; none for one run."""
    if len(sources) < 2:
        return
    names = [source.label for source in sources]
    if len({name.partition(" / ")[0] for name in names}) == 1:  # all of one evaluation or crossing
        names = [name.partition(" / ")[2] or name for name in names]
    summaries = {name: each.summary for name, each in zip(names, figures, strict=True)}
    same = len({each.problems for each in figures}) == 1
    judges = {tuple(each.verifiers) for each in summaries.values() if each.verifiers}
    added = {
        name: each.heavy_minus_vote
        for name, each in summaries.items()
        if each.heavy_minus_vote and not _is_on_others(name)
    }
    support = [
        f"{counted(len(alike), 'run')} with {claim}: {', '.join(alike)}."
        for word, claim in _CLAIMS.items()
        if (alike := [name for name, value in added.items() if grids.reading(value) == word])
    ]
    bars = []
    for title, attribute in (("Strata", "strata"), ("Outcomes", "outcomes")):
        counts = {name: getattr(each, attribute) for name, each in summaries.items()}
        kinds = [kind for kind in counts[names[0]] if any(of[kind] for of in counts.values())]
        rows = [(name, {kind: of[kind] for kind in kinds}) for name, of in counts.items()]
        bars.append((title, rows, _legend(kinds)))
    yield _rendered(
        "side_by_side",
        f"{len(sources)} runs side by side",
        " ".join(support),
        _metrics(summaries),
        [_OTHER_PROBLEMS] * (not same) + [_OTHER_VERIFIERS] * (len(judges) > 1),
        summaries,
        {name: points for name, each in summaries.items() if (points := _points(each))},
        bars,
    )


def of_folder(folder: Path) -> Iterator[Markup]:
    """Yield the section of an evaluation or a crossing; nothing if the folder is neither.

    For a file that cannot be read, e.g. one of another version, the section names the file.
    """
    sections: list[Any] = []
    faults: dict[str, str] = {}
    readers = {COMPARISON: read_comparison, CONTROLS: read_controlled, CROSSING: read_crossing}
    readers |= {WIDTHS: read_widths}
    for file, read in readers.items():
        sections.append(None)
        try:
            if (folder / file).is_file():
                sections[-1] = read(folder / file)
        except ConfigError as error:
            faults[file] = str(error)
    comparison, *others = sections
    if comparison and not comparison.before:
        comparison = None
    if comparison or any(others) or faults:
        yield _rendered("together", folder.absolute().name, comparison, *others, faults)


def _metrics(summaries: Mapping[str, Summary]) -> Grid:
    """Return the metrics of each run; the run's name links to its section."""
    rows = []
    for number, (name, summary) in enumerate(summaries.items()):
        cells: list[Value] = [
            marked(f"{summary.problems:,}", summary.problems),
            *(str(summary.k), str(summary.d)),
            *(share(getattr(summary, key)) for key in NAMES[:-1]),
            difference(summary.heavy_minus_vote),
        ]
        rows.append(Line(tag("a", name, href=f"#summary/{number}"), cells))
    head = ["Run", "Problems", "K", "D", "M@K", "V@K", "P@K", "HM@D", "HP@D", "HM - V"]
    return Grid(head, rows)


def _claims(summaries: Mapping[str, Summary]) -> Grid:
    """Return the metrics of claims of each run; no rows if no run has any."""
    rows = [
        Line(name, [share(getattr(summary, key)) for key in run.CLAIMS])
        for name, summary in summaries.items()
        if summary.claim_coverage
    ]
    return Grid(["Run", *(name for name, _ in run.CLAIMS.values())], rows, [run.CLAIMS_NOTE])


def _is_on_others(name: str) -> bool:
    """Whether a control replaced the attempts of a run, so that their vote is no measure."""
    return kind_of(name.rpartition(" / ")[2]) in PARTIAL


def _headline(source: ReportedRun, summary: Summary) -> tuple[str, str]:
    """Return the headline of a run and the numbers that support it."""
    right = summary.heavy_mean_at_d
    if not right or not _is_on_others(source.name):
        return run.headline(summary)
    over = f"95% interval {grids.ends(right)}, over {counted(summary.problems, 'problem')}."
    support = " ".join([over, *grids.few_warning(summary.problems)])
    return f"Deliberation on other attempts: {grids.percent(right.mean)} right", support


def _facts(source: ReportedRun, summary: Summary) -> Iterator[str]:
    yield from run.sizes_of(summary)
    yield f"traces: {listed(statuses_alone(summary.statuses)).replace('_', ' ')}"
    if left_out := source.recorded.get("left_out"):
        yield f"{counted(left_out, 'row')} of the source left out"


def _named(summary: Summary) -> list[tuple[str, Interval]]:
    """Return the metrics with the names used in the plot."""
    named = run.named_metrics(summary)
    return [(f"{_WORDS[name.partition('@')[0]]}, {name}", value) for name, value in named]


def _points(summary: Summary) -> list[Point]:
    """Return the points of the curve whose number of tokens is known."""
    return [point for point in summary.curve.points if point.tokens] if summary.curve else []


def _outcomes(summary: Summary) -> tuple[_Bars, dict[str, str]]:
    """Return the outcomes in each stratum that has problems, and their legend."""
    kinds = [kind for kind, count in summary.outcomes.items() if count]
    rows = [
        (name, {kind: summary.outcomes_by_stratum[name][kind] for kind in kinds})
        for name in (*STRATA, NO_LABEL)
        if summary.strata[name]
    ]
    return rows, _legend(kinds)


def _rates(summary: Summary) -> list[tuple[str, Interval]]:
    rates = {name: getattr(summary, name).interval for name in run.RATES}
    return [(name, interval) for name, interval in rates.items() if interval]


def _tokens(summary: Summary) -> _Bars:
    """Return the tokens read and written by each stage that reported them."""
    return [
        (stage, {"read": used.prompt, "written": used.completion})
        for stage, used in summary.usage.items()
        if used.prompt + used.completion
    ]


def _legend(kinds: Iterable[str]) -> dict[str, str]:
    return {kind: "not deliberated" if kind == NO_LABEL else kind for kind in kinds}


def _rendered(macro: str, *values: object) -> Markup:
    template = environment().get_template("sections.html")
    return Markup(getattr(template.module, macro)(*values))


@functools.cache
def environment() -> jinja2.Environment:
    """Return the environment for the templates in ``web``; it escapes every value."""
    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: shipped("web", name)),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    made.filters |= {"lines": lines, "column_classes": column_classes, "narrow": narrow}
    made.globals |= {"plots": plots, "summary": run, "steps": steps, "compared": compared}
    made.globals |= {
        "controlled": controlled,
        "sizes": widths,
        "headline": _headline,
        "metric_names": NAMES,
    }
    made.globals |= {"facts": _facts, "named": _named, "points": _points, "rates": _rates}
    made.globals |= {
        "outcomes_of": _outcomes,
        "tokens_of": _tokens,
        "few_note": grids.FEW_NOTE,
        "claims_of": _claims,
        "sizes": widths,
    }
    for function in (counted, grids.few_warning, grids.mean_and_ends, grids.reading):
        made.globals[function.__name__] = function
    return made

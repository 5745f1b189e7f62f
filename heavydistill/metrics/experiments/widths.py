"""Cache width against the number of deliberations: accuracy, and what one answer takes.

One run has the widest cache; the others read its pools with narrower caches, or with caches of
other attempts of the same number. All have as many deliberations. The vote of d of them is the
expected one over all subsets of a round's deliberations (``estimators``), so fewer deliberations
need no run. Tokens are counted as in ``curve``. Dollars are those of the attempts of a cache, all
deliberations of earlier rounds and d of this one. Seconds are those of the run: the attempts take
as long as the slowest one of so many, and each round as long as its slowest deliberation.

How different attempts are is the share of distinct answers among those with an answer, and the
share of distinct first steps (``text.steps``, of the answer text) among those with a step, operands
and value together. Both are smaller for more attempts, so compare caches of one width.

Not covered: first steps in words; seconds under another load than the run's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from heavydistill.config.versioned import read_versioned
from heavydistill.metrics.curve import Curve, Point, curve_of, mark_pareto
from heavydistill.metrics.estimators import deliberations_of
from heavydistill.metrics.experiments.stopping import Usd, largest, mean_expenses, seconds_of
from heavydistill.metrics.intervals import Interval, bootstrap_difference, bootstrap_mean
from heavydistill.metrics.problem_figures import (
    ProblemFigures,
    RunTally,
    most_common,
    on_same_pools,
    share_used,
)
from heavydistill.schema import Generation, Trace
from heavydistill.text.checked_claims import attempts_by_cache
from heavydistill.text.steps import read_steps

WIDTHS = "widths.json"
FORMAT = "heavydistill-widths/1"
_FEWEST = 2  # attempts that can differ

_Rows = list[ProblemFigures]


@dataclass(frozen=True, slots=True)
class CacheKind:
    """How many attempts a cache shows, and which."""

    width: int  # maximum number of attempts
    selection: str  # strategy of ``heavy.selection``


@dataclass(frozen=True, slots=True)
class Diversity:
    """How different attempts are, as means over problems; None if no problem has a value."""

    distinct_answers: Interval | None  # over the problems where two attempts have an answer
    distinct_steps: Interval | None  # over those where two have a step of arithmetic
    has_right: Interval | None  # share of the problems with a right attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthFigures:
    """Deliberations of one round, of which ``point.d`` vote."""

    point: Point  # ``pareto`` compares all caches and the votes of attempts
    heavy_pass: Interval  # HP@d of the round
    usd: float | None  # mean over the problems where it is known; None if it never is
    seconds: float | None  # likewise


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthFigures:
    """Deliberations on one kind of cache."""

    cache: CacheKind
    shown: Diversity  # of the attempts in the caches of the first round
    minus_widest: Interval | None  # HM@D minus that of the first run, which has None
    minus_selection: Interval | None
    """HM@D minus that on caches of this width with the first run's selection; None for these."""
    depths: list[DepthFigures]  # by round, then by number of deliberations


@dataclass(frozen=True, slots=True, kw_only=True)
class WidthReport:
    """What width and depth buy, on the same problems and attempts."""

    format: str = FORMAT
    problems: int  # those with K attempts, over which all figures are
    smaller_pools: int  # problems left out because they have fewer
    k: int  # most common number of attempts
    d: int  # most common number of deliberations in the last round
    rounds: int
    pool: Diversity  # of all attempts of a problem
    votes: list[Point]  # votes of 1 to K attempts
    caches: list[WidthFigures]  # those of the first run first


def compare_widths(
    runs: Mapping[CacheKind, Iterable[Trace]], depths: Sequence[int], usd: Usd
) -> WidthReport:
    """Compare the deliberations on several kinds of caches.

    Args:
        runs: All traces of each run, which are read once; the first run made the pools. Problems
            that the others lack count as not answered.
        depths: Numbers of deliberations that vote.
        usd: The price of each sample.
    """
    read = {cache: _Reading(traces, depths, usd) for cache, traces in runs.items()}
    widest, first = next(iter(read.items()))
    k, rounds = most_common(row.k for row in first.tally.rows), first.tally.rounds
    own = [row for row in first.tally.rows if row.k >= k]
    d = most_common(row.round(rounds).d for row in own)
    rows = {cache: [*on_same_pools(own, each.tally.rows).values()] for cache, each in read.items()}
    votes, *heavy = _points([curve_of(each, k, d, rounds, depths) for each in rows.values()])

    def figures(cache: CacheKind, points: Sequence[Point]) -> WidthFigures:
        usual = replace(cache, selection=widest.selection)
        return WidthFigures(
            cache=cache,
            shown=_diversity(read[cache].shown),
            minus_widest=_minus(rows, rounds, cache, widest),
            minus_selection=_minus(rows, rounds, cache, usual),
            depths=[read[cache].figures(point, rows[cache]) for point in points],
        )

    return WidthReport(
        problems=len(own),
        smaller_pools=len(first.tally.rows) - len(own),
        k=k,
        d=d,
        rounds=rounds,
        pool=_diversity(first.pools),
        votes=votes,
        caches=[figures(cache, points) for cache, points in zip(rows, heavy, strict=True)],
    )


def read_widths(path: Path) -> WidthReport:
    """Read ``widths.json``; raises ConfigError if it is missing or of another version."""
    fix = "Give the file that `heavydistill evaluate --widths` wrote, or evaluate again."
    return read_versioned(path, WidthReport, FORMAT, what="widths", missing=fix, other=fix)


class _Reading:
    """What is kept of a run: its tally, the attempts of each problem, and what answers took."""

    def __init__(self, traces: Iterable[Trace], depths: Sequence[int], usd: Usd) -> None:
        self.pools: list[_Differing] = []
        self.shown: list[_Differing] = []  # in the caches of the first round
        self._spent = defaultdict[tuple[int, int], list[tuple[float, float]]](list)
        self._depths, self._usd = depths, usd
        self.tally = RunTally(map(self._noted, traces))

    def _noted(self, trace: Trace) -> Trace:
        shown = attempts_by_cache(trace)
        self.pools.append(_differing(trace.pool))
        self.shown += [
            _differing(shown[c.id]) for c in trace.caches if c.round == 1 and c.id in shown
        ]
        for number in {each.round for each in trace.deliberations}:
            for d in self._depths:
                self._spent[number, d].append(_spent(trace, number, d, self._usd))
        return trace

    def figures(self, point: Point, rows: _Rows) -> DepthFigures:
        spent = self._spent[point.rounds, point.d]
        usd, seconds = (
            fmean(known) if (known := [each[at] for each in spent if each[at] >= 0]) else None
            for at in range(2)
        )
        passes = bootstrap_mean([row.round(point.rounds).pass_at(point.d) for row in rows])
        return DepthFigures(point=point, heavy_pass=passes, usd=usd, seconds=seconds)


def _spent(trace: Trace, number: int, d: int, usd: Usd) -> tuple[float, float]:
    """(US dollars, seconds) of an answer by d deliberations of a round; NaN if unknown."""
    attempts = share_used(trace, number) * len(trace.pool)
    dollars = attempts * mean_expenses(trace.pool, usd)[1]
    seconds = largest(seconds_of(trace.pool), round(attempts))
    for each in range(1, number + 1):
        of_round = deliberations_of(trace, each)
        some = min(d, len(of_round)) if each == number else len(of_round)
        dollars += some * mean_expenses(of_round, usd)[1]
        seconds += largest(seconds_of(of_round), some)
    return dollars, seconds


_Differing = tuple[float | None, float | None, float]


def _differing(attempts: Sequence[Generation]) -> _Differing:
    """(share of distinct answers, share of distinct first steps, whether one is right)."""
    steps = (read_steps(each.answer_text)[:1] for each in attempts)
    answers = [each.extracted for each in attempts if each.extracted is not None]
    firsts = [(first.asked, first.said) for found in steps for first in found]
    return _distinct(answers), _distinct(firsts), float(any(each.is_correct for each in attempts))


def _distinct(values: Sequence[Hashable]) -> float | None:
    return len({*values}) / len(values) if len(values) >= _FEWEST else None


def _diversity(problems: Sequence[_Differing]) -> Diversity:
    columns = ([value for each in problems if (value := each[at]) is not None] for at in range(3))
    return Diversity(*(bootstrap_mean(known) if known else None for known in columns))


def _minus(
    rows: Mapping[CacheKind, _Rows], rounds: int, cache: CacheKind, other: CacheKind
) -> Interval | None:
    """HM@D of a cache minus that of another one, paired by problem; None for itself."""
    if cache == other:
        return None
    means = ([row.round(rounds).mean for row in rows[each]] for each in (cache, other))
    return bootstrap_difference(*means)


def _points(curves: Iterable[Curve | None]) -> list[list[Point]]:
    """The votes of attempts, and the deliberations of each curve, compared with one another."""
    known = [curve.points for curve in curves if curve]
    groups = [[point for point in known[0] if point.way == "vote"]]
    groups += [[point for point in points if point.d] for points in known]
    marked = iter(mark_pareto([point for group in groups for point in group]))
    return [[next(marked) for _ in group] for group in groups]

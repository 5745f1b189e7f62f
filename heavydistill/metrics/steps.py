"""Whether deliberations read the steps of the attempts that they were shown: step table, step vote.

The **step table** has the steps (``text.steps``) that at least two attempts of a cache have with
the same operands, and that a deliberation on this cache writes, in three rows:

    unanimous_true    the attempts have one value there, and it is true
    unanimous_false   they have one value there, and it is false
    parting           they have different values, one of which is true

For each row, ``written`` is the share of steps whose written value is true, and beside it stand the
shares that two readers without arithmetic would have: one that copies the value of most attempts
(``plurality``, the expected value if several values are most frequent), and one that copies any
attempt (``picked``). A reader keeps unanimous true values and is above the plurality where attempts
part. Shares are over all steps, and their intervals resample problems.

The **step vote** is the answer of a program that does no arithmetic: place by place it takes the
value of most attempts, among those that have the values taken so far wherever they use them. It is
defined for caches with at least two attempts that are chains: their steps have the same operations
in the same order, and the last value is the final answer. If no chain has the values taken so far,
it is the vote of the attempts shown. Its value is the expected one over ties, and judged by the
verdicts of the attempts, as in ``heavy.voting``.

Attempts have the steps of their answer text, which is what a cache shows. If a text has several
values for one step, the last one counts. True values of one step are one value, to however many
decimals a quotient is rounded.

Not covered: texts without such steps, which have neither; attempts that were cut in the cache, and
the thinking that a cache may show of them; steps that a deliberation leaves out, or makes with
operands that no two attempts have; places where attempts part and all are wrong.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import fmean
from typing import TYPE_CHECKING, TypeAlias

from heavydistill.heavy.voting import vote_value
from heavydistill.metrics.estimators import deliberations_of
from heavydistill.metrics.intervals import (
    Interval,
    bootstrap_difference,
    bootstrap_mean,
    bootstrap_statistic,
)
from heavydistill.schema import Generation, Trace
from heavydistill.text.checked_claims import attempts_by_cache
from heavydistill.text.steps import Step, number, read_steps

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_Array: TypeAlias = "npt.NDArray[np.float64]"
_Values: TypeAlias = tuple[Fraction, ...]
_Share: TypeAlias = Callable[["_Array"], "_Array"]

ROWS = ("unanimous_true", "unanimous_false", "parting")
"""Rows of the step table."""
MOST_STEPS = 64
"""Maximum number of steps of a chain; a longer attempt is none."""
MOST_PATHS = 1_000
"""Maximum number of ways to break the ties of a step vote; it is not defined if there are more."""
_COLUMNS = 4
_SHARES: dict[str, _Share] = {  # of the four sums of a row
    "written": lambda sums: sums[..., 0] / sums[..., 3],
    "plurality": lambda sums: sums[..., 1] / sums[..., 3],
    "picked": lambda sums: sums[..., 2] / sums[..., 3],
    "written_minus_plurality": lambda sums: (sums[..., 0] - sums[..., 1]) / sums[..., 3],
}
_CHANGES = {row: (row, "written") for row in ROWS}
_CHANGES["parting_minus_plurality"] = ("parting", "written_minus_plurality")


@dataclass(frozen=True, slots=True)
class StepFigures:
    """The steps of one round of deliberations on one problem."""

    counts: tuple[float, ...]
    """For each of ``ROWS`` four sums over its steps: true values that are written, that the
    plurality and a random attempt have (expected numbers), and all steps."""
    step_vote: float | None  # its expected accuracy; None if it is not defined

    @property
    def written(self) -> dict[str, float]:
        """Share of true values that are written, of the rows that have steps."""
        rows = zip(ROWS, range(0, len(self.counts), _COLUMNS), strict=True)
        return {
            row: self.counts[at] / steps
            for row, at in rows
            if (steps := self.counts[at + _COLUMNS - 1])
        }

    @classmethod
    def of(cls, trace: Trace, round: int) -> StepFigures:
        """The figures of a round, from 1; deliberations that are not complete write no steps."""
        counts, votes = [0.0] * _COLUMNS * len(ROWS), []
        whole = {
            (cache.id, item.generation)
            for cache in trace.caches
            for item in cache.items
            if item.tokens_after == item.tokens_before
        }
        written = defaultdict[str, list[list[Step]]](list)
        for each in deliberations_of(trace, round):
            text = "" if each.unusable_because else f"{each.reasoning}\n{each.answer_text}"
            written[each.cache].append(read_steps(text))
        for cache, shown in attempts_by_cache(trace).items() if written else ():
            if cache in written:
                read = [each for each in shown if (cache, each.id) in whole]
                steps = [read_steps(each.answer_text) for each in read]
                votes.append(step_vote(shown, list(zip(read, steps, strict=True))))
                for said in written[cache]:
                    counts = [a + b for a, b in zip(counts, step_counts(steps, said), strict=True)]
        known = [vote for vote in votes if vote is not None]
        return cls(tuple(counts), fmean(known) if known else None)


def step_counts(attempts: Sequence[Sequence[Step]], written: Sequence[Step]) -> list[float]:
    """The ``StepFigures.counts`` of one deliberation from its steps and those of the attempts."""
    standing = defaultdict[object, list[Step]](list)
    for steps in attempts:
        for asked, step in _last(steps).items():
            standing[asked].append(step)
    counts = [0.0] * _COLUMNS * len(ROWS)
    for asked, step in _last(written).items():
        there = standing[asked]
        if len(there) > 1 and (row := _row(there)):
            truths = {each.said: each.is_true for each in there}
            plurality = fmean(truths[value] for value in _winners(each.said for each in there))
            picked = fmean(each.is_true for each in there)
            start = _COLUMNS * ROWS.index(row)
            for column, value in enumerate((step.is_true, plurality, picked, 1)):
                counts[start + column] += value
    return counts


def step_vote(
    shown: Sequence[Generation], read: Sequence[tuple[Generation, Sequence[Step]]]
) -> float | None:
    """Expected accuracy of the step vote; None if it is not defined.

    Args:
        shown: All attempts of a cache.
        read: Those that were not cut, with their steps.
    """
    chains = _chains(read)
    if not chains:
        return None
    value, paths = Fraction(0), dict[_Values, Fraction]({(): Fraction(1)})
    for place in range(len(chains[0].values)):
        longer: dict[_Values, Fraction] = {}
        for taken, weight in paths.items():
            winners = _winners(c.values[place] for c in chains if c.goes_on(taken))
            if not winners:
                value += weight * Fraction(vote_value(shown))
            longer |= {(*taken, winner): weight / len(winners) for winner in winners}
        if len(longer) > MOST_PATHS:
            return None
        paths = longer
    for taken, weight in paths.items():
        ends = [c.is_right for c in chains if c.values[-1] == taken[-1] and c.goes_on(taken[:-1])]
        value += weight * Fraction(sum(ends), len(ends))
    return float(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """One row of the step table: shares of steps."""

    steps: int  # number of steps
    problems: int  # number of problems that have such steps
    written: Interval  # true values that deliberations write
    plurality: Interval  # true values that copying the most frequent value would write
    picked: Interval  # true values that copying a random attempt would write
    written_minus_plurality: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class StepVote:
    """The step vote of a run, over the problems where it is defined."""

    problems: int  # number of these problems
    accuracy: Interval
    heavy_minus: Interval  # HM@D minus the step vote, paired by problem


def step_table(problems: Sequence[StepFigures]) -> dict[str, StepRow]:
    """The rows of the step table that have steps, by their name in ``ROWS``."""
    table = {}
    for at, name in enumerate(ROWS):
        counts = [each.counts[_COLUMNS * at : _COLUMNS * (at + 1)] for each in problems]
        with_steps = [each for each in counts if each[-1]]
        intervals = {key: bootstrap_statistic(counts, share) for key, share in _SHARES.items()}
        shares = {key: interval for key, interval in intervals.items() if interval}
        if shares:
            steps = int(sum(each[-1] for each in with_steps))
            table[name] = StepRow(steps=steps, problems=len(with_steps), **shares)
    return table


def vote_over_steps(pairs: Iterable[tuple[StepFigures, float]]) -> StepVote | None:
    """The step vote of problems, each with its HM@D; None if it is defined for none of them."""
    known = [(each.step_vote, heavy) for each, heavy in pairs if each.step_vote is not None]
    if not known:
        return None
    votes, heavy_means = zip(*known, strict=True)
    return StepVote(
        problems=len(known),
        accuracy=bootstrap_mean(votes),
        heavy_minus=bootstrap_difference(heavy_means, votes),
    )


def step_shares(
    after: Sequence[StepFigures], before: Sequence[StepFigures] | None = None
) -> dict[str, Interval]:
    """``written`` of each row, and how much it is above the plurality where attempts part.

    With ``before``, the differences ``after - before``; index i in both is the same problem.
    Shares without steps are left out.
    """
    runs = [after] if before is None else [after, before]
    found = {}
    for name, (row, key) in _CHANGES.items():
        start, share = _COLUMNS * ROWS.index(row), _SHARES[key]
        columns = slice(start, start + _COLUMNS)
        rows = [[n for each in of for n in each.counts[columns]] for of in zip(*runs, strict=True)]
        found[name] = bootstrap_statistic(rows, share if before is None else _difference(share))
    return {name: interval for name, interval in found.items() if interval}


def _difference(share: _Share) -> _Share:
    """A share of the first sums minus that of the second."""
    return lambda sums: share(sums[..., :_COLUMNS]) - share(sums[..., _COLUMNS:])


@dataclass(frozen=True, slots=True)
class _Chain:
    """An attempt whose last step gives its answer."""

    values: _Values  # by place
    uses: tuple[tuple[int, ...], ...]  # by place: the places whose values are operands there
    is_right: bool

    @classmethod
    def of(cls, steps: Sequence[Step], is_right: bool) -> _Chain:
        values = tuple(step.said for step in steps)
        uses, places = [], dict[Fraction, int]()
        for place, step in enumerate(steps):
            uses.append(tuple(places[each] for each in step.operands if each in places))
            places[step.value] = place
        return cls(values, tuple(uses), is_right)

    def goes_on(self, taken: Sequence[Fraction]) -> bool:
        """Whether its next step after the places of ``taken`` uses these values."""
        return all(self.values[place] == taken[place] for place in self.uses[len(taken)])


def _chains(read: Iterable[tuple[Generation, Sequence[Step]]]) -> list[_Chain]:
    """The attempts that are chains of the commonest operations, the longest if tied.

    There are none if only one attempt has these operations.
    """
    alike = defaultdict[tuple[str, ...], list[_Chain]](list)
    for attempt, steps in read:
        if 0 < len(steps) <= MOST_STEPS and steps[-1].value == number(attempt.extracted or ""):
            operations = tuple(step.operation for step in steps)
            alike[operations].append(_Chain.of(steps, attempt.is_correct))
    most = max(alike, key=lambda each: (len(alike[each]), len(each), each), default=())
    return alike[most] if len(alike[most]) > 1 else []


def _last(steps: Iterable[Step]) -> dict[object, Step]:
    return {step.asked: step for step in steps}


def _row(there: Sequence[Step]) -> str | None:
    """The row of the table for the steps of attempts; None if they part and all are wrong."""
    if len({step.said for step in there}) == 1:
        return "unanimous_true" if there[0].is_true else "unanimous_false"
    return "parting" if any(step.is_true for step in there) else None


def _winners(values: Iterable[Fraction]) -> list[Fraction]:
    """The most frequent values."""
    counts = Counter(values)
    most = max(counts.values(), default=0)
    return [value for value, count in counts.items() if count == most]

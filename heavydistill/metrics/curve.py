"""Accuracy over tokens, to compare deliberation with votes that cost as many tokens.

HM@D is a mean over D deliberations, each of which is one answer. So its cost is the cost of one
answer: the trajectories of its cache (see ``problem_figures``), all deliberations of earlier
rounds, and one deliberation of its round. A vote of d deliberations costs d - 1 more deliberations.
Tokens are counted in two ways: tokens written (``completion``), as papers count test-time compute,
and tokens written and read (``all``), which is less favourable to deliberation, because its prompt
holds the attempts.

The token-matched vote is V at the number of votes with the same mean tokens per problem. Between
two whole numbers, V is interpolated: one more vote is added with the probability that makes the
tokens equal. V is never extrapolated: if K is too small, ``needs`` is the number of trajectories
that would suffice. Intervals of differences treat the number of matched votes as exact.

Not covered: methods of answering that need further requests (see ``controls``); prices and time
(see ``widths``).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal

from heavydistill.metrics.intervals import Interval, bootstrap_difference, bootstrap_mean
from heavydistill.metrics.problem_figures import COSTS, Cost, ProblemFigures, most_common

Way = Literal["vote", "pass", "deliberation", "heavy_vote"]
"""``vote``: the most frequent answer of k trajectories; ``pass``: whether any of k trajectories is
right, an upper bound; ``deliberation``: one deliberation; ``heavy_vote``: the most frequent answer
of d deliberations."""
_DIGITS = 9

_Known = dict[Cost, list[ProblemFigures]]
"""Problems of a curve whose token counts are all known, by kind of count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Accuracy and tokens of one method of answering."""

    way: Way
    k: int  # number of trajectories; for deliberations the most common number
    rounds: int  # number of deliberation rounds
    d: int = 0  # number of deliberations that vote; 1 for a single one, 0 for votes and passes
    accuracy: Interval  # mean over all problems of the curve
    tokens: dict[Cost, Interval]  # mean per problem, over the problems where they are known
    pareto: dict[Cost, bool] = field(default_factory=dict)
    """For each kind of cost: whether no other method is at least as good in accuracy and tokens,
    and better in one of them. Always false for ``pass``, which is ignored in the comparison."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedVote:
    """The vote that costs as many tokens as a deliberation of the last round."""

    problems: int  # problems of the curve with known tokens; all fields are means over these
    tokens: float  # mean number of tokens per problem of the deliberation
    votes: float  # trajectories that cost as many tokens, as a mean over problems
    needs: int  # number of trajectories per problem that this requires
    vote: Interval | None  # V at that number of votes; None if there are too few trajectories
    heavy_minus_vote: Interval | None  # HM@D - ``vote``, paired by problem; None without `vote`


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Accuracy over tokens of a run, for several methods of answering."""

    k: int  # number of votes of the last point: the most common number of trajectories
    problems: int  # number of problems with at least k trajectories; only these are used
    smaller_pools: int  # number of problems left out because they have fewer
    unknown_tokens: dict[Cost, int]  # problems without known token counts
    points: list[Point]  # votes, passes, one deliberation of each round, votes of the last round
    matched: dict[Cost, MatchedVote]  # empty if there are no deliberations or no known tokens


def curve_of(
    rows: Sequence[ProblemFigures], k: int, d: int, rounds: int, depths: Sequence[int] | None = None
) -> Curve | None:
    """Compute the curve of a run; None if it has no trajectories.

    Args:
        rows: Rows of all problems.
        k: Most common number of trajectories per problem.
        d: Most common number of deliberations in the last round.
        rounds: Number of deliberation rounds; 0 if there are none.
        depths: Numbers of deliberations that vote, in each round (default: one in each round, and
            2 to ``d`` in the last).
    """
    on_it = [row for row in rows if row.k >= k] if k else []
    if not on_it:
        return None

    def is_known(row: ProblemFigures, cost: Cost) -> bool:
        return not math.isnan(row.tokens[cost] + row.round(rounds).tokens[cost])

    of_cost = {cost: [row for row in on_it if is_known(row, cost)] for cost in COSTS}
    known: _Known = {cost: those for cost, those in of_cost.items() if those}
    pairs = [(n, count) for n in range(1, rounds + 1) for count in depths or [1]]
    pairs += [(rounds, count) for count in range(2, d + 1) if depths is None]
    return Curve(
        k=k,
        problems=len(on_it),
        smaller_pools=len(rows) - len(on_it),
        unknown_tokens={cost: len(on_it) - len(those) for cost, those in of_cost.items()},
        points=mark_pareto([*_votes(on_it, known, k), *_deliberations(on_it, known, pairs)]),
        matched={
            cost: _matched(those, k, rounds, cost)
            for cost, those in known.items()
            if rounds and any(row.tokens[cost] for row in those)
        },
    )


def mark_pareto(points: Sequence[Point]) -> list[Point]:
    """Return the points in the same order, with ``pareto`` set for each kind of cost.

    A point is on the Pareto front unless another point is at least as accurate and as cheap, and
    better in one of the two. ``pass`` needs the right answer, so it is never on the front and is
    ignored in the comparison.
    """
    answers = [point for point in points if point.way != "pass"]

    def stands(point: Point, cost: Cost) -> bool:
        right, tokens = point.accuracy.mean, point.tokens[cost].mean
        rivals = [(p.accuracy.mean, p.tokens[cost].mean) for p in answers if cost in p.tokens]
        return point.way != "pass" and not any(
            more >= right and fewer <= tokens and (more, fewer) != (right, tokens)
            for more, fewer in rivals
        )

    return [
        dataclasses.replace(point, pareto={cost: stands(point, cost) for cost in point.tokens})
        for point in points
    ]


def _votes(rows: Sequence[ProblemFigures], known: _Known, k: int) -> Iterator[Point]:
    """Yield the points of votes, and of passes, which cost as many tokens."""
    of_one = {
        cost: bootstrap_mean([_tokens_of_one(row, cost) for row in those])
        for cost, those in known.items()
    }
    values: dict[Way, list[tuple[float, ...]]] = {
        "vote": [row.votes for row in rows],
        "pass": [row.passes for row in rows],
    }
    for way, of_each in values.items():
        for count in range(1, k + 1):
            yield Point(
                way=way,
                k=count,
                rounds=0,
                accuracy=bootstrap_mean([of_row[count - 1] for of_row in of_each]),
                tokens={
                    cost: Interval(count * one.mean, count * one.low, count * one.high)
                    for cost, one in of_one.items()
                },
            )


def _deliberations(
    rows: Sequence[ProblemFigures], known: _Known, pairs: Iterable[tuple[int, int]]
) -> Iterator[Point]:
    """Yield the points of (round, number of deliberations that vote)."""
    for number, count in pairs:
        of_round = [row.round(number) for row in rows]
        values = [each.mean if count == 1 else each.vote_at(count) for each in of_round]
        yield Point(
            way="deliberation" if count == 1 else "heavy_vote",
            k=most_common(each.used for each in of_round),
            rounds=number,
            d=count,
            accuracy=bootstrap_mean(values),
            tokens={
                cost: bootstrap_mean([row.round(number).tokens_at(count, cost) for row in those])
                for cost, those in known.items()
            },
        )


def _matched(rows: Sequence[ProblemFigures], k: int, rounds: int, cost: Cost) -> MatchedVote:
    spent = fmean(row.round(rounds).tokens[cost] for row in rows)
    votes = round(spent / fmean(_tokens_of_one(row, cost) for row in rows), _DIGITS)
    low = math.floor(votes)
    more = votes - low
    matched = []
    for row in rows if 1 <= votes <= k else ():
        value = (1 - more) * row.votes[low - 1]
        matched.append(value + more * row.votes[low] if more else value)
    heavy = [row.round(rounds).mean for row in rows]
    return MatchedVote(
        problems=len(rows),
        tokens=spent,
        votes=votes,
        needs=math.ceil(votes),
        vote=bootstrap_mean(matched) if matched else None,
        heavy_minus_vote=bootstrap_difference(heavy, matched) if matched else None,
    )


def _tokens_of_one(row: ProblemFigures, cost: Cost) -> float:
    """Mean number of tokens of one trajectory."""
    return row.tokens[cost] / row.k

"""Values of one trace, each a share in [0, 1].

The pool is never filtered: a trajectory that failed, was cut off, has no answer or could not be
decided is there and is not right. A round in which a trace has no deliberations is worth 0.
Where the most frequent answer is tied, the value is the expected one under a random choice.

For every trace P >= M, P >= V and HP >= HM. The metrics are those of HeavySkill (arXiv
2605.02396, section 2.1), which names them M@K, P@K, V@K, HM@K and HP@K.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from heavydistill.heavy.voting import vote_value
from heavydistill.schema import Deliberation, Generation, Trace


def mean_at_k(trace: Trace) -> float:
    """Share of the pool that is right; 0 for an empty pool."""
    return _share_right(trace.pool)


def pass_at_k(trace: Trace) -> float:
    """1 if any trajectory of the pool is right, else 0."""
    return float(_right(trace.pool) > 0)


def chance_of_any(n: int, right: int, k: int) -> float:
    """Chance that one of k samples is right, which are drawn from n with so many right ones.

    The unbiased estimator of arXiv 2107.03374; k is from 1 to n.
    """
    return 1.0 - math.comb(n - right, k) / math.comb(n, k)


def vote_at_k(trace: Trace) -> float:
    """Chance that the most frequent answer of the pool is right; 0 if nothing was answered."""
    return vote_value(trace.pool)


def heavy_mean_at_d(trace: Trace, round: int) -> float:
    """Share of a round's deliberations that is right."""
    return _share_right(deliberations_of(trace, round))


def heavy_pass_at_d(trace: Trace, round: int) -> float:
    """1 if any deliberation of a round is right, else 0."""
    return float(_right(deliberations_of(trace, round)) > 0)


def vote_copy_rate(trace: Trace, round: int) -> float | None:
    """Share of a round's deliberations whose answer is the most frequent answer of the pool.

    Who votes is as in ``heavy.voting``. With m answers tied for most frequent, one of them is
    worth 1 / m. None if nobody votes or the round has no deliberation.
    """
    voters = [t for t in trace.pool if t.unusable_because is None]
    counts = Counter(t.extracted for t in voters if t.extracted is not None)
    deliberations = deliberations_of(trace, round)
    if not counts or not deliberations:
        return None
    most = max(counts.values())
    winners = {answer for answer, count in counts.items() if count == most}
    copies = sum(d.extracted in winners for d in deliberations)
    return copies / len(winners) / len(deliberations)


def agreement_by_place(trace: Trace, round: int) -> tuple[float, ...]:
    """For each place in a round's cache, the share of deliberations that give what stands there.

    Answers are compared as the vote does. An attempt without an answer agrees with nothing. Empty
    if the round has no deliberation, or if all attempts in its cache say the same, so that no place
    can be preferred.
    """
    answers = {one.id: one.extracted for one in (*trace.pool, *trace.deliberations)}
    items = [item for cache in trace.caches if cache.round == round for item in cache.items]
    standing = [answers.get(item.generation) for item in items]
    given = [deliberation.extracted for deliberation in deliberations_of(trace, round)]
    if not given or len(set(standing)) == 1:
        return ()
    return tuple(
        given.count(answer) / len(given) if answer is not None else 0.0 for answer in standing
    )


def deliberations_of(trace: Trace, round: int) -> list[Deliberation]:
    """The deliberations of one round, counted from 1."""
    return [d for d in trace.deliberations if d.round == round]


def _right(generations: Sequence[Generation]) -> int:
    return sum(generation.is_correct for generation in generations)


def _share_right(generations: Sequence[Generation]) -> float:
    return _right(generations) / len(generations) if generations else 0.0

"""Estimates the metrics of one problem from its samples; each value is in [0, 1].

The pool (all trajectories of a problem) is never filtered: trajectories that failed, were cut off,
have no answer or are undecided count as not right. If several answers are most frequent, the value
is the expectation for a random choice among them. The metrics are those of HeavySkill (arXiv
2605.02396, section 2.1).

P@k and V@k are expected values over all subsets of k samples. They are computed by counting subsets
and not by sampling them, so they are exact except for rounding. HP@d is P@k computed over the
deliberations of one cache.

V@k is computed as follows. In a subset in which an answer wins, t of its m trajectories are chosen,
s answers have t, and all others have fewer. If c of the m are right, the expected share of right
ones among the t is c / m. So the answer adds C(m, t) c / m / s = C(m - 1, t - 1) c / t / s times
the number of ways to choose the rest. These numbers are coefficients of a polynomial in the number
of trajectories and of tied answers; one product of the answers' factors for each t gives all k at
once, in about n^3 additions for a pool of n.

Not covered: subsets that are not chosen at random, such as the first k trajectories to finish.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from heavydistill.schema import Deliberation, Generation, Trace

# Up to this n, C(n, k) fits into a float; larger pools are counted with integers, which is slower.
_LARGEST_OF_FLOATS = 1_000


def deliberations_of(trace: Trace, round: int) -> list[Deliberation]:
    """The deliberations of a round; rounds count from 1."""
    return [d for d in trace.deliberations if d.round == round]


def share_right(samples: Sequence[Generation]) -> float:
    """Share of right samples: M@K of trajectories, HM@D of deliberations; 0 if there are none."""
    return sum(sample.is_correct for sample in samples) / len(samples) if samples else 0.0


def vote_copy_rate(trace: Trace, round: int) -> float | None:
    """Share of a round's deliberations that repeat the most frequent answer of the trajectories.

    Trajectories vote as in ``heavy.voting``. If m answers are tied, repeating one of them counts 1
    / m. None if no trajectory votes or the round has no deliberation.
    """
    counts = Counter(
        sample.extracted
        for sample in trace.pool
        if sample.unusable_because is None and sample.extracted is not None
    )
    deliberations = deliberations_of(trace, round)
    if not counts or not deliberations:
        return None
    most = max(counts.values())
    winners = {answer for answer, count in counts.items() if count == most}
    copies = sum(d.extracted in winners for d in deliberations)
    return copies / len(winners) / len(deliberations)


def agreement_by_place(trace: Trace, round: int) -> tuple[float, ...]:
    """For each attempt in a round's cache, the share of deliberations that repeat its answer.

    Answers are compared as in the vote. An attempt without an answer agrees with no deliberation.
    The result is empty if the round has no deliberation, or if all attempts in its cache have the
    same answer, so that no position can be preferred.
    """
    answers = {sample.id: sample.extracted for sample in (*trace.pool, *trace.deliberations)}
    items = [item for cache in trace.caches if cache.round == round for item in cache.items]
    standing = [answers.get(item.generation) for item in items]
    given = [deliberation.extracted for deliberation in deliberations_of(trace, round)]
    if not given or len(set(standing)) == 1:
        return ()
    return tuple(
        given.count(answer) / len(given) if answer is not None else 0.0 for answer in standing
    )


def passes_at(pool: Sequence[Generation]) -> tuple[float, ...]:
    """P@k for k = 1 to the size of the pool, by the unbiased estimator of arXiv 2107.03374.

    Position k - 1 is the probability that one of k samples, drawn without replacement, is right.
    The values never decrease. The result is empty for an empty pool.
    """
    n, right = len(pool), sum(sample.is_correct for sample in pool)
    return tuple(1.0 - math.comb(n - right, k) / math.comb(n, k) for k in range(1, n + 1))


def votes_at(pool: Sequence[Generation]) -> tuple[float, ...]:
    """V@k for k = 1 to the size of the pool.

    Position k - 1 is the expected value of the vote of k samples, drawn without replacement; a
    subset without votes has the value 0. The result is empty for an empty pool.
    """
    sizes: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for sample in pool:
        if sample.unusable_because is None and sample.extracted is not None:
            sizes[sample.extracted] += 1
            right[sample.extracted] += sample.is_correct
    answers = tuple(sorted((sizes[answer], right[answer]) for answer in sizes))
    return _votes_of(answers, len(pool))


@functools.lru_cache(maxsize=65_536)
def _votes_of(answers: tuple[tuple[int, int], ...], n: int) -> tuple[float, ...]:
    """V@k for k = 1 to n. ``answers`` has, for each answer, (trajectories, right trajectories).

    Cached, because many problems have the same counts.
    """
    values = [0.0] * n
    subsets = [math.comb(n, k) for k in range(n + 1)]
    for t in range(1, max((size for size, _ in answers), default=0) + 1):
        weights = _weights(answers, n, t)
        for k in range(1, n + 1):
            values[k - 1] += sum(
                float(weight / (subsets[k] * t * tied))
                for tied, weight in enumerate(weights[k][1:], 1)
                if weight
            )
    return tuple(values)


def _weights(answers: Sequence[tuple[int, int]], n: int, t: int) -> npt.NDArray[Any]:
    """Weights of the subsets in which no answer has more than t trajectories.

    The array is indexed by the size of the subset and the number of answers with t trajectories.
    Such an answer contributes C(m - 1, t - 1) c (see the module's docstring) instead of C(m, t).
    """
    winners = [(size, right) for size, right in answers if size >= t]
    kind = float if n <= _LARGEST_OF_FLOATS else object
    ways = np.zeros((n + 1, len(winners) + 1), dtype=kind)
    weights = np.zeros_like(ways)
    # Answers with fewer than t trajectories, and trajectories without an answer, are chosen freely.
    rest = n - sum(size for size, _ in winners)
    ways[: rest + 1, 0] = [math.comb(rest, j) for j in range(rest + 1)]
    for size, right in winners:
        old_ways, old_weights = ways, weights
        ways, weights = np.zeros_like(ways), np.zeros_like(weights)
        for j in range(t if len(winners) > 1 else 0):  # a lone answer must have t
            chosen = math.comb(size, j)
            ways[j:] += chosen * old_ways[: n + 1 - j]
            weights[j:] += chosen * old_weights[: n + 1 - j]
        chosen, share = math.comb(size, t), math.comb(size - 1, t - 1) * right
        ways[t:, 1:] += chosen * old_ways[: n + 1 - t, :-1]
        weights[t:, 1:] += chosen * old_weights[: n + 1 - t, :-1]
        weights[t:, 1:] += share * old_ways[: n + 1 - t, :-1]
    return weights

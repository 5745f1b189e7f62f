"""Values of every k from 1 to the size of one pool: what fewer trajectories would have been worth.

Each is the expected value over all subsets of k trajectories, each as likely as any other. It is
computed by counting them, not by drawing some, so it is exact but for rounding. M@k needs no
function: it is the same for every k. P@k is ``estimators.chance_of_any``, and V@k counts as
follows. Who votes and what a tie is worth is as in ``heavy.voting``. Deliberations of one cache are
a pool of their own, so HP@d is P@k of them.

A subset in which an answer wins holds t of its m trajectories, s answers have t, and all others
have fewer. Of its t, the expected share that is right is c / m, if c of the m are, so the answer
adds C(m, t) c / m / s = C(m - 1, t - 1) c / t / s times the ways to choose the rest. The ways are
coefficients of a polynomial in the number of trajectories and of tied answers; one product of the
answers' factors for each t gives all k at once, in about n^3 additions for a pool of n.

Not covered: subsets that are not chosen at random, such as the first k that came back.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from heavydistill.metrics.estimators import chance_of_any
from heavydistill.schema import Generation

# C(n, k) is a float up to here; larger pools are counted in whole numbers, which is slower.
_LARGEST_OF_FLOATS = 1_000


def passes_at(pool: Sequence[Generation]) -> tuple[float, ...]:
    """P@k for k = 1 to the size of the pool."""
    n, right = len(pool), sum(one.is_correct for one in pool)
    return tuple(chance_of_any(n, right, k) for k in range(1, n + 1))


def votes_at(pool: Sequence[Generation]) -> tuple[float, ...]:
    """V@k for k = 1 to the size of the pool."""
    sizes: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for one in pool:
        if one.unusable_because is None and one.extracted is not None:
            sizes[one.extracted] += 1
            right[one.extracted] += one.is_correct
    answers = tuple(sorted((sizes[answer], right[answer]) for answer in sizes))
    return _votes_of(answers, len(pool))


@functools.lru_cache(maxsize=65_536)
def _votes_of(answers: tuple[tuple[int, int], ...], n: int) -> tuple[float, ...]:
    """Of a pool of n, by (trajectories, right ones) of each answer; many problems share those."""
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
    """Over the subsets in which no answer has more than t trajectories, the sum of what is right.

    By their size, and by how many answers have t. Each of these adds C(m - 1, t - 1) c, as the
    module says, in place of the C(m, t) ways to choose its t.
    """
    winners = [(size, right) for size, right in answers if size >= t]
    kind = float if n <= _LARGEST_OF_FLOATS else object
    ways = np.zeros((n + 1, len(winners) + 1), dtype=kind)
    weights = np.zeros_like(ways)
    # Answers that cannot reach t, and trajectories without one, are taken or not as it comes.
    rest = n - sum(size for size, _ in winners)
    ways[: rest + 1, 0] = [math.comb(rest, j) for j in range(rest + 1)]
    for size, right in winners:
        old_ways, old_weights = ways, weights
        ways, weights = np.zeros_like(ways), np.zeros_like(weights)
        for j in range(t if len(winners) > 1 else 0):  # one alone must win to count
            chosen = math.comb(size, j)
            ways[j:] += chosen * old_ways[: n + 1 - j]
            weights[j:] += chosen * old_weights[: n + 1 - j]
        chosen, share = math.comb(size, t), math.comb(size - 1, t - 1) * right
        ways[t:, 1:] += chosen * old_ways[: n + 1 - t, :-1]
        weights[t:, 1:] += chosen * old_weights[: n + 1 - t, :-1]
        weights[t:, 1:] += share * old_ways[: n + 1 - t, :-1]
    return weights

"""Bootstrap intervals over problems.

The problem is the unit that is resampled: samples of one problem are not independent. 10,000
resamples, the 95 % percentile interval, and the same seed gives the same interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 10_000
_PERCENTILES = (2.5, 97.5)


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over problems with its 95 % interval, all in the unit of the values."""

    mean: float
    low: float
    high: float


def bootstrap_mean(values: Sequence[float], seed: int = 0) -> Interval:
    """The mean of one value a problem.

    Raises:
        ValueError: There are no values.
    """
    if not len(values):
        raise ValueError("There are no values to take the mean of")
    # How often each distinct value is drawn in a resample is multinomial, so a resample costs
    # the number of distinct values (a few for K samples a problem), not of problems.
    distinct, counts = np.unique(np.asarray(values, dtype=float), return_counts=True)
    n = int(counts.sum())
    drawn = np.random.default_rng(seed).multinomial(n, counts / n, size=RESAMPLES)
    low, high = np.percentile(drawn @ distinct / n, _PERCENTILES)
    return Interval(float(counts @ distinct / n), float(low), float(high))


def bootstrap_difference(a: Sequence[float], b: Sequence[float], seed: int = 0) -> Interval:
    """The mean of ``a - b``, paired: position i of both is the same problem.

    Raises:
        ValueError: There are no values, or the lengths differ.
    """
    if len(a) != len(b):
        raise ValueError(f"Paired values need equal lengths, got {len(a)} and {len(b)}")
    return bootstrap_mean([x - y for x, y in zip(a, b, strict=True)], seed)

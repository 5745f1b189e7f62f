"""Confidence intervals over problems (bootstrap, Wilson), and McNemar's test of pairs.

The bootstrap resamples problems, because samples of one problem are not independent. It uses 10,000
resamples and 95 % percentiles; the same seed gives the same interval. For values of 0 or 1,
Wilson's interval is better: if a few problems all have the same value, every resample is equal, and
the bootstrap interval would have no width.

scipy has both Wilson's interval and the binomial test, but rounds differently in the last bits, so
that files of earlier versions would not be reproduced.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

RESAMPLES = 10_000
FEW_PROBLEMS = 30
"""Number of problems below which bootstrap percentile intervals are clearly too narrow."""
FEW_WARNING = f"Intervals over fewer than {FEW_PROBLEMS} problems are too narrow to rely on."
_PERCENTILES = (2.5, 97.5)
_ONE_SIDED = 95
_Z = NormalDist().inv_cdf(_PERCENTILES[1] / 100)
# Drawing the count of one value takes about as long as drawing this many problems.
_PROBLEMS_A_VALUE = 8
_FEW_VALUES = 100
_DRAWN_AT_ONCE = 2**20


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over problems with its 95 % interval, in the unit of the values."""

    mean: float
    low: float
    high: float


def bootstrap_mean(values: Sequence[float], seed: int = 0) -> Interval:
    """Mean of one value per problem, with its 95 % bootstrap percentile interval.

    The order of the values does not matter. If all are equal, the interval has no width. Raises
    ValueError if there are no values.
    """
    import numpy as np  # here, because ``--help`` also imports this module

    if not len(values):
        raise ValueError("There are no values to take the mean of")
    distinct, counts = np.unique(np.asarray(values, dtype=float), return_counts=True)
    if len(distinct) == 1:
        return Interval(*3 * [float(distinct[0])])
    means = _resampled(distinct, counts, np.random.default_rng(seed))
    low, high = np.percentile(means, _PERCENTILES)
    # Summed exactly: the last digit of a product of matrices depends on the processor.
    mean = math.fsum(counts * distinct) / len(values)
    return Interval(mean, float(low), float(high))


def upper_bound(values: Sequence[float], worst: float, seed: int = 0) -> float:
    """One-sided 95 % upper bound of a mean, by bootstrap of the values and one more, ``worst``.

    Without that one, the bound of a loss that was not seen would be 0. With it, it is about 3 / n
    of ``worst`` for n problems, as in the rule of three. The order of the values does not matter.
    """
    import numpy as np

    distinct, counts = np.unique(np.asarray([*values, worst], dtype=float), return_counts=True)
    means = _resampled(distinct, counts, np.random.default_rng(seed))
    return float(np.percentile(means, _ONE_SIDED))


def bootstrap_statistic(
    rows: Sequence[Sequence[float]],
    statistic: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]],
    seed: int = 0,
) -> Interval | None:
    """A statistic of the column means of one row per problem, with its 95 % bootstrap interval.

    Args:
        rows: The same columns for each problem; the order of the rows does not matter.
        statistic: Maps an array, whose last axis has the columns, to an array without this axis.
            Values that are not defined are nan; resamples with such a value are left out.
        seed: Seed of the resamples.

    Returns:
        None if the statistic of the rows themselves is not defined.
    """
    import numpy as np

    if not rows:
        return None
    distinct, counts = np.unique(np.asarray(rows, dtype=float), axis=0, return_counts=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = float(statistic(counts @ distinct / counts.sum()))
        if math.isnan(value):
            return None
        values = statistic(_resampled(distinct, counts, np.random.default_rng(seed)))
    return Interval(value, *map(float, np.nanpercentile(values, _PERCENTILES)))


def wilson(count: int, of: int) -> Interval:
    """Share ``count / of`` of problems, with Wilson's score interval.

    There is no continuity correction: Wilson, JASA 22 (1927), 209-212. Raises ValueError if ``of``
    is below 1, or ``count`` is not between 0 and ``of``.
    """
    if not 0 <= count <= of or not of:
        raise ValueError(f"{count} of {of} is not a share")
    share, spread = count / of, _Z**2 / of
    middle = (share + spread / 2) / (1 + spread)
    reach = math.sqrt(spread * (share * (1 - share) + spread / 4)) / (1 + spread)
    # The bounds for 0 of n and n of n are exactly 0 and 1, but rounding may change them.
    return Interval(
        share, max(0.0, min(share, middle - reach)), min(1.0, max(share, middle + reach))
    )


def _resampled(
    distinct: npt.NDArray[np.float64], counts: npt.NDArray[np.int64], rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """The means of all resamples, of values or of rows; drawn in blocks that fit into memory."""
    import numpy as np

    n = int(counts.sum())
    few = len(distinct) <= max(_FEW_VALUES, n // _PROBLEMS_A_VALUE)
    values = distinct if few else np.repeat(distinct, counts, axis=0)
    size = max(1, _DRAWN_AT_ONCE // values.size)
    means = []
    for start in range(0, RESAMPLES, size):
        block = min(size, RESAMPLES - start)
        if few:
            # The counts of the distinct values in a resample are multinomial. Drawing these counts
            # takes time proportional to the number of distinct values, which is small for K samples
            # per problem.
            means.append(rng.multinomial(n, counts / n, size=block) @ values / n)
        else:
            means.append(values[rng.integers(0, n, size=(block, n))].mean(axis=1))
    return np.concatenate(means)


def bootstrap_difference(a: Sequence[float], b: Sequence[float]) -> Interval:
    """Mean of ``a - b``, paired: index i in both is the same problem.

    Raises ValueError if there are no values, or the lengths differ.
    """
    return bootstrap_mean([x - y for x, y in zip(a, b, strict=True)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Numbers of problems that both, one or neither of two runs solve, and McNemar's exact p-value.

    Only problems that exactly one run solves distinguish the runs. If the runs are equally good,
    each run solves such a problem with probability 1/2. The p-value is that of the exact two-sided
    binomial test.
    """

    both: int
    only_before: int
    only_after: int
    neither: int
    p_value: float  # probability of at least this difference for equally good runs

    @property
    def problems(self) -> int:
        """Number of problems that were compared."""
        return self.both + self.only_before + self.only_after + self.neither


def paired(before: Sequence[bool], after: Sequence[bool]) -> Pairs:
    """Count pairs; index i in both is the same problem.

    The p-value is computed in whole numbers, so it is exact for any number of problems; it is 1.0
    if no problem distinguishes the runs. Raises ValueError if the lengths differ.
    """
    pairs = list(zip(before, after, strict=True))
    only_before, only_after = pairs.count((True, False)), pairs.count((False, True))
    tosses, ways, at_most = only_before + only_after, 1, 1  # tosses of a fair coin
    for heads in range(min(only_before, only_after)):
        ways = ways * (tosses - heads) // (heads + 1)
        at_most += ways
    return Pairs(
        both=pairs.count((True, True)),
        only_before=only_before,
        only_after=only_after,
        neither=pairs.count((False, False)),
        p_value=float(min(Fraction(1), Fraction(2 * at_most, 2**tosses))),
    )

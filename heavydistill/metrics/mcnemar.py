"""One answer a problem before and after: where the two differ, and whether by chance (McNemar).

Only problems on which exactly one of the two is right say which is better. If neither is, each
of those is as likely to be the one's as the other's, so the p-value is that of a fair coin: the
exact binomial test, two-sided, without the approximation by chi-square (McNemar 1947).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Problems by who is right.

    Attributes:
        both: Right before and after.
        only_before: Right before, wrong after.
        only_after: Wrong before, right after.
        neither: Wrong before and after.
        p_value: Chance that the middle two differ at least as much, were both equally good.
    """

    both: int
    only_before: int
    only_after: int
    neither: int
    p_value: float

    @property
    def problems(self) -> int:
        """All of them."""
        return self.both + self.only_before + self.only_after + self.neither


def paired(before: Sequence[bool], after: Sequence[bool]) -> Pairs:
    """Count them; position i of both is the same problem.

    Raises:
        ValueError: The lengths differ.
    """
    pairs = list(zip(before, after, strict=True))
    only_before, only_after = pairs.count((True, False)), pairs.count((False, True))
    return Pairs(
        both=pairs.count((True, True)),
        only_before=only_before,
        only_after=only_after,
        neither=pairs.count((False, False)),
        p_value=_two_sided(only_before, only_after),
    )


def _two_sided(a: int, b: int) -> float:
    """Of a heads and b tails: both tails of the binomial distribution up to the fewer of them."""
    tosses, ways, at_most = a + b, 1, 1
    for heads in range(min(a, b)):
        ways = ways * (tosses - heads) // (heads + 1)
        at_most += ways
    return float(min(Fraction(1), Fraction(2 * at_most, 2**tosses)))

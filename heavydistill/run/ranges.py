"""A number of which the least and the most are known."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Range:
    """From the least to the most; ``high`` is infinite where nothing is known."""

    low: float
    high: float

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def within(self, bounds: Range) -> Range:
        """The part of it inside of ``bounds``, or the end of those that is nearest."""
        low = min(max(self.low, bounds.low), bounds.high)
        return Range(low, max(min(self.high, bounds.high), bounds.low))

    def times(self, low: float, high: float, per: float = 1) -> Range:
        """So much of each of it, per so much."""
        return Range(self.low * low / per, self.high * high / per)

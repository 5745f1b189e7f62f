"""McNemar's counts, and its exact p-value against all ways that coins can fall."""

from __future__ import annotations

import itertools

import pytest

from heavydistill.metrics.intervals import paired


def by_enumeration(a: int, b: int) -> float:
    """Share of the ways in which a + b coins fall at least as far from even as a and b do."""
    falls = itertools.product((0, 1), repeat=a + b)
    far = [abs(2 * sum(fall) - (a + b)) >= abs(a - b) for fall in falls]
    return sum(far) / len(far)


@pytest.mark.parametrize(("a", "b"), [(0, 0), (1, 0), (0, 5), (2, 2), (3, 4), (1, 9), (8, 2)])
def test_the_p_value_is_that_of_fair_coins(a: int, b: int) -> None:
    before, after = [True] * a + [False] * b, [False] * a + [True] * b
    assert paired(before, after).p_value == pytest.approx(by_enumeration(a, b))
    assert paired(after, before).p_value == paired(before, after).p_value


def test_problems_are_counted_by_who_is_right() -> None:
    told = paired([True, True, True, False, False], [True, True, False, True, False])
    assert (told.both, told.only_before, told.only_after, told.neither) == (2, 1, 1, 1)
    assert told.p_value == 1.0


def test_many_problems_are_no_burden() -> None:
    told = paired([True] * 5_000 + [False] * 5_400, [False] * 5_000 + [True] * 5_400)
    assert told.p_value == pytest.approx(9.1e-5, rel=0.05)


def test_unpaired_problems_are_refused() -> None:
    with pytest.raises(ValueError):
        paired([True], [])

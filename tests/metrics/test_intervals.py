"""Intervals against resampling and the literature; McNemar's p-value against coins."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heavydistill.metrics import intervals
from heavydistill.metrics.intervals import (
    RESAMPLES,
    Interval,
    bootstrap_difference,
    bootstrap_mean,
    bootstrap_statistic,
    paired,
    upper_bound,
    wilson,
)


def test_the_same_values_and_seed_give_the_same_interval():
    assert bootstrap_mean([0.25] * 40) == Interval(0.25, 0.25, 0.25)
    values = list(np.random.default_rng(1).random(50))
    assert bootstrap_mean(values, seed=3) == bootstrap_mean(values, seed=3)
    assert bootstrap_mean(values, seed=3) != bootstrap_mean(values, seed=4)


def test_agrees_with_resampling_problem_by_problem():
    values = np.random.default_rng(2).integers(0, 5, 80) / 4
    drawn = np.random.default_rng(5).integers(0, 80, (RESAMPLES, 80))
    low, high = np.percentile(values[drawn].mean(axis=1), [2.5, 97.5])
    interval = bootstrap_mean(list(values))
    assert interval.mean == pytest.approx(values.mean())
    assert interval.low == pytest.approx(low, abs=0.01)
    assert interval.high == pytest.approx(high, abs=0.01)


@settings(deadline=None)
@given(st.integers(1, 10_000).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of))))
def test_a_share_lies_in_its_interval_which_narrows_with_more_problems(counts):
    count, of = counts
    told, more = wilson(count, of), wilson(4 * count, 4 * of)
    assert 0 <= told.low <= told.mean == count / of <= told.high <= 1
    assert told.low < told.high
    assert more.high - more.low < told.high - told.low
    other = wilson(of - count, of)
    assert (1 - other.high, 1 - other.low) == pytest.approx((told.low, told.high))


def test_shares_of_problems_are_those_of_the_literature():
    """Table I of Newcombe, Statist. Med. 17 (1998), method 3."""
    for count, of, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        told = wilson(count, of)
        assert (round(told.low, 4), round(told.high, 4)) == (low, high)
    assert wilson(9, 9).high == 1.0
    for count, of in ((0, 0), (3, 2), (-1, 2)):
        with pytest.raises(ValueError, match="not a share"):
            wilson(count, of)


def test_a_statistic_of_means_agrees_with_resampling_problem_by_problem():
    rng = np.random.default_rng(3)
    for of in (3, 10_000):  # few distinct rows, which are counted, and many
        rows = np.stack([rng.integers(0, of, 90), rng.integers(0, of, 90)], axis=1)
        drawn = rows[rng.integers(0, 90, (RESAMPLES, 90))].mean(axis=1)
        low, high = np.percentile(drawn[:, 0] / drawn[:, 1], [2.5, 97.5])
        told = bootstrap_statistic(rows.tolist(), lambda means: means[..., 0] / means[..., 1])
        assert told is not None and told.mean == pytest.approx(rows[:, 0].sum() / rows[:, 1].sum())
        assert (told.low, told.high) == pytest.approx((low, high), rel=0.02)


def test_a_statistic_may_be_undefined_for_some_resamples_but_not_for_the_rows():
    ratio = [(1, 1), (0, 1), (0, 0), (0, 0)]
    told = bootstrap_statistic(ratio, lambda means: means[..., 0] / means[..., 1])
    assert told == Interval(0.5, 0.0, 1.0)
    for rows in ([], [(0, 0)] * 3):
        assert bootstrap_statistic(rows, lambda means: means[..., 0] / means[..., 1]) is None


def test_difference_is_paired():
    # The two differ by 0.1 on every problem, so pairing leaves no doubt about the difference.
    a = list(np.linspace(0.1, 0.9, 30))
    b = [value - 0.1 for value in a]
    for interval, sign in ((bootstrap_difference(a, b), 1), (bootstrap_difference(b, a), -1)):
        assert (interval.low, interval.high) == pytest.approx((sign * 0.1, sign * 0.1))


def test_refuses_nothing_and_unpaired_values():
    with pytest.raises(ValueError, match="no values"):
        bootstrap_mean([])
    with pytest.raises(ValueError, match="is longer"):
        bootstrap_difference([1.0], [1.0, 0.0])


def test_blocks_change_nothing(monkeypatch):
    """What fits into memory decides how many resamples are drawn at once, and nothing else."""
    rng = np.random.default_rng(4)
    few, many = list(rng.integers(0, 5, 60) / 4), list(rng.random(150))
    whole = [bootstrap_mean(values) for values in (few, many)]
    monkeypatch.setattr(intervals, "_DRAWN_AT_ONCE", 1_000)
    assert [bootstrap_mean(values) for values in (few, many)] == whole


def test_drawing_problems_agrees_with_drawing_counts(monkeypatch):
    values = list(np.random.default_rng(6).random(200))
    drawn = bootstrap_mean(values)
    assert drawn == bootstrap_mean(values[::-1]), "their order does not matter"
    monkeypatch.setattr(intervals, "_FEW_VALUES", 1_000)
    counted = bootstrap_mean(values)
    assert drawn != counted and drawn.mean == counted.mean
    assert drawn.low == pytest.approx(counted.low, abs=0.003)
    assert drawn.high == pytest.approx(counted.high, abs=0.003)


def by_enumeration(a: int, b: int) -> float:
    """Share of the ways in which a + b coins fall at least as far from even as a and b do."""
    falls = itertools.product((0, 1), repeat=a + b)
    far = [abs(2 * sum(fall) - (a + b)) >= abs(a - b) for fall in falls]
    return sum(far) / len(far)


@pytest.mark.parametrize(("a", "b"), [(0, 0), (1, 0), (0, 5), (2, 2), (3, 4), (1, 9), (8, 2)])
def test_the_p_value_is_that_of_fair_coins(a, b):
    before, after = [True] * a + [False] * b, [False] * a + [True] * b
    assert paired(before, after).p_value == pytest.approx(by_enumeration(a, b))
    assert paired(after, before).p_value == paired(before, after).p_value


def test_problems_are_counted_by_who_is_right():
    told = paired([True, True, True, False, False], [True, True, False, True, False])
    assert dataclasses.astuple(told) == (2, 1, 1, 1, 1.0)
    with pytest.raises(ValueError):
        paired([True], [])


def test_a_loss_that_nobody_saw_may_still_be_three_of_so_many():
    assert upper_bound([0.0] * 1499, worst=1.0) == pytest.approx(3 / 1500)
    assert upper_bound([-0.5] * 100, worst=1.0) > -0.5


@pytest.mark.parametrize("share", [0.002, 0.01, 0.3])
def test_the_bound_is_below_the_true_loss_in_at_most_one_case_of_twenty(share):
    """Rare losses are where the bootstrap alone is below it most often."""
    rng = np.random.default_rng(7)
    counts = rng.binomial(500, share, size=2000)
    bounds = {n: upper_bound([1.0] * n + [0.0] * (500 - n), worst=1.0) for n in {*counts.tolist()}}
    assert np.mean([bounds[count] < share for count in counts.tolist()]) <= 0.06

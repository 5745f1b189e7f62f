"""Figures of caches of several widths: rounds, depth, dollars and seconds."""

import dataclasses
import math

import pytest
from generations import altered

from heavydistill.metrics.experiments.widths import CacheKind, compare_widths

WIDE, NARROW = CacheKind(4, "random"), CacheKind(2, "random")


def usd(sample):
    return 1.0 if sample.id.startswith("t_") else 10.0


def test_rounds_and_depths_are_those_of_the_recorded_deliberations(make_trace, with_cache):
    trace = make_trace(["7", "8", "8", "9"], ["7", "8", "8", "8"], ["7", "7", "8", "7"])
    shown = ["t_0", "t_1", "t_2", "t_3"]
    wide = with_cache(with_cache(trace, shown), [*shown, "d1_0"], round=2)
    wide = altered(wide, "pool", latency_s=2.0)
    wide = altered(wide, "deliberations", latency_s=3.0)
    narrow = with_cache(with_cache(trace, shown[:2]), [*shown[:2], "d1_0"], round=2)
    unknown = dataclasses.replace(narrow, pool=altered(narrow, "pool", latency_s=-1.0).pool)
    report = compare_widths({WIDE: [wide], NARROW: [unknown]}, [1, 3], usd)
    first, second = report.caches
    assert [(each.point.rounds, each.point.d) for each in first.depths] == [
        *((1, 1), (1, 3), (2, 1), (2, 3))
    ]
    # HM and HP of both rounds; the vote of three of them.
    assert [each.point.accuracy.mean for each in first.depths] == [0.25, 0.0, 0.75, 1.0]
    assert [each.heavy_pass.mean for each in first.depths] == [0.25, 0.75, 0.75, 1.0]
    # The second round has read all four of the first.
    assert [each.usd for each in first.depths] == [4 + 10, 4 + 30, 4 + 40 + 10, 4 + 40 + 30]
    assert [each.seconds for each in first.depths] == [5.0, 5.0, 8.0, 8.0]
    assert [each.usd for each in second.depths] == [2 + 10, 2 + 30, 2 + 40 + 10, 2 + 40 + 30]
    assert {each.seconds for each in second.depths} == {None}
    assert first.shown.distinct_answers.mean == 0.75 and second.shown.distinct_answers.mean == 1.0
    assert first.shown.distinct_steps is None


def test_a_problem_that_another_cache_lacks_counts_as_not_answered(make_trace, with_cache):
    one = with_cache(make_trace(["7", "8"], ["7"]), ["t_0", "t_1"])
    other = altered(one, asked={"id": "q"})
    report = compare_widths({WIDE: [one, other], NARROW: [one]}, [1], lambda sample: math.nan)
    first, second = report.caches
    assert (first.depths[0].point.accuracy.mean, second.depths[0].point.accuracy.mean) == (1.0, 0.5)
    assert second.minus_widest.mean == pytest.approx(-0.5) and first.depths[0].usd is None

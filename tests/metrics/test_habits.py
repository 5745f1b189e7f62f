"""Rates with intervals, and whether the first attempt in a cache is believed for its place."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from heavydistill.metrics.estimators import agreement_by_place
from heavydistill.metrics.intervals import bootstrap_mean, wilson
from heavydistill.metrics.row import Row
from heavydistill.metrics.summary import places_of, rates, summarize, vote_copy_rate
from heavydistill.schema import Trace

MakeTrace = Callable[..., Trace]


def test_a_share_has_the_interval_of_the_problems_for_which_it_could_hold(
    make_trace: MakeTrace,
) -> None:
    outcomes = ["kept"] * 6 + ["overturned"] * 2 + ["lost", "rescued"]
    rows = [Row.of(make_trace(["7"], ["7"], outcome=outcome)) for outcome in outcomes]
    regress = rates(rows)["regress"]
    assert (regress.count, regress.of, regress.share) == (2, 8, 0.25)
    assert regress.interval == wilson(2, 8)
    emergent = rates(rows)["emergent"]
    assert (emergent.of, emergent.share, emergent.interval) == (0, None, None)


def test_the_vote_copy_rate_is_a_mean_over_problems_with_something_to_copy(
    make_trace: MakeTrace,
) -> None:
    traces = [make_trace(["8", "8"], ["8", "7"]), make_trace(["7"], ["7"]), make_trace([None])]
    rounds = [Row.of(trace).round(1) for trace in traces]
    assert vote_copy_rate(rounds) == bootstrap_mean([0.5, 1.0])
    assert vote_copy_rate(rounds[2:]) is None


def test_places_agree_by_answer(make_trace: MakeTrace, with_cache: MakeTrace) -> None:
    trace = make_trace(["7", "8", None, "7"], ["7", "8", "8", None])
    trace = with_cache(trace, ["t_1", "t_0", "t_2", "t_3"])
    assert agreement_by_place(trace, 1) == (0.5, 0.25, 0.0, 0.25)
    agreed = with_cache(make_trace(["7", "7"], ["7"]), ["t_1", "t_0"])
    assert agreement_by_place(agreed, 1) == ()  # no place can be preferred
    assert agreement_by_place(with_cache(make_trace(["7", "8"]), ["t_0", "t_1"]), 1) == ()


def test_a_later_round_reads_deliberations_too(
    make_trace: MakeTrace, with_cache: MakeTrace
) -> None:
    trace = make_trace(["7", "8"], ["9"], ["9", "7"])
    trace = with_cache(with_cache(trace, ["t_0", "t_1"]), ["d1_0", "t_0", "t_1"], round=2)
    assert agreement_by_place(trace, 2) == (0.5, 0.5, 0.0)


def test_places_are_paired_with_the_mean_of_their_cache(
    make_trace: MakeTrace, with_cache: MakeTrace
) -> None:
    traces = [
        with_cache(make_trace(["7", "8"], ["7"]), ["t_0", "t_1"]),
        with_cache(make_trace(["7", "8", "9"], ["9"]), ["t_0", "t_1", "t_2"]),
    ]
    first, second, third = summarize(traces).places
    assert [place.problems for place in (first, second, third)] == [2, 2, 1]
    assert first.agrees.mean == 0.5
    assert first.over_expected.mean == pytest.approx((1 - 1 / 2 + 0 - 1 / 3) / 2)
    assert third.over_expected.mean == pytest.approx(1 - 1 / 3)


@pytest.mark.parametrize("believes_the_first", [False, True])
def test_bias_is_shown_where_there_is_one_and_nowhere_else(
    make_trace: MakeTrace, with_cache: MakeTrace, believes_the_first: bool
) -> None:
    rng = random.Random(0)
    rounds = []
    for _ in range(300):
        answers = [rng.choice("789") for _ in range(4)]
        order = rng.sample(range(4), 4)
        given = answers[order[0]] if believes_the_first and rng.random() < 0.3 else None
        trace = make_trace(answers, [given or rng.choice(answers)])
        trace = with_cache(trace, [f"t_{index}" for index in order])
        rounds.append(Row.of(trace).round(1))
    first = places_of(rounds)[0].over_expected
    assert (first.low > 0) == believes_the_first
    assert believes_the_first or first.low < 0 < first.high

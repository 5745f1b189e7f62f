from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavydistill.metrics.estimators import (
    heavy_mean_at_d,
    heavy_pass_at_d,
    mean_at_k,
    pass_at_k,
    vote_at_k,
    vote_copy_rate,
)
from heavydistill.schema import Trace

MakeTrace = Callable[..., Trace]
ANSWERS = st.lists(st.sampled_from(["7", "8", "9", "?", None]), max_size=9)


@pytest.mark.parametrize(
    ("pool", "mean", "any_right", "vote"),
    [
        (["7", "7", "8", None], 0.5, 1.0, 1.0),
        (["7", "8", "8", "8"], 0.25, 1.0, 0.0),
        (["7", "7", "8", "8"], 0.5, 1.0, 0.5),
        (["7", "8", "9"], 1 / 3, 1.0, 1 / 3),
        (["7", None, None, None], 0.25, 1.0, 1.0),
        (["8", "9", None], 0.0, 0.0, 0.0),
        ([None, None], 0.0, 0.0, 0.0),
        ([], 0.0, 0.0, 0.0),
    ],
)
def test_golden_values_of_small_pools(
    make_trace: MakeTrace, pool: list[str | None], mean: float, any_right: float, vote: float
) -> None:
    trace = make_trace(pool)
    assert mean_at_k(trace) == pytest.approx(mean)
    assert pass_at_k(trace) == any_right
    assert vote_at_k(trace) == pytest.approx(vote)


def test_undecided_failed_and_unjudged_trajectories_are_not_right(make_trace: MakeTrace) -> None:
    """Defect 9 of the reference implementation: it measures what its filters left of the pool."""
    trace = make_trace(["7", "?", "7", "7"])
    failed = dataclasses.replace(
        trace.pool[2], finish_reason="error", error="time-out", verdict=None
    )
    unjudged = dataclasses.replace(trace.pool[3], verdict=None)
    trace = dataclasses.replace(trace, pool=[*trace.pool[:2], failed, unjudged])
    assert mean_at_k(trace) == 0.25


def test_deliberations_count_in_their_own_round_only(make_trace: MakeTrace) -> None:
    trace = make_trace(["8"], ["7", "8", "8", None], ["7", "7"])
    assert heavy_mean_at_d(trace, 1) == 0.25
    assert heavy_mean_at_d(trace, 2) == 1.0
    assert heavy_pass_at_d(trace, 1) == 1.0


def test_a_round_without_deliberations_is_worth_nothing(make_trace: MakeTrace) -> None:
    trace = make_trace(["7", "7"], ["7"])
    assert heavy_mean_at_d(trace, 2) == heavy_pass_at_d(trace, 2) == 0.0


@pytest.mark.parametrize(
    ("pool", "deliberations", "rate"),
    [
        (["8", "8", "7"], ["8", "8", "7", None], 0.5),
        (["8", "7"], ["8", "7", "9", "9"], 0.25),
        (["8", None, None], ["8"], 1.0),
        ([None, None], ["7"], None),
        (["8", "8"], [], None),
    ],
)
def test_vote_copy_rate(
    make_trace: MakeTrace,
    pool: list[str | None],
    deliberations: list[str | None],
    rate: float | None,
) -> None:
    assert vote_copy_rate(make_trace(pool, deliberations), 1) == rate


def _with_any_finish_and_label(data: st.DataObject, generations: list[Any]) -> list[Any]:
    """Verifiers may contradict themselves and cut-off texts may hold an answer."""
    finishes = st.sampled_from(["stop", "length", "error"])
    labels = st.sampled_from(["correct", "incorrect", "undecided"])
    return [
        dataclasses.replace(
            g,
            finish_reason=data.draw(finishes),
            verdict=dataclasses.replace(g.verdict, label=data.draw(labels)),
        )
        for g in generations
    ]


def test_a_trajectory_that_cannot_vote_is_not_the_vote_that_is_copied(
    make_trace: MakeTrace,
) -> None:
    trace = make_trace(["8", "8", "7"], ["8", "7", "7", "7"])
    cut_off = [dataclasses.replace(t, finish_reason="length") for t in trace.pool[:2]]
    trace = dataclasses.replace(trace, pool=[*cut_off, trace.pool[2]])
    assert vote_copy_rate(trace, 1) == 0.75


@given(pool=ANSWERS, deliberations=ANSWERS, data=st.data())
def test_no_estimate_breaks_the_order_that_the_definitions_imply(
    make_trace: MakeTrace,
    pool: list[str | None],
    deliberations: list[str | None],
    data: st.DataObject,
) -> None:
    clean = make_trace(pool, deliberations)
    trace = dataclasses.replace(
        clean,
        pool=_with_any_finish_and_label(data, clean.pool),
        deliberations=_with_any_finish_and_label(data, clean.deliberations),
    )
    mean, any_right, vote = mean_at_k(trace), pass_at_k(trace), vote_at_k(trace)
    heavy_mean, heavy_any = heavy_mean_at_d(trace, 1), heavy_pass_at_d(trace, 1)
    assert any_right >= mean
    assert any_right >= vote
    assert heavy_any >= heavy_mean
    assert all(0 <= value <= 1 for value in (mean, any_right, vote, heavy_mean, heavy_any))


@given(pool=ANSWERS, deliberations=ANSWERS)
def test_vote_copy_rate_is_a_share(
    make_trace: MakeTrace, pool: list[str | None], deliberations: list[str | None]
) -> None:
    rate = vote_copy_rate(make_trace(pool, deliberations), 1)
    assert rate is None or 0 <= rate <= 1

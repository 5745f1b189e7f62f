"""Values of one trace; V@k and P@k of every k, against all subsets of small pools."""

import dataclasses
import itertools
import random
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heavydistill.heavy.voting import vote_value
from heavydistill.metrics import estimators as subsets
from heavydistill.metrics.estimators import passes_at, vote_copy_rate, votes_at
from heavydistill.metrics.problem_figures import ProblemFigures
from heavydistill.schema import Trace, Trajectory


def of_pool(trace: Trace) -> tuple[float, float, float]:
    """M@K, P@K and V@K."""
    row = ProblemFigures.of(trace)
    return row.mean, row.pass_at(row.k), row.vote


@pytest.mark.parametrize(
    ("pool", "mean", "any_right", "vote"),
    [
        (["7", "7", "8", None], 0.5, 1.0, 1.0), (["7", "8", "8", "8"], 0.25, 1.0, 0.0),
        (["7", "7", "8", "8"], 0.5, 1.0, 0.5), (["7", "8", "9"], 1 / 3, 1.0, 1 / 3),
        (["7", None, None, None], 0.25, 1.0, 1.0), (["8", "9", None], 0.0, 0.0, 0.0),
        ([None, None], 0.0, 0.0, 0.0), ([], 0.0, 0.0, 0.0),
    ],
)  # fmt: skip
def test_golden_values_of_small_pools(make_trace, pool, mean, any_right, vote):
    assert of_pool(make_trace(pool)) == pytest.approx((mean, any_right, vote))


def test_undecided_failed_and_unjudged_trajectories_are_not_right(make_trace):
    """Defect 9 of the reference implementation: it measures what its filters left of the pool."""
    trace = make_trace(["7", "?", "7", "7"])
    failed = dataclasses.replace(
        trace.pool[2], finish_reason="error", error="time-out", verdict=None
    )
    unjudged = dataclasses.replace(trace.pool[3], verdict=None)
    trace = dataclasses.replace(trace, pool=[*trace.pool[:2], failed, unjudged])
    assert of_pool(trace)[0] == 0.25


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
def test_vote_copy_rate(make_trace, pool, deliberations, rate):
    assert vote_copy_rate(make_trace(pool, deliberations), 1) == rate


def test_a_trajectory_that_cannot_vote_is_not_the_vote_that_is_copied(make_trace):
    trace = make_trace(["8", "8", "7"], ["8", "7", "7", "7"])
    cut_off = [dataclasses.replace(t, finish_reason="length") for t in trace.pool[:2]]
    trace = dataclasses.replace(trace, pool=[*cut_off, trace.pool[2]])
    assert vote_copy_rate(trace, 1) == 0.75


POOLS = st.lists(st.sampled_from(["7", "8", "9", "?", None]), max_size=8)


def by_enumeration(pool: list[Trajectory], k: int) -> float:
    return fmean(vote_value(subset) for subset in itertools.combinations(pool, k))


@settings(max_examples=60, deadline=None)
@given(answers=POOLS, data=st.data())
def test_it_is_the_mean_over_all_subsets(make_trace, answers, data):
    """Also where trajectories failed, and where one answer carries different verdicts."""
    pool = make_trace(answers).pool
    for index in range(len(pool)):
        if data.draw(st.integers(0, 4)) == 0:
            pool[index] = dataclasses.replace(pool[index], finish_reason="length")
        if data.draw(st.integers(0, 4)) == 0:
            flipped = dataclasses.replace(pool[index].verdict, label="correct")
            pool[index] = dataclasses.replace(pool[index], verdict=flipped)
    sizes = range(1, len(pool) + 1)
    assert votes_at(pool) == pytest.approx([by_enumeration(pool, k) for k in sizes])
    for k, passes in zip(sizes, passes_at(pool), strict=True):
        hits = [any(t.is_correct for t in subset) for subset in itertools.combinations(pool, k)]
        assert passes == pytest.approx(fmean(hits))


@settings(max_examples=60, deadline=None)
@given(answers=POOLS)
def test_one_vote_is_one_trajectory_and_all_votes_are_the_vote(make_trace, answers):
    trace = make_trace(answers)
    votes, passes = votes_at(trace.pool), passes_at(trace.pool)
    mean, any_right, vote = of_pool(trace)
    if answers:
        assert votes[0] == pytest.approx(mean) == pytest.approx(passes[0])
        assert votes[-1] == pytest.approx(vote) and passes[-1] == any_right
    # Two that agree say what one says, and a tie of two is drawn.
    decided = make_trace([answer or "9" for answer in answers]).pool
    assert len(votes) < 2 or votes_at(decided)[1] == pytest.approx(votes_at(decided)[0])


def test_large_pools_agree_with_subsets_that_are_drawn(make_trace):
    rng = random.Random(0)
    pool = make_trace([rng.choice("7789abc") for _ in range(64)]).pool
    for k in (5, 33):
        drawn = [vote_value(rng.sample(pool, k)) for _ in range(4_000)]
        assert votes_at(pool)[k - 1] == pytest.approx(fmean(drawn), abs=0.03)


def test_pools_too_large_for_floats_are_counted_in_whole_numbers(make_trace, monkeypatch):
    pool = make_trace(["7", "7", "8", "8", "8", "9", None]).pool
    in_floats = votes_at(pool)
    subsets._votes_of.cache_clear()
    monkeypatch.setattr(subsets, "_LARGEST_OF_FLOATS", 0)
    assert votes_at(pool) == pytest.approx(in_floats)
    subsets._votes_of.cache_clear()
    monkeypatch.undo()
    wide = votes_at(make_trace(["7"] * 3).pool * 350)  # C(1050, 525) is no float
    assert wide[0] == wide[-1] == pytest.approx(1.0)

"""V@k and P@k of every k, against all subsets of small pools."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heavydistill.heavy.voting import vote_value
from heavydistill.metrics import estimators as subsets
from heavydistill.metrics.estimators import mean_at_k, pass_at_k, passes_at, vote_at_k, votes_at
from heavydistill.schema import Trace, Trajectory

MakeTrace = Callable[..., Trace]
POOLS = st.lists(st.sampled_from(["7", "8", "9", "?", None]), min_size=1, max_size=8)


def by_enumeration(pool: list[Trajectory], k: int) -> float:
    return fmean(vote_value(subset) for subset in itertools.combinations(pool, k))


@settings(max_examples=60, deadline=None)
@given(answers=POOLS, data=st.data())
def test_it_is_the_mean_over_all_subsets(
    make_trace: MakeTrace, answers: list[str | None], data: st.DataObject
) -> None:
    """Also where trajectories failed, and where one answer carries different verdicts."""
    pool = make_trace(answers).pool
    for index in range(len(pool)):
        if data.draw(st.integers(0, 4)) == 0:
            pool[index] = dataclasses.replace(pool[index], finish_reason="length")
        if data.draw(st.integers(0, 4)) == 0:
            flipped = dataclasses.replace(pool[index].verdict, label="correct")
            pool[index] = dataclasses.replace(pool[index], verdict=flipped)
    expected = [by_enumeration(pool, k) for k in range(1, len(pool) + 1)]
    assert votes_at(pool) == pytest.approx(expected)


@pytest.mark.parametrize("pool", [["7", "8", "8", "9", None], ["7", "7", "7", "8"], ["8", "8"]])
def test_any_right_is_the_mean_over_all_subsets(
    make_trace: MakeTrace, pool: list[str | None]
) -> None:
    passes = passes_at(make_trace(pool).pool)
    for k in range(1, len(pool) + 1):
        subsets = list(itertools.combinations(pool, k))
        expected = sum("7" in subset for subset in subsets) / len(subsets)
        assert passes[k - 1] == pytest.approx(expected)


@settings(max_examples=60, deadline=None)
@given(answers=POOLS)
def test_one_vote_is_one_trajectory_and_all_votes_are_the_vote(
    make_trace: MakeTrace, answers: list[str | None]
) -> None:
    trace = make_trace(answers)
    votes, passes = votes_at(trace.pool), passes_at(trace.pool)
    assert len(votes) == len(passes) == len(trace.pool)
    assert votes[0] == pytest.approx(mean_at_k(trace)) == pytest.approx(passes[0])
    assert votes[-1] == pytest.approx(vote_at_k(trace))
    assert passes[-1] == pass_at_k(trace)
    assert list(passes) == sorted(passes)
    assert all(0 <= vote <= some + 1e-12 for vote, some in zip(votes, passes, strict=True))


def test_two_votes_are_worth_one(make_trace: MakeTrace) -> None:
    """Two that agree say what one says, and a tie of two is drawn."""
    votes = votes_at(make_trace(["7", "7", "8", "9", "7"]).pool)
    assert votes[1] == pytest.approx(votes[0])


def test_large_pools_agree_with_subsets_that_are_drawn(make_trace: MakeTrace) -> None:
    rng = random.Random(0)
    pool = make_trace([rng.choice("7789abc") for _ in range(64)]).pool
    for k in (5, 33):
        drawn = [vote_value(rng.sample(pool, k)) for _ in range(4_000)]
        assert votes_at(pool)[k - 1] == pytest.approx(fmean(drawn), abs=0.03)


def test_pools_too_large_for_floats_are_counted_in_whole_numbers(
    make_trace: MakeTrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make_trace(["7", "7", "8", "8", "8", "9", None]).pool
    in_floats = votes_at(pool)
    subsets._votes_of.cache_clear()
    monkeypatch.setattr(subsets, "_LARGEST_OF_FLOATS", 0)
    assert votes_at(pool) == pytest.approx(in_floats)
    subsets._votes_of.cache_clear()
    monkeypatch.undo()
    wide = votes_at(make_trace(["7"] * 3).pool * 350)  # C(1050, 525) is no float
    assert wide[0] == wide[-1] == pytest.approx(1.0)


def test_who_does_not_vote_is_worth_nothing(make_trace: MakeTrace) -> None:
    assert votes_at(make_trace([None, None]).pool) == (0.0, 0.0)
    assert votes_at([]) == () and passes_at([]) == ()

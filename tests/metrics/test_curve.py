"""Accuracy over tokens: what a point costs, what as many votes are worth, which points stand."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from generations import altered
from hypothesis import given, settings
from hypothesis import strategies as st

from heavydistill.metrics.curve import Curve, Point, curve_of, mark_pareto
from heavydistill.metrics.estimators import votes_at
from heavydistill.metrics.intervals import Interval, bootstrap_difference, bootstrap_mean
from heavydistill.metrics.problem_figures import ProblemFigures
from heavydistill.metrics.summary import summarize
from heavydistill.schema import Trace

MakeTrace = Callable[..., Trace]
ANSWERS = st.lists(st.sampled_from(["7", "8", "9", None]), min_size=4, max_size=4)
# The tokens of every sample that ``make_trace`` makes.
READ, WRITTEN = 10, 5


def costing(trace: Trace, prompt: int, completion: int) -> Trace:
    """With these tokens of each deliberation."""
    return altered(trace, "deliberations", prompt_tokens=prompt, completion_tokens=completion)


def of(traces: Sequence[Trace], k: int = 4, rounds: int = 1, d: int = 1) -> Curve:
    return curve_of([ProblemFigures.of(trace) for trace in traces], k, d, rounds)


def point(curve: Curve, way: str, k: int = 4, round: int = 0) -> Point:
    (found,) = [p for p in curve.points if (p.way, p.k, p.rounds) == (way, k, round)]
    return found


def test_a_vote_costs_its_trajectories_and_a_deliberation_all_that_it_read(make_trace, with_cache):
    trace = make_trace(["7", "8", "8", "9"], ["7", "8"], ["7", "7", "8"])
    trace = with_cache(trace, ["t_0", "t_1", "t_2", "t_3"])
    trace = with_cache(trace, ["t_0", "d1_0", "t_1", "d1_1", "t_2", "t_3"], round=2)
    curve = of([costing(trace, 100, 20)], rounds=2)
    votes = point(curve, "vote", 3).tokens
    assert (votes["completion"].mean, votes["all"].mean) == (3 * WRITTEN, 3 * (WRITTEN + READ))
    # All four, and one of the two deliberations, which only measure it more exactly.
    first = point(curve, "deliberation", round=1).tokens
    assert (first["completion"].mean, first["all"].mean) == (4 * WRITTEN + 20, 4 * 15 + 120)
    # The second round read both deliberations of the first.
    second = point(curve, "deliberation", round=2)
    assert second.tokens["all"].mean == 4 * 15 + 2 * 120 + 120
    assert second.accuracy.mean == pytest.approx(2 / 3)


def test_a_vote_of_deliberations_costs_each_of_them_and_reads_one_cache(make_trace, with_cache):
    given = ["7", "7", "8"]
    trace = make_trace(["7", "8", "8", "9"], ["7", "8"], given)
    trace = with_cache(trace, ["t_0", "t_1", "t_2", "t_3"])
    trace = with_cache(trace, ["d1_0", "d1_1", "t_0"], round=2)
    alone = make_trace(["8", "8", "8", "8"])  # was not deliberated, and costs its pool
    curve = of([costing(trace, 100, 20), alone], rounds=2, d=3)
    votes = [one for one in curve.points if one.way == "heavy_vote"]
    assert [(p.d, p.rounds, p.k) for p in votes] == [(2, 2, 4), (3, 2, 4)]
    subsets = votes_at(trace.deliberations[2:])
    assert subsets[2] == 1.0
    assert [p.accuracy.mean for p in votes] == [subsets[1] / 2, subsets[2] / 2]
    # The pool of each, and of one alone two earlier deliberations and d of the last round.
    written = [p.tokens["completion"].mean for p in votes]
    assert written == [4 * WRITTEN + 4 * 20 / 2, 4 * WRITTEN + 5 * 20 / 2]
    both = [p.tokens["all"].mean for p in votes]
    assert both == [4 * 15 + 4 * 120 / 2, 4 * 15 + 5 * 120 / 2]
    # One deliberation is right less often and a vote of three is right more often than two are.
    assert [p.pareto["all"] for p in votes] == [False, True]
    one = point(curve, "deliberation", round=2)
    assert (one.d, one.accuracy.mean) == (1, pytest.approx(subsets[0] / 2))


@pytest.mark.parametrize(
    ("selection", "shown", "share"),
    [
        ("random", ["t_0", "t_1", "t_3"], 1.0),  # all that are usable
        ("random", ["t_0"], 1 / 3),
        ("max_answer_num", ["t_0"], 1.0),  # which one it is, the whole pool says
    ],
)
def test_a_cache_of_some_costs_what_it_took_to_draw_them(
    make_trace, with_cache, selection, shown, share
):
    trace = make_trace(["7", "8", "8", "9"], ["7"])
    cut_off = dataclasses.replace(trace.pool[2], finish_reason="length")
    trace = dataclasses.replace(trace, pool=[*trace.pool[:2], cut_off, trace.pool[3]])
    row = ProblemFigures.of(with_cache(trace, shown, selection=selection))
    assert row.round(1).tokens["completion"] == pytest.approx(share * 4 * WRITTEN + WRITTEN)
    assert row.round(1).used == round(share * 4)


@pytest.fixture
def narrow(make_trace: MakeTrace, with_cache: MakeTrace) -> list[Trace]:
    """Caches of two of four, whose deliberation takes as much as 0.4 or 1 of a trajectory."""
    pools = [["7", "8", "8", "7"], ["7", "7", "7", "8"], ["8", "9", "9", "7"]]
    given = [["7", "7"], ["7", "8"], ["8", "7"]]
    traces = [make_trace(pool, some) for pool, some in zip(pools, given, strict=True)]
    return [costing(with_cache(trace, ["t_0", "t_1"]), 13, 2) for trace in traces]


def test_the_matched_vote_lies_between_two_whole_numbers(narrow):
    matched = of(narrow).matched["completion"]
    assert (matched.votes, matched.needs, matched.problems) == (2.4, 3, 3)
    assert matched.tokens == 2 * WRITTEN + 2
    between = [0.6 * votes_at(t.pool)[1] + 0.4 * votes_at(t.pool)[2] for t in narrow]
    assert matched.vote == bootstrap_mean(between)
    assert matched.heavy_minus_vote == bootstrap_difference([1.0, 0.5, 0.5], between)
    # With what was read, a deliberation takes exactly as much as one trajectory.
    whole = of(narrow).matched["all"]
    assert (whole.votes, whole.needs) == (3.0, 3)
    assert whole.vote == bootstrap_mean([votes_at(trace.pool)[2] for trace in narrow])


def test_a_pool_that_is_too_small_is_told_and_never_extrapolated(make_trace):
    curve = of([costing(make_trace(["7"] * 4, ["7"]), 100, 12)])
    matched = curve.matched["completion"]
    assert (matched.votes, matched.needs) == (6.4, 7)
    assert matched.vote is None and matched.heavy_minus_vote is None


def test_unknown_tokens_leave_a_problem_out_of_tokens_alone(narrow):
    unknown = dataclasses.replace(narrow[0].pool[3], prompt_tokens=-1)
    first = dataclasses.replace(narrow[0], pool=[*narrow[0].pool[:3], unknown])
    curve = of([first, *narrow[1:]])
    assert curve.unknown_tokens == {"completion": 0, "all": 1}
    assert curve.problems == 3 and curve.matched["all"].problems == 2
    whole = of(narrow)
    assert [p.accuracy for p in curve.points] == [p.accuracy for p in whole.points]
    assert curve.matched["completion"] == whole.matched["completion"]
    assert curve.matched["all"].vote == bootstrap_mean([votes_at(t.pool)[2] for t in narrow[1:]])


def test_without_any_known_tokens_there_is_accuracy_alone(make_trace):
    trace = costing(make_trace(["7", "8"], ["7"]), -1, -1)
    curve = of([trace], k=2)
    assert curve.unknown_tokens == {"completion": 1, "all": 1} and curve.matched == {}
    assert all(p.tokens == {} and p.pareto == {} for p in curve.points)
    assert point(curve, "vote", 2).accuracy.mean == 0.5


def test_smaller_pools_are_left_out_and_counted(make_trace):
    curve = of([make_trace(["7"] * 4, ["7"]), make_trace(["8"] * 3, ["7"]), make_trace([])])
    assert (curve.problems, curve.smaller_pools) == (1, 2)
    assert point(curve, "vote").accuracy.mean == 1.0
    assert curve_of([ProblemFigures.of(make_trace([]))], 0, 0, 0) is None


@settings(max_examples=25, deadline=None)
@given(pools=st.lists(st.tuples(ANSWERS, ANSWERS), min_size=1, max_size=5))
def test_the_ends_of_the_curve_are_the_figures_of_the_summary(make_trace, pools):
    summary = summarize([make_trace(pool, some[:2]) for pool, some in pools])
    for way, last in (("vote", summary.vote_at_k), ("pass", summary.pass_at_k)):
        for k, expected in ((1, summary.mean_at_k), (4, last)):
            found = dataclasses.astuple(point(summary.curve, way, k).accuracy)
            assert found == pytest.approx(dataclasses.astuple(expected), abs=1e-9)
    heavy = point(summary.curve, "deliberation", round=1)
    assert heavy.accuracy == summary.heavy_mean_at_d


def made(way: Any, accuracy: float, tokens: float) -> Point:
    value, cost = Interval(accuracy, 0, 1), Interval(tokens, 0, 1)
    return Point(way=way, k=1, rounds=0, accuracy=value, tokens={"completion": cost})


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["vote", "pass", "deliberation"]), st.integers(0, 4), st.integers(1, 4)
        ),
        max_size=8,
    )
)
def test_a_point_stands_if_no_other_outdoes_it(raw):
    points = mark_pareto([made(way, accuracy, tokens) for way, accuracy, tokens in raw])
    for (way, accuracy, tokens), told in zip(raw, points, strict=True):
        outdone = any(
            other != "pass"
            and right >= accuracy
            and cost <= tokens
            and (right, cost) != (accuracy, tokens)
            for other, right, cost in raw
        )
        assert told.pareto == {"completion": way != "pass" and not outdone}

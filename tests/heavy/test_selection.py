import random
from collections import Counter
from dataclasses import replace
from typing import get_args

import pytest
from heavy_samples import pool_of, trajectory, unusable
from hypothesis import given, settings
from hypothesis import strategies as st

from heavydistill.config.run import Selection
from heavydistill.heavy.selection import select
from heavydistill.schema import Trajectory

STRATEGIES = get_args(Selection)
answers = st.lists(st.sampled_from(["1", "2", "3", None]), max_size=10)


def chosen(strategy: Selection, pool: list[Trajectory], width: int, seed: int = 0):
    return select(strategy, pool, width, random.Random(seed))


def answers_of(selected: list[Trajectory]) -> list[str | None]:
    return [one.extracted for one in selected]


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=60, deadline=None)
@given(answers=answers, width=st.integers(1, 12), seed=st.integers(0, 99))
def test_chooses_distinct_usable_ones_as_many_as_asked_for(strategy, answers, width, seed):
    pool = [*pool_of("1", *answers), *unusable()]
    selected = chosen(strategy, pool, width, seed)
    assert selected == chosen(strategy, pool, width, seed)
    assert len({one.id for one in selected}) == len(selected)
    assert all(one in pool and one.unusable_because is None for one in selected)
    if strategy == "group_one":
        groups = len({a for a in answers if a is not None}) + answers.count(None)
        assert len(selected) == min(width, groups)
    else:
        assert len(selected) == min(width, len(answers))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_ties_are_broken_by_the_generator_and_not_by_position(strategy):
    pool = [trajectory(i, str(i), completion_tokens=9) for i in range(4)]
    firsts = Counter(chosen(strategy, pool, 1, seed)[0].index for seed in range(800))
    assert set(firsts) == {0, 1, 2, 3}
    assert min(firsts.values()) > 140


def test_max_answer_num_takes_the_larger_groups_whole():
    pool = pool_of("1", "1", "2", "3", "2", "3", "3")
    assert answers_of(chosen("max_answer_num", pool, 5)) == ["3", "3", "3", "2", "2"]


def test_max_answer_num_never_lets_unparsed_ones_form_a_block():
    pool = pool_of("1", None, None, None, "1", "2")
    for seed in range(20):
        selected = answers_of(chosen("max_answer_num", pool, 3, seed))
        assert set(selected[:2]) == {"1", "2"}
        assert selected[2] is None


def test_max_diversity_goes_round_the_answers():
    pool = pool_of("1", *"111111", *"222", "3", None, None)
    for seed in range(20):
        selected = answers_of(chosen("max_diversity", pool, 7, seed))
        assert Counter(selected[:5]) == {"1": 1, "2": 1, "3": 1, None: 2}
        assert set(selected[5:]) == {"1", "2"}


@pytest.mark.parametrize("tokens", [(5, 90, 40), (1000, -1, -1)])
def test_max_length_measures_characters_where_any_tokens_are_unknown(tokens):
    reasonings = ("", "long " * 50, "mid " * 10)
    pool = [
        trajectory(i, completion_tokens=count, reasoning=text)
        for i, (count, text) in enumerate(zip(tokens, reasonings, strict=True))
    ]
    assert [one.index for one in chosen("max_length", pool, 2)] == [1, 2]


def test_group_one_gives_one_of_each_answer():
    selected = chosen("group_one", pool_of("1", *"1112233"), 8)
    assert sorted(answers_of(selected)) == ["1", "2", "3"]


@settings(max_examples=100, deadline=None)
@given(right=st.integers(0, 8), wrong=st.integers(0, 8), width=st.integers(1, 16))
def test_stratified_is_as_near_to_the_pools_share_as_the_width_allows(right, wrong, width):
    pool = pool_of("1", *"1" * right, *"2" * wrong)
    selected = chosen("stratified", pool, width)
    if pool:
        wanted = len(selected) * right / len(pool)
        assert abs(sum(one.is_correct for one in selected) - wanted) <= 0.5


def test_stratified_rounds_a_half_at_random():
    pool = pool_of("1", *"12")
    kept = [chosen("stratified", pool, 1, seed)[0].is_correct for seed in range(400)]
    assert 150 < sum(kept) < 250


def test_each_model_is_taken_in_turn():
    pool = [
        replace(each, model=model)
        for each, model in zip(pool_of("1", "1", "2", "3", "2", "3", "3"), "aaaabc", strict=True)
    ]
    for seed in range(20):
        selected = chosen("each_model", pool, 4, seed)
        assert Counter(each.model for each in selected) == {"a": 2, "b": 1, "c": 1}

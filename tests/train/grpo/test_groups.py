"""Which groups of a batch teach nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavydistill.train.grpo.reward import group_shares


def test_solved_and_hopeless_groups_are_told_apart() -> None:
    right = [True, True, False, False, True, False, True, True]
    shares = group_shares(right, 2)
    assert shares.pop("groups/uncompared") == 0
    assert shares == {"groups/all_right": 0.5, "groups/all_wrong": 0.25}


def test_what_could_not_be_decided_is_passed_over() -> None:
    right = [True, None, None, None, False, None]
    shares = group_shares(right, 2)
    assert shares.pop("groups/uncompared") == 1
    assert shares == {"groups/all_right": 1 / 3, "groups/all_wrong": 1 / 3}


def test_groups_that_shrink_to_one_answer_are_counted() -> None:
    right = [True, None, None, True, False, None, None, None, None]
    assert group_shares(right, 3)["groups/uncompared"] == 2 / 3


@given(st.integers(1, 5), st.lists(st.lists(st.sampled_from([True, False, None])), min_size=1))
def test_no_group_is_counted_twice(size: int, drawn: list[list[bool | None]]) -> None:
    right = [one for group in drawn for one in (*group, *[None] * size)[:size]]
    shares = group_shares(right, size)
    assert 0 <= shares.pop("groups/uncompared") <= 1
    assert 0 <= sum(shares.values()) <= 1 and min(shares.values()) >= 0


@pytest.mark.parametrize(("answers", "size"), [(0, 2), (3, 2), (2, 0)])
def test_answers_that_are_no_groups_are_refused(answers: int, size: int) -> None:
    with pytest.raises(ValueError, match="no groups"):
        group_shares([True] * answers, size)

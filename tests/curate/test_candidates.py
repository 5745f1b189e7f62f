import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import trajectory

from heavydistill.curate.candidates import Success, draw_sets, set_of, success_of
from heavydistill.heavy import voting
from heavydistill.schema import Label, Trajectory, Verdict


def attempt(number: int, answer: str, label: Label = "incorrect") -> Trajectory:
    verdict = Verdict(label=label, reason="r", extracted=answer, verifier="math@1")
    return trajectory(id=f"t_{number}", index=number, answer_text=f"so {answer}", verdict=verdict)


def pool_of(answers: list[str], right: str = "7") -> list[Trajectory]:
    return [
        attempt(number, answer, "correct" if answer == right else "incorrect")
        for number, answer in enumerate(answers)
    ]


pools = st.lists(st.sampled_from(["7", "8", "9", "10"]), max_size=24).map(pool_of)
choices = st.lists(st.integers(2, 12), min_size=1, max_size=4)


@settings(max_examples=100, deadline=None)
@given(pool=pools, widths=choices, seed=st.integers(0, 99))
def test_sets_of_a_pool_are_different_and_say_what_they_are(pool, widths, seed):
    sets = draw_sets("p", pool, widths=widths, most=8, seed=seed)
    by_id = {one.id: one for one in pool}
    shown = set()
    for one in sets:
        members = [by_id[name] for name in one.members]
        assert one.width in widths
        assert len(set(one.members)) == one.width
        assert one.right == sum(member.is_correct for member in members)
        assert one.stratum == voting.stratum(members)
        shown.add(tuple(sorted(member.answer_text for member in members)))
    assert len(shown) == len(sets) <= 8
    assert draw_sets("p", pool, widths=widths, most=8, seed=seed) == sets


def test_attempts_that_cannot_stand_in_a_cache_are_no_members():
    pool = pool_of(["7", "8", "9", "10"])
    pool[1] = dataclasses.replace(pool[1], finish_reason="length")
    pool[2] = dataclasses.replace(pool[2], verdict=None)
    (one,) = draw_sets("p", pool, widths=[2, 3], most=8, seed=0)
    assert one.members == ("t_0", "t_3")
    assert draw_sets("p", pool, widths=[3, 8], most=8, seed=0) == []


def test_a_single_right_attempt_among_many_is_in_many_sets():
    pool = pool_of(["7", *(str(n) for n in range(100, 123))])
    sets = draw_sets("p", pool, widths=[4], most=8, seed=0)
    assert len(sets) == 8
    assert sum(one.right for one in sets) >= 2


def test_sets_of_two_problems_are_drawn_independently():
    pool = pool_of([str(n) for n in range(16)])
    first, second = (draw_sets(p, pool, widths=[8], most=8, seed=0) for p in ("p", "q"))
    assert {one.members for one in first}.isdisjoint(one.members for one in second)


def test_the_same_attempts_are_one_set_whatever_was_drawn():
    pool = pool_of(["7", "8"])
    (one,) = draw_sets("p", pool, widths=[2], most=8, seed=0)
    assert (one.members, one.right, one.stratum) == (("t_0", "t_1"), 1, "tie")
    assert one == set_of("p", pool[::-1]) != set_of("p", pool_of(["7", "8", "8"]))


def deliberations(verdicts: str) -> list:
    """One for each letter: right, wrong, undecided, or not judged at all."""
    labels = {"r": "correct", "w": "incorrect", "u": "undecided"}
    return [
        trajectory(
            verdict=None
            if letter == "-"
            else Verdict(label=labels[letter], reason="x", extracted=None, verifier="v@1")
        )
        for letter in verdicts
    ]


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ("rw", Success(0.5, 2, "")), ("rrrw", Success(0.75, 4, "")),
        ("rr", Success(1.0, 2, "always_right")), ("ww", Success(0.0, 2, "never_right")),
        ("rwuu--", Success(0.5, 2, "")), ("wwuu", Success(0.0, 2, "never_right")),
        ("ruuu", Success(1.0, 1, "unmeasured")), ("uu-", Success(None, 0, "unmeasured")),
        ("", Success(None, 0, "unmeasured")),
    ],
)  # fmt: skip
def test_a_prompt_is_right_sometimes_and_undecided_tells_nothing(verdicts, expected):
    assert success_of(each.right for each in deliberations(verdicts)) == expected

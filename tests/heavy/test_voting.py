import pytest
from heavy_samples import deliberation, pool_of, trajectory, unusable, verdict
from hypothesis import given
from hypothesis import strategies as st

from heavydistill.heavy import prompts
from heavydistill.heavy.voting import answered_by_choice, chosen, outcome, stratum, vote_value


@pytest.mark.parametrize(
    ("answers", "value"),
    [("11123", 1.0), ("12223", 0.0), ("1122", 0.5), ("123", 1 / 3), ("223344", 0.0)],
)
def test_vote_is_the_expected_value_over_the_most_frequent_answers(answers, value):
    assert vote_value(pool_of("1", *answers)) == pytest.approx(value)


@pytest.mark.parametrize(
    ("pool", "value"),
    [
        # Neither unparsed nor unusable nor unjudged ones vote.
        ([*pool_of("1", "1", None, None), *unusable(), trajectory(7, verdict=None)], 1.0),
        ([], 0.0),
        (pool_of("1", None, None), 0.0),
        # An answer with both verdicts is worth its share.
        ([trajectory(i, "5", right) for i, right in enumerate([True, False, False, False])], 0.25),
        # An undecided answer votes and is not right.
        (
            [trajectory(i, "7", verdict=verdict("undecided", "7")) for i in range(2)]
            + [trajectory(3, "5", True)],
            0.0,
        ),
    ],
)
def test_who_votes_and_what_an_answer_is_worth(pool, value):
    assert vote_value(pool) == value


@given(st.lists(st.sampled_from(["1", "2", "3", None])), st.randoms())
def test_vote_is_a_share_that_order_does_not_change(answers, rng):
    pool = pool_of("1", *answers)
    shuffled = rng.sample(pool, len(pool))
    assert 0 <= vote_value(pool) <= 1
    assert vote_value(pool) == pytest.approx(vote_value(shuffled))
    assert stratum(pool) == stratum(shuffled)
    if vote_value(pool) > 0:
        assert any(one.is_correct for one in pool)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ("111", "all-right"), ("112", "majority-right"), ("12", "tie"), ("122", "minority-right"),
        ("223", "all-wrong"), ("", "all-wrong"),
    ],
)  # fmt: skip
def test_stratum(answers, expected):
    assert stratum(pool_of("1", *answers)) == expected


def test_a_failed_trajectory_keeps_a_pool_from_being_all_right():
    assert stratum([*pool_of("1", *"111"), unusable()[0]]) == "majority-right"


@pytest.mark.parametrize(
    ("answers", "right", "expected"),
    [
        ("112", [True, True, False], "kept"), ("112", [True, False, False], "overturned"),
        ("122", [True], "rescued"), ("12", [True, True], "rescued"), ("222", [True], "emergent"),
        ("122", [False], "lost"), ("222", [False, True], "lost"),
        ("112", [True, False], "overturned"),
    ],
)  # fmt: skip
def test_outcome(answers, right, expected):
    deliberations = [deliberation(i, "1", r) for i, r in enumerate(right)]
    assert outcome(pool_of("1", *answers), deliberations) == expected


def test_outcome_is_that_of_the_last_round_if_there_is_one():
    rounds = [deliberation(0, right=True), deliberation(1, right=False, round=2)]
    assert outcome(pool_of("1", *"112"), rounds) == "overturned"
    assert outcome(pool_of("1", *"112"), []) is None


FIELDS = {"finish_reason": "stop", "reasoning": "hm", "answer_text": r"It is \boxed{2}."}


@pytest.mark.parametrize(
    ("reply", "number"),
    [
        (r"The best is \boxed{3}", 3), (r"First I took \boxed{1}, but \boxed{2} is sounder", 2),
        (r"\boxed{ Attempt 1 }", 1), (r"\boxed{\text{Attempt 2}}", 2), (r"\boxed{尝试 3}", 3),
        (r"\boxed{4}", None), (r"\boxed{0}", None), (r"\boxed{2.5}", None), ("Attempt 2", None),
        ("", None),
    ],
)  # fmt: skip
def test_the_last_box_names_an_attempt_that_is_there(reply, number):
    assert chosen(reply, 3) == number


def test_the_answer_of_the_attempt_counts_and_the_reply_is_kept():
    fields = answered_by_choice(FIELDS, [r"\boxed{7}", r"\boxed{8}"])
    assert fields["answer_text"] == r"\boxed{8}"
    assert fields["reasoning"] == "hm\n\nIt is \\boxed{2}."
    assert answered_by_choice(FIELDS, ["one"])["answer_text"] == ""  # it names none of them
    for reason in ("length", "error"):  # what was cut off or failed stays as it is
        ended = {**FIELDS, "finish_reason": reason}
        assert answered_by_choice(ended, ["a", "b"]) == ended


@pytest.mark.parametrize("language", ["en", "zh"])
def test_choosers_have_one_wording_a_language_for_every_domain(language):
    wording = prompts.for_cache("choose", "code", language)
    assert wording.version.startswith(f"chooser.general.{language}@")
    assert "fence" in wording.parts and r"\boxed{}" in wording.parts[-1]
    assert prompts.for_cache("deliberate", "code", language).version.startswith("deliberator.")

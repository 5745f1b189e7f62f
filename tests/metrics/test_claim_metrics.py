"""Metrics of claims: values by hand, deliberators that can be told apart, and pairs by problem."""

import dataclasses
import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavydistill.metrics.claims import NAMES, ClaimFigures, claim_differences, claim_metrics
from heavydistill.metrics.intervals import bootstrap_mean
from heavydistill.metrics.summary import summarize
from heavydistill.schema import Claim, Trace

Says = Callable[[bool], str | None]
TRUTHFUL: Says = {True: "right", False: "wrong"}.__getitem__
LYING: Says = {True: "wrong", False: "right"}.__getitem__


def claims(*says: str | None) -> list[Claim]:
    """One on each attempt, in order; None is none."""
    return [
        Claim(attempt=number, says=each, quote="")  # type: ignore[arg-type]
        for number, each in enumerate(says, 1)
        if each
    ]


def claiming(trace: Trace, *made: Sequence[str | None]) -> Trace:
    """A trace whose deliberations make these claims."""
    pairs = zip(trace.deliberations, made, strict=True)
    said = [dataclasses.replace(each, claims=claims(*says)) for each, says in pairs]
    return dataclasses.replace(trace, deliberations=said)


@pytest.fixture
def trace(make_trace, with_cache) -> Trace:
    """Attempts 7, 8, an undecided one and one without an answer; 7 is right."""
    return with_cache(make_trace(["7", "8", "?", None], ["7", "8"]), ["t_1", "t_0", "t_2", "t_3"])


def test_figures_of_a_problem_by_hand(trace):
    right = ["wrong", "right", "right", None]  # of 8, 7, undecided: contradicts itself by the last
    wrong = ["wrong", "right", None, "right"]  # says that its own 8 is wrong, and 7 is right
    figures = ClaimFigures.of(claiming(trace, right, wrong), 1)
    # Three answers are tied, so that a vote calls each of them right with a chance of one third.
    # It is asked about the attempts with a claim: 7 twice, 8 twice, and once the one without any.
    voted = pytest.approx((2 / 3, 2, 7 / 3, 3))
    assert figures == ClaimFigures(0.75, 1.0, (2, 2, 2, 3), voted, when_wrong=(1, 1, 1, 2))
    figures = ClaimFigures.of(claiming(trace, [None, "right"], [None, "wrong"]), 1)
    assert figures == ClaimFigures(0.25, 0.0, (1, 2, 0, 0), (2 / 3, 2, 0, 0), (0, 1, 0, 0))
    metrics = claim_metrics([figures, None])
    assert metrics["claim_coverage"] == bootstrap_mean([0.25])
    assert metrics["claim_balanced_accuracy"] is None, "no claim on a wrong attempt"


def test_deliberations_that_failed_or_were_shown_nothing_do_not_count(make_trace, trace):
    cut, whole = claiming(trace, ["right"], ["wrong"]).deliberations
    cut = dataclasses.replace(cut, finish_reason="length")
    figures = ClaimFigures.of(dataclasses.replace(trace, deliberations=[cut, whole]), 1)
    voted = pytest.approx((0, 0, 2 / 3, 1))
    assert figures == ClaimFigures(0.25, 1.0, (0, 0, 1, 1), voted, when_wrong=(0, 0, 1, 1))
    assert ClaimFigures.of(dataclasses.replace(trace, deliberations=[cut]), 1) is None
    assert ClaimFigures.of(make_trace(["7"], ["7"]), 1) is None
    assert claim_metrics([None, None]) == dict.fromkeys(NAMES)


def test_a_leak_is_an_answer_that_speaks_of_attempts(trace):
    """In the thinking it is what a deliberation is for."""
    said = [
        ("Attempt 1 forgets a sign.", "The sum is \\boxed{7}."),
        ("", "Attempts 1 and 2 agree on \\boxed{7}."),
    ]
    told = [
        dataclasses.replace(each, reasoning=thinking, answer_text=answer)
        for each, (thinking, answer) in zip(trace.deliberations, said, strict=True)
    ]
    summary = summarize([dataclasses.replace(trace, deliberations=told)])
    assert summary.leak_in_answer.mean == summary.leak_in_thinking.mean == 0.5


def test_claims_of_a_later_round_are_on_the_deliberations_before_it(make_trace, with_cache):
    two = with_cache(make_trace(["8", "8"], ["7", "8"], ["7"]), ["t_0", "t_1"])
    two = with_cache(two, ["d1_1", "d1_0"], round=2)
    two = claiming(two, ["wrong"], ["right"], ["wrong", "right"])
    assert ClaimFigures.of(two, 2) == ClaimFigures(
        1.0, 0.0, (1, 1, 1, 1), (0.5, 1, 0.5, 1), (0, 0, 0, 0)
    )
    assert summarize([two]).claim_balanced_accuracy.mean == 1.0


@pytest.mark.parametrize(
    ("says", "coverage", "accuracy"),
    [
        (TRUTHFUL, 1.0, 1.0),
        (LYING, 1.0, 0.0),
        (lambda is_right: "right", 1.0, 0.5),
        (lambda is_right: "wrong", 1.0, 0.5),
        (lambda is_right: None, 0.0, None),
    ],
)
def test_deliberators_are_told_apart(make_trace, with_cache, says, coverage, accuracy):
    rng, traces = random.Random(0), []
    for _ in range(40):
        answers = rng.choices(["7", "8"], k=4)
        shown = with_cache(make_trace(answers, ["7"]), [f"t_{n}" for n in range(4)])
        traces.append(claiming(shown, [says(answer == "7") for answer in answers]))
    summary = summarize(traces)
    assert summary.claim_coverage.mean == coverage
    found = summary.claim_balanced_accuracy
    assert (found and found.mean) == accuracy
    contradictions = summary.self_contradiction_share
    assert (contradictions is None) == (coverage == 0)
    assert contradictions is None or (contradictions.mean == 0) == (says is TRUTHFUL)


COUNTS = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
PROBLEMS = st.lists(
    st.builds(
        ClaimFigures,
        *[st.sampled_from([0.0, 0.5, 1.0])] * 2,
        *[COUNTS.map(lambda said: (said[0], said[0] + said[1], said[2], said[2] + said[3]))] * 3,
    ),
    max_size=8,
)


@given(problems=PROBLEMS)
def test_metrics_are_shares_and_a_run_equals_itself(problems):
    for interval in claim_metrics(problems).values():
        assert interval is None or 0 <= interval.low <= interval.mean <= interval.high <= 1
    for interval in claim_differences(problems, problems).values():
        assert interval is None or (interval.mean, interval.low, interval.high) == (0, 0, 0)


def test_differences_are_paired_by_problem():
    # Problems vary between 1 and 4 right words on 4 right attempts, and the other run has one less.
    before = [ClaimFigures(1.0, 0.5, *[(n % 4, 4, 4, 4)] * 3) for n in range(80)]
    after = [ClaimFigures(1.0, 0.25, *[(n % 4 + 1, 4, 4, 4)] * 3) for n in range(80)]
    told = claim_differences(after, before)
    difference = told["claim_balanced_accuracy"]
    assert difference is not None
    ends = (difference.mean, difference.low, difference.high)
    assert ends == pytest.approx((0.125, 0.125, 0.125)), "the same on every problem"
    assert told["claim_accuracy_when_wrong"] == told["claim_vote_accuracy"] == difference
    contradictions = told["self_contradiction_share"]
    assert contradictions is not None and contradictions.mean == -0.25


def test_subtracted_claims_are_worth_as_much_as_the_answer(make_trace, with_cache):
    """A claim that an attempt is right if it has the deliberation's own answer says no more."""
    rng, traces = random.Random(0), []
    for _ in range(60):
        answers, own = rng.choices(["7", "8"], [3, 1], k=5), rng.choice(["7", "8"])
        shown = with_cache(make_trace(answers, [own]), [f"t_{n}" for n in range(5)])
        said = ["right" if answer == own else "wrong" for answer in answers]
        traces.append(claiming(shown, said))
    summary = summarize(traces)
    assert summary.claim_accuracy_when_wrong and summary.claim_accuracy_when_wrong.mean == 0
    assert 0.4 < summary.claim_balanced_accuracy.mean < 0.6 < summary.claim_vote_accuracy.mean

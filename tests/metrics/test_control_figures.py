"""Deliberation beside its controls: against plain counts and all pairs of samples."""

import dataclasses
import itertools
from statistics import fmean

import messages
import pytest
from generations import altered, unboxed
from hypothesis import given, settings
from hypothesis import strategies as st

from heavydistill.metrics.controls import (
    CHAIN,
    CHOOSE,
    FOREIGN,
    GARBLED,
    SKILL,
    TRANSPLANT,
    alone_name,
    compare_with_controls,
    minus_controls,
    order_name,
)
from heavydistill.metrics.intervals import Interval
from heavydistill.report.controls import headline
from heavydistill.schema import Trace


def named(traces: list[Trace], order: int = 0) -> list[Trace]:
    """Traces of problems p0, p1 and so on, whose caches are others in every order."""
    return [
        altered(trace, "deliberations", asked={"id": f"p{number}"}, cache=f"order {order}")
        for number, trace in enumerate(traces)
    ]


def test_each_way_has_its_accuracy_and_what_deliberation_adds(make_trace):
    heavy = named([make_trace(["7", "1"], ["7", "7"]), make_trace(["1", "2"], ["7", "2"])])
    chain = named([make_trace(["7", "3"]), make_trace(["4", "3"])])
    choose = named([make_trace(["7", "1"], ["7", "1"]), make_trace(["1", "2"], ["1", "1"])])
    told = compare_with_controls(heavy, 1, {CHAIN: chain, CHOOSE: choose})
    assert told.problems == 2 and told.heavy.accuracy.mean == 0.75
    assert [control.name for control in told.controls] == [CHAIN, CHOOSE]
    assert [control.answering.accuracy.mean for control in told.controls] == [0.25, 0.25]
    assert [control.heavy_minus.mean for control in told.controls] == [0.5, 0.5]
    assert told.orders is told.worth is told.falls is told.rises is None


def test_the_skill_is_held_against_the_workflow_and_one_attempt(make_trace):
    heavy = named([make_trace(["7", "1"], ["7", "7"]), make_trace(["1", "2"], ["7", "2"])])
    skill = named([make_trace(["7", "1"], ["7", "7"]), make_trace(["1", "2"], ["1", "2"])])
    told = compare_with_controls(iter(heavy), 1, {SKILL: skill})
    assert told.attempt and told.skill_minus_attempt and not told.not_asked
    assert (told.attempt.answering.accuracy.mean, told.attempt.heavy_minus.mean) == (0.25, 0.5)
    assert (told.controls[0].answering.accuracy.mean, told.skill_minus_attempt.mean) == (0.5, 0.25)
    assert minus_controls(heavy, 1, {SKILL: skill}) == {SKILL: {"p0": 0.0, "p1": 0.5}}


@pytest.mark.parametrize("better", ["thinker", "deliberator"])
def test_alone_is_the_better_of_both_prompts_and_the_other_is_kept(make_trace, better):
    heavy = named([make_trace(["7", "1"], ["7", "7"])] * 2)
    answers = {"thinker": ["1", "7"], "deliberator": ["1", "7"]} | {better: ["7", "7"]}
    runs = {alone_name(name): named([make_trace(["1"], of)] * 2) for name, of in answers.items()}
    told = compare_with_controls(heavy, 1, runs)
    ((alone,), (other,)) = told.controls, told.unreported
    assert alone.name == other.name == "alone" and alone.wording == better != other.wording
    assert (alone.answering.accuracy.mean, other.answering.accuracy.mean) == (1, 0.5)
    assert (alone.heavy_minus.mean, other.heavy_minus.mean) == (0, 0.5)


def test_garbled_attempts_tell_what_the_values_are_worth_where_there_are_any(make_trace):
    heavy = named([make_trace(["7", "1"], ["7", "7"]), make_trace(["1", "2"], ["7", "2"])])
    heavy.append(altered(make_trace(["7", "7"], ["1", "1"]), asked={"id": "prose"}))
    garbled = named([make_trace(["3", "9"], ["7", "1"]), make_trace(["4", "5"], ["2", "2"])])
    alone = named([make_trace(["7"], ["7", "7"]), make_trace(["7"], ["1", "7"])])
    alone.append(altered(make_trace(["7"], ["1", "1"]), asked={"id": "prose"}))
    told = compare_with_controls(heavy, 1, {GARBLED: garbled, alone_name("thinker"): alone})
    assert told.worth and told.worth.problems == 2 and told.problems == 3
    # By problem: votes .5 and 0, deliberations 1 and .5, garbled .5 and 0, alone 1 and .5.
    assert told.worth.heavy_minus_vote.mean == 0.5
    assert told.worth.garbled_minus_vote.mean == 0
    assert told.worth.heavy_minus_garbled.mean == 0.5 and told.worth.is_shown
    assert told.worth.garbled_minus_alone and told.worth.garbled_minus_alone.mean == -0.5
    control = told.controls[1]
    assert (control.name, control.problems, control.answering.samples) == (GARBLED, 2, 4)
    same = compare_with_controls(heavy, 1, {GARBLED: heavy}).worth
    assert same and not same.is_shown and same.garbled_minus_alone is None
    wide = dataclasses.replace(same, heavy_minus_garbled=Interval(0.1, 0.0, 0.2))
    assert not wide.is_shown, "the interval reaches 0"


@pytest.mark.parametrize(
    ("heavy", "without", "said"),
    [
        (0.2, 0.1, "+20.0 points over the vote; +10.0 of it without"),
        (0.2, 0.0, "+20.0 points over the vote; none of it (0.0) without"),
        (0.2, 0.3, "+20.0 points over the vote; +30.0 without"),
        (-0.2, -0.3, "-20.0 points over the vote; -30.0 without"),
        (-0.2, 0.1, "-20.0 points over the vote; +10.0 without"),
    ],
)
def test_the_headline_calls_only_a_part_a_part(make_trace, heavy, without, said):
    traces = named([make_trace(["7", "1"], ["7"])])
    told = compare_with_controls(traces, 1, {GARBLED: traces})
    values = [Interval(value, value, value) for value in (heavy, without)]
    changes = zip(("heavy_minus_vote", "garbled_minus_vote"), values, strict=True)
    worth = dataclasses.replace(told.worth, **dict(changes))
    found = headline(dataclasses.replace(told, worth=worth))
    assert found and found[0].startswith(f"Deliberation {said} the attempts' values")


def test_transplants_fall_where_the_cache_had_a_right_attempt_and_rise_elsewhere(
    make_trace, with_cache
):
    heavy = named(
        [
            with_cache(make_trace(["7", "1", "1"], ["7", "7"]), ["t_0", "t_1"]),
            with_cache(make_trace(["7", "1", "1"], ["1", "1"]), ["t_1", "t_2"]),
            with_cache(make_trace(["7", "7", "1"], ["7", "7"]), ["t_0", "t_1"]),
        ]
    )
    after = named([make_trace(["1"] * 3, ["1", "7"]), make_trace(["7"] * 3, ["7", "1"])])
    told = compare_with_controls(heavy, 1, {TRANSPLANT: after})
    assert not told.controls and told.falls and told.rises
    assert (told.falls.problems, told.rises.problems) == (1, 1)
    assert (told.falls.before.mean, told.falls.after.mean, told.falls.change.mean) == (1, 0.5, -0.5)
    assert (told.rises.before.mean, told.rises.after.mean, told.rises.change.mean) == (0, 0.5, 0.5)
    only = compare_with_controls(heavy, 1, {TRANSPLANT: after[:1]})
    assert only.falls and only.rises is None


def test_controls_of_the_attempts_have_the_rounds_of_the_run(make_trace):
    heavy = named([make_trace(["7"], ["7", "7"], ["7", "1"])])
    told = compare_with_controls(heavy, 2, {GARBLED: heavy, FOREIGN: heavy, CHOOSE: heavy})
    assert [each.answering.accuracy.mean for each in told.controls] == [1, 0.5, 0.5]


def test_tokens_are_those_of_one_answer_and_of_the_pool_that_it_reads(make_trace):
    def spending(trace: Trace, pool: int, *given: int) -> Trace:
        spent = zip(trace.deliberations, given, strict=True)
        return dataclasses.replace(
            trace,
            pool=[dataclasses.replace(one, completion_tokens=pool) for one in trace.pool],
            deliberations=[dataclasses.replace(one, completion_tokens=n) for one, n in spent],
        )

    heavy = named(
        [
            spending(make_trace(["7", "1"], ["7", "7"]), 100, 30, 50),
            spending(make_trace(["7", "1"], ["7", "7"]), 10, -1, 50),
        ]
    )
    chain = named([spending(make_trace(["7", "1"]), 900), spending(make_trace(["7", "1"]), 300)])
    told = compare_with_controls(heavy, 1, {CHAIN: chain})
    assert (told.heavy.tokens, told.heavy.unknown_tokens) == (240, 1)
    answering = told.controls[0].answering
    assert (answering.tokens, answering.unknown_tokens) == (600, 0)
    # With what is read: 10 tokens of every prompt, which are known of all.
    assert (told.heavy.all_tokens, told.heavy.unknown_all_tokens) == (240 + 3 * 10, 1)
    assert answering.all_tokens == 600 + 10


def test_what_is_cut_off_or_missing_counts_as_wrong_and_is_counted(make_trace):
    (trace,) = named([make_trace(["7", "7", "7"], ["7"])])
    cut, empty, whole = trace.pool
    pool = [
        dataclasses.replace(cut, finish_reason="length", verdict=None),
        dataclasses.replace(empty, answer_text="", verdict=None),
        whole,
        unboxed(),
    ]
    told = compare_with_controls(
        [trace], 1, {CHAIN: [dataclasses.replace(trace, pool=pool, deliberations=[])]}
    )
    answering = told.controls[0].answering
    assert (answering.samples, answering.cut_off, answering.without_answer) == (4, 1, 1)
    assert answering.unanswered == 1, "the empty one is counted already"
    assert answering.accuracy.mean == 1 / 4 and told.heavy.unanswered == 0


@settings(deadline=None)
@given(
    st.integers(2, 3).flatmap(
        lambda d: st.lists(
            st.lists(st.lists(st.booleans(), min_size=d, max_size=d), min_size=3, max_size=3),
            min_size=1,
            max_size=4,
        )
    )
)
def test_flips_are_those_of_all_pairs(make_trace, right):
    def traces(order: int) -> list[Trace]:
        answers = [["7" if one else "1" for one in problem[order]] for problem in right]
        return named([make_trace(["7"], each) for each in answers], order)

    told = compare_with_controls(traces(0), 1, {order_name(n): traces(n) for n in (1, 2)}).orders

    def between(problem: list[list[bool]]) -> float:
        pairs = itertools.combinations(problem, 2)
        return fmean(x != y for a, b in pairs for x, y in itertools.product(a, b))

    def within(problem: list[list[bool]]) -> float:
        return fmean(fmean(x != y for x, y in itertools.combinations(a, 2)) for a in problem)

    assert told.problems == len(right)
    assert told.between.mean == pytest.approx(fmean(map(between, right)))
    assert told.within.mean == pytest.approx(fmean(map(within, right)))
    assert told.flips.mean == pytest.approx(told.between.mean - told.within.mean)


def test_only_problems_deliberated_in_every_order_and_other_caches_tell_of_the_order(make_trace):
    first = named([make_trace(["7"], ["7", "1"]), make_trace(["7"], ["7", "7"])])
    second = named([make_trace(["7"], ["7", "7"]), make_trace(["7"])], 1)
    told = compare_with_controls(first, 1, {order_name(1): second}).orders
    assert told and told.problems == 1 and told.between.mean == 0.5
    assert compare_with_controls(second[1:], 1, {order_name(1): first[1:]}).orders is None
    same = named([make_trace(["7"], ["7", "1"])])
    told = compare_with_controls(same, 1, {order_name(1): same}).orders
    # Its deliberations are the same ones, and not two draws that agree.
    assert told and told.within and told.between.mean == told.within.mean == 1.0


def test_with_one_deliberation_sampling_cannot_be_told_from_order(make_trace):
    first, second = named([make_trace(["7"], ["7"])]), named([make_trace(["7"], ["1"])], 1)
    told = compare_with_controls(first, 1, {order_name(1): second}).orders
    assert told and told.between.mean == 1.0 and told.within is None and told.flips is None


def test_problems_that_a_step_failed_on_count_as_wrong_in_what_reads_the_pools(make_trace):
    whole, failed = named([make_trace(["7", "1"], ["7", "7"]), make_trace(["7", "1"])])
    failed = dataclasses.replace(failed, status="failed: build_caches: BudgetError: too long")
    told = compare_with_controls([whole, failed], 1, {CHOOSE: [whole], order_name(1): [whole]})
    assert told.problems == 2 and told.heavy.accuracy.mean == 0.5 and told.heavy.unasked == 1
    choose = told.controls[0].answering
    assert choose.accuracy.mean == 0.5 and choose.unasked == 1 and choose.unknown_tokens == 0
    assert told.orders and told.orders.problems == 1


def test_of_several_rounds_the_last_counts_also_where_a_problem_did_not_come_so_far(make_trace):
    first, second = named([make_trace(["7"], ["7"]), make_trace(["7"], ["7"], ["7"])])
    told = compare_with_controls([first, second], 2, {CHAIN: named([make_trace(["7"])] * 2)})
    assert told.heavy.accuracy.mean == 0.5 and told.heavy.unasked == 1


def test_other_problems_are_refused(make_trace):
    traces = named([make_trace(["7"], ["7"]), make_trace(["7"], ["7"])])
    with messages.raises("other_problems", run="chain"):
        compare_with_controls(traces, 1, {CHAIN: traces[1:]})
    with messages.raises("other_problems", run="garbled"):
        compare_with_controls(traces[1:], 1, {GARBLED: traces})

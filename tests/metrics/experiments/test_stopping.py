"""Early stopping: its exact values against all orders of arrival, and what is chosen by them."""

import dataclasses
import hashlib
import itertools
import math
import random
from functools import cache
from statistics import fmean

import messages
import numpy as np
import pytest
from generations import trajectory
from hypothesis import given, settings
from hypothesis import strategies as st

from heavydistill.config.versioned import write_versioned
from heavydistill.heavy.episode import Episode, Rules
from heavydistill.heavy.prompts import load
from heavydistill.heavy.voting import vote_value
from heavydistill.metrics.experiments.stopping import (
    ADAPTIVE,
    MAX_LOSS,
    Loss,
    StoppingRow,
    largest,
    read_stopping,
    stopping_report,
)
from heavydistill.schema import (
    Generation,
    Problem,
    Trace,
    Trajectory,
    Turn,
    Verdict,
    turns_as_json,
)

ATTEMPT = st.tuples(
    st.sampled_from(["7", "8", "?", None]), st.integers(1, 9), st.integers(1, 9), st.booleans()
)
RIGHT, STOPPED, TOKENS, USD, SECONDS = range(5)
MEASURED = {"thinker": ["a"], "deliberator": ["b"], "prompts": [], "verifiers": ["exact@1"]}


def usd(sample: Generation) -> float:
    return sample.completion_tokens / 4 if sample.completion_tokens >= 0 else math.nan


@cache
def episode_stops(first: tuple[tuple[str | None, str], ...], k: int) -> bool:
    """Whether an episode stops where its first attempts have these answers and ends."""
    asked = Problem(id="p", text="3 + 4", reference="7", verifier="exact")
    episode = Episode(asked, Rules(k=k, stop_at=len(first)), thinker=load("thinker", "brief", "en"))
    for ask in episode.asks():
        fields = dataclasses.asdict(trajectory("It is 7.")) | {"finish_reason": first[ask.index][1]}
        episode.tell(ask, {name: fields[name] for name in fields.keys() - {"id", "verdict"}})
    for ask in episode.asks():
        episode.tell(ask, Verdict(label="undecided", reason="", extracted=first[ask.index][0],
                                  verifier="test@1"))  # fmt: skip
    goes_on = [ask.index for ask in episode.asks()]
    assert goes_on in ([], [*range(len(first), k)])
    return episode.stopped_at == len(first)


def replayed(order: tuple[Trajectory, ...], k: int, trace: Trace) -> tuple[float, ...]:
    """Right, stopped, tokens, dollars and seconds if the attempts arrive in this order."""
    first, rest = order[:k], order[k:]
    stops = episode_stops(tuple((t.extracted, t.finish_reason) for t in first), len(order))
    sampled = list(first if stops else order)
    seconds = max(each.latency_s for each in first)
    tokens = sum(each.completion_tokens for each in sampled)
    if stops:
        return vote_value(first), 1.0, tokens, tokens / 4, seconds
    heard = trace.deliberations
    seconds += max((each.latency_s for each in rest), default=0.0)
    seconds += fmean(each.latency_s for each in heard)
    tokens += fmean(each.completion_tokens for each in heard)
    return fmean(each.is_correct for each in heard), 0.0, tokens, tokens / 4, seconds


@settings(max_examples=60)
@given(st.lists(ATTEMPT, min_size=2, max_size=5))
def test_each_value_is_the_mean_over_all_orders_of_arrival(make_trace, attempts):
    """Also where attempts failed, have no answer, or one answer has several verdicts.

    An episode decides, so what is executed is what was measured.
    """
    trace = make_trace([answer for answer, *_ in attempts], ["7", "8", "8"])
    pool = []
    for one, (_, tokens, seconds, is_usable) in zip(trace.pool, attempts, strict=True):
        wrong = dataclasses.replace(one.verdict, label="incorrect" if tokens > 6 else "correct")
        verdict = wrong if one.extracted == "7" else one.verdict
        end = {"finish_reason": "stop" if is_usable else "length", "verdict": verdict}
        pool.append(
            dataclasses.replace(one, completion_tokens=tokens, latency_s=float(seconds), **end)
        )
    heard = [
        dataclasses.replace(each, latency_s=float(number), completion_tokens=10 * number)
        for number, each in enumerate(trace.deliberations, 1)
    ]
    trace = dataclasses.replace(trace, pool=pool, deliberations=heard)
    row, k = StoppingRow.of(trace, usd), len(pool)
    orders = list(itertools.permutations(pool))
    for stop_at in range(1, k + 1):
        every = [replayed(order, stop_at, trace) for order in orders]
        found = row.answers[k + stop_at - 1]
        assert found == pytest.approx(np.mean(every, axis=0), abs=1e-9)
    for size in range(1, k + 1):
        every = [vote_value(order[:size]) for order in orders]
        slowest = [max(t.latency_s for t in order[:size]) for order in orders]
        found = row.answers[size - 1]
        assert (found[RIGHT], found[SECONDS]) == pytest.approx((fmean(every), fmean(slowest)))


def test_a_deliberation_costs_all_attempts_and_all_earlier_rounds(make_trace):
    trace = make_trace(["7", "8"], ["7", "7"], ["8", "7", "7"])
    slow = [dataclasses.replace(d, latency_s=float(d.index + d.round)) for d in trace.deliberations]
    whole = StoppingRow.of(dataclasses.replace(trace, deliberations=slow), usd).answers[-1]
    assert whole[TOKENS] == 5 * 2 + 5 * 2 + 5
    assert whole[SECONDS] == pytest.approx(0.1 + 2 + fmean([2, 3, 4]))
    assert (whole[RIGHT], whole[STOPPED]) == (pytest.approx(2 / 3), 0.0)


def test_what_is_unknown_is_not_a_number_and_never_0(make_trace):
    trace = make_trace(["7", "7", "8"], ["7"])
    lost = dataclasses.replace(trace.pool[2], completion_tokens=-1, latency_s=-1.0)
    row = StoppingRow.of(dataclasses.replace(trace, pool=[*trace.pool[:2], lost]), usd)
    unknown = np.isnan(row.answers)
    assert unknown[:, [TOKENS, USD, SECONDS]].all() and not unknown[:, [RIGHT, STOPPED]].any()


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 9), st.data())
def test_the_largest_of_some_is_the_mean_over_all_subsets(values, floor, data):
    k = data.draw(st.integers(0, len(values)))
    subsets = [max([*some, floor]) for some in itertools.combinations(values, k)]
    assert largest(values, k, floor) == pytest.approx(fmean(subsets))


def row(
    number: int, stop: float, heavy: float = 1.0, vote: float = 0.0, one: float = 0.0
) -> StoppingRow:
    """A problem with two attempts, whose rules and deliberation are right as often as given.

    The length of its question is 10 to 100 characters.
    """
    values = [(vote, 1.0), (vote, 2.0), (one, 1.0), (stop, 2.0), (heavy, 4.0)]
    answers = [(right, 0.5, tokens, math.nan, 1.0) for right, tokens in values]
    return StoppingRow(f"p{number}", 2, 10 * (number % 10 + 1), np.array(answers))


def is_late(number: int, of: int) -> bool:
    """Whether a problem is in the half that confirms: the one of the larger hashes."""
    hashes = [hashlib.sha256(f"p{each}".encode()).digest() for each in range(of)]
    return sorted(hashes).index(hashes[number]) >= of // 2


def test_a_rule_is_chosen_on_one_half_and_confirmed_by_the_other(tmp_path):
    rows = [row(number, 0.8, 0.8) for number in range(1400)]
    report = stopping_report(rows, MEASURED)
    assert (report.choosing, report.confirming, report.baseline) == (700, 700, "heavy")
    assert report.stop_at == report.chosen.k == 2 and report.needs is None
    # No loss was seen in 700 problems, so it may be 3 in 700.
    assert report.chosen.confirmed.mean == 0
    assert report.chosen.confirmed.at_most == pytest.approx(3 / 701)
    assert report.chosen.saved == {"completion": 0.5, "usd": None, "seconds": 0.0}
    assert report.chosen.per_right["completion"] == pytest.approx(2 / 0.8)
    assert report.chosen.per_right["usd"] is None
    write_versioned(report, tmp_path / ADAPTIVE)
    assert read_stopping(tmp_path / ADAPTIVE) == report
    random.Random(3).shuffle(rows)
    assert stopping_report(rows, MEASURED) == report


def test_a_loss_on_the_other_half_alone_leaves_no_policy():
    rows = [row(number, 0.9 if is_late(number, 1400) else 1.0) for number in range(1400)]
    report = stopping_report(rows, MEASURED)
    assert report.chosen and report.chosen.chosen.mean == 0
    assert report.chosen.confirmed.mean == pytest.approx(0.1)
    assert report.stop_at is None


def test_no_rule_is_chosen_where_agreement_is_often_wrong_and_deliberation_is_not():
    report = stopping_report([row(number, 0.9) for number in range(1400)], MEASURED)
    assert report.chosen is report.stop_at is None
    assert report.needs is None, "more problems would not help"


def test_it_says_how_many_problems_would_be_enough():
    # One in 500 is lost: too little to see in 200 problems of a half.
    report = stopping_report([row(n, float(n % 500 > 0)) for n in range(400)], MEASURED)
    assert report.stop_at is None
    spread = math.sqrt(1 / 400 * (399 / 400))
    assert report.needs == math.ceil((1.6448536 * spread / (MAX_LOSS - 1 / 400)) ** 2)


def test_the_yardstick_is_the_vote_where_deliberation_is_worse():
    report = stopping_report([row(n, 0.5, 0.2, vote=0.7) for n in range(1400)], MEASURED)
    assert report.baseline == "vote" and report.stop_at is None
    assert report.rules[-1].chosen.mean == pytest.approx(0.5)
    # It would lose nothing, and cost more than the vote.
    rows = [row(number, 0.7, 0.2, vote=0.7) for number in range(1400)]
    for each in rows:
        each.answers[3][TOKENS] = 3.0
    report = stopping_report(rows, MEASURED)
    assert report.chosen and report.chosen.saved["completion"] == -0.5 and report.stop_at is None


def gated(number: int, stop: float = 1.0) -> StoppingRow:
    """A problem that one attempt solves if its question has at most 30 characters."""
    return row(number, stop, one=float(number % 10 < 3))


def test_a_gate_gives_one_attempt_to_the_longest_questions_that_lose_little():
    report = stopping_report([*map(gated, range(1400))], MEASURED)
    assert (report.stop_at, report.gate_at, report.gate.k, report.gate.rule) == (2, 30, 30, "gate")
    assert report.gate.confirmed == Loss(0.0, pytest.approx(3 / 701))
    short = fmean(number % 10 < 3 for number in range(1400) if is_late(number, 1400))
    spent = short * 1.0 + (1 - short) * 2.0  # the others stop at 2
    assert report.gate.saved["completion"] == pytest.approx(1 - spent / 4.0)


def test_without_a_rule_the_others_are_deliberated_on():
    report = stopping_report([gated(number, stop=0.9) for number in range(1400)], MEASURED)
    assert (report.stop_at, report.gate_at) == (None, 30)
    short = fmean(number % 10 < 3 for number in range(1400) if is_late(number, 1400))
    assert report.gate.saved["completion"] == pytest.approx(1 - (short + (1 - short) * 4.0) / 4.0)


def test_a_gate_that_loses_on_the_other_half_is_not_confirmed():
    rows = [row(n, 1.0, one=float(n % 10 < 3 and not is_late(n, 1400))) for n in range(1400)]
    report = stopping_report(rows, MEASURED)
    assert (report.gate_at, report.gate.k) == (None, 30) and report.stop_at == 2
    assert report.gate.chosen.mean == 0 and report.gate.confirmed.mean > 0.25


def test_without_a_gate_the_one_of_the_smallest_loss_is_shown():
    report = stopping_report([row(number, 1.0) for number in range(1400)], MEASURED)
    assert (report.gate_at, report.gate.k) == (None, 20), "the first decile"
    assert report.gate.chosen.mean == pytest.approx(0.2, abs=0.03)


def test_the_length_of_a_question_includes_the_turns_before_it(make_trace):
    trace = make_trace(["7", "7"], ["7"])
    assert StoppingRow.of(trace, usd).characters == len("3 + 4")
    history = turns_as_json([Turn(role="user", text="Be brief.")])
    longer = dataclasses.replace(trace.problem, history_json=history)
    row = StoppingRow.of(dataclasses.replace(trace, problem=longer), usd)
    assert row.characters == len(longer.transcript) > 20


def test_pools_of_another_size_are_counted():
    rows = [row(number, 1.0) for number in range(10)]
    report = stopping_report([*rows, dataclasses.replace(row(10, 1.0), k=3)], MEASURED)
    assert (report.other_sizes, report.choosing, report.confirming) == (1, 5, 5)


@pytest.mark.parametrize(
    "rows", [[row(1, 1.0)], [dataclasses.replace(row(n, 1.0), k=1) for n in (1, 2)]]
)
def test_what_cannot_agree_is_refused(rows):
    with messages.raises("nothing_can_agree"):
        stopping_report(rows, MEASURED)

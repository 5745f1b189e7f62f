"""Step table and step vote: by hand, what must not matter, deliberators that are told apart."""

import dataclasses
import random
from collections.abc import Callable, Sequence

import pytest
from generations import cache, deliberation, item, trajectory
from hypothesis import given
from hypothesis import strategies as st
from test_comparison import numbered, side

from heavydistill.metrics.comparison import compare_sides
from heavydistill.metrics.steps import MOST_STEPS, StepFigures
from heavydistill.metrics.summary import Summary, summarize
from heavydistill.schema import Problem, Trace, Verdict

TERMS = (57, 87, -22, 35, -41)
RIGHT = "116"
Slips = dict[int, int]
"""By place, what is added to the true value of a step; later steps go on from there."""


def chain(slips: Slips | None = None, terms: Sequence[int] = TERMS) -> str:
    """The steps of an attempt or a deliberation, and its answer."""
    total, text = terms[0], str(terms[0])
    for place, term in enumerate(terms[1:]):
        total += term + (slips or {}).get(place, 0)
        text += f" {'-' if term < 0 else '+'}{abs(term)}={total}"
    return f"{text}\n\\boxed{{{total}}}"


def shown(attempts: Sequence[str], *written: str, cut: int = 0) -> Trace:
    """A trace of attempts, of which the first ``cut`` were cut in the cache, and deliberations."""
    pool = [_judged(trajectory, f"t_{n}", text) for n, text in enumerate(attempts)]
    read = cache(*(item(each.id, 9, 9 - (n < cut)) for n, each in enumerate(pool)))
    said = [_judged(deliberation, f"d_{n}", text) for n, text in enumerate(written)]
    problem = Problem(id="p", text="?", reference=RIGHT, verifier="exact")
    return Trace(problem=problem, pool=pool, caches=[read], deliberations=said)


def _judged(make, id: str, text: str):
    answer = text.partition("\\boxed{")[2].rstrip("}") or None
    label = "correct" if answer == RIGHT else "incorrect"
    verdict = Verdict(label=label, reason="test", extracted=answer, verifier="exact@1")
    return make(text, id=id, verdict=verdict)


def table(trace: Trace) -> list[float]:
    """(written, plurality, picked, steps) of unanimous true, unanimous false and parting steps."""
    return list(StepFigures.of(trace, 1).counts)


def vote(*attempts: str, **more: int) -> float | None:
    return StepFigures.of(shown(attempts, chain(), **more), 1).step_vote


def test_a_table_by_hand():
    # 57+87 is read as 144, 144, 134; then 144-22 is in two attempts and 134-22 in one.
    attempts = [chain(), chain({1: 5}), chain({0: -10})]
    assert table(shown(attempts, chain())) == [*[0] * 8, 2, 1.5, pytest.approx(7 / 6), 2]
    # What it writes at 144-22 alone is false; it has no later step that two attempts have.
    assert table(shown(attempts, chain({1: 7})))[8:] == [1, 1.5, pytest.approx(7 / 6), 2]
    wrong = [chain({3: 10})] * 2
    assert table(shown(wrong, chain(), chain({3: 10}))) == [6, 6, 6, 6, 1, 0, 0, 2, 0, 0, 0, 0]
    assert not any(table(shown([chain(), "No steps: \\boxed{116}"], chain()))), "one attempt alone"
    different = [chain({3: 10}), chain({3: 20})]
    assert table(shown(different, chain()))[4:] == [0] * 8, "none of the values is true"


def test_the_last_value_of_a_step_counts_and_cut_texts_do_not():
    two = [chain()] * 2
    assert table(shown(two, f"57 + 87 = 134. No: 57 + 87 = 144. {chain()}"))[:4] == [4] * 4
    assert not any(table(shown(two, chain(), cut=1)))
    trace = shown(two, chain())
    (whole,) = trace.deliberations
    broken = dataclasses.replace(
        trace, deliberations=[dataclasses.replace(whole, finish_reason="length")]
    )
    assert not any(table(broken)) and StepFigures.of(broken, 1).step_vote == 1
    assert StepFigures.of(dataclasses.replace(trace, deliberations=[]), 1).step_vote is None


def test_true_values_of_a_step_are_one_value_however_they_are_rounded():
    true, false = ["10 / 3 = 3.33", "10 / 3 = 3.3"], ["10 / 3 = 3.4"] * 2
    assert table(shown(true, "10 / 3 = 3.3333")) == [1, 1, 1, 1, *[0] * 8]
    assert table(shown([*true, *true, *false, false[0]], "10 / 3 = 3.33"))[8:] == [
        *(1, 1, pytest.approx(4 / 7), 1)
    ]
    assert table(shown(false, true[0]))[4:8] == [1, 0, 0, 1]
    # 116 and 115.67 are both 347 / 3, and as frequent as 120; only 116 is called right.
    right, exact, wrong = (f"347 / 3 = {each}\n\\boxed{{{each}}}" for each in (116, 115.67, 120))
    assert vote(right, exact, wrong, wrong) == 0.25 and vote(right, exact, wrong) == 0.5


def test_a_step_vote_by_hand():
    early, late = chain({0: 10}), chain({3: 10})
    assert vote(chain(), early) == 0.5, "a tie at the first step"
    assert vote(early, early, late, chain(), chain({3: -7})) == pytest.approx(1 / 3)
    # The plain vote says 126, which two attempts have; at 57+87 three of five have 144.
    assert vote(chain(), early, early) == 0
    # Three answers are 121, but only the last two steps are in doubt.
    assert vote(chain({0: 5}), chain({1: 5}), chain({2: 5}), chain()) == 0.5
    assert vote(*[chain({0: 10, 3: -10})] * 2) == 1, "an answer is judged by its verdict"


def products(first: int, second: int, last: int) -> str:
    """Two products, their sum, and a term more."""
    total = first + second
    text = f"3*4={first} 5*2={second}\n{first} +{second}={total} +{last}={total + last}"
    return f"{text}\n\\boxed{{{total + last}}}"


def test_a_step_vote_takes_results_together():
    assert vote(products(12, 10, 94), products(9, 10, 94), products(12, 8, 94)) == 1
    # Most have 12, and most 10, but none has both, so that the vote of the answers decides.
    for last, right in ((94, 0), (97, 1)):
        apart = [(9, 10), (9, 10), (12, 8), (12, 6), (12, 5)]
        assert vote(*(products(*each, last) for each in apart)) == right


@pytest.mark.parametrize(
    "attempts",
    [
        ["It is \\boxed{116}"] * 3,
        [chain(), "57 +87=144\nmore\n\\boxed{116}"],
        [chain(), "It is \\boxed{116}"],
        [chain(), chain({3: 10}).replace("{126}", "{116}")],
        [chain(terms=(*range(MOST_STEPS + 2),))] * 2,
    ],
)
def test_without_two_alike_chains_there_is_no_step_vote(attempts):
    assert vote(*attempts) is None
    assert vote(chain(), chain(), chain(), cut=2) is None, "only one is whole"


def test_a_step_vote_with_too_many_ties_is_not_defined():
    tied = [
        " ".join(f"{n}*{n + 1}={n * (n + 1) + error}" for n in range(3, 15))
        + f"\n\\boxed{{{210 + error}}}"
        for error in (0, 1000)
    ]
    assert vote(*tied) is None
    assert vote(*tied, tied[0]) == 0, "no tie; that answer is not the reference"


SLIPS = st.dictionaries(st.integers(0, 3), st.sampled_from([-10, 10]), max_size=2)
CACHES = st.lists(SLIPS, min_size=2, max_size=5)


@given(slips=CACHES, own=SLIPS, data=st.data())
def test_order_does_not_matter_and_copies_keep_what_is_unanimous(slips, own, data):
    attempts = [chain(each) for each in slips]
    trace = shown(attempts, chain(own))
    found = StepFigures.of(trace, 1)
    shuffled = data.draw(st.permutations(attempts))
    assert StepFigures.of(shown(shuffled, chain(own)), 1) == found
    twice = StepFigures.of(shown([*attempts, *attempts], chain(own)), 1)
    assert twice.step_vote == found.step_vote
    alone = table(shown([attempts[0]] * 3, chain(own)))
    assert alone[8:] == [0] * 4, "copies of one attempt never part"
    assert twice.counts[3] >= found.counts[3] and twice.counts[11] == found.counts[11]


@given(slips=CACHES)
def test_who_copies_each_attempt_in_turn_is_worth_a_random_pick(slips):
    attempts = [chain(each) for each in slips]
    counts = table(shown(attempts, *attempts))
    assert counts[::4] == pytest.approx(counts[2::4])
    value = vote(*attempts)
    assert value is not None and 0 <= value <= 1


@given(slipped=st.sets(st.integers(0, 6), max_size=7), attempts=st.sampled_from([3, 5, 7]))
def test_who_copies_the_plurality_has_exactly_its_share(slipped, attempts):
    slips = [{3: 10} if number in slipped else {} for number in range(attempts)]
    most = max([{}, {3: 10}], key=slips.count)
    counts = table(shown([chain(each) for each in slips], chain(most)))
    assert counts[::4] == counts[1::4] and sum(counts[3::4]) == 4


def reads(there: list[int], rng: random.Random) -> int:
    return 0


def copies_most(there: list[int], rng: random.Random) -> int:
    return max(sorted(set(there)), key=there.count)


def copies_any(there: list[int], rng: random.Random) -> int:
    return rng.choice(there)


def control(decide: Callable[[list[int], random.Random], int]) -> Summary:
    """A run on 200 problems, K=5. At each step, ``decide`` chooses among the errors (0 is none) of
    the attempts that have the same values so far."""
    rng, chooses, traces = random.Random(0), random.Random(1), []
    for _ in range(200):
        slips = [
            {p: rng.choice([-10, 10]) for p in range(4) if rng.random() < 0.3} for _ in range(5)
        ]
        own: Slips = {}
        for place in range(4):
            alike = [s for s in slips if all(s.get(p, 0) == own.get(p, 0) for p in range(place))]
            own[place] = decide([s.get(place, 0) for s in alike] or [0], chooses)
        traces.append(shown([chain(each) for each in slips], chain(own)))
    return summarize(numbered(traces))


def test_deliberators_are_told_apart():
    reader, majority, picker = map(control, (reads, copies_most, copies_any))
    parts = [each.steps["parting"] for each in (reader, majority, picker)]
    assert parts[0].written.mean == 1 and parts[0].written_minus_plurality.low > 0.1
    assert abs(parts[1].written_minus_plurality.mean) < 0.05
    over = parts[2].written_minus_plurality
    assert over.high < 0 and parts[2].written.low < parts[2].picked.mean < parts[2].written.high
    assert parts[0].picked.mean < parts[0].plurality.mean
    for each in (majority, picker):
        assert each.steps["unanimous_true"].written.mean == 1, "both copy what all agree on"
        assert each.steps["unanimous_false"].written.mean == 0
    step_votes = [each.step_vote for each in (reader, majority, picker)]
    over_votes = [each.heavy_minus for each in step_votes if each]
    assert over_votes[0].low > 0 and over_votes[1].low < 0 < over_votes[1].high
    assert over_votes[2].high < 0


def test_changes_are_paired_by_problem():
    mixed = [chain(), chain({0: 10}), chain({0: -10})]
    before = numbered([shown(mixed, chain({0: 10})), shown(mixed, chain())])
    after = numbered([shown(mixed, chain()), shown(mixed, chain())])
    told = compare_sides(side(after), side(before), {}).steps
    assert [*told] == ["parting", "parting_minus_plurality", "step_vote", "heavy_minus_step_vote"]
    assert told["parting"].before and told["parting"].before.mean == 0.5
    assert told["parting"].difference and told["parting"].difference.mean == 0.5
    vote = told["heavy_minus_step_vote"]
    assert vote.before and vote.before.mean == pytest.approx(0.5 - 1 / 3)
    assert vote.difference and vote.difference.mean == pytest.approx(0.5)
    frozen = numbered([shown(mixed, chain(), chain({0: 10})) for _ in range(2)])
    on_before = compare_sides(side(after), side(before), {}, side(frozen)).frozen_steps
    assert (
        on_before.keys() == told.keys()
        and on_before["step_vote"].before == told["step_vote"].before
    )
    over = on_before["heavy_minus_step_vote"]
    assert over.before == vote.before and over.after.mean == pytest.approx(0.5 - 1 / 3)
    assert not compare_sides(side(after), side(before), {}).frozen_steps
    alone = compare_sides(side(after), None, {}).steps
    assert alone["parting"].before is None and alone["parting"].after == told["parting"].after
    table = summarize(before).steps["parting"]
    alone = compare_sides(side(before), None, {}).steps
    assert alone["parting"].after == table.written == told["parting"].before
    assert alone["parting_minus_plurality"].after == table.written_minus_plurality
    same = compare_sides(side(after), side(after), {}).steps
    assert all(each.difference and each.difference.mean == 0 for each in same.values())
    words = numbered([shown(["It is \\boxed{116}"] * 2, "\\boxed{116}")] * 2)
    assert compare_sides(side(after), side(words), {}).steps["parting"].difference is None
    assert summarize(words).step_vote is None and not summarize(words).steps

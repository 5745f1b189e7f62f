"""The pools of controls: what is replaced, by what, and that nothing else changes."""

import dataclasses
import itertools
import json
import random
import re
import statistics
from collections.abc import Sequence
from typing import Any, get_args

import pytest
from heavy_samples import CHARS, build, deliberation, problem, trajectory, unusable
from hypothesis import given, settings
from hypothesis import strategies as st

from heavydistill.config.run import Attempts, Selection
from heavydistill.experiments.controls import other_pools
from heavydistill.experiments.perturbation import final_box
from heavydistill.heavy.voting import stratum
from heavydistill.metrics.controls import compare_with_controls, planted_names
from heavydistill.schema import Problem, Trace, Trajectory, Turn, turns_as_json

answers = st.lists(st.sampled_from(["60", "7135", "7935", None]), min_size=1, max_size=9)


def trace_of(
    *extracted: str | None, right: str = "60", width: int | None = None, **changes: Any
) -> Trace:
    """A trace with its cache; ``changes`` are fields of the problem."""
    asked = dataclasses.replace(problem(), reference=right, **changes)
    pool = [
        trajectory(
            *(place, answer, answer == right),
            id=f"{asked.id}_{place}",
            answer_text=_text(answer),
            reasoning="",
        )
        for place, answer in enumerate(extracted)
    ]
    cache = build(pool, asked, width=width)
    return Trace(problem=asked, pool=pool, caches=[cache], stratum=stratum(pool))


def _text(answer: str | None) -> str:
    return "I give up." if answer is None else f"We have 30 + 30 = {answer}, \\boxed{{{answer}}}"


def other(attempts: Attempts, *traces: Trace) -> dict[str, list[Trajectory]]:
    """The pools of the control by problem, which are always the same."""
    pools = {trace.problem.id: pool for trace, pool in other_pools(attempts, traces)}
    again = list(other_pools(attempts, iter(traces)))
    assert pools == {trace.problem.id: pool for trace, pool in again}
    for trace, pool in again:
        assert [one.index for one in pool] == [one.index for one in trace.pool]
        assert len({one.id for one in [*pool, *trace.pool]}) >= len(pool)
        assert [one.unusable_because for one in pool] == [t.unusable_because for t in trace.pool]
    return pools


def shown(trace: Trace, pool: Sequence[Trajectory]) -> list[Trajectory]:
    """The attempts of a pool at the places of those that the trace's cache shows."""
    ids = [item.generation for item in trace.caches[0].items]
    places = {one.id: place for place, one in enumerate(trace.pool)}
    return [pool[places[id]] for id in ids]


@settings(max_examples=60, deadline=None)
@given(answers=answers, width=st.none() | st.integers(2, 4))
def test_garbled_attempts_have_other_values_and_no_verdict(answers, width):
    trace = trace_of(*answers, width=width)
    trace = dataclasses.replace(trace, pool=[*trace.pool, *unusable()])
    pools = other("garbled", trace)
    if all(one.extracted is None for one in shown(trace, trace.pool)):
        assert not pools
        return
    (pool,) = pools.values()
    for old, new in zip(trace.pool, pool, strict=True):
        assert re.sub(r"\d+", "", old.answer_text) == re.sub(r"\d+", "", new.answer_text)
        assert (old == new) == (old.unusable_because is not None or old.extracted is None)
        assert old == new or (new.verdict is None and old.id != new.id)
        if old.unusable_because is None:
            assert not {"60", old.extracted} & set(re.findall(r"\d+", new.answer_text))


@pytest.mark.parametrize("selection", get_args(Selection))
@pytest.mark.parametrize("attempts", ["garbled", "foreign", "transplant"])
def test_a_cache_shows_the_attempts_of_a_control_at_the_same_places(selection, attempts):
    trace = trace_of("60", "7135", "7135", "7935", None, "7135", width=4)
    choice = {"selection": selection, "width": 4, "seed": 3, "order": 1}
    before = build(trace.pool, trace.problem, **choice)
    trace = dataclasses.replace(trace, caches=[before])
    pools = other(attempts, trace, trace_of("1", "3", "3", right="1", id="p2"))
    if attempts == "transplant" and selection == "stratified":
        assert not pools or "60" in {one.extracted for one in shown(trace, trace.pool)}
    if not (pool := pools.get(trace.problem.id)):
        return
    cache = build(trace.pool, trace.problem, instead=pool, **choice)
    assert [item.generation for item in cache.items] == [one.id for one in shown(trace, pool)]
    assert trace.problem.text in cache.prompt
    left = {each.generation for each in cache.left_out}
    assert left | {one.id for one in shown(trace, pool)} == {one.id for one in pool}
    texts = [one.answer_text for one in shown(trace, pool)]
    assert all(text in cache.prompt for text in texts)


def test_foreign_attempts_are_of_the_same_kind_and_stratum_and_about_as_long():
    mine = trace_of("60", "60", "7135")
    other_kind = trace_of("1", "1", "2", right="1", id="kind", verifier="math")
    other_stratum = trace_of("1", "1", "1", right="1", id="all")
    long = trace_of("1" * 11, "1" * 11, "2" * 11, right="1" * 11, id="long")
    telling = trace_of("61", "61", "60", right="61", id="telling")
    alike = trace_of("17", "17", "9", right="17", id="alike")
    everyone = [mine, other_kind, other_stratum, long, telling, alike]
    pool = other("foreign", *everyone)["p1"]
    assert [one.answer_text for one in pool] == [one.answer_text for one in alike.pool]
    assert all(one.verdict is None for one in pool)
    pool = other("foreign", *everyone[:-1])["p1"]
    assert pool[0].answer_text == long.pool[0].answer_text, "not the one with the right answer"
    pool = other("foreign", *everyone[:3])["p1"]
    assert pool[0].answer_text == other_stratum.pool[0].answer_text
    assert not other("foreign", mine, other_kind)


def test_foreign_attempts_fill_every_usable_place():
    mine, few = trace_of("60", "60", "60", "7135", "60"), trace_of("5", "6", right="5", id="p2")
    few = dataclasses.replace(few, pool=[*few.pool, *unusable()])
    pools = other("foreign", mine, few)
    texts = [one.answer_text for one in few.pool[:2]]
    assert [one.answer_text for one in pools["p1"]] == [*texts, *texts, texts[0]]
    assert len({one.id for one in pools["p1"]}) == 5
    assert [one.answer_text for one in pools["p2"]][:2] == [_text("60")] * 2


def test_families_and_numbers_of_options_are_kinds_too():
    def of(id: str, **args: Any) -> Trace:
        return trace_of("60", id=id, verifier_args=json.dumps(args))

    assert set(other("foreign", of("a", family="x"), of("b", family="y"), of("c"))) == set()
    assert set(other("foreign", of("a", family="x"), of("b", family="x"))) == {"a", "b"}
    four, five = of("a", options=4), of("b", options=["u", "v", "w", "x", "y"])
    assert not other("foreign", four, five)
    assert len(other("foreign", four, of("c", options=["u", "v", "w", "x"]))) == 2


@settings(max_examples=80, deadline=None)
@given(answers=answers, width=st.none() | st.integers(2, 6))
def test_a_transplant_takes_right_attempts_out_or_puts_one_in(answers, width):
    trace = trace_of(*answers, width=width)
    before = shown(trace, trace.pool)
    pools = other("transplant", trace)
    right_outside = {one.id for one in trace.pool if one.is_correct} - {one.id for one in before}
    falls = stratum(before) == "minority-right"
    wrong = any(one.verdict.label == "incorrect" for one in before)
    rises = not any(one.is_correct for one in before) and bool(right_outside) and wrong
    assert bool(pools) == (falls or rises)
    if not pools:
        return
    (pool,) = pools.values()
    after = shown(trace, pool)
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert all(one.verdict for one in pool), "verdicts of the same problem stay"
    if falls:
        assert len(changed) == sum(one.is_correct for one in before)
        assert not any(one.is_correct for one in after)
    else:
        assert len(changed) == 1 and changed[0].is_correct
        assert sum(one.is_correct for one in after) == 1


def test_a_transplant_takes_wrong_attempts_that_are_not_shown_first():
    found = 0
    for answers in set(itertools.permutations(["60", "7135", "7135", "7935"])):
        trace = trace_of(*answers, width=3)
        if {one.extracted for one in shown(trace, trace.pool)} == {"60", "7135"}:
            after = shown(trace, other("transplant", trace)["p1"])
            assert sorted(one.extracted or "" for one in after) == ["7135", "7135", "7935"]
            found += 1
    assert found


def test_pools_without_verdicts_or_caches_allow_no_transplant():
    trace = trace_of("60", "7135", "7135")
    assert other("transplant", trace)
    assert not other("transplant", dataclasses.replace(trace, caches=[]))
    unjudged = [dataclasses.replace(one, verdict=None) for one in trace.pool]
    assert not other("transplant", dataclasses.replace(trace, pool=unjudged))
    assert other("garbled", dataclasses.replace(trace, pool=unjudged, caches=[]))


def test_garbled_attempts_of_several_turns_show_no_turn_as_it_was():
    trace = trace_of("60", "7135")
    first, second = trace.pool
    turns = [Turn(role="assistant", text="It may be 60."), Turn(role="assistant", text=_text("60"))]
    several = dataclasses.replace(first, turns_json=turns_as_json(turns))
    pool = other("garbled", dataclasses.replace(trace, pool=[several, second]))
    (garbled, _), *_ = pool.values()
    assert len(garbled.turns) == 2 and "60" not in garbled.turns_json
    assert "60" not in garbled.answer_text + garbled.reasoning
    assert several.reasoning == "It may be 60."


def test_garbled_needs_a_final_answer_that_a_cache_shows():
    found = set()
    for place in range(3):
        trace = trace_of(*("60" if n == place else None for n in range(3)), width=2)
        is_shown = any(one.extracted for one in shown(trace, trace.pool))
        assert bool(other("garbled", trace)) == is_shown
        found.add(is_shown)
    assert found == {True, False}
    # A cache that still shows a right answer would not tell what the values are worth.
    assert other("garbled", trace_of("60", "7135"))
    assert not other("garbled", trace_of("60", "\\pi", right="\\pi"))


def test_replaced_pools_come_from_the_problems_nearby():
    """Of a long run only a part is in memory."""
    traces = (trace_of(f"{n}", f"{n + 1}", right=f"{n}", id=f"p{n}") for n in range(10, 610))
    pools = other_pools("foreign", traces)
    for number, (trace, pool) in enumerate(pools, 10):
        donor = int(str(pool[0].answer_text).rpartition("{")[2].strip("}"))
        assert trace.problem.id == f"p{number}" and 0 < abs(donor - number) < 512
    assert CHARS.name == "chars" and number == 609


def test_empty_attempts_answers_and_steps_hold_no_more_than_that():
    trace = trace_of("60", "7135", None)
    trace = dataclasses.replace(trace, pool=[*trace.pool, *unusable()])
    (empty,), (answers_,), (steps,) = (
        [pool for _, pool in other_pools(name, [trace])] for name in ("empty", "answers", "steps")
    )
    assert [one.answer_text for one in empty[:3]] == ["", "", ""]
    assert [one.answer_text for one in answers_[:3]] == ["\\boxed{60}", "\\boxed{7135}", ""]
    assert [one.answer_text for one in steps[:2]] == [
        "We have 30 + 30 = 60,",
        "We have 30 + 30 = 7135,",
    ]
    assert [one.is_correct for one in answers_[:2]] == [True, False]
    assert not any(one.verdict for one in [*empty[:3], steps[0], steps[1]])
    for pool in (empty, answers_, steps):
        assert pool[3:] == trace.pool[3:], "what is not usable stays"
    unboxed = trace_of(None, None)
    assert other("empty", dataclasses.replace(trace_of(None), caches=[])) == {}
    assert [len(list(other_pools(name, [unboxed]))) for name in ("answers", "steps")] == [0, 0]


@pytest.mark.parametrize("shared", [1, 2, 4])
def test_a_planted_step_is_shared_by_so_many_of_right_attempts(shared):
    trace = trace_of("60", "7135", None, "60", "7935", width=4)
    (pool,) = other(f"planted-{shared}", trace).values()
    after = shown(trace, pool)
    wrong = [one for one in after if not one.is_correct]
    assert len(after) == 4 and len(wrong) == shared
    assert {one.answer_text for one in wrong} < {_text("50"), _text("70")}
    assert all(one.verdict is None for one in wrong) and len({one.id for one in after}) == 4
    assert all(one.extracted == "60" for one in after if one.is_correct)
    outside = {one.id for one in trace.pool} - {one.id for one in shown(trace, trace.pool)}
    assert outside < {one.id for one in pool}, "what no cache shows stays"


def test_a_step_is_planted_only_where_all_attempts_are_usable_and_one_is_right():
    assert not other("planted-3", trace_of("60", "60"))
    assert not other("planted-1", trace_of("7135", "7135"))
    trace = trace_of("60", "60")
    assert not other("planted-1", dataclasses.replace(trace, pool=[*trace.pool, *unusable()]))
    assert not other("planted-1", dataclasses.replace(trace, caches=[]))
    assert not other("planted-1", dataclasses.replace(trace, caches=trace.caches * 2))


def test_a_step_is_planted_in_an_attempt_whose_steps_are_all_true_if_there_is_one():
    trace = trace_of("60", "60")
    cancelling = "57 + 3 = 50\n50 + 10 = 60\nThe answer is \\boxed{60}."
    for place in (0, 1):
        pool = list(trace.pool)
        pool[place] = dataclasses.replace(pool[place], answer_text=cancelling)
        (planted,) = other("planted-1", dataclasses.replace(trace, pool=pool)).values()
        (wrong,) = [one for one in planted if one.verdict is None]
        assert "57 + 3" not in wrong.answer_text


K, SLIP = 8, 0.3


class Chains:
    """Problems such as ``57 + 87 - 22``, thinkers that slip, and deliberators of three kinds."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def trace(self, number: int) -> Trace:
        terms = [self.rng.randint(11, 99) for _ in range(5)]
        asked = dataclasses.replace(
            problem(),
            id=f"p{number}",
            text=f"What is {' + '.join(map(str, terms))}?",
            reference=str(sum(terms)),
        )
        pool = [self._judged(asked, index, self.chain(terms)) for index in range(K)]
        cache = build(pool, asked)
        return Trace(problem=asked, pool=pool, caches=[cache], stratum=stratum(pool))

    def slip(self) -> int:
        return self.rng.choice((-20, -10, 10, 20)) if self.rng.random() < SLIP else 0

    def chain(self, terms: Sequence[int], attempts: Sequence[str] = ()) -> str:
        """Steps that take over what most attempts have at a step with the same operands."""
        totals = [terms[0]]
        for term in terms[1:]:
            step = rf"(?<!\d){totals[-1]} \+{term}=(-?\d+)"
            read = [found for text in attempts for found in re.findall(step, text)]
            common = statistics.multimode(read)
            alone = totals[-1] + term + self.slip()
            totals.append(int(self.rng.choice(common)) if len(read) > 1 else alone)
        steps = "".join(f" +{t}={total}" for t, total in zip(terms[1:], totals[1:], strict=True))
        return f"{terms[0]}{steps}\nAnswer: \\boxed{{{totals[-1]}}}"

    def deliberation(self, kind: str, asked: Problem, texts: Sequence[str]) -> str:
        terms = list(map(int, re.findall(r"\d+", asked.text)))
        boxes = [box for text in texts if (box := final_box(text))]
        if kind == "copies":
            common = statistics.multimode(boxes) or [str(self.rng.randint(100, 400))]
            return f"\\boxed{{{self.rng.choice(common)}}}"
        return self.chain(terms, texts if kind == "reads" else ())

    def deliberated(self, kind: str, trace: Trace, pool: Sequence[Trajectory]) -> Trace:
        judged = [
            one if one.verdict else self._judged(trace.problem, one.index, one.answer_text, one.id)
            for one in pool
        ]
        places = {one.id: place for place, one in enumerate(trace.pool)}
        items = [
            dataclasses.replace(item, generation=pool[places[item.generation]].id)
            for item in trace.caches[0].items
        ]
        texts = [pool[places[item.generation]].answer_text for item in trace.caches[0].items]
        cache = dataclasses.replace(trace.caches[0], items=items)
        said = final_box(self.deliberation(kind, trace.problem, texts))
        answer = deliberation(0, said, said == trace.problem.reference, cache=cache.id)
        return dataclasses.replace(trace, pool=judged, caches=[cache], deliberations=[answer])

    def _judged(self, asked: Problem, index: int, text: str, id: str = "") -> Trajectory:
        said = final_box(text) or None
        id = id or f"{asked.id}_{index}"
        right = said == asked.reference
        return trajectory(index, said, right, id=id, answer_text=text, reasoning="")


@pytest.fixture(scope="module")
def chains() -> dict[str, list[tuple[Trace, list[Trajectory]]]]:
    """The traces of 60 problems with the pools that each control shows."""
    made = Chains(1)
    traces = [made.trace(number) for number in range(60)]
    names = ["garbled", "foreign", "empty", "answers", "steps", *planted_names(K)]
    pools = {name: list(other_pools(name, traces)) for name in names}
    return {"own": [(trace, trace.pool) for trace in traces], **pools}


@pytest.mark.parametrize(
    ("kind", "signs", "follows"),
    [
        # HM - garbled, - foreign, - empty, - answers, - steps; a planted step of 2, 5, 7, 8 of 8
        ("reads", "++++0", "0+++"),
        ("copies", "+++0+", "0+++"),
        ("ignores", "00000", "0000"),
    ],
)
def test_the_controls_unmask_who_reads_who_copies_and_who_ignores(chains, kind, signs, follows):
    made = Chains(2)
    runs = {
        name: [made.deliberated(kind, *each) for each in pools] for name, pools in chains.items()
    }
    told = compare_with_controls(runs.pop("own"), 1, runs)
    minus = {each.name: each.heavy_minus for each in told.controls}
    found = "".join("+" if minus[name].mean > 0.15 else "0" for name in list(runs)[:5])
    assert found == signs, minus
    assert [(step.shared, step.shown) for step in told.planted] == [(2, 8), (5, 8), (7, 8), (8, 8)]
    shares = [step.follows.mean for step in told.planted]
    assert "".join("+" if share > 0.9 else "0" for share in shares) == follows, shares
    assert all(share > 0.9 or share < 0.3 for share in shares)
    assert all(step.problems > 50 for step in told.planted)
    if kind == "reads":
        assert minus["garbled"].mean > 0.2 and told.planted[0].right.mean > 0.9

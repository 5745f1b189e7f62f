"""The pools of controls: what is replaced, by what, and that nothing else changes."""

import dataclasses
import itertools
import json
import re
from collections.abc import Sequence
from typing import Any, get_args

import pytest
from heavy_samples import CHARS, build, problem, trajectory, unusable
from hypothesis import given, settings
from hypothesis import strategies as st

from heavydistill.config.run import Attempts, Selection
from heavydistill.experiments.controls import other_pools
from heavydistill.heavy.voting import stratum
from heavydistill.schema import Trace, Trajectory, Turn, turns_as_json

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
        assert len(old.answer_text) == len(new.answer_text)
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
    assert garbled.turns_json == ""
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

"""An episode is driven by asks and answers alone, in any order, whatever fails."""

import random
from collections.abc import Callable, Collection
from typing import Any

import pytest
from heavy_samples import BRIEF, CHARS, problem, verdict
from hypothesis import given
from hypothesis import strategies as st

from heavydistill.config.run import CacheChoice
from heavydistill.errors import BudgetError
from heavydistill.heavy import prompts
from heavydistill.heavy.episode import Ask, Episode, Rules, SampleAsk, VerdictAsk
from heavydistill.schema import TOO_FEW_USABLE, Trace, Verdict

THINKER = prompts.load("thinker", "brief", "en")
ROOM = CacheChoice(budget_tokens=10**6)


def episode(problem_text: str = "What is 2 + 3?", **rules: Any) -> Episode:
    usual: dict[str, Any] = {"k": 4, "min_k": 2, "d": 2, "rounds": 2, "cache": ROOM}
    wordings = {"thinker": THINKER, "deliberator": BRIEF, "reader": CHARS}
    return Episode(problem(problem_text), Rules(**usual | rules), **wordings)


def said(ask: SampleAsk, fails: bool = False) -> dict[str, Any]:
    """A sample whose answer follows from where it was asked."""
    fields: dict[str, Any] = {"index": ask.index, "model": "m", "seed": ask.index, "error": None}
    fields |= {"reasoning": "", "answer_text": f"It is {ask.round}{ask.index}."}
    fields |= {"finish_reason": "stop", "request_id": "", "latency_s": 0.0}
    fields |= {"prompt_tokens": 1, "completion_tokens": 1}
    if fails:
        fields |= {"answer_text": "", "finish_reason": "error", "failure": "server", "error": "x"}
    return fields


def judged(ask: VerdictAsk) -> Verdict:
    if ask.generation.unusable_because:
        return verdict("undecided", None)
    answer = ask.generation.answer_text.removeprefix("It is ")
    return verdict("correct" if ask.index % 2 else "incorrect", answer)


def execute(
    episode: Episode,
    order: Callable[[list[Ask]], Ask] = lambda asks: asks[0],
    fails: Callable[[SampleAsk], bool] = lambda ask: False,
    agreeing: Collection[int] = (),
) -> tuple[Trace, list[Ask]]:
    """Run an episode with one answer at a time; returns its trace, and all that was asked.

    The trajectories ``agreeing`` have one answer.
    """
    asked: list[Ask] = []
    waiting = episode.asks()
    while waiting:
        asked += [ask for ask in waiting if ask not in asked]
        ask = order(waiting)
        waiting.remove(ask)
        if isinstance(ask, VerdictAsk):
            answer: dict[str, Any] | Verdict = judged(ask)
        else:
            answer = said(ask, fails(ask))
            if ask.round == 0 and ask.index in agreeing and answer["answer_text"]:
                answer["answer_text"] = "It is 5."
        episode.tell(ask, answer)
        waiting += episode.asks()
    return episode.trace, asked


def test_an_episode_asks_for_trajectories_then_for_deliberations_of_each_round():
    trace, asked = execute(episode())
    samples = [(ask.round, ask.index) for ask in asked if isinstance(ask, SampleAsk)]
    assert samples == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert len(asked) == 2 * len(samples), "each sample is judged once"
    first, second = trace.caches
    assert {ask.prompt for ask in asked if isinstance(ask, SampleAsk) and ask.round == 2} == {
        second.prompt
    }
    assert [len(first.items), len(second.items)] == [4, 6], "round 2 reads round 1"
    assert trace.stratum == "tie" and trace.outcome == "lost"
    assert all(one.claims is not None for one in trace.deliberations)


@given(seed=st.integers(), failing=st.sets(st.tuples(st.integers(0, 2), st.integers(0, 3))))
def test_any_order_of_answers_and_any_failures_give_one_typed_trace(seed, failing):
    def fails(ask: SampleAsk) -> bool:
        return (ask.round, ask.index) in failing

    usual, _ = execute(episode(), fails=fails)
    trace, asked = execute(episode(), random.Random(seed).choice, fails)
    assert trace == usual
    kinds = [(type(ask), ask.round, ask.index) for ask in asked]
    assert len(kinds) == len(set(kinds)), "nothing is asked twice"
    lost = sum(one.finish_reason == "error" for one in trace.pool)
    assert lost == sum(round == 0 for round, _ in failing)
    if lost > 2:
        assert trace.status == TOO_FEW_USABLE and not trace.caches and not trace.deliberations
    else:
        assert [one.round for one in trace.deliberations] == [1, 1, 2, 2]
        assert {cut.reason for cache in trace.caches for cut in cache.left_out} <= {"error"}


@pytest.mark.parametrize("stop_at", [1, 2, 3, 4])
def test_an_episode_ends_with_the_first_trajectories_if_they_agree(stop_at):
    trace, asked = execute(episode(stop_at=stop_at), agreeing=range(stop_at))
    assert [ask.index for ask in asked if isinstance(ask, SampleAsk)] == [*range(stop_at)]
    assert len(trace.pool) == stop_at and not trace.caches and not trace.deliberations
    assert trace.status == f"stopped_at: {stop_at}"


@given(
    stop_at=st.integers(1, 4), seed=st.integers(), agreeing=st.sets(st.integers(0, 3)),
    failing=st.sets(st.integers(0, 3)),
)  # fmt: skip
def test_without_agreement_the_trace_is_that_of_an_episode_that_never_stops(
    stop_at, seed, agreeing, failing
):
    def fails(ask: SampleAsk) -> bool:
        return ask.round == 0 and ask.index in failing

    usual, _ = execute(episode(), fails=fails, agreeing=agreeing)
    begun = episode(stop_at=stop_at)
    trace, asked = execute(begun, random.Random(seed).choice, fails, agreeing)
    first = range(stop_at)
    agrees = not failing & {*first} and (stop_at == 1 or agreeing >= {*first})
    assert begun.stopped_at == (stop_at if agrees else None)
    assert trace == usual or agrees
    places = [ask.index for ask in asked if isinstance(ask, SampleAsk) and ask.round == 0]
    assert {*places[:stop_at]} == {*first} and len(places) == (stop_at if agrees else 4)


def test_trajectories_without_an_answer_do_not_agree():
    one = episode(stop_at=2)
    for ask in one.asks():
        one.tell(ask, said(ask))
    for ask in one.asks():
        one.tell(ask, verdict("incorrect", None))
    assert one.stopped_at is None and [ask.index for ask in one.asks()] == [2, 3]


@given(at=st.integers(0, 15))
def test_an_episode_goes_on_from_what_a_trace_holds(at):
    """A row that was written between two stages is enough to go on."""
    whole, _ = execute(episode())
    pool = whole.pool if at % 2 else None
    caches = whole.caches[: at % 3] if pool else []
    known = [one for one in whole.deliberations if one.round < len(caches) + at // 8]
    known = [one for one in known if one.round <= len(caches)]
    begun = Episode(
        whole.problem,
        Rules(k=4, min_k=2, d=2, rounds=2, cache=ROOM),
        thinker=THINKER,
        deliberator=BRIEF,
        reader=CHARS,
        pool=pool,
        caches=caches,
        deliberations=known,
    )
    trace, asked = execute(begun)
    assert trace == whole
    assert sum(isinstance(ask, SampleAsk) for ask in asked) == 8 - 4 * bool(pool) - len(known)


def test_what_was_not_asked_cannot_be_told():
    one = episode()
    ask = one.asks()[0]
    assert isinstance(ask, SampleAsk)
    one.tell(ask, said(ask))
    with pytest.raises(ValueError, match="told before"):
        one.tell(ask, said(ask))
    with pytest.raises(ValueError, match="Not asked"):
        one.tell(VerdictAsk(one.trace.pool[0], 0, 0), verdict("correct", "5"))


def test_a_deliberation_on_no_cache_of_the_episode_is_refused():
    whole, _ = execute(episode())
    with pytest.raises(ValueError, match="on the caches of the episode"):
        Episode(whole.problem, Rules(), pool=whole.pool, deliberations=whole.deliberations)


def test_a_cache_that_cannot_hold_the_answers_is_an_error_of_the_ask():
    with pytest.raises(BudgetError, match="does not hold the problem"):
        execute(episode(cache=CacheChoice(budget_tokens=50)))


def test_without_deliberations_an_episode_ends_with_its_pool():
    trace, asked = execute(episode(d=0))
    assert not trace.caches and trace.outcome is None and trace.stratum == "tie"
    assert len(asked) == 8


def test_a_chooser_answers_with_the_attempt_that_it_names():
    def answer(ask: SampleAsk) -> dict[str, Any]:
        return said(ask) | ({"answer_text": r"\boxed{2}"} if ask.round else {})

    one = episode(rounds=1, d=1, task="choose")
    while asks := one.asks():
        for ask in asks:
            one.tell(ask, answer(ask) if isinstance(ask, SampleAsk) else judged(ask))
    (choice,) = one.trace.deliberations
    shown = {each.id: each.answer_text for each in one.trace.pool}
    assert choice.answer_text == shown[one.trace.caches[0].items[1].generation]
    assert choice.reasoning == r"\boxed{2}"

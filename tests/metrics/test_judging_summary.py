from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import pytest
from generations import ballot

from heavydistill.heavy.ballot import Vote, verdict_of
from heavydistill.metrics.counts import Judging, Usage
from heavydistill.metrics.summary import summarize
from heavydistill.schema import Generation, Trace

MakeTrace = Callable[..., Trace]


def put_to_a_judge(generation: Generation, *said: str, same_as: str = "") -> Generation:
    votes = [
        Vote(said=one, prompt_tokens=10, completion_tokens=-1 if one == "failed" else 3)
        for one in said
    ]
    rule = dataclasses.replace(generation.verdict, label="undecided", reason="needs_units")
    return dataclasses.replace(
        generation, verdict=verdict_of(rule, ballot(*votes, same_as=same_as))
    )


@pytest.fixture
def judged(make_trace: MakeTrace) -> Trace:
    """Three answers of a pool and a deliberation were put to a judge."""
    trace = make_trace(["7", "?", "?", "?"], ["?", "8"])
    first, right, again, failed = trace.pool
    pool = [
        first,
        put_to_a_judge(right, "correct", "correct", "invalid"),
        put_to_a_judge(again, "correct", "correct", "invalid", same_as=right.id),
        put_to_a_judge(failed, "failed", "failed", "incorrect"),
    ]
    wrong = put_to_a_judge(trace.deliberations[0], "incorrect", "truncated", "incorrect")
    return dataclasses.replace(trace, pool=pool, deliberations=[wrong, trace.deliberations[1]])


def test_a_judges_verdicts_are_counted_apart_and_its_votes_once(judged: Trace) -> None:
    summary = summarize([judged])
    assert summary.judging == Judging(
        asked=4,
        correct=2,
        incorrect=1,
        undecided=1,
        failed=1,
        judges={"critic@abc": 4},
        votes=9,
        invalid_votes=2,
        failed_votes=2,
    )
    assert summary.usage["judging"] == Usage(9, 90, 0, 7 * 3, 0, 9, 2)
    assert summary.trajectories.undecided == 1
    assert json.loads(json.dumps(dataclasses.asdict(summary)))["judging"]["asked"] == 4


def test_what_a_judge_called_correct_counts_as_right(judged: Trace) -> None:
    assert summarize([judged]).mean_at_k.mean == pytest.approx(3 / 4)


def test_what_another_run_asked_for_is_in_no_usage(judged: Trace) -> None:
    own, voted = summarize([judged]), summarize([judged], {t.id for t in judged.pool})
    assert voted.usage["thinking"] == Usage(0, 0, 0, 0, 0, 0, 0)
    assert voted.usage["judging"] == Usage(3, 30, 0, 9, 0, 3, 0), "that of the deliberation"
    assert voted.usage["deliberating"] == own.usage["deliberating"]
    # What the figures rest on is told all the same.
    assert (voted.judging, voted.trajectories) == (own.judging, own.trajectories)
    asked_nobody = dataclasses.replace(judged, deliberations=[])
    assert "judging" not in summarize([asked_nobody], {t.id for t in judged.pool}).usage


def test_without_a_judge_nothing_is_counted(make_trace: MakeTrace) -> None:
    summary = summarize([make_trace(["7", "?"], ["7"])])
    assert summary.judging == Judging() and set(summary.usage) == {"thinking", "deliberating"}

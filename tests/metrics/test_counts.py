"""What became of samples: unanswered ones as every verifier words it, and a judge's verdicts."""

import dataclasses
import json
from collections.abc import Callable, Iterator

import pytest
from generations import ballot, problem, trajectory, unboxed
from messages import message

from heavydistill.heavy.judge_votes import Said, Vote, verdict_of
from heavydistill.metrics.counts import (
    GenerationTally,
    Judging,
    Usage,
    answerer_facts,
    unanswered_because,
    unanswered_facts,
)
from heavydistill.metrics.summary import summarize
from heavydistill.schema import Generation, Trace, Trajectory, Verdict
from heavydistill.verifiers.pool import VerdictPool

OPTIONS = {"options": ["red", "blue", "green"]}
TESTS = {"asserts": ["assert double(2) == 4"]}


@pytest.fixture(scope="module")
def pool() -> Iterator[VerdictPool]:
    with VerdictPool() as pool:
        yield pool


@pytest.mark.parametrize(
    ("verifier", "args", "text", "because"),
    [
        ("math", {}, "It is 5.", "no_answer"), ("math", {}, r"It is \boxed{}.", "no_answer"),
        ("math", {}, r"It is \boxed{5", "unclosed_box"),
        ("math", {}, "```\n\\boxed{5}\n```", "in_code"), ("math", {}, r"It is \boxed{6}.", None),
        ("math", {}, r"It is \boxed{\$}.", "no_answer"),
        ("math", {}, r"It is \boxed{(, 6)}.", None), ("math", {}, r"It is \boxed{5}.", None),
        ("math", {"marker": "A:"}, "A: 6", None), ("math", {}, " ", "empty"),
        ("math", {}, "<think>It is 5", "open_thinking"), ("exact", {}, "It is 5.", "no_answer"),
        ("procedural", {}, "It is 5.", "no_answer"),
        ("choice", OPTIONS, "They all look alike.", "no_answer"),
        ("choice", OPTIONS, "The answer is (B).", None),
        ("code", TESTS, "Multiply it by two.", "no_code"),
        ("code", TESTS, "```python\nimport\n```", None),
    ],
)  # fmt: skip
def test_each_verifier_has_its_words_for_it(pool, verifier, args, text, because):
    asked = problem(verifier=verifier, reference="B" if verifier == "choice" else "5", args=args)
    judged = dataclasses.replace(trajectory(text), verdict=pool.judge(asked, text).verdict)
    assert unanswered_because(judged) == because


def test_only_what_ended_and_was_judged_can_be_unanswered():
    rule = Verdict(label="undecided", reason="no_answer", extracted=None, verifier="choice@3")

    def judged(said: Said) -> Generation:
        votes = dataclasses.replace(ballot(Vote(said=said)), rule_reason="no_answer")
        return dataclasses.replace(trajectory("It is red."), verdict=verdict_of(rule, votes))

    for sample, because in (
        (unboxed(), "no_answer"),
        (unboxed(finish_reason="length"), None),
        (unboxed(finish_reason="error"), None),
        (trajectory("It is 5.", label=None), None),
        (judged("correct"), None),  # an answer that a judge found is one
        (judged("cannot_tell"), "no_answer"),
    ):
        assert unanswered_because(sample) == because


def test_the_share_is_of_those_that_ended():
    tally = GenerationTally()
    cut_off = unboxed(finish_reason="length")
    failed = trajectory("", label=None, finish_reason="error", error="x", failure="timeout")
    tally.add([unboxed(), unboxed(), trajectory("", label=None), trajectory(r"\boxed{5}")])
    tally.add([cut_off, cut_off, failed])
    counts = tally.counts
    assert (counts.total, counts.finished, counts.unanswered) == (7, 4, 3)
    assert counts.unanswered_because == {"no_answer": 2, "empty": 1}
    assert counts.unanswered_share == 0.75 and counts.failures == {"timeout": 1}
    assert counts.cells == ["7", "1", "2", "3", "0", "1"]
    tally.add([trajectory("x = 3", label="undecided")])
    counts = tally.counts
    assert (counts.undecided, sum(counts.undecided_because.values())) == (1, 1)


def test_above_thirty_per_cent_a_sentence_names_the_form_that_is_missing():
    def counted(unanswered: int) -> GenerationTally:
        tally = GenerationTally()
        tally.add([unboxed()] * unanswered + [trajectory(r"\boxed{5}")] * (10 - unanswered))
        return tally

    samples = {"trajectories": counted(3).counts, "deliberations": counted(4).counts}
    (said,) = unanswered_facts(samples, ["math"])
    unanswered = {"share": "40.0%", "of": "deliberations"}
    assert said == message("no_final_answer", **unanswered, why=r" (no \boxed{}).")
    (said,) = unanswered_facts(samples, ["choice", "code"])
    assert said.endswith("(no letter of an option and no code block).")
    (said,) = unanswered_facts(samples, ["mine"])
    assert said == message("no_final_answer", **unanswered, why=".")


def test_who_answered_is_counted_and_said_where_there_are_several():
    def of(host: str, **changes: str) -> Trajectory:
        named = {"host": host, "served_model": "glm-4.6"} | changes
        return dataclasses.replace(trajectory(r"\boxed{5}"), **named)

    lost = dataclasses.replace(of("Chutes"), finish_reason="error", failure="timeout")
    tally = GenerationTally()
    tally.add([*[of("DeepInfra")] * 5, *[of("Novita")] * 3, lost])
    assert tally.counts.answered_by == {"DeepInfra glm-4.6": 5, "Novita glm-4.6": 3}
    (said,) = answerer_facts({"trajectories": tally.counts})
    assert said == (
        "The trajectories come from several hosts or configurations: DeepInfra glm-4.6 62.5%, "
        "Novita glm-4.6 37.5%."
    )
    for same in ([of("DeepInfra")] * 5, [of("", served_model="")] * 5):
        tally = GenerationTally()
        tally.add(same)
        assert not list(answerer_facts({"trajectories": tally.counts}))


def test_any_number_of_names_stays_a_few():
    tally = GenerationTally()
    tally.add([dataclasses.replace(trajectory("7"), host=f"h{n}") for n in range(1000)])
    assert len(tally.counts.answered_by) == 17 and tally.counts.answered_by["others"] == 984


def test_used_responses_with_a_finish_reason_that_is_not_known_are_counted():
    odd = dataclasses.replace(trajectory(r"\boxed{5}"), unknown_finish_reason="odd")
    lost = dataclasses.replace(odd, finish_reason="error", failure="unknown_end")
    tally = GenerationTally()
    tally.add([odd, odd, lost, trajectory("7")])
    assert tally.counts.unknown_finish_reasons == {"odd": 2}
    assert tally.counts.failures == {"unknown_end": 1}


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


def test_a_judges_verdicts_are_counted_apart_and_its_votes_once(judged):
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
    assert summary.mean_at_k.mean == pytest.approx(3 / 4), "what it called correct is right"
    assert json.loads(json.dumps(dataclasses.asdict(summary)))["judging"]["asked"] == 4


def test_what_another_run_asked_for_is_in_no_usage(judged, make_trace):
    own, voted = summarize([judged]), summarize([judged], {t.id for t in judged.pool})
    assert voted.usage["thinking"] == Usage(0, 0, 0, 0, 0, 0, 0)
    assert voted.usage["judging"] == Usage(3, 30, 0, 9, 0, 3, 0), "that of the deliberation"
    assert voted.usage["deliberating"] == own.usage["deliberating"]
    # What the figures rest on is told all the same.
    assert (voted.judging, voted.trajectories) == (own.judging, own.trajectories)
    unjudged = summarize([make_trace(["7", "?"], ["7"])])
    assert unjudged.judging == Judging() and "judging" not in unjudged.usage
    asked_nobody = dataclasses.replace(judged, deliberations=[])
    assert "judging" not in summarize([asked_nobody], {t.id for t in judged.pool}).usage

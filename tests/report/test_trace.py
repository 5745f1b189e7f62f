import dataclasses

import pytest
from generations import ballot, cache, deliberation, item, trajectory, with_tool

from heavydistill.heavy.judge_votes import Vote, verdict_of
from heavydistill.report.trace import print_trace
from heavydistill.schema import Label, LeftOut, Problem, Trace, Verdict

TOKENS = {"prompt_tokens": 31, "completion_tokens": 220}


def said(label: Label, extracted: str) -> Verdict:
    return Verdict(label=label, reason="equal", extracted=extracted, verifier="exact@1")


@pytest.fixture
def trace() -> Trace:
    reasoning = "\n".join(f"step {number}" for number in range(1, 21))
    lost = {"finish_reason": "error", "error": "time-out after 1800 s", "label": None}
    unknown = dict.fromkeys(TOKENS, -1)
    pool = [
        trajectory("It is 41.", reasoning, id="t_a", verdict=said("incorrect", "41"), **TOKENS),
        trajectory("It is 42.", id="t_b", verdict=said("correct", "42"), **TOKENS),
        trajectory("", id="t_c", **lost, **unknown),
    ]
    told = {"prompt_version": "deliberator.general.en@abc", "reader": "reader-y", "defused": 7}
    read = cache(
        *(item("t_b", 812, 120), item("t_a", 90, 90, defused=3)),
        seed=5,
        budget_tokens=8000,
        prompt_tokens=3210,
        left_out=[LeftOut(generation="t_c", reason="error")],
        **told,
    )
    return Trace(
        problem=Problem(id="p-1", text="What is 6 * 7?", reference="42", verifier="exact"),
        pool=pool,
        caches=[read],
        deliberations=[
            deliberation("It is 42.", id="d_a", verdict=said("correct", "42")),
            deliberation("It is 4.", id="d_b", index=1, verdict=said("undecided", "4")),
        ],
        stratum="tie",
        outcome="kept",
    )


def _normal(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_the_whole_story_is_told_in_order(trace, printed):
    text = printed(print_trace, trace)
    story = [
        "== Problem p-1",
        "What is 6 * 7?",
        "reference: 42",
        "stratum: tie",
        "outcome: kept",
        "== Trajectory 1",
        "[-] incorrect",
        "answer 41",
        "31 read, 220 written",
        "== Trajectory 2",
        "[+] correct",
        "It is 42.",
        "== Trajectory 3",
        "[ ] not judged",
        "unknown read, unknown written",
        "error: time-out after 1800 s",
        "== Cache of round 1",
        "== Deliberation 1 of round 1",
        "== Deliberation 2 of round 1",
        "[?] undecided",
    ]
    position = 0
    for part in story:
        position = text.index(part, position) + len(part)


def test_the_cache_shows_order_cuts_and_what_is_left_out(trace, printed):
    lines = _normal(printed(print_trace, trace))
    assert "3,210 of at most 8,000 tokens, counted by reader-y" in lines
    assert "prompt: deliberator.general.en@abc selection: random seed: 5" in lines
    assert "control tokens defused in the problem: 7" in lines
    assert "1 trajectory 2 answer_only 812 -> 120 0" in lines
    assert "2 trajectory 1 answer_only 90 -> 90 3" in lines
    assert "left out: trajectory 3 (error)" in lines


def test_each_claim_is_marked_beside_the_position_of_its_attempt(trace, printed):
    says = "Attempt 1 is right, attempt 2 is right. It is 42."
    right, unknown = trace.deliberations
    told = [dataclasses.replace(right, answer_text=says), dataclasses.replace(unknown, claims=[])]
    lines = _normal(printed(print_trace, dataclasses.replace(trace, deliberations=told)))
    assert "claims: #1 right (true), #2 right (false)" in lines
    assert lines.count("contradicts its own answer: #2") == 1
    assert sum(line.startswith("claims:") for line in lines) == 1
    open_verdict = dataclasses.replace(trace.pool[0], verdict=said("undecided", "42"))
    pool = [open_verdict, *trace.pool[1:]]
    lines = _normal(printed(print_trace, dataclasses.replace(trace, pool=pool, deliberations=told)))
    assert "claims: #1 right (true), #2 right (unknown)" in lines


def test_reasoning_is_folded_unless_all_is_wanted(trace, printed):
    folded = printed(print_trace, trace)
    assert "step 3" in folded
    assert "step 4" not in folded
    assert "... 17 more lines" in folded
    full = printed(print_trace, trace, full=True)
    assert "step 20" in full
    assert "more lines" not in full
    endless = dataclasses.replace(trace.pool[0], reasoning="so " * 5000)
    text = printed(print_trace, dataclasses.replace(trace, pool=[endless], caches=[]))
    assert len(text.splitlines()) < 60


def test_several_turns_are_printed_in_their_order_with_calls_and_results(trace, printed):
    lines = _normal(printed(print_trace, dataclasses.replace(trace, pool=[with_tool()], caches=[])))
    story = ["reasoning:", "Let me compute.", "text:", "I ask Python.", "call of python:"]
    story += ['{"code": "2 + 3"}', "result of python:", "5", "reasoning:", "As expected."]
    story += ["answer:", "It is 5."]
    start = lines.index("reasoning:")
    assert lines[start : start + len(story)] == story
    failed = dataclasses.replace(trace, pool=[with_tool("", "timed out")], caches=[])
    lines = _normal(printed(print_trace, failed))
    assert "result of python:" not in lines
    assert lines[lines.index("error:") + 1] == "timed out"


def test_a_later_round_names_the_deliberations_that_it_read(trace, printed):
    item = dataclasses.replace(trace.caches[0].items[0], generation="d_b")
    second = dataclasses.replace(trace.caches[0], round=2, items=[item], left_out=[])
    both = dataclasses.replace(trace, caches=[*trace.caches, second])
    text = printed(print_trace, both)
    assert "1 deliberation 2 of round 1 answer_only 812 -> 120 0" in _normal(text)
    assert text.index("== Deliberation 2 of round 1") < text.index("== Cache of round 2")


@pytest.mark.parametrize("nasty", ["[bold]x[/bold]", "[/]", "[link=http://a]b[/link]", ":smile:"])
def test_markup_in_any_text_is_printed_literally(trace, printed, nasty):
    problem = dataclasses.replace(trace.problem, id=nasty, text=nasty, reference=nasty)
    assert trace.pool[0].verdict
    verdict = dataclasses.replace(trace.pool[0].verdict, extracted=nasty, reason=nasty)
    attempt = dataclasses.replace(
        trace.pool[0], verdict=verdict, answer_text=nasty, reasoning=nasty, error=nasty, model=nasty
    )
    text = printed(
        print_trace, dataclasses.replace(trace, problem=problem, pool=[attempt, *trace.pool[1:]])
    )
    assert text.count(nasty) == 9


def test_a_text_cannot_steer_the_terminal_or_leave_its_width(trace, printed):
    problem = dataclasses.replace(trace.problem, text="\u6570" * 300, id="x" * 200)
    assert printed(print_trace, dataclasses.replace(trace, problem=problem)).count("\u6570") == 300
    problem = dataclasses.replace(trace.problem, text="a\x1b[2Jb\x07c\r\nd\te")
    text = printed(print_trace, dataclasses.replace(trace, problem=problem))
    assert "a\\x1b[2Jb\\x07c\n    d" in text


def test_the_votes_of_a_judge_stand_with_its_verdict(trace, printed):
    rule = Verdict(label="undecided", reason="needs_units", extracted="5 m", verifier="exact@1")
    votes = (Vote(said="correct"), Vote(said="cannot_tell"), Vote(said="correct"))
    first, *others = trace.pool
    judged = dataclasses.replace(first, verdict=verdict_of(rule, ballot(*votes)))
    text = printed(print_trace, dataclasses.replace(trace, pool=[judged, *others]))
    assert "[+] correct   answer 5 m   (judged, judge:critic@abc after exact@1)" in text
    assert "rules left it undecided (needs_units); votes: correct, cannot tell, correct" in text
    assert "no verdict" not in text


def test_the_replies_of_a_judge_that_are_no_verdicts_are_shown(trace, printed):
    rule = Verdict(label="undecided", reason="needs_units", extracted="5 m", verifier="exact@1")
    said = Vote(said="invalid", reply="They agree,\n\x1b[31mI think.")
    first, *others = trace.pool
    judged = dataclasses.replace(first, verdict=verdict_of(rule, ballot(said, said, said)))
    text = printed(print_trace, dataclasses.replace(trace, pool=[judged, *others]))
    assert text.count("no verdict: They agree, ") == 1 and "\x1b[31m" not in text

import dataclasses
import json

import pytest
from generations import ballot
from hypothesis import given
from hypothesis import strategies as st
from linear import assert_linear

from heavydistill.heavy.judge_votes import Vote, ballot_of, decision, said_in, shown, verdict_of
from heavydistill.schema import Verdict

SAID = ["correct", "incorrect", "cannot_tell", "invalid", "truncated", "failed"]
RULE = Verdict(
    label="undecided",
    reason="needs_units",
    extracted="5 m",
    verifier="exact@1",
    score=0.5,
    evidence='{"a": 1}',
)


def votes(*said: str) -> list[Vote]:
    return [Vote(said=one) for one in said]


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("CORRECT", "correct"),
        (" \n INCORRECT \n", "incorrect"),
        ("CANNOT TELL", "cannot_tell"),
        ("**Correct.**", "correct"),
        ("`incorrect`", "incorrect"),
        ('"Cannot tell".', "cannot_tell"),
        ("\u3000CORRECT\u00a0", "correct"),
    ],
)
def test_a_verdict_and_nothing_else_is_a_vote(reply, said):
    assert said_in(reply, "stop") == said


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "   ",
        "yes",
        "The answer is CORRECT",
        "CORRECT because it is equal",
        "CORRECT\nINCORRECT",
        "CORRECT or INCORRECT",
        "NOT CORRECT",
        "not correct.",
        "IN CORRECT",
        "CORRECT?",
        "CORRECT!",
        "verdict: CORRECT",
        "CORRECTLY",
        "CANNOTTELL",
        "CANNOT\nTELL",
        "\\boxed{CORRECT}",
        "<answer>CORRECT</answer>",
        '{"verdict": "CORRECT"}',
        "ＣＯＲＲＥＣＴ",
        "\u0130NCORRECT",
        "COR\u200bRECT",
        "CORRECT\ud800",
        "正确",
    ],
)
def test_anything_else_is_invalid(reply):
    assert said_in(reply, "stop") == "invalid"


@pytest.mark.parametrize(("finish", "said"), [("length", "truncated"), ("error", "failed")])
def test_a_reply_that_did_not_end_says_nothing(finish, said):
    assert said_in("CORRECT", finish) == said


@pytest.mark.parametrize("filler", [" ", "*", ".", "'", "\n", "CORRECT "])
def test_a_megabyte_is_read_in_linear_time(filler):
    for before, after in (("x", ""), ("CORRECT", "x")):
        assert said_in(f"{before}{filler * 1_000_000}{after}", "stop") == "invalid"
        assert_linear(
            lambda text: said_in(text, "stop"),
            lambda size, before=before, after=after: f"{before}{filler * size}{after}",
        )


@pytest.mark.parametrize(
    ("said", "label", "reason"),
    [
        (["correct", "correct", "invalid"], "correct", "judged"),
        (["correct", "incorrect", "cannot_tell"], "undecided", "judge_split"),
        (["correct", "incorrect"], "undecided", "judge_split"),
        (["correct", "invalid", "incorrect"], "undecided", "judge_split"),
        (["correct", "cannot_tell", "cannot_tell"], "undecided", "judge_cannot_tell"),
        (["correct", "invalid", "invalid"], "undecided", "judge_invalid"),
        (["correct", "truncated", "invalid"], "undecided", "judge_invalid"),
        # One of two is no majority, though nothing speaks against it.
        (["correct", "invalid"], "undecided", "judge_invalid"),
        (["correct", "failed"], "undecided", "judge_failed"),
        (["correct", "failed", "failed"], "undecided", "judge_failed"),
        (["correct", "invalid", "failed"], "undecided", "judge_failed"),
        (["failed"] * 3, "undecided", "judge_failed"),
    ],
)
def test_more_than_half_of_all_votes_decide(said, label, reason):
    assert decision(votes(*said)) == (label, reason)


@given(st.lists(st.sampled_from(SAID), min_size=1, max_size=9), st.randoms())
def test_a_verdict_needs_a_majority_and_no_order(said, draw):
    label, reason = decision(votes(*said))
    assert (label != "undecided") == (reason == "judged")
    most = [one for one in ("correct", "incorrect") if said.count(one) > len(said) / 2]
    assert most == ([] if label == "undecided" else [label])
    shuffled = draw.sample(said, len(said))
    assert decision(votes(*shuffled)) == (label, reason)
    # What is lost never makes a verdict.
    worse = ["failed" if one == label else one for one in said]
    assert decision(votes(*worse))[0] != label or label == "undecided"


@pytest.mark.parametrize("said", [["correct"] * 3, ["failed"] * 3])
def test_the_record_says_who_decided_and_what_the_rules_had_said(said):
    cast = dataclasses.replace(
        ballot(*votes(*said)), model="org/judge", rule_evidence=RULE.evidence
    )
    verdict = verdict_of(RULE, cast)
    assert verdict.verifier == "judge:org/judge@abc after exact@1"
    assert (verdict.extracted, verdict.score) == ("5 m", 0.5)
    evidence = json.loads(verdict.evidence)
    assert evidence["by"] == "exact@1" and evidence["rule_reason"] == "needs_units"
    assert evidence["rule_evidence"] == '{"a": 1}'
    assert evidence["prompt"] == "judge.general.en@abc"
    assert [vote["said"] for vote in evidence["votes"]] == said
    assert ballot_of(verdict) == cast and ballot_of(RULE) is None


def test_what_is_shown_of_a_reply_is_short_and_can_be_written():
    assert shown(" no\ud800 ") == "no?"
    assert len(shown("x" * 10_000)) == 200

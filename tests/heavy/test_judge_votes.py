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
        ("verdict: CORRECT", "correct"),
        ("The verdict: INCORRECT", "incorrect"),
        ("**Final verdict:** CANNOT TELL", "cannot_tell"),
        ("Judgement: **Correct**", "correct"),
        ("\\boxed{CORRECT}", "correct"),
        ("$\\boxed{\\text{INCORRECT}}$.", "incorrect"),
        ("The verdict is \\boxed{CORRECT}", "correct"),
        ("Incorrect", "incorrect"),  # this and the next one as xVerify replies
        ("[Correct]", "correct"),
    ],
)
def test_a_verdict_and_nothing_else_is_a_vote(reply, said):
    assert said_in(reply, "stop") == said


@pytest.mark.parametrize(
    "reply",
    [
        "", "   ", "yes", "The answer is CORRECT", "CORRECT because it is equal",
        "CORRECT\nINCORRECT", "CORRECT or INCORRECT", "\\boxed{CORRECT",
        "\\boxed{CORRECT} or \\boxed{INCORRECT}", "\\boxed{A}",
        "verdict: CORRECT because it is equal", "The verdict: not CORRECT",
        "The verdict of the answer: CORRECT", "A", "Final Decision: Yes", "NOT CORRECT",
        "not correct.", "IN CORRECT", "CORRECT?", "CORRECT!", "CORRECTLY", "CANNOTTELL",
        "CANNOT\nTELL", "<answer>CORRECT</answer>", '{"verdict": "CORRECT"}', "ＣＯＲＲＥＣＴ",
        "\u0130NCORRECT", "COR\u200bRECT", "CORRECT\ud800", "正确",
    ],
)  # fmt: skip
def test_anything_else_is_invalid(reply):
    assert said_in(reply, "stop") == "invalid"


ANALYSIS = "The answer claims \\boxed{A} and says: Final Decision: Yes.\n\nIt is not the same.\n"


@pytest.mark.parametrize(
    ("form", "reply", "said"),
    [
        ("compass_verifier", "A", "correct"), ("compass_verifier", "B", "incorrect"),
        ("compass_verifier", "C", "cannot_tell"), ("compass_verifier", "INCORRECT", "incorrect"),
        ("compass_verifier", "INVALID", "cannot_tell"),
        ("compass_verifier", f"{ANALYSIS}Final Judgment: \\boxed{{B}} - INCORRECT", "incorrect"),
        ("compass_verifier", f"{ANALYSIS}**Final Judgment:** \\boxed{{A}} - CORRECT", "correct"),
        ("compass_verifier", f"{ANALYSIS}Final Judgment: \\boxed{{C}} - REFUSAL", "cannot_tell"),
        ("compass_verifier", "Final Judgment: \\boxed{A} - INCORRECT", "invalid"),
        ("compass_verifier", "\\boxed{A}\nBut I am not sure.", "invalid"),
        ("compass_verifier", "A or B", "invalid"), ("compass_verifier", "Answer", "invalid"),
        ("compass_verifier", "", "invalid"), ("general_verifier", "Final Decision: Yes", "correct"),
        ("general_verifier", f"{ANALYSIS}\nFinal Decision: No", "incorrect"),
        ("general_verifier", "They agree. **Final Decision: Yes**", "correct"),
        ("general_verifier", f"{ANALYSIS}Final Decision: No.", "incorrect"),
        ("general_verifier", "Final Decision: Yes. Or is it?", "invalid"),
        ("general_verifier", "Final Decision: Yes or No", "invalid"),
        ("general_verifier", "Yes", "invalid"), ("general_verifier", "CORRECT", "invalid"),
    ],
)  # fmt: skip
def test_replies_of_models_made_to_verify_are_read_in_their_own_form(form, reply, said):
    assert said_in(reply, "stop", form) == said


@pytest.mark.parametrize("form", ["compass_verifier", "general_verifier"])
@pytest.mark.parametrize(
    "filler", [" ", "*", "\\boxed{A}", "A - ", "Final Decision: ", "Final Judgment: ", "\n"]
)
def test_a_long_analysis_is_read_in_linear_time(form, filler):
    assert_linear(lambda text: said_in(text, "stop", form), lambda size: f"{filler * size}x")


@pytest.mark.parametrize(("finish", "said"), [("length", "truncated"), ("error", "failed")])
def test_a_reply_that_did_not_end_says_nothing(finish, said):
    assert said_in("CORRECT", finish) == said


@pytest.mark.parametrize("filler", [" ", "*", ".", "'", "\n", "CORRECT ", "verdict: ", "$", "["])
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

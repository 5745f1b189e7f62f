from __future__ import annotations

import json
import time

import pytest
from choosing import ACCEPTED, HEDGED, OTHER, PLANETS, UNDECIDED, outcome, problem
from hypothesis import given
from hypothesis import strategies as st
from judging import judged

from heavydistill.schema import Problem
from heavydistill.verifiers.choice.verifier import MOST_CHARACTERS, Choice


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *((text, ("correct", "equal")) for text in ACCEPTED),
        *((text, ("incorrect", "different")) for text in OTHER),
        *((text, ("incorrect", "hedged")) for text in HEDGED),
        *((text, ("undecided", why)) for why, texts in UNDECIDED.items() for text in texts),
    ],
)
def test_what_a_response_claims_is_read_and_never_guessed(text, expected):
    assert outcome(text) == expected


BLOOD = ["O", "A", "AB", "B"]
CLASSES = ["E. coli", "S. aureus", "a cat", "A cat"]
NUMBERS = ["1/2", "0.5 m", "2", "$x^2$"]
ROMANS = ["I only", "II only", "I and II", "III"]
COURT = [
    "Yes, because the ordinance is vague.", "No, because the sidewalk is a public forum.",
    "No, because the permit was denied.",
]  # fmt: skip
JOINT = ["Both B and C", "All of the above", "Mars", "None of the above"]


@pytest.mark.parametrize(
    ("options", "reference", "text", "reason"),
    [
        (BLOOD, "B", r"\boxed{B}", "unclear"), (BLOOD, "B", "Answer: A", "unclear"),
        (BLOOD, "B", "The answer is B", "unclear"), (BLOOD, "B", "Answer: B. A", "equal"),
        (BLOOD, "B", r"\boxed{\text{(B) A}}", "equal"), (BLOOD, "C", r"\boxed{AB}", "equal"),
        (CLASSES, "A", "The answer is E. coli.", "equal"),
        (CLASSES, "A", "Answer: A. E. coli", "equal"),
        (CLASSES, "A", r"\boxed{A. a cat}", "unclear"), (CLASSES, "C", "Answer: a cat", "equal"),
        (CLASSES, "C", r"\boxed{A cat}", "different"), (NUMBERS, "A", r"\boxed{0.5}", "equal"),
        (NUMBERS, "A", r"\boxed{A. \frac{1}{2}}", "equal"),
        (NUMBERS, "A", "The answer is 2.", "different"),
        (NUMBERS, "C", "The answer is 2.5", "no_answer"), (NUMBERS, "D", r"\boxed{x^2}", "equal"),
        (["5", "0.5", "-5"], "B", r"\boxed{.5}", "equal"),
        (["5", "0.5", "-5"], "A", "Answer: .5", "different"),
        (["5", "0.5", "-5"], "C", r"\boxed{C. -5}", "equal"),
        (["5", "0.5", "-5"], "C", "Answer: C - 5", "no_option"),
        (["x_1", "x1"], "A", r"\boxed{x1}", "no_option"),
        (["Mars", "mars"], "B", "Answer: mars", "equal"),
        (["Mars", "mars"], "A", "Answer: MARS", "no_option"),
        (ROMANS, "C", "Answer: I and II", "equal"), (ROMANS, "A", r"\boxed{I}", "no_option"),
        (JOINT, "A", "Answer: Both B and C", "equal"),
        (JOINT, "A", "The answer is A, both B and C.", "equal"),
        (JOINT, "A", "Answer: B and C", "unclear"),
        (JOINT, "D", "The answer is none of the above.", "equal"),
        (JOINT, "A", "The answer is none of the above.", "different"),
        (["True", "False"], "B", "The answer is false.", "equal"), (4, "C", "Answer: C", "equal"),
        (4, "C", "Answer: B or C", "hedged"), (4, "C", "Jupiter", "no_answer"),
        (["the force F", "the mass m"], "A", r"\boxed{F}", "no_option"),
        (COURT, "B", "Answer: B. No, because the sidewalk is a public forum.", "equal"),
        (COURT, "C", "Answer: B. No, because the sidewalk is a public forum.", "different"),
        (COURT, "B", "Answer: B: No, because the sidewalk is a public forum. So it is.", "equal"),
        (COURT, "B", "Answer: B. No, the sidewalk is not one.", "retracted"),
        (
            COURT,
            "A",
            "Answer: A. No, because the permit was denied, it is another one.",
            "retracted",
        ),
    ],
)  # fmt: skip
def test_an_option_may_be_named_by_its_text_where_that_is_one(options, reference, text, reason):
    label = {"equal": "correct", "different": "incorrect", "hedged": "incorrect"}
    assert outcome(text, reference, options) == (label.get(reason, "undecided"), reason)


def test_one_option_is_extracted_alike_so_that_votes_meet():
    texts = [r"\boxed{\text{(C)}}", "Answer: **c**", "Jupiter", "故选C"]
    verdicts = [judged(problem(), text) for text in texts]
    assert {verdict.extracted for verdict in verdicts} == {"C"}
    assert verdicts[0].verifier == "choice@6"


def test_the_evidence_of_a_conflict_is_its_claims():
    verdict = judged(problem(), "Answer: A\nAnswer: C or D\nAnswer: C")
    assert json.loads(verdict.evidence) == {"claims": ["A", "CD", "C"]}
    assert verdict.extracted is None


@pytest.mark.parametrize(
    ("reference", "args", "says"),
    [
        ("E", {"options": PLANETS}, "no letter from A to D"),
        ("c", {"options": PLANETS}, "no letter from A to D"),
        ("AB", {"options": PLANETS}, "no letter from A to D"),
        ("Jupiter", {"options": PLANETS}, "no letter from A to D"),
        ("A", {}, "takes the texts of the options"),
        ("A", {"options": "A, B"}, "takes the texts of the options"),
        ("A", {"options": [1, 2]}, "takes the texts of the options"),
        ("A", {"options": ["x", " "]}, "takes the texts of the options"),
        ("A", {"options": ["x"]}, "there are 1 options"),
        ("A", {"options": 27}, "there are 27 options"),
        ("A", {"options": True}, "takes the texts of the options"),
        ("A", {"options": PLANETS, "marker": "####"}, "marker"),
        ("C", {"options": PLANETS}, None),
        (" C ", {"options": PLANETS, "order": [0, 1, 2, 3]}, None), ("Z", {"options": 26}, None),
    ],
)  # fmt: skip
def test_unfit_references_and_arguments_are_told_before_a_run(reference, args, says):
    unfit = Problem(
        id="p", text="?", reference=reference, verifier="choice", verifier_args=json.dumps(args)
    )
    fault = Choice().check_reference(unfit)
    assert (says is None and fault is None) or (says and fault and says in fault)


PIECES = [
    *("A", "B", "C", "D", "E", "a", "c", "I", " ", "\n", ".", ",", "?", ":", "(", ")", "**", "$"),
    *(r"\boxed{", "}", r"\text{", "{", "<answer>", "</answer>", "Answer: ", "the answer is "),
    *("not ", " or ", " and ", "wait, ", "Jupiter", "Mars", "42", "答案是", "故选", "不", "或"),
    *(" is the correct answer", " is wrong", "if ", "so ", "option ", "actually ", "it is "),
]


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_any_text_gets_a_verdict_and_only_the_reference_is_correct(text):
    verdicts = {letter: judged(problem(letter), text) for letter in "ABCD"}
    assert not any(verdict.reason.startswith("verifier_error") for verdict in verdicts.values())
    right = [letter for letter, verdict in verdicts.items() if verdict.is_correct]
    assert len(right) <= 1
    if right:
        assert {verdict.extracted for verdict in verdicts.values()} == set(right)


@given(st.text())
def test_any_characters_get_a_verdict(text):
    for wrapped in (text, rf"\boxed{{{text}}}", f"Answer: {text}"):
        assert not judged(problem(), wrapped).reason.startswith("verifier_error")


@pytest.mark.parametrize("before", ["Let us see.\n", "We look at A and B first.\n", "首先看题。\n"])
def test_what_is_not_correct_alone_is_not_correct_after_other_words(before):
    texts = [*OTHER, *HEDGED, *(text for texts in UNDECIDED.values() for text in texts)]
    assert [text for text in texts if judged(problem(), before + text).is_correct] == []


LONG = 200_000
HUGE = {
    "prose": "The quick brown fox, e.g. A or B, is not there. So it is. ",
    "words of claims": "the answer is ", "claims": "Answer: C\n", "boxes": r"\boxed{C} ",
    "unclosed boxes": r"\boxed{", "letters": "A or ", "corrections": "wait, ",
    "denials": "answer: A is not ", "qualities": "only correct right best ", "line ends": "\n ",
    "dots": ".", "stars": "*", "strokes": "~~a", "tags": "<answer>",
    "options said to be right": "C is correct.\n", "Chinese words of claims": "答案是",
    "full width": "Ａ", "ligatures": "ﷺ",
}  # fmt: skip
HUGE = {name: part * (LONG // len(part)) for name, part in HUGE.items()} | {
    "nested boxes": r"\boxed{" * (LONG // 8) + "C" + "}" * (LONG // 8),
    "braces": "{" * (LONG // 2) + "}" * (LONG // 2),
    "a box of letters": r"\boxed{" + "A, " * (LONG // 3) + "}",
    "an answer of letters": "Answer: " + "A, " * (LONG // 3), "blanks": " " * LONG + "x",
}  # fmt: skip


def test_a_text_far_longer_than_any_reply_is_not_read():
    verdict = judged(problem(), "Answer: C\n" * (MOST_CHARACTERS // 5))
    assert (verdict.label, verdict.reason) == ("undecided", "too_complex")
    at_most = "x" * (MOST_CHARACTERS - 10) + "\nAnswer: C"
    assert judged(problem(), at_most).is_correct
    assert not judged(problem(), " " + at_most).is_correct


@pytest.mark.parametrize("name", HUGE)
def test_twice_the_text_takes_about_twice_the_time(name):
    """With quadratic work in it, 40 times the text would take 1,600 times as long."""

    def seconds(text: str) -> float:
        started = time.process_time()
        judged(problem(), text)
        return time.process_time() - started

    short, long = HUGE[name][:5_000], HUGE[name]
    assert seconds(long) < 400 * max(min(seconds(short) for _ in range(3)), 2e-3)

"""An option's own text beside its letter: before it, or where it begins like a correction."""

from __future__ import annotations

import pytest
from choosing import outcome

COURT = [
    "Yes, because the ordinance is vague.",
    "No, because the sidewalk is a public forum.",
    "No, because the permit was denied.",
    "Yes, under the fighting words doctrine.",
]


@pytest.mark.parametrize(
    "text",
    [
        "Answer: B. No, because the sidewalk is a public forum.",
        "The answer is B: No, because the sidewalk is a public forum. The others miss that.",
        "Answer: B. No, because the sidewalk is a place that is open to all.",
    ],
)
def test_an_option_that_begins_with_no_takes_no_claim_back(text):
    assert outcome(text, "B", COURT) == ("correct", "equal")
    assert outcome(text, "C", COURT)[0] != "correct"


@pytest.mark.parametrize(
    "text",
    [
        "Answer: B. No, the sidewalk is not one.",
        "Answer: B. No, wait. It is another one.",
        "Answer: B. No, because I forgot the permit.",
        "Answer: A. No, because the permit was denied, it is another one.",
    ],
)
def test_a_no_that_is_not_the_text_of_the_claimed_option_takes_the_claim_back(text):
    assert outcome(text, "B", COURT)[0] != "correct"
    assert outcome(text, "A", COURT)[0] != "correct"


@pytest.mark.parametrize(
    "text",
    [
        "The answer is Jupiter (C).",
        r"\boxed{Jupiter (C)}",
    ],
)
def test_an_option_may_be_named_by_its_text_and_then_its_letter(text):
    assert outcome(text) == ("correct", "equal")
    assert outcome(text, "B") == ("incorrect", "different")


@pytest.mark.parametrize(
    "text",
    [
        "The answer is Jupiter, i.e. option C.",
        "The answer is the largest of them, i.e. option C.",
        "Answer: Jupiter (option C)",
        "The answer is Mars (C).",
        "The answer is Mars, i.e. option C.",
        "The answer is not Jupiter, i.e. option C.",
        "The answer is Mars or Jupiter, i.e. option C.",
        "The answer is Jupiter, i.e. option C or option D.",
        "The answer is anything but Mars, i.e. option C.",
        "The answer is Jupiter, i.e. option C?",
        "The answer is Jupiter, option C is wrong.",
    ],
)
def test_other_words_before_a_letter_claim_no_single_option(text):
    assert outcome(text)[0] != "correct"

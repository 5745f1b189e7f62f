"""Which attempt a chooser named, and what its answer becomes."""

from __future__ import annotations

import pytest

from heavydistill.heavy import prompts
from heavydistill.heavy.choosing import answered_by_choice, chosen

FIELDS = {"finish_reason": "stop", "reasoning": "hm", "answer_text": r"It is \boxed{2}."}


@pytest.mark.parametrize(
    ("reply", "number"),
    [
        (r"The best is \boxed{3}", 3),
        (r"First I took \boxed{1}, but \boxed{2} is sounder", 2),
        (r"\boxed{ Attempt 1 }", 1),
        (r"\boxed{\text{Attempt 2}}", 2),
        (r"\boxed{尝试 3}", 3),
        (r"\boxed{4}", None),
        (r"\boxed{0}", None),
        (r"\boxed{2.5}", None),
        ("Attempt 2", None),
        ("", None),
    ],
)
def test_the_last_box_names_an_attempt_that_is_there(reply: str, number: int | None) -> None:
    assert chosen(reply, 3) == number


def test_the_answer_of_the_attempt_counts_and_the_reply_is_kept() -> None:
    fields = answered_by_choice(FIELDS, [r"\boxed{7}", r"\boxed{8}"])
    assert fields["answer_text"] == r"\boxed{8}"
    assert fields["reasoning"] == "hm\n\nIt is \\boxed{2}."


def test_a_reply_that_names_no_attempt_has_no_answer() -> None:
    assert answered_by_choice(FIELDS, ["one"])["answer_text"] == ""


@pytest.mark.parametrize("reason", ["length", "error"])
def test_what_was_cut_off_or_failed_stays_as_it_is(reason: str) -> None:
    fields = {**FIELDS, "finish_reason": reason}
    assert answered_by_choice(fields, ["a", "b"]) == fields


@pytest.mark.parametrize("language", ["en", "zh"])
def test_choosers_have_one_wording_a_language_for_every_domain(language: str) -> None:
    wording = prompts.for_cache("choose", "code", language)
    assert wording.version.startswith(f"chooser.general.{language}@")
    assert prompts.FENCE_SLOT in wording.opening and r"\boxed{}" in wording.closing
    assert prompts.for_cache("deliberate", "code", language).role == "deliberator"

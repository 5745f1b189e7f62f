"""One answer of a file: text or object, with what it says and what is assumed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heavydistill.curate.imports.formats import attempt_of, attempts_of
from heavydistill.errors import ProblemsError


@pytest.mark.parametrize(
    ("text", "reasoning", "answer", "finish"),
    [
        ("It is 4.", "", "It is 4.", "stop"),
        ("<think>2 and 2</think>\nIt is 4.", "2 and 2", "It is 4.", "stop"),
        ("2 and 2</think>It is 4.", "2 and 2", "It is 4.", "stop"),
        ("<think>2 and 2, so", "2 and 2, so", "", "length"),
        ("", "", "", "error"),
        (None, "", "", "error"),
        (" \n", "", "", "error"),
    ],
)
def test_thinking_is_told_apart_and_the_end_is_assumed(
    text: str | None, reasoning: str, answer: str, finish: str
) -> None:
    attempt = attempt_of(text, "here")
    said = attempt.trajectory
    assert (said.reasoning, said.answer_text) == (reasoning, answer)
    assert said.finish_reason == finish and attempt.is_assumed
    assert (said.error is None) == (said.failure is None) == (finish != "error")
    assert (
        said.prompt_tokens,
        said.completion_tokens,
        said.latency_s,
    ) == (-1, -1, -1)


def test_an_object_says_more_than_its_text() -> None:
    attempt = attempt_of(
        {
            "content": "It is 4.",
            "reasoning_content": "2 and 2",
            "finish_reason": "length",
            "is_correct": False,
            "model": "m",
            "completion_tokens": 12,
            "num_input_tokens": 5,
            "latency_s": 1.5,
        },
        "here",
        model="other",
        label=True,
        finish_reason="stop",
    )
    said = attempt.trajectory
    assert (said.reasoning, said.answer_text) == ("2 and 2", "It is 4.")
    assert said.finish_reason == "length" and not attempt.is_assumed
    assert (attempt.label, said.model) == (False, "m")
    assert (
        said.prompt_tokens,
        said.completion_tokens,
        said.latency_s,
    ) == (5, 12, 1.5)


@pytest.mark.parametrize(
    ("said", "finish", "failure"),
    [
        ("stop", "stop", None),
        ("EOS", "stop", None),
        ("max_tokens", "length", None),
        ("content_filter", "error", "unknown_end"),
    ],
)
def test_a_finish_reason_that_the_file_gives_is_kept(
    said: str, finish: str, failure: str | None
) -> None:
    attempt = attempt_of("It is 4.", "here", finish_reason=said)
    said = attempt.trajectory
    assert (said.finish_reason, said.failure) == (finish, failure)
    assert not attempt.is_assumed and said.answer_text == "It is 4."


@pytest.mark.parametrize(
    ("label", "read"), [(True, True), (0, False), (1.0, True), ("yes", None), (0.5, None)]
)
def test_a_label_is_right_or_wrong_or_none(label: Any, read: bool | None) -> None:
    attempt = attempt_of("4", "here", label=label)
    assert attempt.label is read and attempt.is_label_unclear == (read is None)
    assert not attempt_of("4", "here").is_label_unclear


def test_half_a_character_makes_an_answer_a_failure() -> None:
    attempt = attempt_of("\ud800 4", "here")
    said = attempt.trajectory
    assert (said.answer_text, said.failure) == ("", "malformed")


def test_lists_beside_the_answers_are_taken_one_by_one() -> None:
    attempts = attempts_of(["4", "5"], "here", labels=[True, False], ends=["stop", "length"])
    assert [(a.label, a.trajectory.finish_reason) for a in attempts] == [
        (True, "stop"),
        (False, "length"),
    ]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: attempt_of({"text": "4", "answer": "5"}, "f:1"), "text and answer of an answer"),
        (lambda: attempt_of({"words": "4"}, "f:1"), r"no key .* answer_text=KEY.*words"),
        (
            lambda: attempt_of({"text": "4"}, "f:1", text_key="words"),
            "an answer has no key 'words'",
        ),
        (lambda: attempt_of({"text": 4}, "f:1"), "an answer holds int"),
        (lambda: attempt_of(4, "f:1"), "an answer holds int"),
        (lambda: attempts_of("4", "f:1"), "the answers are str, not a list"),
        (lambda: attempts_of(["4"], "f:1", labels=[]), "1 answers, and the labels are not as many"),
    ],
)
def test_what_is_no_answer_is_an_error_with_its_place(call: Any, says: str) -> None:
    with pytest.raises(ProblemsError, match=rf"f:1: .*{says}"):
        call()


_VALUES = st.sampled_from(
    [None, "", "stop", "odd", -3, 0, 7, 1.5, float("inf"), float("nan"), True]
)


@given(st.lists(_VALUES, min_size=4, max_size=4))
def test_whatever_stands_beside_a_text_it_becomes_a_trajectory(values: list[Any]) -> None:
    keys = ("is_correct", "finish_reason", "latency_s", "completion_tokens")
    row = {"text": "4", **dict(zip(keys, values, strict=True))}
    one = attempt_of(row, "here").trajectory
    assert one == attempt_of(row, "here").trajectory
    assert (one.failure is None) == (one.finish_reason != "error") == (one.error is None)
    assert one.latency_s >= -1 and one.completion_tokens >= -1

"""A row to learn from, and what keeps a generation from being one."""

from __future__ import annotations

import pytest
from generations import deliberation, problem
from students import checkpoint, real_template

from heavydistill.chat.guard import guard
from heavydistill.chat.student import Student
from heavydistill.curate.rows import sft_row
from heavydistill.schema import Generation
from heavydistill.store.sets.rows import SftRow


@pytest.fixture(scope="module", params=["qwen2_5", "qwen3"])
def student(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Student:
    """One with thinking in the text, one with thinking as a field."""
    return Student(checkpoint(tmp_path_factory.mktemp("student"), real_template(request.param)))


def _made(student: Student, generation: Generation, max_tokens: int = 1000) -> SftRow | str:
    return sft_row(student, max_tokens, "run", problem(), "What is 2 + 3?", generation)


def test_the_parts_of_a_row_are_those_of_its_completion(student: Student) -> None:
    """Teachers put line breaks around both, which a template may keep or not."""
    row = _made(student, deliberation("\n\nIt is 5.\n", "\n2 + 3\n  = 5\n"))
    assert isinstance(row, SftRow)
    assert (row.reasoning, row.answer_text) == ("2 + 3\n  = 5", "It is 5.")
    assert row.completion == student.completion(row.reasoning, row.answer_text)
    assert guard(student.chat, [row], row.prompt_tokens + row.completion_tokens).faults == []


def test_thinking_that_stands_in_an_answer_is_not_renderable(student: Student) -> None:
    """Else it would be an answer in one column and thinking in another."""
    assert _made(student, deliberation("<think>\n2 + 3\n</think>\n\nIt is 5.")) == "not_renderable"


def test_a_row_that_does_not_fit_is_labelled(student: Student) -> None:
    row = _made(student, deliberation("It is 5."))
    assert isinstance(row, SftRow)
    tokens = row.prompt_tokens + row.completion_tokens
    assert _made(student, deliberation("It is 5."), tokens) == row
    assert _made(student, deliberation("It is 5."), tokens - 1) == "too_long_for_student"

import dataclasses

import pytest
from generations import trajectory

from heavydistill.metrics.tool_use import ToolUse
from heavydistill.schema import ToolCall, Trajectory, Turn, Verdict, turns_as_json


def said(text: str, *code: str, thinking: str = "") -> Turn:
    calls = [ToolCall(id=str(n), name="python", arguments=each) for n, each in enumerate(code)]
    return Turn(role="assistant", text=text, thinking=thinking, calls=calls)


def printed(text: str, error: str | None = None) -> Turn:
    return Turn(role="tool", text=text, result_of="0", seconds=0.5, error=error)


def attempt(*turns: Turn, answer: str | None = "12", finish: str = "stop") -> Trajectory:
    verdict = Verdict(label="correct", reason="test", extracted=answer, verifier="exact@1")
    one = trajectory("t0", verdict=verdict, turns_json=turns_as_json(turns))
    return dataclasses.replace(one, finish_reason=finish)


def test_rounds_seconds_errors_and_ends_are_counted_by_attempt():
    used = ToolUse()
    answered = attempt(said("", "1", "2"), printed("a", "exception"), printed("b"), said("12"))
    cut_off = attempt(said("", "1"), printed("c", "time"), answer=None, finish="length")
    used.add([answered, cut_off, trajectory("t2"), attempt(said("?"), finish="error")])
    assert (used.trajectories, used.of, used.rounds, used.seconds) == (2, 3, 2, 1.5)
    assert used.errors == {"exception": 1, "time": 1}
    assert used.stopped == {"answer": 1, "time": 1}
    assert used.answered == 1


@pytest.mark.parametrize(
    ("turns", "is_printed"),
    [
        ([said("", "f()"), printed("so 12."), said("12")], True),
        ([said("", "f()"), printed("12"), said("12", thinking="It is 12.")], True),
        ([said("About 12.", "f()"), printed("12"), said("12")], False),
        ([said("", "print(12)"), printed("12"), said("12")], False),
        ([said("", "f()"), printed("112"), said("12")], False),
        ([said("", "f()"), printed("12.5"), said("12")], False),
        ([said("", "f()"), printed("0.12"), said("12")], False),
        ([said("", "f()"), printed("ok"), said("So it is 12.", "g()"), printed("12")], False),
    ],
)
def test_an_answer_is_computed_if_an_output_has_it_before_the_model(turns, is_printed):
    used = ToolUse()
    used.add([attempt(*turns)])
    assert used.printed == is_printed

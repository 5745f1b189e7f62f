"""The verdict of a user on an answer: ``POST /v1/feedback``.

It is also the verdict on all attempts and deliberations with the same final answer. Other answers
stay undecided, because several may be right.
"""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from pydantic import Field, model_validator

from heavydistill.heavy.episode import labelled
from heavydistill.heavy.judge_votes import decided_by_user
from heavydistill.schema import Generation, Label, Trace
from heavydistill.serve.choice import answer_in
from heavydistill.serve.request import ApiError, Body

_G = TypeVar("_G", bound=Generation)


class Feedback(Body):
    """The body of a request."""

    id: str  # id of the answer
    choice: int = Field(default=0, ge=0)  # number of the choice
    right: bool | None = None  # whether the answer is right
    rating: float | None = Field(default=None, ge=0, le=1)
    """Rating in place of ``right``: 0 is wrong and 1 is right; between them it decides nothing."""

    @model_validator(mode="after")
    def _has_one(self) -> Feedback:
        if (self.right is None) == (self.rating is None):
            raise ValueError("give either right or rating")
        return self

    @property
    def label(self) -> Label:
        """The label of the verdict."""
        value = self.right if self.rating is None else self.rating
        return "correct" if value == 1 else "incorrect" if value == 0 else "undecided"


def with_feedback(trace: Trace, feedback: Feedback, rounds: int) -> Trace:
    """The row with the verdict of a user, and labelled.

    Raises ApiError if the answer has no such choice.
    """
    answer = answer_in(trace, feedback.choice, rounds)
    if answer is None:
        raise ApiError(400, f"The answer has no choice {feedback.choice}.", "choice")

    def decided(each: _G) -> _G:
        is_same = answer.extracted is not None and each.extracted == answer.extracted
        if not each.verdict or not (each.id == answer.id or is_same):
            return each
        verdict = decided_by_user(each.verdict, feedback.label, feedback.rating)
        return dataclasses.replace(each, verdict=verdict)

    pool, deliberations = map(decided, trace.pool), map(decided, trace.deliberations)
    return labelled(dataclasses.replace(trace, pool=[*pool], deliberations=[*deliberations]))

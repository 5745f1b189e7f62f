"""One answer as a file has it, and the trajectory that it becomes.

An answer is a text, or an object with the text under a key and perhaps more beside it: reasoning,
a label, a finish reason, tokens, a model. Thinking that stands in the text between ``<think>`` and
``</think>`` is told apart.

What a file does not say stays unknown: tokens, seconds and seed are -1. A finish reason is assumed
where none is given (``Attempt.is_assumed``): ``stop`` for an answer with text, ``length`` for
thinking that was never closed, ``error`` where there is nothing at all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heavydistill.errors import ProblemsError
from heavydistill.models.http.reasoning import split_reasoning
from heavydistill.problems.tables import choices
from heavydistill.schema import Failure, FinishReason, Trajectory, content_id

UNKNOWN_MODEL = "unknown"
THINK_TAGS = ("<think>", "</think>")
TEXT_KEYS = (
    *("answer_text", "generation", "response", "solution", "completion"),
    *("content", "output", "text", "answer"),
)
_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
_LABEL_KEYS = ("is_correct", "symbolic_correct", "correct")
_COMPLETION_KEYS = ("completion_tokens", "num_generated_tokens")
_PROMPT_KEYS = ("prompt_tokens", "num_input_tokens")
_SECONDS_KEYS = ("latency_s", "generation_time")
_STOPPED = frozenset({"stop", "eos", "eos_token", "end_turn", "stop_sequence"})
_CUT_OFF = frozenset({"length", "max_tokens", "max_length"})
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One answer; counts and seconds are -1 where the file does not say."""

    reasoning: str  # may be empty
    answer_text: str  # what follows the reasoning
    finish_reason: FinishReason
    error: str | None
    failure: Failure | None
    is_assumed: bool  # the file gives no finish reason
    label: bool | None  # whether the file calls it right; None if it does not clearly say
    is_label_unclear: bool  # the file gives a label that is neither true nor false, 1 nor 0
    model: str  # who wrote it; empty if the file does not say
    prompt_tokens: int
    completion_tokens: int  # thinking included
    seconds: float  # that the request took

    def trajectory(self, problem: str, index: int, model: str) -> Trajectory:
        """The answer as a trajectory without a verdict.

        Args:
            problem: Id of the problem.
            index: Position in the pool, from 0.
            model: Who wrote it, where the file does not say.
        """
        model = self.model or model
        content = (model, index, -1, self.reasoning, self.answer_text, self.finish_reason)
        return Trajectory(
            id=content_id("t", problem, *content),
            index=index,
            model=model,
            seed=-1,
            reasoning=self.reasoning,
            answer_text=self.answer_text,
            finish_reason=self.finish_reason,
            error=self.error,
            failure=self.failure,
            verdict=None,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            latency_s=self.seconds,
            request_id="",
        )


def attempt_of(
    value: Any,
    where: str,
    *,
    text_key: str | None = None,
    model: str = "",
    label: Any = None,
    finish_reason: Any = None,
) -> Attempt:
    """One answer of a file.

    Args:
        value: Text, an object, or null for an answer that is empty.
        where: Place for messages.
        text_key: Key of the text in an object; None takes the one of ``TEXT_KEYS`` that is there.
        model: Who wrote it, where an object does not say; so for the next two.
        label: Whether it is right.
        finish_reason: How it ended, in the words of the file.

    Raises:
        ProblemsError: It is none of these, or nothing tells which key holds the text.
    """
    if isinstance(value, Mapping):
        text = value[_text_key(value, where, text_key)]
        known: Mapping[str, Any] = value
    else:
        text, known = value, {}
    reasoning = next((known[key] for key in _REASONING_KEYS if known.get(key)), "")
    for part in (text, reasoning):
        if part is not None and not isinstance(part, str):
            raise ProblemsError(
                f"{where}: an answer holds {type(part).__name__}, not text",
                "Write it as a string, or name the key of its text in problems.columns.answer_text "
                "(--columns answer_text=KEY).",
            )
    inline, answer = split_reasoning(text or "", THINK_TAGS)
    reasoning = "\n\n".join(filter(None, (reasoning.strip(), inline)))
    ended = known.get("finish_reason", finish_reason)
    finish, error, failure = _ending(ended, reasoning, answer)
    if _HALF_CHARACTER.search(reasoning + answer):
        reasoning = answer = ""
        finish, error, failure = "error", "The text holds half a character.", "malformed"
    given = _first(known, _LABEL_KEYS, label)
    named = known.get("model")
    if isinstance(named, str) and not _HALF_CHARACTER.search(named):
        model = named or model
    return Attempt(
        reasoning=reasoning,
        answer_text=answer,
        finish_reason=finish,
        error=error,
        failure=failure,
        is_assumed=not ended,
        label=_label(given),
        is_label_unclear=given is not None and _label(given) is None,
        model=model,
        prompt_tokens=int(_number(_first(known, _PROMPT_KEYS))),
        completion_tokens=int(_number(_first(known, _COMPLETION_KEYS))),
        seconds=float(_number(_first(known, _SECONDS_KEYS))),
    )


def attempts_of(
    values: Any, where: str, *, text_key: str | None = None, labels: Any = None, ends: Any = None
) -> list[Attempt]:
    """The answers of a list, with the lists of labels and finish reasons beside it, if any.

    Raises:
        ProblemsError: It is no list, or a list beside it is none or of another length.
    """
    if not isinstance(values, list):
        raise ProblemsError(
            f"{where}: the answers are {type(values).__name__}, not a list",
            "Write a list of texts, or leave the row out.",
        )
    beside: list[Sequence[Any]] = []
    for name, column in (("labels", labels), ("finish reasons", ends)):
        if column is not None and (not isinstance(column, list) or len(column) != len(values)):
            raise ProblemsError(
                f"{where}: there are {len(values)} answers, and the {name} are not as many",
                f"Write one a answer, or do not name a column for the {name}.",
            )
        beside.append([None] * len(values) if column is None else column)
    return [
        attempt_of(value, where, text_key=text_key, label=label, finish_reason=end)
        for value, label, end in zip(values, *beside, strict=True)
    ]


def _text_key(value: Mapping[str, Any], where: str, named: str | None) -> str:
    """The key of the text in an object: the one that is named, else the only one that is known."""
    there = [key for key in ([named] if named else TEXT_KEYS) if key in value]
    if len(there) == 1:
        return there[0]
    what = (
        f"the keys {' and '.join(there)} of an answer could each be its text"
        if there
        else f"an answer has no key {named!r}"
        if named
        else "no key of an answer is known to hold its text"
    )
    raise ProblemsError(
        f"{where}: {what}",
        "Name it in problems.columns.answer_text (--columns answer_text=KEY). "
        + choices("text", map(str, value), "Keys there"),
    )


def _ending(
    ended: Any, reasoning: str, answer: str
) -> tuple[FinishReason, str | None, Failure | None]:
    """(finish reason, error, failure) of an answer that ended in the file's words like that."""
    if ended:
        name = str(ended).lower()
        if name in _STOPPED:
            return "stop", None, None
        if name in _CUT_OFF:
            return "length", None, None
        return "error", f"It ended with {str(ended)[:80]!r}.", "unknown_end"
    if answer:
        return "stop", None, None
    if reasoning:
        return "length", None, None
    return "error", "The file holds no text and no reason why.", "unknown_end"


def _first(known: Mapping[str, Any], keys: Sequence[str], otherwise: Any = None) -> Any:
    return next((known[key] for key in keys if known.get(key) is not None), otherwise)


def _label(value: Any) -> bool | None:
    """Right, wrong, or no label that can be read."""
    return bool(value) if isinstance(value, int | float) and value in (0, 1) else None


def _number(value: Any) -> float:
    """A count or time; -1 where there is none."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return -1
    return value if math.isfinite(value) and value >= 0 else -1

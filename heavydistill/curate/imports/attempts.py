"""One answer of a file, as an attempt without id, index and verdict.

An answer is a text, or an object with the text under one of its keys. Thinking between ``<think>``
and ``</think>`` is split off. Values missing from a file stay unknown: tokens, seconds, cost and
seed are -1. A missing finish reason is assumed: ``stop`` for an answer with text, ``length`` for
thinking that was never closed, ``error`` for an empty answer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from heavydistill.errors import ProblemsError
from heavydistill.models.thinking import COMMON_TAGS, split_reasoning
from heavydistill.problems.tables import choices
from heavydistill.schema import Failure, FinishReason, Trajectory

TEXT_KEYS = (
    *("answer_text", "generation", "response", "solution", "completion"),
    *("content", "output", "text", "answer"),
)
_REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
_KEYS = {
    "model": ("model",),
    "prompt_tokens": ("prompt_tokens", "num_input_tokens"),
    "completion_tokens": ("completion_tokens", "num_generated_tokens"),
    "finish_reason": ("finish_reason",),
    "cost": ("cost", "cost_usd"),
    "label": ("is_correct", "symbolic_correct", "correct"),
    "latency_s": ("latency_s", "generation_time"),
}
ATTEMPT_FIELDS = tuple(name for name in _KEYS if name != "latency_s")
"""What a file may say of an answer beside its text, in columns that the user can name."""
_STOPPED = frozenset({"stop", "eos", "eos_token", "end_turn", "stop_sequence"})
_CUT_OFF = frozenset({"length", "max_tokens", "max_length", "model_length"})
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class ImportedAttempt:
    """One answer of a file."""

    trajectory: Trajectory
    """The answer without id, index and verdict. Unknown counts and seconds are -1; an unknown
    model is empty."""
    label: bool | None  # Whether the file labels it correct; None if unclear
    is_label_unclear: bool  # Whether the file's label is neither true nor false, 1 nor 0
    is_assumed: bool  # Whether the finish reason is assumed, not from the file
    cost_usd: float = -1  # Cost that the file gives; -1 if unknown


def attempt_of(
    value: Any, where: str, beside: Mapping[str, object] = MappingProxyType({})
) -> ImportedAttempt:
    """Read one answer: a text, an object, or null for an empty answer.

    ``beside`` has values of ``ATTEMPT_FIELDS`` for an answer that is not an object with them.
    Raises ProblemsError for other values, and for objects without exactly one of ``TEXT_KEYS``.
    """
    known: Mapping[str, Any] = value if isinstance(value, Mapping) else {}
    text = value[_text_key(value, where)] if isinstance(value, Mapping) else value
    reasoning = next((known[key] for key in _REASONING_KEYS if known.get(key)), "")
    _require_texts(where, text, reasoning)
    given = {name: _first(known, keys, beside.get(name)) for name, keys in _KEYS.items()}
    inline, answer = split_reasoning(text or "", COMMON_TAGS)
    reasoning = "\n\n".join(filter(None, (reasoning.strip(), inline)))
    finish, error, failure = _ending(given["finish_reason"], reasoning, answer)
    if _HALF_CHARACTER.search(reasoning + answer):
        reasoning = answer = ""
        finish, error, failure = "error", "The text holds half a character.", "malformed"
    label, named = given["label"], given["model"]
    is_clear = isinstance(label, int | float) and label in (0, 1)
    trajectory = Trajectory(
        id="",
        index=0,
        model=named if isinstance(named, str) and not _HALF_CHARACTER.search(named) else "",
        seed=-1,
        reasoning=reasoning,
        answer_text=answer,
        finish_reason=finish,
        error=error,
        failure=failure,
        verdict=None,
        prompt_tokens=int(_number(given["prompt_tokens"])),
        completion_tokens=int(_number(given["completion_tokens"])),
        latency_s=float(_number(given["latency_s"])),
        request_id="",
    )
    return ImportedAttempt(
        trajectory,
        bool(label) if is_clear else None,
        is_label_unclear=label is not None and not is_clear,
        is_assumed=not given["finish_reason"],
        cost_usd=float(_number(given["cost"])),
    )


def _require_texts(where: str, *parts: object) -> None:
    """Raise ProblemsError if a part of an answer is neither a text nor null."""
    for part in parts:
        if part is not None and not isinstance(part, str):
            raise ProblemsError(
                f"{where}: an answer is of type {type(part).__name__}, not a text",
                "Write it as a string.",
            )


def attempts_of(
    values: object, where: str, beside: Mapping[str, object] = MappingProxyType({})
) -> list[ImportedAttempt]:
    """Read a list of answers; ``beside`` has a list of the same length, or one value for all.

    Raises ProblemsError if the answers are not a list, or the lengths differ.
    """
    if not isinstance(values, list):
        raise ProblemsError(
            f"{where}: the answers are of type {type(values).__name__}, not a list",
            "Write a list of texts, or leave the row out.",
        )
    for name, column in beside.items():
        if isinstance(column, list) and len(column) != len(values):
            raise ProblemsError(
                f"{where}: there are {len(values)} answers, but {len(column)} values for their "
                f"{name}",
                f"Write one for each answer, or name another column: --columns {name}=COLUMN.",
            )
    return [
        attempt_of(
            value,
            where,
            {name: of[place] if isinstance(of, list) else of for name, of in beside.items()},
        )
        for place, value in enumerate(values)
    ]


def _text_key(value: Mapping[str, object], where: str) -> str:
    """Return the only key of an object that is in ``TEXT_KEYS``."""
    keys = [key for key in TEXT_KEYS if key in value]
    if len(keys) == 1:
        return keys[0]
    what = f"an answer has the keys {' and '.join(keys)}, and each could be its text"
    raise ProblemsError(
        f"{where}: {what if keys else 'an answer has no known key for its text'}",
        f"Rename the key of the text to {TEXT_KEYS[0]}, and other keys to names that are not among "
        f"{', '.join(TEXT_KEYS)}. " + choices("text", map(str, value), "Keys there"),
    )


def _ending(
    ended: object, reasoning: str, answer: str
) -> tuple[FinishReason, str | None, Failure | None]:
    """Return (finish reason, error, failure) of an answer; ``ended`` is the file's value."""
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
    return "error", "The file holds no text and no finish reason.", "unknown_end"


def _first(known: Mapping[str, object], keys: Sequence[str], otherwise: object = None) -> object:
    return next((known[key] for key in keys if known.get(key) is not None), otherwise)


def _number(value: object) -> float:
    """Return a count or a time; -1 for anything that is not a number."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return -1
    return value if math.isfinite(value) and value >= 0 else -1

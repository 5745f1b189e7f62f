"""From a response to a row: the fields of a ``schema.Generation``, and its id.

Whoever asks a model makes rows by this, so that the same sample is the same row everywhere.
"""

from __future__ import annotations

from typing import Any

from heavydistill.models.request import Request, Response
from heavydistill.schema import Deliberation, Trajectory, content_id

# What a generation is, without what differs when it is asked for again.
_CONTENT = ("model", "index", "seed", "reasoning", "answer_text", "finish_reason")


def fields_of(model: str, request: Request, response: Response) -> dict[str, Any]:
    """The fields of a generation but its id and verdict.

    Args:
        model: Name of its profile.
        request: What was asked.
        response: What came back, or the reason why nothing did.
    """
    return {
        "index": request.index,
        "model": model,
        "seed": request.seed if response.is_seeded else -1,
        "reasoning": response.reasoning,
        "answer_text": response.answer_text,
        "finish_reason": response.finish_reason,
        "error": response.error,
        "failure": response.failure,
        "prompt_tokens": response.prompt_tokens,
        "completion_tokens": response.completion_tokens,
        "latency_s": response.latency_s,
        "request_id": response.request_id,
        "cached_tokens": response.cached_tokens,
    }


def trajectory(problem: str, fields: dict[str, Any]) -> Trajectory:
    """The trajectory of these fields, not judged; ``problem`` is the id of its problem."""
    return Trajectory(id=content_id("t", problem, *_content(fields)), verdict=None, **fields)


def deliberation(problem: str, cache: str, round: int, fields: dict[str, Any]) -> Deliberation:
    """The deliberation of these fields, not judged, by the ids of its problem and its cache."""
    return Deliberation(
        id=content_id("d", problem, cache, *_content(fields)),
        cache=cache,
        round=round,
        verdict=None,
        **fields,
    )


def _content(fields: dict[str, Any]) -> list[Any]:
    return [fields[name] for name in _CONTENT]

"""Rows of the schema for tests that care for a field or two of them."""

from __future__ import annotations

from typing import Any

from heavydistill.schema import Trajectory


def generation(kind: type = Trajectory, **changed: Any) -> Any:
    """A finished one of this kind that nobody judged."""
    usual = {"id": "t_1", "index": 0, "model": "m", "seed": 1, "reasoning": "", "answer_text": "7"}
    usual |= {"finish_reason": "stop", "error": None, "verdict": None, "request_id": ""}
    usual |= {"prompt_tokens": -1, "completion_tokens": -1, "latency_s": 0.0}
    return kind(**usual | changed)


def trajectory(**changed: Any) -> Trajectory:
    """A finished trajectory that nobody judged."""
    return generation(**changed)


def fields_of(value: Any) -> dict[str, Any]:
    """The fields of a row, not of what stands in them."""
    return {name: getattr(value, name) for name in type(value).__dataclass_fields__}

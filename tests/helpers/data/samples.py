"""Rows of the schema for tests that care for a field or two of them."""

from __future__ import annotations

import dataclasses
from typing import Any

from heavydistill.schema import Trajectory

_TRAJECTORY = Trajectory(
    id="t_1",
    index=0,
    model="m",
    seed=1,
    reasoning="",
    answer_text="7",
    finish_reason="stop",
    error=None,
    verdict=None,
    prompt_tokens=-1,
    completion_tokens=-1,
    latency_s=0.0,
    request_id="",
)


def trajectory(**changed: Any) -> Trajectory:
    """A finished trajectory that nobody judged."""
    return dataclasses.replace(_TRAJECTORY, **changed)

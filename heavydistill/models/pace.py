"""How fast a model can take rows: batches for one in this process, slots for one that is served.

A model in this process is fast in full batches, one after the other. Requests to an endpoint are
independent: a batch is one row, and so many are in flight that a few slow ones idle nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from heavydistill.config.models import Endpoint
from heavydistill.models.profiles import Profile

LOCAL_BATCH = 16
"""Rows of a batch for a model in this process, at least."""
_LOCAL_REQUESTS = 64  # of a batch, at least: with fewer a small model waits for Python
_ROWS_PER_SLOT = 8
_MOST_IN_FLIGHT = 512


@dataclass(frozen=True, slots=True)
class Pace:
    """How the rows of a stage that asks a model are batched."""

    batch: int  # Rows a batch
    in_flight: int  # Batches at once

    @classmethod
    def of(cls, model: Profile, samples: int, endpoint: Endpoint) -> Pace:
        """For so many samples a row; 0 asks nothing, and of an endpoint is as slow as 1."""
        if model.kind == "local":
            return cls(max(LOCAL_BATCH, _LOCAL_REQUESTS // samples if samples else 0), 1)
        slots = -(-endpoint.slots // max(1, samples))
        return cls(1, max(slots, min(_MOST_IN_FLIGHT, _ROWS_PER_SLOT * slots)))

    @property
    def rows(self) -> int:
        return self.batch * self.in_flight

"""Which rows and batches are between the first and the last step, and what may be loaded.

Rows are counted where they wait and where they are worked on: in with the batch that a step passes
on, once for each step that it goes to, and out with the batch that was made of them. So whatever a
step makes of its rows, fewer or more, frees or takes that much of the window.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distilabel.pipeline.batch import _Batch


@dataclass(slots=True)
class _Flow:
    """Batches that went to a step and came back.

    Attributes:
        sent: How many went.
        received: How many came back.
        all_sent: Whether no more will go.
    """

    sent: int = 0
    received: int = 0
    all_sent: bool = False


class Window:
    """What is inside of a pipeline.

    Args:
        most: Rows with which no more are loaded, unless a step waits for them.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._rows = 0
        self._flows: dict[str, _Flow] = defaultdict(_Flow)

    @property
    def is_moving(self) -> bool:
        """Whether any step has work."""
        return any(flow.sent > flow.received for flow in self._flows.values())

    def may_load(self, root: str) -> bool:
        """Whether a first step is to be asked for a batch.

        Rows beyond the window are loaded if nothing moves: a step waits until its batch is full.
        """
        flow = self._flows[root]
        is_idle = flow.sent == flow.received and not flow.all_sent
        return is_idle and (self._rows < self.most or not self.is_moving)

    def send(self, batch: _Batch) -> None:
        """Note a batch that goes to a step."""
        flow = self._flows[batch.step_name]
        flow.sent += 1
        flow.all_sent = batch.last_batch

    def receive(self, batch: _Batch, is_loaded: bool) -> None:
        """Note a batch that a step has worked off, or that a first step has loaded."""
        flow = self._flows[batch.step_name]
        flow.received += 1
        self._rows -= sum(rows for used in batch.created_from.values() for _, _, rows in used)
        if is_loaded:
            flow.all_sent = batch.last_batch
            return
        # A step takes batches in the order of their numbers, so one that left late would hold
        # back all after it: they are numbered as they come, and the last to come is last.
        batch.seq_no = flow.received - 1
        batch.last_batch = flow.all_sent and flow.received == flow.sent

    def pass_on(self, batch: _Batch, steps: int) -> None:
        """Note the rows of a batch that goes to so many steps."""
        self._rows += len(batch.data[0]) * steps

    def close(self, step: str) -> int | None:
        """No more rows come for this step; the number of the batch that ends it, if one must.

        None if a batch that it has ends it, because it is its last.
        """
        flow = self._flows[step]
        if flow.all_sent:
            return None
        flow.all_sent = True
        return flow.sent if flow.sent == flow.received else None

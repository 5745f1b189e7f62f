"""All queues of a pipeline on Ray in one actor.

``ray.util.queue.Queue`` takes a process of its own, which costs a second and 80 MB: ten of them for
a pipeline of seven steps. A batch passes through here twice for each step, in some milliseconds.

Not covered: bounded queues (the pipeline bounds the rows in it), and what ``queue.Queue`` has
beside what distilabel and ``logging.handlers`` call.
"""

from __future__ import annotations

import asyncio
import queue
from collections import defaultdict
from typing import Any

import ray


class Mailboxes:
    """The actor: queues by number, each made for the first item or the first one who waits."""

    def __init__(self) -> None:
        self._boxes: defaultdict[int, asyncio.Queue[Any]] = defaultdict(asyncio.Queue)

    async def put(self, box: int, item: Any) -> None:
        """Add an item."""
        self._boxes[box].put_nowait(item)

    async def get(self, box: int, timeout_s: float | None) -> list[Any]:
        """The next item, alone in a list; an empty list after ``timeout_s``."""
        try:
            return [await asyncio.wait_for(self._boxes[box].get(), timeout_s)]
        except TimeoutError:
            return []


class Mailbox:
    """One of the queues, for whoever it is sent to.

    Args:
        boxes: Handle of a ``Mailboxes`` actor.
        number: Of the queue in it.
    """

    def __init__(self, boxes: Any, number: int) -> None:
        self._boxes = boxes
        self._number = number

    def put(self, item: Any) -> None:
        """Add an item; it has arrived when this returns."""
        ray.get(self._boxes.put.remote(self._number, item))

    put_nowait = put

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The next item; waits for it, at most ``timeout`` seconds.

        Raises:
            queue.Empty: There is none.
        """
        items = ray.get(self._boxes.get.remote(self._number, timeout if block else 0.0))
        if not items:
            raise queue.Empty
        return items[0]

"""Keeps responses in groups, because a flush to disk costs the same for many as for one.

Responses that end within ``_GATHER_S``, or while a group is being written, are one call of their
``Keep`` callback. Groups are written one after the other.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

from heavydistill.models.request import Keep, Sample

_GATHER_S = 0.05  # no request waits for it, because the slot of a response is free by then


class GroupCommit:
    """Calls ``Keep`` callbacks in ``threads``; used in one event loop."""

    def __init__(self, threads: Executor) -> None:
        self._threads = threads
        # Samples that are not written yet, by callback, with the task that will write them.
        self._gathered: dict[Keep, tuple[list[Sample], asyncio.Task[None]]] = {}
        self._writing = asyncio.Lock()

    async def keep(self, samples: list[Sample], keep: Keep) -> None:
        """Return when ``keep`` has returned; raises what it raises.

        The samples are kept even if the caller is cancelled.
        """
        if keep not in self._gathered:
            self._gathered[keep] = [], asyncio.create_task(self._write(keep))
        gathered, task = self._gathered[keep]
        gathered += samples
        await asyncio.shield(task)

    async def end(self) -> None:
        """Wait for the callbacks of all samples that were given so far, whatever they raise."""
        tasks = [task for _, task in self._gathered.values()]
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _write(self, keep: Keep) -> None:
        await asyncio.sleep(_GATHER_S)
        async with self._writing:
            samples, _ = self._gathered.pop(keep)
            await asyncio.get_running_loop().run_in_executor(self._threads, keep, samples)

"""The steps as processes of this machine, by distilabel's ``Pipeline``.

Each step runs in a process of its own (see ``processes``), which ends by itself if this one dies.
See ``flow`` for the rest.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any

from distilabel.pipeline import Pipeline

from heavydistill.errors import HeavydistillError, RunError
from heavydistill.run.flow import HeavyBase, OnBatch
from heavydistill.run.processes import start_server
from heavydistill.run.worker import OverlappingWrapper, work

if TYPE_CHECKING:
    import pyarrow as pa

_GRACE_S = 5.0
_START_S = 2.0
"""How long an end waits for a start: it takes milliseconds, or waits for the fork server to load,
which starts nothing once this process has ended."""


class HeavyPipeline(HeavyBase, Pipeline):
    """A pipeline of processes that leaves none behind; its arguments are those of ``HeavyBase``."""

    def __init__(
        self,
        name: str,
        leaf_schema: pa.Schema,
        on_batch: OnBatch | None = None,
        window: int = 1024,
    ) -> None:
        super().__init__(name, leaf_schema, on_batch, window)
        self._processes: list[tuple[str, BaseProcess]] = []
        self._queues: list[Any] = []
        self._starting = threading.Lock()  # held while a process is started
        self._is_stopping = False

    def _open(self) -> None:
        self._context = start_server()
        self._log_queue = self._queue()
        self._failures = self._context.SimpleQueue()

    def _dead_worker(self) -> HeavydistillError | None:
        dead = [(step, process.exitcode) for step, process in self._processes if process.exitcode]
        # Asked after that, since it is handed over before the process ends; and asked without it,
        # since a process may be kept from its end (see _close).
        if not self._failures.empty():
            failure: HeavydistillError = self._failures.get()
            return failure
        for step, exitcode in dead:
            return RunError(
                f"The process of step {step!r} ended with code {exitcode}",
                "A negative code is a signal; -9 is often the system short of memory.",
            )
        return None

    def _await_ends(self) -> None:
        for _, process in self._processes:
            process.join(_GRACE_S)

    def _join_drained(self) -> None:
        for _, process in self._processes:
            process.join()

    def _kill_workers(self) -> None:
        for _, process in self._processes:
            process.kill()

    def _stop_workers(self, drain: bool) -> None:
        # Steps are started by a thread of its own, and one that was started after this would be
        # awaited for ever at the end of the interpreter.
        self._is_stopping = True
        if self._starting.acquire(timeout=_START_S):
            self._starting.release()
        for _, process in self._processes:
            if process.is_alive():
                process.terminate()
        if drain:
            self._await_drained()
        deadline = time.monotonic() + _GRACE_S
        for _, process in self._processes:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
        self._processes.clear()

    def _close(self) -> None:
        # What is still to be written to these queues would hold this process when it ends: rows
        # for a step that is gone, or anything, if a process was killed while it held the right to
        # write.
        for queue in self._queues:
            queue.cancel_join_thread()

    @property
    def QueueClass(self) -> Callable[[], Any]:
        return self._queue

    def _queue(self) -> Any:
        self._queues.append(self._context.Queue())
        return self._queues[-1]

    def _run_step(self, step: Any, input_queue: Any, replica: int) -> None:
        wrapper = self._wrapped(OverlappingWrapper, step, input_queue, replica)
        process = self._context.Process(
            target=work,
            args=(wrapper, self._failures, self._log_queue, self.name, self.signature),
            name=f"heavydistill {step.name}",
        )
        with self._starting:
            if not self._is_stopping:
                process.start()
                self._processes.append((step.name, process))

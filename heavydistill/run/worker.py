"""What the worker of a step does: distilabel's step wrapper, with batches that overlap.

distilabel hands a step one batch after the other, so the slowest row of a batch idles all others,
and fills a batch whose step raised with nulls. Here a step with ``batches_in_flight`` above 1
works on so many batches at once, each in a thread, and each batch leaves as soon as it is done.
``flow`` numbers them as they come, so that the next step does not wait for a slow one.

Whatever a step raises ends the run; what one row meets is no exception but data (see ``steps``).

SIGTERM drains a step that asks a model: it begins nothing new, waits for what is in flight (which
is journaled), sends no more batches, and ends. Any other step, and one whose model is not loaded
yet, ends at once. A step that has to
stop, because the money is spent or the key is refused, drains itself before it says so.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distilabel.constants import LAST_BATCH_SENT_FLAG
from distilabel.pipeline.local import _init_worker
from distilabel.pipeline.step_wrapper import _StepWrapper, _StepWrapperException

from heavydistill.errors import HeavydistillError, RunError, StoppedError, TeacherError
from heavydistill.models.request import Work
from heavydistill.run.llm import HeavyLLM

if TYPE_CHECKING:
    from distilabel.pipeline.batch import _Batch

_POLL_S = 0.2
_REPORT_S = 1.0
AT_WORK = "at_work"
"""The status in a message that tells what a step's model was asked so far, beside distilabel's."""


def work(
    wrapper: OverlappingWrapper,
    failures: Any,
    log_queue: Any,
    name: str,
    signature: str,
) -> None:
    """The target of a process of this machine. A failure is handed over before the process ends."""
    _die_with_parent()
    _show_in_top(wrapper.step.name)
    _init_worker(log_queue, name, signature)

    def drain(signum: int, frame: Any) -> None:
        # Nobody reads them any more, or can write to them if another process was killed while it
        # did: what is left in them must not hold back the end of this one.
        for written in (log_queue, wrapper.output_queue, wrapper.load_queue):
            written.cancel_join_thread()
        model = getattr(wrapper.step, "llm", None)
        if model is None or not model.is_open:  # nothing is in flight, e.g. while it is loaded
            os._exit(0)
        wrapper.drain()

    signal.signal(signal.SIGTERM, drain)
    if failure := failure_of(wrapper):
        failures.put(failure)
        raise SystemExit(1)


def failure_of(wrapper: OverlappingWrapper) -> HeavydistillError | None:
    """Run a step to its end, and say why it could not be loaded or what it raised."""
    try:
        wrapper.run()
    except _StepWrapperException as error:
        cause = error.subprocess_exception
        if isinstance(cause, HeavydistillError):
            return cause
        return RunError(
            f"Step {wrapper.step.name!r} failed: {type(cause).__name__}: {cause}",
            f"This is a defect, please report it with this:\n{error.formatted_traceback}",
        )
    return None


class OverlappingWrapper(_StepWrapper):
    """Runs one step; see the module.

    Attributes:
        batches: Worked off so far.
        poll_s: How often it looks whether it is to drain, while there is no batch.
        on_ray: Whether Ray places it, on a GPU too.
    """

    batches = 0
    poll_s = 0.2
    on_ray = False
    _drains = False

    def drain(self) -> None:
        """End without another batch, as soon as nothing is in flight."""
        self._drains = True
        self.step.llm.drain()

    def _non_generator_process_loop(self) -> None:
        with self._reporting():
            self._work_off()

    def _work_off(self) -> None:
        self._leaving = threading.Condition()
        self._in_flight = 0
        self._error: Exception | None = None
        most = getattr(self.step, "batches_in_flight", 1)
        last = False
        while not last and (batch := self._next_batch(most)):
            last = batch.last_batch
            with self._leaving:
                self._in_flight += 1
            if most == 1:  # torch keeps a pool of its own for every thread that calls it
                self._one(batch)
            else:
                threading.Thread(target=self._one, args=(batch,), daemon=True).start()
        while self._in_flight and not self._error:
            self._wait()
        self._raise_error()

    def _next_batch(self, most: int) -> _Batch | None:
        """The next batch as soon as there is one and room for it; None after the last."""
        while self._in_flight >= most and not self._error:
            self._wait()
        while not self._drains:
            self._raise_error()
            try:
                batch = self.input_queue.get(timeout=self.poll_s)
            except queue.Empty:
                continue
            return None if batch == LAST_BATCH_SENT_FLAG else batch
        return None

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        """While this lasts the run is told what the model was asked so far, when that changes."""
        model = getattr(self.step, "llm", None)
        if not isinstance(model, HeavyLLM):
            yield
            return
        ends = threading.Event()

        def report() -> None:
            told, is_last = Work(), False
            while not is_last:
                is_last = ends.wait(_REPORT_S)
                if (now := model.work) != told:
                    names = {"name": self.step.name, "replica": self.replica}
                    self.load_queue.put({**names, "status": AT_WORK, "work": now})
                    told = now

        thread = threading.Thread(target=report, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()

    def _wait(self) -> None:
        """For something to leave; now and then, so that a signal is heard."""
        with self._leaving:
            self._leaving.wait(_POLL_S)

    def _one(self, batch: _Batch) -> None:
        error = None
        try:
            if batch.data_path is not None:
                batch.read_batch_data_from_fs()
            rows = next(self.step.process_applying_mappings(*batch.data))
            batch.set_data([rows])
            if not self._is_drained:  # else it may lack what was not asked any more
                self._send_batch(batch)
        except Exception as raised:
            error = raised
        with self._leaving:
            self._error = self._error or error
            self._in_flight -= 1
            self.batches += 1
            self._leaving.notify_all()

    @property
    def _is_drained(self) -> bool:
        return self._drains or getattr(getattr(self.step, "llm", None), "is_drained", False)

    def _raise_error(self) -> None:
        # Whatever is in flight then is paid for.
        if isinstance(self._error, StoppedError | TeacherError) and hasattr(self.step, "llm"):
            self.drain()
            while self._in_flight:
                self._wait()
        if self._error:
            raise _StepWrapperException(
                str(self._error), self.step, 2, self._error
            ) from self._error


def _show_in_top(step: str) -> None:
    """Let ``top`` and ``ps`` show the step, as far as its first 15 bytes."""
    with contextlib.suppress(OSError):  # no Linux
        Path("/proc/self/comm").write_text(step)


def _die_with_parent() -> None:
    """End this process, whatever it is doing, as soon as the one that asked for it is gone.

    PR_SET_PDEATHSIG does not serve here: the kernel's parent of a step is the fork server, and
    that lives as long as a step does.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        raise RuntimeError("a step must run in a process of its own")

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()

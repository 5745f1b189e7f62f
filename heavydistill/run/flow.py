"""What our pipelines promise wherever their steps run, over the parts of distilabel 1.5.3.

- Whatever raises, in a step, in a thread or by a dead worker, ends the run with an exception.
- A window of rows is held, not all of them, and rows overtake a slow one.
- distilabel's own cache is off (its resume hangs or returns part of the rows) and so is its
  look-up of citations, which would use the network.
- The rows of the last step are written with a declared Arrow schema, not with an inferred one.

``compat`` starts the steps as processes of this machine, ``ray`` as actors of a Ray cluster. Each
name that is overridden or patched in these three has a contract test in
``tests/pipeline/test_compat.py``. Not covered: load groups.
"""

from __future__ import annotations

import shutil
import signal
import sys
import threading
import time
from abc import abstractmethod
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import distilabel
import distilabel.distiset
from distilabel.distiset import Distiset
from distilabel.pipeline.base import _STEP_LOAD_FAILED_CODE, _STEP_UNLOADED_CODE, BasePipeline
from distilabel.pipeline.batch import _Batch
from distilabel.utils import logging as distilabel_logging

from heavydistill.errors import HeavydistillError, RunError, StoppedError, TeacherError
from heavydistill.models.request import Work
from heavydistill.run.interrupts import terminate_as_interrupt
from heavydistill.run.rows import RowWriter, dataset_of, temporary_folder
from heavydistill.run.window import Window
from heavydistill.run.worker import AT_WORK, OverlappingWrapper
from heavydistill.store.traces import LEAF_FOLDER

if TYPE_CHECKING:
    import pyarrow as pa

_Wrapper = TypeVar("_Wrapper", bound=OverlappingWrapper)

SUPPORTED = "1.5.3"
if distilabel.__version__ != SUPPORTED:
    raise ImportError(
        f"heavydistill works with distilabel {SUPPORTED} and found {distilabel.__version__}. "
        f"Install distilabel=={SUPPORTED}."
    )

# Clients log every request at INFO; distilabel silences the names that it knew.
distilabel_logging._SILENT_LOGGERS.extend(["httpx2", "httpcore2", "reasoning_gym"])
distilabel.distiset._grab_citations = lambda dag: []
# It shows the local variables of a traceback, keys too.
sys.excepthook = sys.__excepthook__

_POLL_S = 0.2
_STATUS_POLL_S = 0.05
_LOG_GRACE_S = 3.0

# Called in this process with (step name, rows) for each batch that leaves a step.
OnBatch = Callable[[str, list[dict[str, Any]]], None]
# Likewise with (step name, number of its process, what its model was asked there so far).
OnWork = Callable[[str, int, Work], None]


class _Buffer(RowWriter):
    """Stands in for distilabel's buffer."""

    def add_batch(self, batch: _Batch) -> None:
        self.add(batch.data[0])


class _LoadQueue:
    """What distilabel reads of the queue of loading: all but the reports of work."""

    def __init__(self, queue: Any, on_work: OnWork) -> None:
        self._queue, self._on_work = queue, on_work

    def put(self, message: Any) -> None:
        self._queue.put(message)

    def get(self) -> Any:
        while (message := self._queue.get()) is not None and message["status"] == AT_WORK:
            self._on_work(message["name"], message["replica"], message["work"])
        return message


class HeavyBase(BasePipeline):
    """A distilabel pipeline that ends loudly, holds a window of rows and writes typed ones.

    What differs with the place of the steps are the methods from ``_open`` to ``_stop_workers``,
    ``QueueClass`` and ``_run_step``.

    Args:
        name: Of the pipeline.
        leaf_schema: Arrow schema of the rows that leave the last step; its columns are the
            dataset's.
        on_batch: For progress.
        window: Most rows between the first and the last step, give or take a batch: however many
            rows there are, so many are in memory. More if a step takes more of them at once.

    Attributes:
        batches_of_nodes: On Ray, the batches that each node has worked off, by its address and the
            first digits of its id; complete when the run is over.
    """

    def __init__(
        self,
        name: str,
        leaf_schema: pa.Schema,
        on_batch: OnBatch | None = None,
        window: int = 1024,
    ) -> None:
        self._folder = temporary_folder()
        super().__init__(name=name, cache_dir=self._folder / "cache", enable_metadata=False)
        self.leaf_schema = leaf_schema
        self.on_batch = on_batch
        self.on_work: OnWork = lambda step, replica, work: None
        # Looked at all the time: what it returns ends the run.
        self.watch: Callable[[], HeavydistillError | None] = lambda: None
        self.batches_of_nodes: Counter[str] = Counter()
        self.window = Window(window)
        self._exception: Exception | None = None
        self._stages: tuple[list[list[str]], list[list[str]]] | None = None

    def keep_in(self, folder: Path) -> None:
        """Put the temporary files there, and not where the system has its own; before ``run``."""
        self.discard()
        self._folder, self._cache_dir = folder, folder / "cache"

    @property
    def leaf_files(self) -> Path:
        """Folder of the parquet files that the last step has left so far."""
        return self._folder / LEAF_FOLDER

    def run(self, parameters: dict[str, Any] | None = None, **unsupported: Any) -> Distiset:
        """Run to the end and return the rows as a ``Distiset`` with one configuration.

        Args:
            parameters: Runtime parameters by step name, as in distilabel.

        Raises:
            RunError, StoppedError, TeacherError, KeyboardInterrupt: As ``run_to_files``.
        """
        if unsupported:
            raise TypeError(f"{type(self).__name__}.run does not take {', '.join(unsupported)}")
        self.run_to_files(parameters)
        return self._distiset()

    def run_to_files(self, parameters: dict[str, Any] | None = None) -> None:
        """Run to the end and leave the rows in ``leaf_files``, none of them in memory.

        Args:
            parameters: As of ``run``.

        Raises:
            RunError: A step could not be loaded, a step or a thread raised, a worker died.
            StoppedError, TeacherError: After the requests in flight were answered; as for Ctrl-C.
            KeyboardInterrupt: Ctrl-C, after the requests in flight were answered or another
                Ctrl-C; or SIGTERM, at once. ``leaf_files`` keeps what was finished.
        """
        handlers: dict[int, Any] = {}
        interrupted = drain = False
        self._refuse_joins()
        try:
            self._open()
            handlers = terminate_as_interrupt()
            BasePipeline.run(self, parameters=parameters, use_cache=False)
            self.save(self._cache_location["pipeline"], overwrite=True, format="yaml")
            self._execute()
        except (StoppedError, TeacherError):
            interrupted = drain = True
            raise
        except KeyboardInterrupt as interrupt:
            interrupted = True
            drain = str(interrupt) != "SIGTERM"  # whoever sends that does not wait long
            raise
        finally:
            for signum in handlers:  # another one must not break off the clean-up
                signal.signal(signum, signal.SIG_IGN)
            self._stop_workers(drain)
            self._stop_logging()
            self._close()
            try:
                if interrupted and self._write_buffer:
                    self._write_buffer.close()
            finally:
                for signum, handler in handlers.items():
                    signal.signal(signum, handler)

    def _refuse_joins(self) -> None:
        for step in self.dag:
            if len(list(self.dag.get_step_predecessors(step))) > 1:
                raise RunError(
                    f"Step {step!r} has several steps before it, whose rows would be mixed up here",
                    "Make a chain of the steps, or use distilabel's own Pipeline.",
                )

    def discard(self) -> None:
        """Remove the temporary files now; the ``Distiset`` of ``run`` cannot be used after it."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _execute(self) -> None:
        self._output_queue = self.QueueClass()
        self._reports = self.QueueClass()
        self._load_queue = _LoadQueue(self._reports, self.on_work)
        self._load_steps_thread = self._run_load_queue_loop_in_thread()
        self._output_queue_thread = self._run_output_queue_loop_in_thread()
        while self._output_queue_thread.is_alive():
            self._output_queue_thread.join(_POLL_S)
            if dead := self._dead_worker() or self.watch():
                self._fail(dead)
            if self._exception:
                break
        self._stop_load_queue_loop()
        if not self._exception:
            # Every step has unloaded or has failed to load; which of the two, its end tells.
            self._await_ends()
            self._exception = self._dead_worker() or self.watch()
        if self._exception:
            raise self._exception
        if self._write_buffer:
            self._write_buffer.close()

    def _stop_logging(self) -> None:
        # It waits until all was logged, for ever if a worker was killed while it wrote to the queue
        # of the log.
        stopping = threading.Thread(target=distilabel_logging.stop_logging, daemon=True)
        stopping.start()
        stopping.join(_LOG_GRACE_S)

    def _fail(self, error: Exception) -> None:
        self._exception = self._exception or error

    def _await_drained(self) -> None:
        """Wait for the requests in flight, as long as it takes, or until another Ctrl-C."""
        llms = [getattr(self.dag.get_step(name)["step"], "llm", None) for name in self.dag]
        if any(llm and not getattr(llm, "in_process", False) for llm in llms):
            self._logger.warning(
                "Waiting for the requests in flight, which are already billed. Ctrl-C again stops "
                "at once."
            )
        ignored: dict[int, Any] = {}
        try:
            ignored = terminate_as_interrupt()
            self._join_drained()
        except KeyboardInterrupt:
            self._kill_workers()
        for signum, handler in ignored.items():
            signal.signal(signum, handler)

    def _distiset(self) -> Distiset:
        from datasets import DatasetDict

        dataset = dataset_of(self.leaf_files, self._folder / "arrow")
        distiset = Distiset({"default": DatasetDict(train=dataset)})
        distiset.pipeline_path = self._cache_location["pipeline"]
        if self._cache_location["log_file"].exists():
            distiset.log_filename_path = self._cache_location["log_file"]
        return distiset

    # From here on: what differs with the place of the steps.

    @abstractmethod
    def _open(self) -> None:
        """Make ready to start workers, and set ``_log_queue``."""

    @abstractmethod
    def _dead_worker(self) -> HeavydistillError | None:
        """Why a worker ended before its time, if one did."""

    @abstractmethod
    def _await_ends(self) -> None:
        """Wait a moment for workers that are about to end by themselves."""

    @abstractmethod
    def _stop_workers(self, drain: bool) -> None:
        """End every worker; with ``drain`` those that ask get the answers in flight first."""

    @abstractmethod
    def _join_drained(self) -> None:
        """Wait for the workers that were told to drain."""

    @abstractmethod
    def _kill_workers(self) -> None:
        """End every worker at once."""

    def _close(self) -> None:
        """Undo ``_open``."""

    def _wrapped(self, kind: type[_Wrapper], step: Any, input_queue: Any, replica: int) -> _Wrapper:
        """A step with its queues, to be run by a worker."""
        return kind(
            step=step,
            replica=replica,
            input_queue=input_queue,
            output_queue=self._output_queue,
            load_queue=self._reports,
            dry_run=self._dry_run,
            ray_pipeline=kind.on_ray,
        )

    # From here on: overrides of distilabel's private methods.

    def _run_stage_steps_and_wait(self, stage: int) -> bool:
        # distilabel looks every 2.5 s.
        steps = self._steps_to_be_loaded_in_stage(stage)
        self._run_steps(steps)
        wanted = {step: self.dag.get_step_replica_count(step) for step in steps}
        while not self._exception:
            with self._steps_load_status_lock:
                status = self._get_steps_load_status(steps)
            if _STEP_LOAD_FAILED_CODE in status.values():
                return False
            if all(status[step] in (wanted[step], _STEP_UNLOADED_CODE) for step in steps):
                return True
            time.sleep(_STATUS_POLL_S)
        return False

    def _get_steps_load_stages(self) -> tuple[list[list[str]], list[list[str]]]:
        # distilabel sorts the graph anew for every batch.
        if self._stages is None:
            self._stages = super()._get_steps_load_stages()
        return self._stages

    def _finalize_pipeline_execution(self) -> None:
        # distilabel looks every 0.5 s.
        self._notify_steps_to_stop()
        while not self._exception and any(map(self._is_step_running, self.dag)):
            time.sleep(_STATUS_POLL_S)
        super()._finalize_pipeline_execution()

    def _run_output_queue_loop_in_thread(self) -> threading.Thread:
        return self._loud_thread(self._output_queue_loop)

    def _run_load_queue_loop_in_thread(self) -> threading.Thread:
        return self._loud_thread(self._run_load_queue_loop)

    def _loud_thread(self, work: Callable[[], None]) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except Exception as error:
                self._fail(error)

        # Daemons, so that a run that was broken off does not hold the interpreter.
        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        return thread

    def _process_batch(self, batch: _Batch, send_last_batch_flag: bool = True) -> None:
        self.window.receive(batch, batch.step_name in self.dag.root_steps)
        super()._process_batch(batch, send_last_batch_flag)
        if self.on_batch:
            self.on_batch(batch.step_name, batch.data[0])

    def _get_successors(self, batch: _Batch) -> tuple[list[str], list[str], bool]:
        successors: tuple[list[str], list[str], bool] = super()._get_successors(batch)
        self.window.pass_on(batch, len(successors[0]))
        return successors

    def _manage_batch_flow(self, batch: _Batch) -> None:
        super()._manage_batch_flow(batch)
        if batch.last_batch:
            self._end_successors(batch.step_name)
        for root in self.dag.root_steps:
            if self.window.may_load(root):
                super()._request_batch_from_generator(root)
        if not self.window.is_moving and self._batch_manager.can_generate():
            raise RunError(
                "The pipeline stands still: no step has work and rows are missing",
                "This is a defect, please report it.",
            )

    def _end_successors(self, step: str) -> None:
        """End the steps after one that has ended, where no row is left for a last batch.

        distilabel would wait for that batch. An empty one stands in for it that the step never
        sees, which may not know what to do with no rows.
        """
        for successor in self.dag.get_step_successors(step):
            if step in self._batch_manager.step_empty_buffers(successor):
                continue  # its end was routed elsewhere
            if (number := self.window.close(successor)) is not None:
                end = _Batch(number, successor, last_batch=True, data=[[]])
                self.window.send(end)
                self._batch_manager.set_last_batch_sent(end)
                self._output_queue.put(end)

    def _request_batch_from_generator(self, step_name: str) -> None:
        # distilabel would load rows whenever a step has none; the window decides, see above.
        pass

    def _send_batch_to_step(self, batch: _Batch) -> None:
        self.window.send(batch)
        super()._send_batch_to_step(batch)

    def _load_batch_manager(self, use_cache: bool = True) -> None:
        super()._load_batch_manager(use_cache)
        # Batches are numbered as they come, so none is missing when the last one is there.
        # distilabel would keep all their numbers, and after every batch look for a gap.
        self._batch_manager._received_batch_seq_nos = defaultdict(lambda: deque(maxlen=0))
        self._batch_manager._missing_seq_no = lambda last_batch: False

    def _register_batch(self, batch: _Batch) -> None:
        # distilabel would also write every row of every step to a file.
        self._batch_manager.register_batch(batch)

    def _set_steps_not_loaded_exception(self) -> None:
        # The worker of the step hands over why; _dead_worker finds it.
        pass

    def _setup_write_buffer(self, use_cache: bool = True) -> None:
        self._write_buffer = _Buffer(self.leaf_files, self.leaf_schema)

    def _refresh_pipeline_from_cache(self) -> None:
        pass

    def _cache(self) -> None:
        pass

"""Executes a chain of distilabel steps in this process, with threads.

``HeavyPipeline`` is a distilabel ``Pipeline``: it uses distilabel's steps, ``>>``, YAML and
``Distiset``, and distilabel's command line can run the same steps. ``run`` differs:

- A step processes ``input_batch_size`` rows at a time. If it has the attribute
  ``batches_in_flight``, it processes this number of batches at once, each in a thread. A batch
  moves on as soon as it is done, so rows can overtake slow ones. A step with one batch in flight is
  loaded and used by a single thread, because torch keeps a thread pool for each thread that calls
  it.
- ``window`` limits the number of rows between the first and the last step. More rows are loaded
  only while no step has work, i.e. if a step waits for a full batch.
- An exception in a step ends the run; an error in a single row is stored in the row (see
  ``steps``).
- After Ctrl-C, a spent budget or a refused key, the run waits for the requests in flight, so that
  their responses reach the journal. A second Ctrl-C, SIGTERM or any other error ends it at once.
- Rows that leave the last step are written at once, with a declared Arrow schema.

Not covered: steps that branch or join, replicas of a step (``shards`` runs several pipelines), load
groups, and distilabel's cache, whose resume hangs or loses rows (the journal stores the responses).
"""

from __future__ import annotations

import contextlib
import logging
import queue
import shutil
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from heavydistill.errors import HeavydistillError, RunError, StoppedError, TeacherError
from heavydistill.models.request import Sample
from heavydistill.report.terminal import say
from heavydistill.run.interrupts import as_exceptions
from heavydistill.run.recipe.distilabel import Distiset, GeneratorStep, Pipeline, Step
from heavydistill.run.recipe.llm import HeavyLLM
from heavydistill.run.rows import RowWriter, dataset_of, temporary_folder
from heavydistill.store.traces import LEAF_FOLDER

if TYPE_CHECKING:
    import pyarrow as pa

    from heavydistill.models.batch.queue import BatchQueue

_POLL_S = 0.2
_GRACE_S = 5.0
"""Maximum wait at the end, in seconds, for threads without server requests."""
# Loggers that write a line for every request.
_SILENT = ("httpx2", "httpcore2", "reasoning_gym", "datasets", "urllib3.connectionpool", "filelock")

Row = dict[str, Any]
OnBatch = Callable[[str, list[Row]], None]
"""Called with (step name, rows) for each batch that leaves a step, by one thread at a time."""
OnSample = Callable[[str, int, bool], None]
"""Called with (step name, completion tokens, whether they are a whole response): for each response
that is not from the journal, and for what a model in this process writes before responses end."""

_log = logging.getLogger("distilabel.pipeline")


class HeavyPipeline(Pipeline):
    """A distilabel pipeline that runs in this process; see the module docstring.

    Args:
        name: Name of the pipeline.
        leaf_schema: Schema of the rows that leave the last step.
        on_batch: Called for each batch that leaves a step.
        window: Maximum number of rows between the first and the last step, plus or minus a batch.
    """

    def __init__(
        self,
        name: str,
        leaf_schema: pa.Schema,
        on_batch: OnBatch | None = None,
        window: int = 1024,
    ) -> None:
        self._folder, self._prefix, self._is_temporary = temporary_folder(), "", True
        super().__init__(name=name, cache_dir=self._folder / "cache")
        self.leaf_schema, self.on_batch, self.window = leaf_schema, on_batch, window
        self.on_sample: OnSample = lambda step, tokens, is_whole: None
        self.watch: Callable[[], HeavydistillError | None] = lambda: None
        """Called several times a second during the run; an error that it returns ends the run."""
        self.queue: BatchQueue | None = None
        """Collects the requests to models that are asked in batches."""
        self.shown: logging.Handler | None = None
        """Handler that displays warnings; None prints them to the terminal."""

    def keep_in(self, folder: Path, prefix: str = "") -> None:
        """Write rows and log to a folder owned by the caller, instead of a temporary folder.

        Call this before ``run``. Several pipelines can share a folder if each has a different
        ``prefix``, which starts the names of its row files.
        """
        self.discard()
        self._folder, self._prefix, self._is_temporary = folder, prefix, False

    def discard(self) -> None:
        """Delete the temporary folder with the rows, the log and the ``Distiset`` of ``run``."""
        if self._is_temporary:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def leaf_files(self) -> Path:
        """Return the folder of the parquet files with the rows that have left the last step."""
        return self._folder / LEAF_FOLDER

    def run(self, parameters: dict[str, object] | None = None, **unsupported: object) -> Distiset:
        """Run to the end and return the rows as a ``Distiset`` with one configuration.

        ``parameters`` maps step names to parameters, as in distilabel. Raises the same errors as
        ``run_to_files``.
        """
        from datasets import DatasetDict

        if unsupported:
            raise TypeError(f"{type(self).__name__}.run does not take {', '.join(unsupported)}")
        self.run_to_files(parameters)
        self.save(self._folder / "pipeline.yaml", overwrite=True, format="yaml")
        dataset = dataset_of(self.leaf_files, self._folder / "arrow")
        distiset = Distiset({"default": DatasetDict(train=dataset)})
        distiset.pipeline_path = self._folder / "pipeline.yaml"
        distiset.log_filename_path = self._folder / "pipeline.log"
        return distiset

    def run_to_files(self, parameters: dict[str, Any] | None = None) -> None:
        """Run to the end and write the rows to ``leaf_files``; no rows are kept in memory.

        Raises:
            RunError: The steps do not form a chain, a step could not be loaded or failed, or the
                disk is full.
            StoppedError, TeacherError: The run cannot continue; raised after the requests in flight
                were answered.
            KeyboardInterrupt: After Ctrl-C and the responses in flight, a second Ctrl-C, or
                SIGTERM. ``leaf_files`` keeps the finished rows.
        """
        self._set_runtime_parameters(parameters or {})
        source, steps = self._chain()
        if self._is_temporary:  # rows of an earlier run of this pipeline
            shutil.rmtree(self.leaf_files, ignore_errors=True)
        for step in steps:
            if isinstance(model := getattr(step, "llm", None), HeavyLLM):
                self._listen_to(model, step.name)
        writer = RowWriter(self.leaf_files, self.leaf_schema, self._prefix)
        flow = _Flow(source, steps, self.window, writer, self.on_batch)
        log = self._folder / "pipeline.log"
        with logging_to(log, self.shown, flow.matters), as_exceptions() as ignore_signals:
            try:
                flow.start()
                self._follow(flow)
                writer.close()
            except (KeyboardInterrupt, StoppedError, TeacherError) as stop:
                ignore_signals()  # another signal must not interrupt the cleanup
                # Whoever sent SIGTERM does not wait long.
                flow.end(drains=str(stop) != "SIGTERM")
                writer.close()
                if isinstance(stop, KeyboardInterrupt) and isinstance(flow.error, RunError):
                    raise flow.error from None  # some responses were lost
                raise
            finally:
                ignore_signals()
                flow.end()

    def _chain(self) -> tuple[GeneratorStep, list[Step]]:
        """Return (the step that loads rows, the steps after it).

        Raises:
            RunError: The steps do not form a chain, or a step requests replicas.
        """
        self.dag.validate()
        steps = []
        names = sorted(self.dag.root_steps)
        while names:
            if len(names) > 1:
                raise RunError(
                    f"The steps {', '.join(map(repr, names))} run side by side, but HeavyPipeline "
                    "executes a chain of steps",
                    "Connect the steps as a chain, or use distilabel's own Pipeline.",
                )
            step = self.dag.get_step(names[0])["step"]
            if (replicas := step.resources.replicas) > 1:
                raise RunError(
                    f"Step {step.name!r} asks for {replicas} replicas, but HeavyPipeline has one "
                    "of each step",
                    "Set batches_in_flight of the step, or run with --processes or --ray.",
                )
            step.set_pipeline_artifacts_path(self._folder / "artifacts")
            steps.append(step)
            names = list(self.dag.get_step_successors(names[0]))
        if len(steps) < 2:
            raise RunError("The pipeline has no step after the first", "Connect steps with >>.")
        return steps[0], steps[1:]

    def _listen_to(self, model: HeavyLLM, step: str) -> None:
        def keep(samples: list[Sample]) -> None:
            for _, response in samples:
                self.on_sample(step, max(0, response.completion_tokens), True)

        model.queue_in(self.queue)
        model.report_to(keep, lambda tokens: self.on_sample(step, tokens, False))

    def _follow(self, flow: _Flow) -> None:
        """Wait until all rows are written; raise the error that ends the run."""
        is_over = False
        while not is_over:
            is_over = flow.over.wait(_POLL_S)
            if error := flow.error or self.watch():
                raise error


class _Stage:
    """A step of the chain with its queue of rows and its threads; guarded by ``_Flow._lock``."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.size: float = float("inf") if step.is_global else step.input_batch_size
        self.most = int(getattr(step, "batches_in_flight", 1))
        self.waiting: deque[Row] = deque()
        self.batches: queue.SimpleQueue[list[Row] | None] = queue.SimpleQueue()  # None: the end
        self.threads = 0
        self.at_work = 0  # batches in progress
        self.model: Any = getattr(step, "llm", None)  # the ``LLM`` of a step that uses one
        self.asks_a_server = self.model is not None and not getattr(self.model, "in_process", False)

    def next_batch(self, is_all: bool) -> list[Row] | None:
        """Return the next batch of rows if it can start; ``is_all``: no more rows will come."""
        if self.at_work >= self.most or not self.waiting:
            return None
        if len(self.waiting) < self.size and not is_all:
            return None
        return [self.waiting.popleft() for _ in range(int(min(self.size, len(self.waiting))))]


class _Flow:
    """Moves the rows through the stages of a run, at most ``window`` of them at once."""

    def __init__(
        self,
        source: GeneratorStep,
        steps: list[Step],
        window: int,
        writer: RowWriter,
        on_batch: OnBatch | None,
    ) -> None:
        self.over = threading.Event()  # all rows are written, or something failed
        self.error: Exception | None = None  # reason why the run ends before all rows are written
        # No more requests are sent; rows whose responses have arrived go on to the end.
        self.is_draining = False
        self.is_ending = False  # batches that finish from now on are dropped
        self._source, self._stages = source, [_Stage(step) for step in steps]
        self._window, self._writer, self._on_batch = window, writer, on_batch
        self._lock = threading.Lock()
        # Notified when rows can be loaded, a step was loaded, or a stage has no more work.
        self._changed = threading.Condition(self._lock)
        self._is_passing, self._is_opening = threading.Lock(), threading.Lock()
        self._inside = 0
        self._all_loaded = self._has_ended = False
        self._opened: dict[str, Step] = {}  # loaded steps by name

    def start(self) -> None:
        """Start one thread per step, which loads and later runs it, and then load the rows."""
        for stage in self._stages:
            self._spawn(self._work, stage)
            stage.threads = 1
        self._spawn(self._load_rows)

    def matters(self, record: logging.LogRecord) -> bool:
        """Return whether to show a log record; at the end, steps may warn about dropped rows."""
        return not (self.is_ending and record.name.startswith("distilabel.step."))

    def end(self, drains: bool = False) -> None:
        """Start no more batches and unload all steps; a second call does nothing.

        With ``drains``, wait for the requests in flight, without a time limit, until Ctrl-C.
        """
        if self._has_ended:
            return
        self._has_ended = True
        with self._changed:
            is_whole = self.over.is_set() and not self.error
            self.is_draining, self.is_ending = drains, not drains
            self._dispatch()
        for stage in self._stages:
            if isinstance(stage.model, HeavyLLM):
                stage.model.drain()
        if drains:
            self._drain()
            self.is_ending = True
        for stage in self._stages:
            if stage.asks_a_server and not is_whole:  # cancels the requests in flight
                self._unload(stage.step)
        self._await(lambda: not any(stage.at_work for stage in self._stages), _GRACE_S)
        for step in list(self._opened.values()):
            self._unload(step)
        for stage in self._stages:
            for _ in range(stage.most):
                stage.batches.put(None)

    def _drain(self) -> None:
        """Wait until all requests are answered and their rows have moved as far as they can."""

        def is_drained() -> bool:
            busy = any(s.at_work or (s.waiting and s.model is None) for s in self._stages)
            return self.is_ending or not busy

        # The message comes after the signal handler, so that Ctrl-C works as soon as it is read.
        with contextlib.suppress(KeyboardInterrupt), as_exceptions():
            if any(stage.at_work for stage in self._stages if stage.asks_a_server):
                _log.warning(
                    "Waiting for the requests in flight, which are already billed. Ctrl-C again "
                    "stops at once."
                )
            self._await(is_drained)

    def _await(self, condition: Callable[[], bool], seconds: float = float("inf")) -> None:
        """Wait for a condition of the stages; wakes up regularly, so that Ctrl-C takes effect."""
        until = time.monotonic() + seconds
        with self._changed:
            while not condition() and time.monotonic() < until:
                self._changed.wait(_POLL_S)

    def _spawn(self, work: Callable[..., None], *arguments: Any) -> None:
        """Start a daemon thread, because a thread that hangs must not keep the process alive."""

        def loud() -> None:
            try:
                work(*arguments)
            except BaseException as error:
                self._fail(error, arguments[0].step if arguments else self._source)

        threading.Thread(target=loud, daemon=True).start()

    def _fail(self, error: BaseException, step: Step) -> None:
        if self.is_ending:  # e.g. the request was cancelled
            return
        if not isinstance(error, HeavydistillError):
            lines = "".join(traceback.format_exception(error))
            error = RunError(
                f"Step {step.name!r} failed: {type(error).__name__}: {error}",
                f"This is a defect, please report it with this:\n{lines}",
            )
        # The same stop reaches each step in turn, with other figures after the colon.
        if self.error and _subject(self.error) != _subject(error):
            _log.error("%s", error)
        with self._changed:
            self.error = self.error or error
            self.is_draining = isinstance(self.error, StoppedError | TeacherError)
            self.is_ending = not self.is_draining
            self.over.set()
            self._dispatch()  # moves rows that waited for this step

    def _open(self, step: Step) -> None:
        with self._is_opening:  # lazy imports, e.g. of transformers, are not thread-safe
            if not self.is_ending:
                step.load()
        with self._changed:
            self._opened[step.name] = step
            is_late = self.is_ending
            self._changed.notify_all()
        if is_late:  # ``end`` ran before the step was in ``_opened``
            self._unload(step)

    def _unload(self, step: Step) -> None:
        with self._lock:
            if self._opened.pop(step.name, None) is None:
                return
        with contextlib.suppress(Exception):  # threads may still use what is unloaded
            step.unload()

    def _load_rows(self) -> None:
        self._open(self._source)
        with self._changed:  # no request is sent before every step is loaded
            while len(self._opened) <= len(self._stages):
                if self._is_stopping:
                    return
                self._changed.wait()
        for rows, is_last in self._source.process_applying_mappings(offset=0):
            self._show(str(self._source.name), rows)
            with self._changed:
                self._inside += len(rows)
                self._stages[0].waiting.extend(rows)
                self._dispatch()
                # Rows beyond the window are loaded only if no step has work.
                while not (is_last or self._is_stopping) and (
                    self._inside >= self._window and any(stage.at_work for stage in self._stages)
                ):
                    self._changed.wait()
                if is_last or self._is_stopping:
                    break
        with self._lock:
            self._all_loaded = True
            self._dispatch()

    @property
    def _is_stopping(self) -> bool:
        return self.is_draining or self.is_ending

    def _work(self, stage: _Stage) -> None:
        """Load the step if this is its first thread, then process its batches."""
        if stage.step.name not in self._opened:
            self._open(stage.step)
        while (batch := stage.batches.get()) is not None:
            count = len(batch)  # the step may remove rows
            rows: list[Row] | None = None
            try:
                rows = self._finished(stage, batch)
            except BaseException as error:
                # While the batch still counts: without it the rows may seem to be at their end.
                self._fail(error, stage.step)
                with self._lock:
                    stage.threads -= 1  # this thread ends; another one can take its place
                return
            finally:
                with self._changed:
                    stage.at_work -= 1
                    if rows is not None:
                        self._inside -= count
                        if stage is not self._stages[-1]:
                            self._inside += len(rows)
                            following = self._stages[self._stages.index(stage) + 1]
                            following.waiting.extend(rows)
                        self._dispatch()
                    self._changed.notify_all()

    def _finished(self, stage: _Stage, batch: list[Row]) -> list[Row] | None:
        """Return the rows that a step makes from a batch; None if they are dropped."""
        rows: list[Row] = next(stage.step.process_applying_mappings(batch), [])
        if self.is_ending:
            return None
        if stage is self._stages[-1]:
            self._writer.add(rows)
        self._show(stage.step.name, rows)
        return rows

    def _show(self, name: str, rows: list[Row]) -> None:
        if self._on_batch:
            with self._is_passing:
                self._on_batch(name, rows)

    def _dispatch(self) -> None:
        """Start every batch that can start; call this while holding the lock."""
        is_all = self._all_loaded or self._is_stopping
        for stage in self._stages:
            may_begin = not self.is_ending and not (self.is_draining and stage.model is not None)
            while may_begin and (rows := stage.next_batch(is_all)) is not None:
                stage.at_work += 1
                stage.batches.put(rows)
                if stage.at_work > stage.threads:
                    stage.threads += 1
                    self._spawn(self._work, stage)
            is_all = self._is_stopping or (is_all and not stage.waiting and not stage.at_work)
        if is_all:
            self.over.set()
        self._changed.notify_all()


class _Lines(logging.Handler):
    """A log handler that prints records as ``Warning: ...``, wrapped at spaces."""

    def emit(self, record: logging.LogRecord) -> None:
        console = Console()
        with console.capture() as lines:
            say(f"{record.levelname.capitalize()}: {self.format(record)}", console)
        # Uses ``print``, so that the record appears above the progress display of another console.
        print(lines.get(), end="", flush=True)


@contextlib.contextmanager
def logging_to(
    file: Path,
    shown: logging.Handler | None = None,
    matters: Callable[[logging.LogRecord], bool] = lambda record: True,
) -> Iterator[None]:
    """Show warnings that pass ``matters``, by default on the terminal, and write them to a file."""
    shown = shown or _Lines()
    kept = logging.FileHandler(file, delay=True, encoding="utf-8")
    kept.setFormatter(
        logging.Formatter("[%(asctime)s] %(levelname)-8s %(message)s", datefmt="%Y-%m-%d %H:%M:%S")
    )
    levels = {name: logging.getLogger(name).level for name in _SILENT}
    root = logging.getLogger()
    before = root.handlers[:]
    for handler in (shown, kept):
        handler.addFilter(matters)
    try:
        for name in levels:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        root.handlers[:] = [*before, shown, kept]
        yield
    finally:
        root.handlers[:] = before
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
        kept.close()


def _subject(error: BaseException) -> str:
    return str(error).partition(":")[0]

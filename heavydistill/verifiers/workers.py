"""The processes that decide: started without the program's main module, limited, killable.

A ``Worker`` is a pebble pool of one process. One process a pool, and one task at a time, because
then whatever ends a process is known to be the doing of that task: processes that share a pipe and
its locks take each other's tasks along when they are killed.

A process prepares its verifiers before it takes a task, so that no time limit covers an import.
While it works it may have so much address space and no more; it has no standard streams, one
thread for numerical libraries, and ends with the process that started it, however that ends.

Not covered: which worker gets which task (``crew``). On systems other than Linux a process that is
stuck while its parent is killed goes on.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import fcntl
import os
import resource
import signal
import sys
import tempfile
import time
import typing
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from loky.backend import resource_tracker as loky_tracker
from loky.backend.context import LokyContext
from loky.backend.process import LokyProcess
from pebble import ProcessExpired, ProcessPool

from heavydistill.config.run import Verifying
from heavydistill.schema import Label, Problem, Verdict
from heavydistill.verifiers import registry
from heavydistill.verifiers.base import Verifier, error_reason
from heavydistill.verifiers.settle import Open, decided

MEMORY, DIED, TIMEOUT = "memory", "worker_died", "timeout"
MOST_CHARACTERS = 1_000_000
"""Of what a verifier says in one field of a verdict."""

_OUT_OF_MEMORY = 77
"""Exit status of a process that came to the end of its memory."""
_PR_SET_PDEATHSIG = 1
_LABELS = typing.get_args(Label)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a task.

    Attributes:
        value: What it returned; None if it did not.
        fault: Why it did not: ``timeout``, ``memory``, ``worker_died``, ``verifier_error:TYPE``.
        seconds: What it took in the process; of a task that was killed, what it was given.
    """

    value: Any = None
    fault: str | None = None
    seconds: float = 0.0


class Worker:
    """One process, and the next one where it ended. Not for several tasks at once.

    Args:
        config: Its limits, and the files with verifiers of one's own.
        kinds: Names of the verifiers that it prepares.
    """

    def __init__(self, config: Verifying, kinds: frozenset[str]) -> None:
        self.kinds = kinds
        self._pool = ProcessPool(
            max_workers=1,
            initializer=_begin,
            initargs=(config, sorted(kinds), os.getpid()),
            context=_Context(),
        )

    def start(self) -> bool:
        """Start the process and do not wait for it; whether that worked.

        The process ends with the calling thread, as Linux has it.
        """
        try:
            return bool(self._pool.active)
        except Exception:  # no more processes, or none allowed here
            return False

    @property
    def is_broken(self) -> bool:
        """Whether it takes no task any more."""
        return not self._pool.active

    def give(self, function: Callable[..., Outcome], args: tuple[Any, ...], limit_s: float) -> Any:
        """A future of the task; ``outcome_of`` reads it.

        Raises:
            RuntimeError: It is broken.
        """
        return self._pool.schedule(function, args=args, timeout=limit_s)

    def stop(self) -> None:
        """End the process, whatever it does; ``join`` waits for that."""
        self._pool.stop()  # type: ignore[no-untyped-call]

    def join(self) -> None:
        with contextlib.suppress(Exception):
            self._pool.join()


def hold_interrupts() -> None:
    """Keep Ctrl-C from this thread and from the threads and processes that it starts.

    A process would meet it unprepared, and an interrupt that another thread took would not wake
    the main one.
    """
    # Where one of these has to be started, it lets interrupts through again.
    loky_tracker.ensure_running()
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def outcome_of(task: Future[Outcome], limit_s: float) -> Outcome | None:
    """What came of a task that is done; None if its worker broke before it began."""
    try:
        return task.result()
    except TimeoutError:
        return Outcome(fault=TIMEOUT, seconds=limit_s)
    except ProcessExpired as error:
        return Outcome(fault=MEMORY if error.exitcode == _OUT_OF_MEMORY else DIED)
    except Exception:
        return None


def decide(problem: Problem, candidate: str) -> Outcome:
    """In a worker: the verdict of the problem's verifier."""
    return _limited(
        problem.verifier, lambda verifier: plain(decided(Open(verifier, problem, candidate)))
    )


def check(problem: Problem) -> Outcome:
    """In a worker: what makes a problem unfit for its verifier; the value is None if it is fit."""

    def fault(verifier: Verifier) -> str | None:
        said = verifier.check_reference(problem)
        return None if said is None else str(said)[:MOST_CHARACTERS]

    return _limited(problem.verifier, fault)


def plain(verdict: Verdict) -> Verdict:
    """The verdict, if its fields hold what they should and can be sent and stored.

    Raises:
        TypeError, ValueError: One does not.
    """
    texts = (verdict.label, verdict.reason, verdict.evidence, verdict.extracted or "")
    if verdict.label not in _LABELS or any(type(text) is not str for text in texts):
        raise TypeError("a verifier gave something else than a label and texts")
    if any(len(text) > MOST_CHARACTERS for text in texts):
        raise ValueError(f"a verifier gave more than {MOST_CHARACTERS} characters")
    "".join(texts).encode()
    if verdict.score is None:
        return verdict
    if not 0 <= verdict.score <= 1:
        raise ValueError("a verifier gave a score that is not between 0 and 1")
    return dataclasses.replace(verdict, score=float(verdict.score))


def _limited(kind: str, work: Callable[[Verifier], Any]) -> Outcome:
    """What the work returns, or the reason why it does not; it is not allowed all memory."""
    if kind in _unprepared:
        return Outcome(fault=_unprepared[kind])
    started = time.perf_counter()
    value, fault = None, None
    try:
        with _limited_memory():
            value = work(registry.get(kind))
    except BaseException as error:  # of any kind, since a library may raise its own
        fault = error_reason(error)
    out_of_memory = error_reason(MemoryError())
    if fault == out_of_memory or getattr(value, "reason", None) == out_of_memory:
        # What is left of this process is not to be relied on.
        os._exit(_OUT_OF_MEMORY)
    return Outcome(value, fault, time.perf_counter() - started)


class _Process(LokyProcess):
    """Numerical libraries in it keep to one thread: there is a worker for every core."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        single = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        super().__init__(*args, **kwargs, env=dict.fromkeys(single, "1"))


class _Lock:
    """Held by the worker or by its pool; the death of its holder releases it.

    A semaphore would stay with the system when the owner of the pool is killed.
    """

    def __init__(self) -> None:
        with tempfile.TemporaryFile() as file:
            # Of what a new process can be handed, a connection is what holds a file.
            self._file = Connection(os.dup(file.fileno()))
        self._depth = 0

    def __getstate__(self) -> Connection:
        return self._file

    def __setstate__(self, file: Connection) -> None:
        self._file, self._depth = file, 0

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """Take it, again where this process has it, without an end to the waiting if it is to."""
        if not self._depth:
            try:
                fcntl.lockf(self._file.fileno(), fcntl.LOCK_EX | (0 if block else fcntl.LOCK_NB))
            except BlockingIOError:
                return False
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            fcntl.lockf(self._file.fileno(), fcntl.LOCK_UN)


class _Context(LokyContext):
    Process = _Process
    RLock = _Lock


# What follows is the state of a worker's process.
_unprepared: dict[str, str] = {}
"""The verifiers that could not be prepared, and the reason of their verdicts."""
_memory = resource.RLIM_INFINITY


def _begin(config: Verifying, kinds: list[str], parent: int) -> None:
    """Called once in a new process. It must not raise, or there would be another one at once."""
    _end_with(parent)
    # The default ends it even while it is in a library; an interrupt of the terminal is not meant
    # for it, and was held back until the handler of the pool stood.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash leaves no file
    global _memory
    _memory = config.memory_mb * 2**20
    for kind in kinds:
        try:
            registry.load_own(config.own)
            registry.get(kind).prepare(config)
        except BaseException as error:  # whatever a verifier of one's own raises
            _unprepared[kind] = error_reason(error)


def _end_with(parent: int) -> None:
    """End this process as soon as the one that started it is gone."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


@contextlib.contextmanager
def _limited_memory() -> Iterator[None]:
    """The limit holds for the work alone: without room for its messages a worker hangs its pool."""
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    limit = _memory if most == resource.RLIM_INFINITY else min(_memory, most)
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

"""Worker processes that decide and can be killed, and the distribution of tasks to them.

``WorkerPool`` has a thread for each worker. The thread gets the next task, starts a process if it
has none, sends the task and waits for the ``TaskOutcome``. No exception is raised, and every wait
has a time limit. A task fails if

    it exceeds its time limit                      ``timeout``: the process is killed
    it exceeds its memory                          ``memory``
    its process dies or does not become ready      ``worker_died``

The last two may be caused by the previous task or by the machine, so such a task is tried
``_TRIES`` times, each time in a fresh process. If every process dies before it finishes a first
task of a verifier, all tasks of that verifier fail; other verifiers are not affected.

A process is a fresh interpreter, connected by a pipe, that does not import the program's main
module. It prepares a verifier before its first task, so that no time limit includes an import. Its
address space is limited during a task; it has no standard streams and one thread for numerical
libraries. It ends when the process that started it ends, even if that process is killed.

An interrupt (Ctrl-C) can abort a call of ``submit`` at any point, and affects only that call:
everything else runs in threads that interrupts do not reach.

Not covered: deduplication of equal tasks (``pool``). On systems other than Linux a process that
hangs while its parent is killed keeps running.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import math
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from heavydistill.config.run import Verifying
from heavydistill.schema import Problem
from heavydistill.verifiers import registry
from heavydistill.verifiers.base import MOST_CHARACTERS, Verifier, error_evidence, error_reason
from heavydistill.verifiers.screening import Candidate, decide

MEMORY, DIED, TIMEOUT = "memory", "worker_died", "timeout"

_TRIES = 2
# On a busy machine, starting a process and importing the verifier's modules takes long.
_MOST_START_S = 300.0
# Number of deaths before the first task after which a verifier is given up.
_MOST_BROKEN_STARTS = 3
# Number of failed starts per worker, a second apart, until tasks fail if no worker has a process.
_MOST_REFUSED_STARTS = 60
_LOOK_S = 1.0
# An interrupt inside a future's code can leave it locked, so that a thread that sets its result
# never returns. Such a thread and its worker end only with this process.
_MOST_CLOSE_S = 60.0
# A process closes its pipe a moment before its exit status can be read.
_MOST_EXIT_S = 5.0
_READY = "ready"
_OUT_OF_MEMORY = 77
"""Exit status of a process that ran out of memory."""
_PR_SET_PDEATHSIG = 1
_CONTROL_GROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """Outcome of a task: a value or a fault, and the time."""

    value: Any = None  # Returned value; None if there is none
    fault: str | None = None
    """``timeout``, ``memory``, ``worker_died`` or ``verifier_error:TYPE``; None if it succeeded."""
    evidence: str = ""  # What the verifier raised, if it did; see ``error_evidence``
    seconds: float = 0.0
    """Seconds that the task took in the process; the time limit if it was killed."""
    was_ready: bool = True  # Whether the process had prepared the verifier before the task


def default_size() -> int:
    """Default number of workers: the cores of this process, divided among a trainer's ranks."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    share = int(ranks) if ranks.isdecimal() else 1
    return max(1, available_cores() // max(1, share))


def available_cores() -> int:
    """Number of cores that CPU affinity and the control group's quota allow."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    for files in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            quota, period = " ".join((_CONTROL_GROUP / file).read_text() for file in files).split()
        except (OSError, ValueError):  # another version of control groups, or none
            continue
        if quota.isdecimal() and int(period) > 0:  # "max" and -1 mean no quota
            cores = min(cores, -(-int(quota) // int(period)))
    return max(1, cores)


def limit_of(verifier: Verifier, problem: Problem, config: Verifying) -> float:
    """Time limit of a verdict in seconds; raises if a user's verifier raises or the limit is
    invalid."""
    limit_s = float(verifier.limit_s(problem, config))
    if not (limit_s > 0 and math.isfinite(limit_s)):
        raise ValueError(f"limit_s of the verifier {verifier.name} returned {limit_s}")
    return limit_s


@dataclass(slots=True)
class _Task:
    kind: str
    message: tuple[Any, ...]
    limit_s: float
    done: Future[TaskOutcome]


class WorkerPool:
    """Threads that pass tasks to worker processes. Thread-safe."""

    def __init__(self, config: Verifying) -> None:
        self._config = config
        self._size = config.workers or default_size()
        # Interrupts cannot corrupt a ``put`` into this type of queue.
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._lock = threading.Lock()
        # The lock protects all attributes below.
        self._is_closed = False
        self._started = 0
        self._unfinished = 0
        self._workers: dict[threading.Thread, Worker] = {}
        self._proven: set[str] = set()
        self._broken_starts: Counter[str] = Counter()
        self._refused_starts = 0

    def submit(
        self, kind: str, message: tuple[object, ...], limit_s: float, done: Future[TaskOutcome]
    ) -> None:
        """Queue a task for a worker that has prepared the verifier named ``kind``.

        Args:
            message: ``("decide", problem, answer)`` or ``("check", problem)``.
            done: Future for the outcome; cancelled if the crew is closed first.

        Raises:
            RuntimeError: The crew is closed.
        """
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the workers have been closed")
            self._unfinished += 1
            self._tasks.put(_Task(kind, message, limit_s, done))
            if self._started < min(self._size, self._unfinished):
                threading.Thread(
                    target=self._work, name="heavydistill verdicts", daemon=True
                ).start()
                self._started += 1

    def close(self) -> None:
        """Kill all workers, cancel unfinished tasks, and wait for the end of the threads."""
        with self._lock:
            self._is_closed = True
            workers = dict(self._workers)
        with contextlib.suppress(Empty):
            while True:
                if task := self._tasks.get_nowait():
                    task.done.cancel()
        for worker in workers.values():
            self._tasks.put(None)
            worker.kill()
        deadline = time.monotonic() + _MOST_CLOSE_S
        threads = workers.keys() - {threading.current_thread()}
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            warnings.warn(
                f"Processes for verdicts have not ended within {_MOST_CLOSE_S:.0f} s; "
                "they end with this process",
                RuntimeWarning,
                stacklevel=2,
            )

    def _work(self) -> None:
        """Do tasks in this thread; the worker process ends with the thread."""
        # A new process cannot handle Ctrl-C yet, and a signal that this thread receives does not
        # wake the main thread.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        worker = Worker(self._config)
        with self._lock:
            # An interrupted ``submit`` may have started a thread without counting it.
            if self._is_closed or len(self._workers) >= self._size:
                return
            self._workers[threading.current_thread()] = worker
        while task := self._tasks.get():
            outcome = self._outcome(worker, task)
            with self._lock:
                self._unfinished -= outcome is not None
                is_closed = self._is_closed
            if outcome is None:
                time.sleep(_LOOK_S)
            elif is_closed:
                task.done.cancel()
            elif task.done.set_running_or_notify_cancel():
                task.done.set_result(outcome)
        worker.end()

    def _outcome(self, worker: Worker, task: _Task) -> TaskOutcome | None:
        """Result of a task; None if the task was queued again for another worker."""
        outcome = TaskOutcome(fault=DIED)
        for _ in range(_TRIES):
            with self._lock:
                if self._broken_starts[task.kind] >= _MOST_BROKEN_STARTS:
                    return TaskOutcome(fault=DIED)
            if not (worker.is_alive or worker.start()):
                return None if self._is_given_back(task) else outcome
            outcome = worker.do(task)
            with self._lock:
                self._refused_starts = 0
                if outcome.was_ready:
                    self._proven.add(task.kind)
                elif task.kind not in self._proven:
                    self._broken_starts[task.kind] += 1
            if outcome.fault not in (MEMORY, DIED):
                break
        return outcome

    def _is_given_back(self, task: _Task) -> bool:
        """Queue a task again whose worker could not start a process; False if no worker can."""
        with self._lock:
            self._refused_starts += 1
            is_refused = self._refused_starts >= _MOST_REFUSED_STARTS * len(self._workers)
            has_others = any(worker.is_alive for worker in self._workers.values())
            if self._is_closed or (is_refused and not has_others):
                return False
            self._tasks.put(task)
            return True


class Worker:
    """A process that runs one task at a time and can be restarted.

    ``kill`` may be called from any thread. All other methods must be called from the thread that
    starts the process, because on Linux the process ends with that thread.
    """

    def __init__(self, config: Verifying) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._is_killed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    @property
    def is_alive(self) -> bool:
        process = self._process
        return process is not None and process.poll() is None

    def start(self) -> bool:
        """Start a process without waiting for it; returns whether it was started."""
        self.end()
        with self._lock:
            if self._is_killed:
                return False
            try:
                ours, theirs = Pipe()
                with theirs:
                    self._process = _new_process(theirs.fileno())
            except Exception:  # the number of processes or open files is limited
                return False
            ours.send(self._config)
            self._connection = ours
        return True

    def kill(self) -> None:
        """Kill the process and prevent further starts."""
        with self._lock:
            self._is_killed = True
            if self._process:
                self._process.kill()

    def end(self, grace_s: float = 0.0) -> int | None:
        """End the process, if there is one; returns its exit status."""
        with self._lock:
            process, connection = self._process, self._connection
            self._process = self._connection = None
        if process is None or connection is None:
            return None
        with connection, contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
        process.kill()
        return process.wait()

    def do(self, task: _Task) -> TaskOutcome:
        """Run a task; ends the process if it is not ready or not done in time."""
        is_ready = False
        try:
            if self._connection is None:
                raise EOFError("the worker has no process")
            self._connection.send((task.kind, *task.message))
            if self._connection.poll(_MOST_START_S):
                is_ready = self._connection.recv() == _READY
                if self._connection.poll(task.limit_s):
                    outcome: TaskOutcome = self._connection.recv()
                    return outcome
        except Exception:  # the pipe is broken, or its message is malformed
            is_memory = self.end(_MOST_EXIT_S) == _OUT_OF_MEMORY
            return TaskOutcome(fault=MEMORY if is_memory else DIED, was_ready=is_ready)
        self.end()
        if not is_ready:
            return TaskOutcome(fault=DIED, was_ready=False)
        return TaskOutcome(fault=TIMEOUT, seconds=task.limit_s)


def _new_process(descriptor: int) -> subprocess.Popen[bytes]:
    """Start a fresh interpreter that reads messages from the connection ``descriptor``."""
    program = (
        "import sys; sys.path[:] = sys.argv[3:]; from heavydistill.verifiers import workers; "
        "workers.serve(int(sys.argv[1]), int(sys.argv[2]))"
    )
    # One thread for numerical libraries, because there is a worker for every core.
    single = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return subprocess.Popen(
        [sys.executable, "-c", program, str(descriptor), str(os.getpid()), *map(str, sys.path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[descriptor],
        env=os.environ | dict.fromkeys(single, "1"),
    )


def serve(descriptor: int, parent: int) -> None:
    """Main loop of a worker process: do the tasks in messages until the connection ends."""
    if sys.platform == "linux":
        # End when the parent process ends.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(0)
    os.set_inheritable(descriptor, False)
    # What the terminal sends is meant for the main program; SIGINT was blocked until now.
    for signum in (signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    # The default handler ends the process even inside a library call.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash writes no core file
    unprepared: dict[str, TaskOutcome | None] = {}
    with Connection(descriptor) as connection, contextlib.suppress(EOFError):
        config: Verifying = connection.recv()
        while True:
            kind, what, *args = connection.recv()
            if kind not in unprepared:
                unprepared[kind] = _unprepared_because(kind, config)
            connection.send(_READY)
            connection.send(unprepared[kind] or _do(config, kind, what, *args))


def _unprepared_because(kind: str, config: Verifying) -> TaskOutcome | None:
    """Prepare a verifier; if that fails, return the outcome of all its tasks, else None."""
    try:
        registry.load_own(config.own)
        registry.get(kind).prepare(config)
    except BaseException as error:  # a user's verifier may raise anything
        return raised(error)
    return None


def raised(error: BaseException, verifier: Verifier | None = None) -> TaskOutcome:
    """The outcome of a task in which the verifier raised ``error``."""
    return TaskOutcome(fault=error_reason(error), evidence=error_evidence(error, verifier))


def _do(config: Verifying, kind: str, what: str, problem: Problem, answer: str = "") -> TaskOutcome:
    """Run a task within the memory limit."""
    started = time.perf_counter()
    verifier = registry.get(kind)
    size, (_, most) = config.memory_mb * 2**20, resource.getrlimit(resource.RLIMIT_AS)
    limit = size if most == resource.RLIM_INFINITY else min(size, most)
    # The memory limit applies only to the task, so that messages can still be sent.
    resource.setrlimit(resource.RLIMIT_AS, (limit, most))
    try:
        if what == "decide":
            outcome = TaskOutcome(decide(Candidate(verifier, problem, answer)))
        else:
            outcome = TaskOutcome(_unfit_because(verifier, problem, config))
    except BaseException as error:  # a library may raise any exception
        outcome = raised(error, verifier)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    out_of_memory = error_reason(MemoryError())
    if out_of_memory in (outcome.fault, getattr(outcome.value, "reason", None)):
        # A process that ran out of memory is no longer reliable.
        os._exit(_OUT_OF_MEMORY)
    return dataclasses.replace(outcome, seconds=time.perf_counter() - started)


def _unfit_because(verifier: Verifier, problem: Problem, config: Verifying) -> str | None:
    unfit = verifier.check_reference(problem)
    if unfit is not None:
        return str(unfit)[:MOST_CHARACTERS]
    limit_of(verifier, problem, config)
    return None

"""Computes verdicts: cheap ones at once, all others in worker processes that can be killed.

Screening, and verifiers whose ``runs_in`` is ``here``, need no worker; the first response that
needs one starts the workers. Each verdict has a time limit (``Verifier.limit_s``), and the address
space of each worker is limited to ``verify.memory_mb``.

Verdicts of this module, all undecided, each affecting only its own response:

    timeout              the decision exceeded its time limit
    memory               it exceeded the memory of a worker, twice
    worker_died          its worker crashed or was killed, twice
    verifier_error:TYPE  the verifier raised, could not be prepared, or returned no verdict;
                         the evidence holds the error, and its place

The same response to the same problem is judged once: later requests wait for the same verdict, and
the last ``MOST_KEPT`` verdicts are cached. The first three kinds above are not cached, because a
busy machine may have caused them.

No signal is used and no signal handler is changed. In a forked process a pool starts new workers.

Not covered: sharing of processors between pools. Limits are in wall-clock time, so an overloaded
machine causes more timeouts.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import hashlib
import json
import os
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from heavydistill.config.run import Verifying
from heavydistill.errors import ProblemsError
from heavydistill.schema import Generation, Problem, Verdict
from heavydistill.verifiers import registry, workers
from heavydistill.verifiers.base import Verifier, raised_in, undecided
from heavydistill.verifiers.screening import Candidate, decide, screen, screen_generation
from heavydistill.verifiers.workers import TaskOutcome, WorkerPool, limit_of, raised

MOST_KEPT = 8192
# Maximum number of (problem, response) pairs in progress at once.
_MOST_AHEAD = 2048
# A busy machine must not make a reference unfit, so its check gets a multiple of the time limit.
_REFERENCE_LIMITS = 3


@dataclass(frozen=True, slots=True)
class TimedVerdict:
    """A verdict and how long it took."""

    verdict: Verdict  # The verdict; the same for equal responses unless a limit is exceeded
    seconds: float  # Seconds that the decision took; 0 if it needed no worker. Not stored in rows.


class VerdictPool:
    """Judges responses, in worker processes if that may take long. Thread-safe.

    A context manager; ``close`` is also called at interpreter exit. Raises ``ConfigError`` if a
    file of ``verify.own`` cannot be used.
    """

    def __init__(self, config: Verifying | None = None) -> None:
        self.config = config or Verifying()
        registry.load_own(self.config.own)
        self._is_closed = False
        self._begin()
        _pools.add(self)

    def _begin(self) -> None:
        self._crew = WorkerPool(self.config)
        self._lock = threading.Lock()
        self._open: dict[bytes, list[Future[TimedVerdict]]] = {}
        self._kept: OrderedDict[bytes, TimedVerdict] = OrderedDict()

    def submit(self, problem: Problem, text: str) -> Future[TimedVerdict]:
        """Request the verdict on a response; its thinking may be included.

        The future holds no exception; it is cancelled if the pool is closed before the verdict.
        ``submit`` raises ``RuntimeError`` if the pool is already closed.
        """
        return self._submit(screen(problem, text))

    def submit_generation(self, problem: Problem, generation: Generation) -> Future[TimedVerdict]:
        """Request the verdict on a generation; one that failed or was cut off is undecided."""
        return self._submit(screen_generation(problem, generation))

    def judge(self, problem: Problem, text: str) -> TimedVerdict:
        """Return the verdict on a response; like ``submit``, but waits for it."""
        return self.submit(problem, text).result()

    def judge_all(self, pairs: Iterable[tuple[Problem, str]]) -> list[TimedVerdict]:
        """Return the verdicts on (problem, response) pairs, in order; pairs are read as needed."""
        return list(_in_order(self.submit(problem, text) for problem, text in pairs))

    def check_references(
        self, problems: Sequence[Problem], on_done: Callable[[], None] | None = None
    ) -> list[str | None]:
        """For each problem, why its verifier cannot judge it, and the fix; None if it can.

        A reference on which the verifier hangs or crashes is unfit. ``on_done`` is called after
        each problem, in order. Raises ``ProblemsError`` if a problem names an unknown verifier.
        """
        unfit: list[str | None] = []
        for outcome in _in_order(map(self._check, problems)):
            unfit.append(self._unfit_because(outcome))
            if on_done:
                on_done()
        return unfit

    def _check(self, problem: Problem) -> Future[TaskOutcome]:
        verifier = registry.get(problem.verifier)
        checked: Future[TaskOutcome] = Future()
        try:
            if verifier.runs_in == "here" or verifier.is_plain(problem):
                checked.set_result(TaskOutcome(verifier.check_reference(problem)))
                return checked
        except Exception as error:  # a user's verifier may raise anything
            checked.set_result(raised(error, verifier))
            return checked
        try:
            limit_s = limit_of(verifier, problem, self.config)
        except Exception:  # the problem is malformed; the check reports the fault
            limit_s = self.config.timeout_s
        self._crew.submit(verifier.name, ("check", problem), _REFERENCE_LIMITS * limit_s, checked)
        return checked

    def _unfit_because(self, outcome: TaskOutcome) -> str | None:
        if outcome.fault is None:
            unfit: str | None = outcome.value
            return unfit
        why = {
            workers.TIMEOUT: f"took more than {outcome.seconds:g} s",
            workers.MEMORY: f"needed more than {self.config.memory_mb} MiB",
            workers.DIED: "ended its process",
        }.get(outcome.fault, f"failed ({outcome.fault})")
        if outcome.evidence:
            why = f"raised {raised_in(outcome.evidence)}"
        return f"the check of the reference {why}; simplify it or leave the problem out"

    def close(self) -> None:
        """End the workers and cancel unfinished requests; may be called more than once."""
        self._is_closed = True
        self._crew.close()

    def __enter__(self) -> VerdictPool:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _submit(self, screened: Verdict | Candidate) -> Future[TimedVerdict]:
        if self._is_closed:
            raise RuntimeError("the pool of verdicts has been closed")
        future: Future[TimedVerdict] = Future()
        if isinstance(screened, Candidate):
            if screened.verifier.runs_in != "here":
                self._decide(screened, future)
                return future
            screened = decide(screened)
        future.set_result(TimedVerdict(screened, 0.0))
        return future

    def _decide(self, candidate: Candidate, future: Future[TimedVerdict]) -> None:
        """Let a worker decide, unless the verdict is cached or another request waits for it."""
        verifier = candidate.verifier
        try:
            limit_s = limit_of(verifier, candidate.problem, self.config)
        except Exception as error:  # a user's verifier may raise anything
            future.set_result(TimedVerdict(_verdict(verifier, raised(error, verifier)), 0.0))
            return
        key = _key(candidate)
        fresh: Future[TaskOutcome] = Future()
        fresh.add_done_callback(functools.partial(self._on_decided, key, verifier))
        task = None
        try:
            with self._lock:
                if kept := self._kept.get(key):
                    self._kept.move_to_end(key)
                    future.set_result(kept)
                    return
                if key in self._open:
                    self._open[key].append(future)
                    return
                self._open[key], task = [future], fresh
            message = "decide", candidate.problem, candidate.answer
            self._crew.submit(verifier.name, message, limit_s, task)
        except BaseException as error:  # the pool is closed, or an interrupt
            if task:
                task.cancel()
            if not isinstance(error, RuntimeError):
                raise

    def _on_decided(self, key: bytes, verifier: Verifier, task: Future[TaskOutcome]) -> None:
        if task.cancelled():
            with self._lock:
                futures = self._open.pop(key)
            for future in futures:
                future.cancel()
            return
        outcome = task.result()
        judged = TimedVerdict(_verdict(verifier, outcome), outcome.seconds)
        with self._lock:
            futures = self._open.pop(key)
            if outcome.fault not in (workers.TIMEOUT, workers.MEMORY, workers.DIED):
                self._kept[key] = judged
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        for future in futures:
            if future.set_running_or_notify_cancel():
                future.set_result(judged)


def judge(problem: Problem, text: str, own: Sequence[str] = ()) -> Verdict:
    """Return the verdict on one response, as a run gives it.

    ``own`` are Python files with your own verifiers. For many responses use one ``VerdictPool``,
    which keeps its workers.

    Raises:
        ConfigError: A file of ``own`` cannot be used.
        ProblemsError: The problem cannot be judged, e.g. because there is no such verifier.
    """
    with VerdictPool(Verifying(own=[*own])) as pool:
        if unfit := pool.check_references([problem])[0]:
            fix = f"The verifier {problem.verifier} could not judge any answer to it."
            raise ProblemsError(f"Problem {problem.id}: {unfit}", fix)
        return pool.judge(problem, text).verdict


def _verdict(verifier: Verifier, outcome: TaskOutcome) -> Verdict:
    if outcome.fault:
        return undecided(verifier, outcome.fault, outcome.evidence)
    verdict: Verdict = outcome.value
    return verdict


_T = TypeVar("_T")


def _in_order(futures: Iterable[Future[_T]]) -> Iterator[_T]:
    """Yield the results of futures, in order; futures are read as needed."""
    waiting: deque[Future[_T]] = deque()
    for future in futures:
        waiting.append(future)
        while waiting and (waiting[0].done() or len(waiting) > _MOST_AHEAD):
            yield waiting.popleft().result()
    for future in waiting:
        yield future.result()


def _key(candidate: Candidate) -> bytes:
    """Cache key of a response to a problem; verifiers do not change while a pool exists."""
    fields = dataclasses.astuple(candidate.problem)
    return hashlib.sha256(json.dumps([*fields, candidate.answer]).encode()).digest()


_pools: weakref.WeakSet[VerdictPool] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for pool in list(_pools):
        pool.close()


def _forget_workers() -> None:
    """In a forked process, reset the pools, because the workers belong to the parent process."""
    for pool in list(_pools):
        pool._begin()


os.register_at_fork(after_in_child=_forget_workers)

"""Verdicts from any thread: cheap ones at once, all others in workers that can be killed.

What ``screen`` can tell, and a verifier that ``runs_in`` the process itself, cost no worker; the
first other response starts them. Each verdict has a time limit of its own (``Verifier.limit_s``)
and each worker an address space of ``verify.memory_mb``.

Verdicts of this module, all undecided and each of its own response alone:

    timeout         it took longer than its limit
    memory          it needed more memory than a worker may have, twice
    worker_died     its worker crashed or was killed, twice
    verifier_error:TYPE  the verifier raised, could not be prepared, or gave no verdict

The same response to the same problem is judged once: those that come while it is judged wait for
the same verdict, and the last ``MOST_KEPT`` verdicts are remembered, but for the first three kinds
above: the machine may have been busy.

No signal is used and no handler is changed. A process that was forked with a pool in it has one
without workers, which starts its own.

Not covered: who gets the processor; every pool has workers of its own, and limits are measured by
the clock, so that a machine with far more to do than it has cores gives more timeouts.
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
from heavydistill.schema import Generation, Problem, Verdict
from heavydistill.verifiers import registry, workers
from heavydistill.verifiers.base import Verifier, error_reason, undecided
from heavydistill.verifiers.screening import Candidate, decide, screen, screen_generation
from heavydistill.verifiers.workers import Crew, TaskOutcome, limit_of

MOST_KEPT = 8192
# Pairs that are on their way at once.
_MOST_AHEAD = 2048
# Whether a reference is fit must not depend on how busy the machine is.
_REFERENCE_LIMITS = 3


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict, and what it took."""

    verdict: Verdict
    """The same for the same response, as long as no limit is met."""
    seconds: float
    """Time of the decision; 0 if it needed no worker. Never stored in rows."""


class VerdictPool:
    """Judges responses; see the module. May be used from several threads.

    It is a context manager; ``close`` is called at the end of the interpreter too. ``ConfigError``
    is raised if a file with verifiers of one's own cannot be used.
    """

    def __init__(self, config: Verifying | None = None) -> None:
        self.config = config or Verifying()
        registry.load_own(self.config.own)
        self._is_closed = False
        self._begin()
        _pools.add(self)

    def _begin(self) -> None:
        self._crew = Crew(self.config)
        self._lock = threading.Lock()
        self._open: dict[bytes, list[Future[Judged]]] = {}
        self._kept: OrderedDict[bytes, Judged] = OrderedDict()

    def submit(self, problem: Problem, text: str) -> Future[Judged]:
        """The verdict on a response, whole or what follows its thinking, to any problem.

        The future raises nothing, and is cancelled if the pool is closed before the verdict is
        there. ``RuntimeError`` if it is closed by now.
        """
        return self._submit(screen(problem, text))

    def submit_generation(self, problem: Problem, generation: Generation) -> Future[Judged]:
        """As ``submit``; a generation that failed or was cut off is undecided."""
        return self._submit(screen_generation(problem, generation))

    def judge(self, problem: Problem, text: str) -> Judged:
        """As ``submit``, and wait."""
        return self.submit(problem, text).result()

    def judge_all(self, pairs: Iterable[tuple[Problem, str]]) -> list[Judged]:
        """The verdicts on all pairs of a problem and a response, in order; read as needed."""
        return list(_in_order(self.submit(problem, text) for problem, text in pairs))

    def check_references(
        self, problems: Sequence[Problem], on_done: Callable[[], None] | None = None
    ) -> list[str | None]:
        """What makes each problem unfit for its verifier, and what to do; None if it is fit.

        A reference on which the verifier hangs or breaks is unfit, so it costs no answer later.
        ``on_done`` is called after each, in order; ``ProblemsError`` if there is no such verifier.
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
        except Exception as error:  # of a verifier of one's own
            checked.set_result(TaskOutcome(fault=error_reason(error)))
            return checked
        try:
            limit_s = limit_of(verifier, problem, self.config)
        except Exception:  # of a malformed problem; the check says what is wrong with it
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
        return f"the check of the reference {why}; simplify it or leave the problem out"

    def close(self) -> None:
        """End the workers. What is not judged by then is cancelled; again is no fault."""
        self._is_closed = True
        self._crew.close()

    def __enter__(self) -> VerdictPool:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _submit(self, screened: Verdict | Candidate) -> Future[Judged]:
        if self._is_closed:
            raise RuntimeError("the pool of verdicts has been closed")
        future: Future[Judged] = Future()
        if isinstance(screened, Candidate):
            if screened.verifier.runs_in != "here":
                self._decide(screened, future)
                return future
            screened = decide(screened)
        future.set_result(Judged(screened, 0.0))
        return future

    def _decide(self, candidate: Candidate, future: Future[Judged]) -> None:
        """Have a worker decide, unless that was done or is being done."""
        verifier = candidate.verifier
        try:
            limit_s = limit_of(verifier, candidate.problem, self.config)
        except Exception as error:  # of a verifier of one's own
            future.set_result(Judged(undecided(verifier, error_reason(error)), 0.0))
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
        except BaseException as error:  # closed; or an interrupt, after which nobody would decide
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
        verdict = undecided(verifier, outcome.fault) if outcome.fault else outcome.value
        judged = Judged(verdict, outcome.seconds)
        with self._lock:
            futures = self._open.pop(key)
            if outcome.fault not in (workers.TIMEOUT, workers.MEMORY, workers.DIED):
                self._kept[key] = judged
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        for future in futures:
            if future.set_running_or_notify_cancel():
                future.set_result(judged)


_T = TypeVar("_T")


def _in_order(futures: Iterable[Future[_T]]) -> Iterator[_T]:
    """The results of futures, which are made only as they are needed."""
    waiting: deque[Future[_T]] = deque()
    for future in futures:
        waiting.append(future)
        while waiting and (waiting[0].done() or len(waiting) > _MOST_AHEAD):
            yield waiting.popleft().result()
    for future in waiting:
        yield future.result()


def _key(candidate: Candidate) -> bytes:
    """The same for the same response to the same problem; verifiers do not change meanwhile."""
    fields = dataclasses.astuple(candidate.problem)
    return hashlib.sha256(json.dumps([*fields, candidate.answer]).encode()).digest()


_pools: weakref.WeakSet[VerdictPool] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for pool in list(_pools):
        pool.close()


def _forget_workers() -> None:
    """In a process that was forked: its pools have no workers, and its end ends none."""
    for pool in list(_pools):
        pool._begin()


os.register_at_fork(after_in_child=_forget_workers)

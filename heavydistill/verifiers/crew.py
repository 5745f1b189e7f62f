"""Which worker gets which task, and what becomes of both when one of them ends the other.

A task is done by one worker at a time, in the order in which tasks came. What became of it is an
``Outcome``; nothing is raised, and nothing waits for ever:

    it takes longer than its limit           ``timeout``: the worker is killed and replaced
    it needs more memory than it may have    ``memory``
    its worker dies, or never takes it       ``worker_died``

The last two may be the doing of the task before, or of the machine, so such a task is tried
``_TRIES`` times, again by a fresh process. Workers are started when there is work for them, at
most ``size`` of them. One that lacks the verifier of the next task is replaced when it is idle. A
verifier with which processes only die before they take a task is given up; others are not touched.

An interrupt (Ctrl-C) can break off a call of ``submit`` at any place, and leaves nothing undone
there but that call: all else is done in threads of its own, which interrupts do not reach.

Not covered: what a task is (``workers``), and that two may be the same (``pool``).
"""

from __future__ import annotations

import functools
import os
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import loky

from heavydistill.config.run import Verifying
from heavydistill.verifiers.workers import (
    DIED,
    MEMORY,
    Outcome,
    Worker,
    hold_interrupts,
    outcome_of,
)

_TRIES = 2
# A busy machine takes its time to start a process and to import what a verifier needs.
_MOST_START_S = 300.0
# After so many deaths before its first task there is no hope for a verifier.
_MOST_BROKEN_STARTS = 3
# Of processes that the system does not let us have, a second apart, while there is no other.
_MOST_REFUSED_STARTS = 60
_LOOK_S = 1.0
# An interrupt in a future's own code can leave it locked, and whoever sets it waits for ever. Such
# a thread, and a worker that it keeps, end with this process.
_MOST_CLOSE_S = 60.0


def default_size() -> int:
    """The processor's cores that this process may use, shared with the other ranks of a trainer."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    share = int(ranks) if ranks.isdecimal() else 1
    return max(1, int(loky.cpu_count()) // max(1, share))


@dataclass(slots=True, eq=False)
class _Task:
    kind: str
    function: Callable[..., Outcome]
    args: tuple[Any, ...]
    limit_s: float
    done: Future[Outcome]
    tries: int = 0
    given_at: float = 0.0

    def end(self, outcome: Outcome) -> None:
        """Say what became of it, if anybody still wants to know."""
        if self.done.set_running_or_notify_cancel():
            self.done.set_result(outcome)


_Given = tuple[Worker, _Task, "Future[Outcome]"]


class Crew:
    """See the module. May be used from several threads.

    Args:
        config: Of the workers; ``workers`` is their number, ``default_size`` if null.
    """

    def __init__(self, config: Verifying) -> None:
        self._config = config
        self._size = config.workers or default_size()
        # Code that an interrupt may reach takes the lock itself: ``Condition`` has Python code
        # around it, between which and the block an interrupt would leave it taken.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        # All that follows is used while that is held.
        self._keeper: threading.Thread | None = None
        self._is_closed = False
        self._proven: frozenset[str] = frozenset()
        self._broken_starts: Counter[str] = Counter()
        self._refused_starts = 0
        self._waiting: deque[_Task] = deque()
        self._idle: list[Worker] = []
        self._busy: dict[Worker, tuple[_Task, Future[Outcome]]] = {}
        self._leaving: list[Worker] = []

    def submit(
        self,
        kind: str,
        function: Callable[..., Outcome],
        args: tuple[Any, ...],
        limit_s: float,
        done: Future[Outcome],
    ) -> None:
        """Have a function of ``workers`` called in a worker that has prepared a verifier.

        Args:
            kind: Name of the verifier.
            function: It.
            args: Of it.
            limit_s: What it may take.
            done: Is set when it is done, and never raises; it is cancelled if the crew is closed
                before.

        Raises:
            RuntimeError: The crew is closed.
        """
        task = _Task(kind, function, args, limit_s, done)
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the workers have been closed")
            self._waiting.append(task)
            if self._keeper is None:
                keeper = threading.Thread(
                    target=self._keep, name="heavydistill verdicts", daemon=True
                )
                keeper.start()
                self._keeper = keeper
            self._changed.notify_all()

    def close(self) -> None:
        """End all workers, cancel what they have not finished, and wait for their end."""
        with self._lock:
            self._is_closed = True
            dropped = [*self._waiting, *(task for task, _ in self._busy.values())]
            self._waiting.clear()
            self._leaving += [*self._idle, *self._busy]
            self._idle.clear()
            self._busy.clear()
            self._changed.notify_all()
        for task in dropped:
            task.done.cancel()
        if self._keeper is not None and self._keeper is not threading.current_thread():
            self._keeper.join(_MOST_CLOSE_S)
            if self._keeper.is_alive():
                warnings.warn(
                    f"Workers of verdicts have not ended within {_MOST_CLOSE_S:.0f} s; "
                    "they end with this process",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def _hand_out(self) -> list[_Given]:
        """Give waiting tasks to idle workers. Called with the lock; ``_attend`` follows without.

        Only in threads that interrupts do not reach: half of it would lose a worker or a task.
        """
        given: list[_Given] = []
        while self._waiting:
            task = self._waiting[0]
            worker = next((each for each in self._idle if task.kind in each.kinds), None)
            if worker is None:
                if self._idle or self._needs_worker():
                    self._changed.notify_all()
                break
            self._idle.remove(worker)
            try:
                future = worker.give(task.function, task.args, task.limit_s)
            except RuntimeError:
                self._dismiss(worker)
                continue
            self._waiting.popleft()
            task.given_at = time.monotonic()
            self._busy[worker] = task, future
            given.append((worker, task, future))
        return given

    def _attend(self, given: list[_Given]) -> None:
        """Have what comes of tasks taken note of; it may be there already."""
        for worker, task, future in given:
            future.add_done_callback(functools.partial(self._on_done, worker, task))

    def _on_done(self, worker: Worker, task: _Task, future: Future[Outcome]) -> None:
        outcome = outcome_of(future, task.limit_s)
        with self._changed:
            held = self._busy.get(worker)
            if held is None or held[1] is not future:
                return  # it was taken from the worker
            del self._busy[worker]
            if outcome is None:
                self._broken_starts[task.kind] += 1
                self._dismiss(worker)
            else:
                # Where its process died, the first task of the next one is the same again.
                self._idle.insert(0, worker)
                self._proven |= {task.kind}
            is_over = not _may_be_due_to_others(outcome) or not self._put_back(task)
            given = self._hand_out()
        if is_over:
            task.end(outcome or Outcome(fault=DIED))
        self._attend(given)

    def _put_back(self, task: _Task) -> bool:
        """Let a task wait again, unless it had its tries."""
        task.tries += 1
        if task.tries < _TRIES:
            self._waiting.appendleft(task)
        return task.tries < _TRIES

    def _dismiss(self, worker: Worker) -> None:
        self._leaving.append(worker)
        self._changed.notify_all()

    def _keep(self) -> None:
        """Start, replace and stop workers, in one thread: they live no longer than that does."""
        hold_interrupts()
        while not self._is_closed or self._leaving:
            with self._changed:
                given = self._hand_out()
                # An idle worker beside a waiting task is one that cannot do it.
                is_stuck = bool(self._waiting and self._idle)
                has_work = self._is_closed or self._leaving or is_stuck or self._needs_worker()
                if not (given or has_work):
                    self._changed.wait(_LOOK_S if self._busy else None)
                    given = self._hand_out()
                lost = [*self._take_lost(), *self._take_hopeless()]
                self._dismiss_unfit()
                leaving, self._leaving = self._leaving, []
                fresh = None
                if self._needs_worker():
                    # To what has worked before comes one verifier at a time: if it breaks the
                    # process, it is known which it was.
                    fresh = Worker(self._config, self._proven | {self._waiting[0].kind})
            self._attend(given)
            for task in lost:
                task.end(Outcome(fault=DIED))
            for worker in leaving:
                worker.stop()
            for worker in leaving:
                worker.join()
            if fresh is not None:
                self._start(fresh)

    def _needs_worker(self) -> bool:
        has_room = len(self._idle) + len(self._busy) < self._size
        return bool(self._waiting) and has_room and not self._is_closed

    def _dismiss_unfit(self) -> None:
        """Let idle workers go that cannot do the next task."""
        if self._waiting:
            kind = self._waiting[0].kind
            self._leaving += [worker for worker in self._idle if kind not in worker.kinds]
            self._idle = [worker for worker in self._idle if kind in worker.kinds]

    def _start(self, worker: Worker) -> None:
        is_started = worker.start()
        with self._changed:
            (self._idle if is_started else self._leaving).append(worker)
            self._refused_starts = 0 if is_started else self._refused_starts + 1
            given = self._hand_out()
            if self._is_closed:
                self._leaving += self._idle
                self._idle.clear()
            elif not is_started:
                self._changed.wait(_LOOK_S)
        self._attend(given)

    def _take_lost(self) -> list[_Task]:
        """Take back the tasks whose worker will not do them; those that had their tries."""
        lost = []
        for worker, (task, _) in list(self._busy.items()):
            is_late = time.monotonic() - task.given_at > task.limit_s + _MOST_START_S
            if is_late or worker.is_broken:
                del self._busy[worker]
                self._leaving.append(worker)
                if not self._put_back(task):
                    lost.append(task)
        return lost

    def _take_hopeless(self) -> list[_Task]:
        """Take the tasks for which there will be no worker from those that wait."""
        is_refused = self._refused_starts >= _MOST_REFUSED_STARTS and not self._busy
        broken = {n for n, times in self._broken_starts.items() if times >= _MOST_BROKEN_STARTS}
        broken -= self._proven
        if not (is_refused or broken):
            return []
        hopeless = [task for task in self._waiting if is_refused or task.kind in broken]
        rest = (task for task in self._waiting if not is_refused and task.kind not in broken)
        self._waiting = deque(rest)
        self._refused_starts = 0
        return hopeless


def _may_be_due_to_others(outcome: Outcome | None) -> bool:
    """Whether a task can come to another end in a fresh process."""
    return outcome is None or outcome.fault in (MEMORY, DIED)

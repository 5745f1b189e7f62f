"""Asks one model for deliberations on caches that are there, outside of the pipeline; judges them.

    with Deliberator(asking, verify) as model:
        for (problem, cache), deliberations in model.ask(pairs):
            ...

Requests, rows and verdicts are those of a run: every response is in the journal before it is used,
so the same command goes on after a kill and pays for nothing twice; a budget holds over all
resumptions. An endpoint's slots are kept full while a slow response is awaited; a model in this
process works in full batches.

Not covered: caches of the same prompt among the pairs, of which one that failed may be asked again;
a judge for what rules leave undecided.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from heavydistill.config.run import Verifying
from heavydistill.curate.redeliberation.asking import Asking
from heavydistill.errors import RunError, StoppedError
from heavydistill.metrics.counts import UsageTally
from heavydistill.models.contact import Contact
from heavydistill.models.journaled import JournaledEngine
from heavydistill.models.ledger import Ledger
from heavydistill.models.pace import Pace
from heavydistill.models.registry import open_engine, revision_of, tariff_of
from heavydistill.models.request import Engine, Keep, Request, Response, deliberation, fields_of
from heavydistill.schema import Cache, Deliberation, Problem
from heavydistill.store.journal import Journal
from heavydistill.store.sets.folder import RedeliberationSummary
from heavydistill.verifiers.pool import Judged, VerdictPool

# Batches that may be done and not yet taken, for each that is in flight: a slow first one is waited
# for, and the others go on meanwhile.
_AHEAD = 2

_log = logging.getLogger(__name__)

_P = TypeVar("_P", bound=Problem)
_C = TypeVar("_C", bound=Cache)


@dataclass(slots=True)
class Tally:
    """What was asked for so far, and what came of it.

    Attributes:
        caches: Whose deliberations are there.
        failed: Deliberations that failed.
        cut_off: Deliberations that were too long.
        from_journal: Deliberations that were paid for earlier.
        tokens: What they all took.
    """

    caches: int = 0
    failed: int = 0
    cut_off: int = 0
    from_journal: int = 0
    tokens: UsageTally = field(default_factory=UsageTally)


class Deliberator:
    """A model that is asked; see the module. What it holds is given back at the end of ``with``.

    Args:
        asking: Whom, and how.
        verify: How its deliberations are judged.
        replay: Ask nobody; take every response from the journal.
        longest: Tokens of the longest prompt, as of ``Volume``, which the server must take.

    Attributes:
        tally: Grows while it is asked.

    Entering raises:
        TeacherError: The endpoint cannot be asked, or the weights cannot be loaded.
        ConfigError: The same is asked by another process, or the account, the journal or a
            verifier of one's own cannot be used.
    """

    def __init__(
        self, asking: Asking, verify: Verifying, replay: bool = False, longest: int = 0
    ) -> None:
        self.asking = asking
        self.tally = Tally()
        self._verify, self._replay, self._longest = verify, replay, longest
        self._pace = Pace.of(asking.model, asking.d, asking.endpoint)
        self._lock = threading.Lock()

    def __enter__(self) -> Deliberator:
        with contextlib.ExitStack() as held:
            self._judges = held.enter_context(VerdictPool(self._verify))
            self._engine = held.enter_context(contextlib.closing(self._opened(held)))
            self._threads = ThreadPoolExecutor(self._pace.in_flight, "deliberating")
            held.callback(self._end)
            self._held = held.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> None:
        if kind is KeyboardInterrupt:
            _log.warning("What is in flight is awaited and kept; Ctrl-C again gives it up.")
        self._held.close()

    @property
    def asked(self) -> RedeliberationSummary:
        """What was asked for so far, for the manifest."""
        used = self.tally.tokens.usage
        known = used.unknown_completion < used.requests or not used.requests
        usd = self.asking.model.usd(used.prompt, used.completion) if known else None
        return RedeliberationSummary(
            model=self.asking.model.name,
            sets=self.tally.caches,
            deliberations=used.requests,
            failed=self.tally.failed,
            prompt_tokens=used.prompt,
            completion_tokens=used.completion,
            cost_usd=None if usd is None else round(usd, 6),
            sampling=self.asking.sampling.model_dump(),
        )

    def ask(
        self, pairs: Iterable[tuple[_P, _C]], on_done: Callable[[], None] | None = None
    ) -> Iterator[tuple[tuple[_P, _C], list[Deliberation]]]:
        """Each pair with its deliberations, judged, in the order of the pairs.

        Args:
            pairs: Read as they are needed; a bounded number is held.
            on_done: Called after each pair, as they are done, by one thread at a time.

        Raises:
            StoppedError: The budget is spent or no server answers.
            TeacherError: The endpoint refuses what is asked.
            RunError: The disk is full; or the journal lacks what a replay takes from it.

            What was sent before any of them, and before Ctrl-C, is answered and in the journal.
        """
        rest, waiting = iter(pairs), deque[_Batch[_P, _C]]()
        while batch := list(itertools.islice(rest, self._pace.batch)):
            asked = self._threads.submit(self._deliberate, list(batch), on_done)
            waiting.append((batch, asked))
            while waiting and (waiting[0][1].done() or len(waiting) >= self._most_waiting):
                yield from self._taken(waiting)
        while waiting:
            yield from self._taken(waiting)

    @property
    def _most_waiting(self) -> int:
        return _AHEAD * self._pace.in_flight

    def _taken(
        self, waiting: deque[_Batch[_P, _C]]
    ) -> Iterator[tuple[tuple[_P, _C], list[Deliberation]]]:
        """The first batch, taken out; waits for it."""
        if waiting[0][1].exception():
            raise self._fault([asked for _, asked in waiting])
        batch, asked = waiting.popleft()
        for pair, written in zip(batch, asked.result(), strict=True):
            yield (
                pair,
                [
                    dataclasses.replace(one, verdict=judged.result().verdict)
                    for one, judged in written
                ],
            )

    def _fault(self, asked: list[Future[_Written]]) -> BaseException:
        """Why it ended, when all that is in flight is there; that of the first who knows."""
        self._engine.drain()
        wait(asked)
        faults = [fault for each in asked if (fault := each.exception())]
        return next((fault for fault in faults if not isinstance(fault, _LeftError)), faults[0])

    def _deliberate(
        self, batch: list[tuple[_P, _C]], on_done: Callable[[], None] | None
    ) -> _Written:
        """The deliberations on each of a batch, in a thread of their own; verdicts to come."""
        requests = [self.asking.requests(cache) for _, cache in batch]
        responses = iter(self._engine.generate([each for of_one in requests for each in of_one]))
        written = []
        for (problem, cache), of_one in zip(batch, requests, strict=True):
            answers = list(itertools.islice(responses, len(of_one)))
            _check_answered(answers, self.asking)
            rows = [
                deliberation(
                    problem.id, cache.id, cache.round, fields_of(self.asking.model.name, *pair)
                )
                for pair in zip(of_one, answers, strict=True)
            ]
            written.append([(row, self._judges.submit_generation(problem, row)) for row in rows])
            self._note(rows, answers, on_done)
        return written

    def _note(
        self, rows: list[Deliberation], answers: list[Response], on_done: Callable[[], None] | None
    ) -> None:
        with self._lock:
            self.tally.caches += 1
            self.tally.failed += sum(row.finish_reason == "error" for row in rows)
            self.tally.cut_off += sum(row.finish_reason == "length" for row in rows)
            self.tally.from_journal += sum(answer.from_journal for answer in answers)
            for row in rows:
                self.tally.tokens.add(row)
            if on_done:
                on_done()

    def _opened(self, held: contextlib.ExitStack) -> JournaledEngine:
        asking, account = self.asking, None
        if self._replay:
            engine: Engine = _Nobody(revision_of(asking.model, asking.endpoint))
        else:
            if asking.model.kind == "endpoint":
                self._require(asking)
                mine = held.enter_context(contextlib.closing(Ledger(asking.account)))
                held.enter_context(mine.running())
                account = Ledger(asking.account, asking.most_tokens, asking.most_usd)
            engine = open_engine(asking.model, asking.endpoint, account)
        try:
            journal = Journal(asking.journal)
        except BaseException:
            engine.close()
            raise
        return JournaledEngine(engine, journal, asking.model.model, self._replay)

    def _require(self, asking: Asking) -> None:
        """Raises TeacherError if the server cannot be asked."""
        most = self._longest + asking.sampling.max_tokens
        caps = asking.most_tokens, asking.most_usd
        account = partial(Ledger, asking.account, *caps) if any(caps) else None
        contact, tariff = asking.contact or Contact(), tariff_of(asking.model)
        contact.require(asking.model.model, asking.endpoint, most, account, tariff)

    def _end(self) -> None:
        """Ask nothing more, and wait for what is in flight."""
        self._engine.drain()
        self._threads.shutdown(cancel_futures=True)


_Written = list[list[tuple[Deliberation, Future[Judged]]]]
_Batch = tuple[list[tuple[_P, _C]], Future[_Written]]


class _LeftError(StoppedError):
    """It was not asked any more, because of what another one met."""


class _Nobody:
    """The engine of a replay, which only has a revision."""

    is_drained = False

    def __init__(self, revision: str) -> None:
        self.revision = revision

    def generate(self, requests: list[Request], keep: Keep) -> list[Response]:
        raise RuntimeError("a replay asks nobody")

    def drain(self) -> None:
        pass

    def close(self) -> None:
        pass


def _check_answered(answers: list[Response], asking: Asking) -> None:
    """Raise if a response says that there is none because nobody was asked."""
    failures = {answer.failure for answer in answers}
    if "interrupted" in failures:
        raise _LeftError("It ended before all was asked", "Give the same command again.")
    if "not_in_journal" in failures:
        raise RunError(
            f"The journal {asking.journal} does not hold every response that is taken from it",
            "Give the same command again, and leave that folder alone meanwhile.",
        )

"""Engine that answers from the journal and sends only the remaining requests to another engine."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

from heavydistill.models.request import TOOL, Engine, Keep, Request, Response, Sample, discard
from heavydistill.models.shared_resources import SharedResources
from heavydistill.store.journal import Journal, keys, prompt_id
from heavydistill.store.segment import Record

journals = SharedResources(Journal.close)
"""Open journals of this process by folder, so that each journal's index is in memory only once."""

_MISSING = Response(
    finish_reason="error",
    failure="not_in_journal",
    error="The journal holds no response to this request.",
)


def journaled(engine: Engine, folder: Path, model: str, replay: bool = False) -> JournaledEngine:
    """Return an engine that keeps its responses in the journal of a folder."""
    journal = journals.borrow(folder.absolute(), lambda: Journal(folder))
    return JournaledEngine(engine, journal, model, replay)


class JournaledEngine:
    """Answers from the journal, and writes every new response to the journal before it is used.

    If an equal request is already in flight, for another problem with the same text, it is not sent
    again. Closing the engine returns the journal to ``journals``. A replay sends nothing: recorded
    failures remain failures, and a request that is not in the journal fails.
    """

    def __init__(self, engine: Engine, journal: Journal, model: str, replay: bool = False) -> None:
        self.revision = engine.revision
        self._engine = engine
        self._journal = journal
        self._model = model
        self._replay = replay
        self._in_flight: dict[str, Future[Response]] = {}
        self._lock = threading.Lock()

    def generate(self, requests: list[Request], keep: Keep = discard) -> list[Response]:
        """Answer all requests, in order; ``keep`` is called only for new responses."""
        wanted_keys = keys(self._model, self.revision, requests)
        if self._replay:
            return [self._journal.last(wanted) or _MISSING for wanted in wanted_keys]
        responses: dict[str, Response | Future[Response]] = {}
        mine: dict[str, Request] = {}
        with self._lock:
            for wanted, request in zip(wanted_keys, requests, strict=True):
                if wanted in responses:
                    continue
                known = self._in_flight.get(wanted) or self._journal.get(wanted)
                if known is None:
                    known = self._in_flight[wanted] = Future()
                    mine[wanted] = replace(request, key=wanted)
                responses[wanted] = known
        self._ask(mine, keep)
        answers = (responses[wanted] for wanted in wanted_keys)
        return [one.result() if isinstance(one, Future) else one for one in answers]

    def recorded(self, request: Request, part: str, make: Callable[[], Response]) -> Response:
        """The journaled result of a part of a request's work, e.g. of a cell that its response
        calls; if there is none, that of ``make``, which is written first.

        A replay makes nothing.
        """
        (whole,) = keys(self._model, self.revision, [request])
        wanted = hashlib.sha256(f"{whole} {part}".encode()).hexdigest()
        if (known := self._journal.get(wanted)) or self._replay:
            return known or _MISSING
        put = _JournalFirst(self._journal, TOOL, discard)
        made = make()
        put([(replace(request, key=wanted, stage=TOOL), made)])
        return made

    @property
    def is_drained(self) -> bool:
        return self._engine.is_drained

    def drain(self) -> None:
        """Start no new requests; see ``models.request.Engine``."""
        self._engine.drain()

    def close(self) -> None:
        """Close the engine, and the journal if it has no other user."""
        self._engine.close()
        journals.give_back(self._journal)

    def _ask(self, mine: dict[str, Request], keep: Keep) -> None:
        """Send the requests in ``mine`` and set the futures of their keys."""
        if not mine:
            return
        put = _JournalFirst(self._journal, self._model, keep)
        try:
            responses = self._engine.generate(list(mine.values()), put)
        except BaseException as error:
            for wanted in mine:
                self._in_flight.pop(wanted).set_exception(error)
            raise
        for wanted, response in zip(mine, responses, strict=True):
            self._in_flight.pop(wanted).set_result(response)


@dataclass(frozen=True, slots=True)
class _JournalFirst:
    """A ``Keep`` callback that writes responses to a journal before it passes them to another.

    Equal ones do the same, so an engine may merge their calls.
    """

    journal: Journal
    model: str
    keep: Keep

    def __call__(self, samples: list[Sample]) -> None:
        at = round(time.time(), 3)
        self.journal.put([record_of(self.model, *sample, at) for sample in samples])
        self.keep(samples)


def record_of(model: str, request: Request, response: Response, at: float) -> Record:
    """The record of a response that arrived at a time, for the journal."""
    asked = {
        "stage": request.stage,
        "prompt": prompt_id(request.messages),
        "sampling": request.sampling.model_dump(),
        "seed": request.seed,
        "index": request.index,
    }
    return Record(request.key, model, asked, response, at)

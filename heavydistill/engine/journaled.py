"""An engine that asks another one only for what a journal does not hold, or nobody at all."""

from __future__ import annotations

import time

from heavydistill.engine.journal import Journal, Record, key
from heavydistill.engine.request import Engine, Keep, Request, Response, forget

_MISSING = Response(
    finish_reason="error",
    failure="not_in_journal",
    error="The journal holds no response to this request.",
)


class JournaledEngine:
    """Answers from the journal what is in it, and writes all else into it before it is used.

    Args:
        engine: Asked for what is missing.
        journal: Closed with this engine.
        model: Who answers.
        replay: Ask nobody: what failed is as it was, and what was never answered is a failure.
    """

    def __init__(self, engine: Engine, journal: Journal, model: str, replay: bool = False) -> None:
        self.revision = engine.revision
        self._engine = engine
        self._journal = journal
        self._model = model
        self._replay = replay

    def generate(self, requests: list[Request], keep: Keep = forget) -> list[Response]:
        """Answer all requests, in their order; ``keep`` sees those that were asked now."""

        def put(request: Request, response: Response) -> None:
            asked = {
                "sampling": request.sampling.model_dump(),
                "seed": request.seed,
                "index": request.index,
            }
            self._journal.put(
                Record(self._key(request), self._model, asked, response, round(time.time(), 3))
            )
            keep(request, response)

        if self._replay:
            return [self._journal.last(self._key(request)) or _MISSING for request in requests]
        found = [self._journal.get(self._key(request)) for request in requests]
        missing = [r for r, response in zip(requests, found, strict=True) if response is None]
        answered = iter(self._engine.generate(missing, put) if missing else [])
        return [response or next(answered) for response in found]

    def close(self) -> None:
        """Close the engine, then the journal."""
        self._engine.close()
        self._journal.close()

    def _key(self, request: Request) -> str:
        return key(self._model, self.revision, request)

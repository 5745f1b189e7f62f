"""Collects the requests that a run lacks, instead of sending them.

Every stage of a run has an engine of the queue, behind the journal. A request is added to the input
file of its model and answered as interrupted, so that its row is dropped from this pass. Once the
batches are answered, the journal has the responses, and the next pass finds what depends on them.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from heavydistill.config.models import Endpoint
from heavydistill.models.batch.files import BatchJob, Draft, request_line
from heavydistill.models.http.engine import served_revision
from heavydistill.models.ledger import Cost, most_cost
from heavydistill.models.profiles import Profile
from heavydistill.models.request import INTERRUPTED, Keep, Request, Response, discard
from heavydistill.store.journal import Journal
from heavydistill.store.traces import writing

_BYTES_A_MB = 10**6


class BatchQueue:
    """The requests of one pass. Thread-safe.

    Args:
        folder: Folder of the files.
        name: Beginning of the names of the batches.
        journal: Journal of the run.
        given_up: Keys of requests whose failure in the journal is their result.
        left: What the budget still allows.
    """

    def __init__(
        self, folder: Path, name: str, journal: Journal, given_up: Collection[str], left: Cost
    ) -> None:
        self.missing = 0  # requests without a result
        self.uncovered: Cost | None = None  # cost of a request that the budget does not allow
        self._folder, self._name, self._journal = folder, name, journal
        self._given_up, self._left = given_up, left
        self._drafts: dict[tuple[str, str], Draft] = {}
        self._batches: list[BatchJob] = []
        self._lock = threading.Lock()

    def engine(self, profile: Profile, endpoint: Endpoint) -> CollectingEngine:
        """An engine that adds the requests to a model."""
        revision = served_revision(profile, endpoint)
        return CollectingEngine(revision, lambda request: self._add(request, profile, endpoint))

    def batches(self) -> list[BatchJob]:
        """Return the batches of the pass, which is over; their states are on disk."""
        while self._drafts:
            self._batches.append(self._drafts.popitem()[1].close())
        return self._batches

    def _add(self, request: Request, profile: Profile, endpoint: Endpoint) -> Response:
        with self._lock, writing(self._folder):
            if request.key in self._given_up and (last := self._journal.last(request.key)):
                return last
            self.missing += 1
            most = most_cost([request], profile.price)
            if most.tokens > self._left.tokens or most.usd > self._left.usd:
                self.uncovered = most
                return INTERRUPTED
            self._left = Cost(self._left.tokens - most.tokens, self._left.usd - most.usd)
            line = request_line(request, profile, endpoint)
            draft = self._draft_for(endpoint.base_url or "", profile.model, len(line), endpoint)
            draft.add(request, line, most)
            return INTERRUPTED

    def _draft_for(self, url: str, model: str, size: int, endpoint: Endpoint) -> Draft:
        """The draft of a model, or a new one if it has no room for a line of ``size`` bytes."""
        draft = self._drafts.get((url, model))
        if draft and (
            draft.batch.requests >= endpoint.batch_requests
            or draft.bytes + size > endpoint.batch_mb * _BYTES_A_MB
        ):
            self._batches.append(self._drafts.pop((url, model)).close())
            draft = None
        if not draft:
            name = f"{self._name}-{secrets.token_hex(4)}"
            draft = self._drafts[url, model] = Draft(self._folder, BatchJob(name, model, url))
        return draft


@dataclass(slots=True)
class CollectingEngine:
    """An engine that answers nothing; see the module's docstring."""

    revision: str
    add: Callable[[Request], Response]
    is_drained: bool = False

    def generate(self, requests: list[Request], keep: Keep = discard) -> list[Response]:
        """Add all requests; a request that was given up gets its last failure."""
        return [INTERRUPTED if self.is_drained else self.add(request) for request in requests]

    def drain(self) -> None:
        """Add no more requests."""
        self.is_drained = True

    def close(self) -> None:
        """Do nothing; the queue writes its files."""

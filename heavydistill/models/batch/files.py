"""The files of a batch in the journal: its state, its requests, and the answers.

    NAME.json            the state (``BatchJob``); written last, so that a batch without it is none
    NAME.jsonl           the input file: a line for each request, in OpenAI's format
    NAME.requests.jsonl  what the input file does not say of each request, in the same order
    failures.count       how often requests have failed so far (``Failures``)

An answer is found by the ``custom_id`` of its line, which is the key of the request in the journal.
Input and output files can have hundreds of megabytes, so they are read line by line.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from heavydistill.config.files import json_of, text_in
from heavydistill.config.models import Capabilities, Endpoint, Sampling
from heavydistill.errors import JournalError
from heavydistill.models.http.completion import ChatCompletion, failed
from heavydistill.models.http.engine import body_of
from heavydistill.models.http.failures import REPEATABLE, RefusedError, ServerFault, failure_of
from heavydistill.models.http.replies import Redactor, message_of, status_of
from heavydistill.models.ledger import Cost
from heavydistill.models.profiles import Profile
from heavydistill.models.request import Request, Response
from heavydistill.store.segment import sync

URL = "/v1/chat/completions"
_OK = 200
_FOR_GOOD = 10**6
_FAILURES = "failures.count"
# A request with one of these codes was not answered, because the batch ended before.
_NEVER_BEGUN = ("batch_expired", "batch_cancelled")


@dataclass(slots=True)
class BatchJob:
    """The state of a batch."""

    name: str  # name of its files, here and at the provider
    model: str  # served name of the model
    url: str  # base URL of the provider; empty for ``vllm run-batch``
    requests: int = 0
    tokens: float = 0  # most tokens that it can cost
    usd: float = 0.0  # most US dollars that it can cost
    is_begun: bool = False  # whether the provider may have its file
    file_id: str = ""  # the provider's id of the input file; empty until it is uploaded
    batch_id: str = ""  # the provider's id; empty until it is created
    is_taken: bool = False  # whether all answers are in the journal

    @property
    def most(self) -> Cost:
        return Cost(self.tokens, self.usd)


class Draft:
    """A batch that is being written."""

    def __init__(self, folder: Path, batch: BatchJob) -> None:
        self.batch, self.bytes = batch, 0
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._input = input_file(folder, batch).open("wb")
        self._requests = _requests_file(folder, batch).open("wb")

    def add(self, request: Request, line: bytes, most: Cost) -> None:
        """Add a request with its line and its maximum cost."""
        self._input.write(line)
        self.bytes += len(line)
        beside = {"key": request.key, "stage": request.stage, "seed": request.seed}
        beside |= {"index": request.index, "sampling": request.sampling.model_dump()}
        self._requests.write(_line(beside))
        self.batch.requests += 1
        self.batch.tokens += most.tokens
        self.batch.usd += most.usd

    def close(self) -> BatchJob:
        """Write everything to disk, the state last."""
        for file in (self._input, self._requests):
            file.flush()
            os.fsync(file.fileno())
            file.close()
        save(self._folder, self.batch)
        return self.batch


def request_line(request: Request, profile: Profile, endpoint: Endpoint) -> bytes:
    """The line of an input file for a request that has a key."""
    able = (endpoint.capabilities or Capabilities()).model_copy(update={"stream": False})
    body = body_of([request], profile, able)
    return _line({"custom_id": request.key, "method": "POST", "url": URL, "body": body})


def save(folder: Path, batch: BatchJob) -> None:
    """Write the state of a batch so that it survives a kill at any moment."""
    new = folder / f"{batch.name}.new"
    new.write_text(json.dumps(dataclasses.asdict(batch)), encoding="utf-8")
    sync(new)
    os.replace(new, folder / f"{batch.name}.json")
    sync(folder)


def open_batches(folder: Path) -> list[BatchJob]:
    """The batches whose answers have not all been taken; removes files of an interrupted pass.

    Raises:
        JournalError: A state cannot be read.
    """
    batches = []
    for path in sorted(folder.glob("*.json")):
        try:
            batches.append(BatchJob(**json_of(text_in(path))))
        except (OSError, ValueError, TypeError) as error:
            raise JournalError(
                f"{path}, the state of a batch, cannot be read: {error}",
                "Restore it from a copy. Without it, its requests are sent and billed again.",
            ) from error
    known = {_FAILURES.partition(".")[0], *(batch.name for batch in batches)}
    for path in folder.glob("*"):
        if path.name.partition(".")[0] not in known:
            path.unlink()
    return batches


def remove(folder: Path, batch: BatchJob) -> None:
    """Remove the files of a batch, its state first."""
    for path in (folder / f"{batch.name}.json", *folder.glob(f"{batch.name}.*")):
        path.unlink(missing_ok=True)


class Failures:
    """How often each request of a run has failed in batches, kept until the run is complete.

    A failure is the result of a request that cannot succeed, or failed after all its retries.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _FAILURES
        self._counts = Counter[str](json_of(text_in(self._path)) if self._path.is_file() else {})

    def add(self, failed: Mapping[str, Response]) -> None:
        """Count the failures of a batch, by key; without credit, it is not the request's."""
        for key, response in failed.items():
            if response.failure == "no_credit":
                continue
            self._counts[key] += 1 if response.failure in REPEATABLE else _FOR_GOOD
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(self._counts), encoding="utf-8")
        os.replace(new, self._path)

    def given_up(self, retries: int) -> set[str]:
        """The keys of the requests whose last failure is their result."""
        return {key for key, times in self._counts.items() if times > retries}


def input_file(folder: Path, batch: BatchJob) -> Path:
    """The file with the requests of a batch, as a provider and ``vllm run-batch`` read it."""
    return folder / f"{batch.name}.jsonl"


def _requests_file(folder: Path, batch: BatchJob) -> Path:
    return folder / f"{batch.name}.requests.jsonl"


@dataclass(slots=True)
class BatchAnswers:
    """The answers to the requests of a batch, read from its output files."""

    folder: Path
    batch: BatchJob
    profile: Profile
    endpoint: Endpoint
    foreign: int = 0  # lines with the id of no request of the batch
    repeated: int = 0  # lines with an id that another line has
    unreadable: int = 0  # lines that are no answers
    _places: dict[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)

    @property
    def faults(self) -> list[str]:
        """What is wrong with the lines that were left out."""
        kinds = {
            "ids of other requests": self.foreign,
            "an id for the second time": self.repeated,
            "no answer": self.unreadable,
        }
        return [f"{count:,} line(s) with {what}" for what, count in kinds.items() if count]

    def read(self, outputs: list[Path]) -> Iterator[tuple[Request, Response]]:
        """Yield each request that was answered or failed, with the first response to it."""
        self._places = self._placed()
        seen: set[str] = set()
        with input_file(self.folder, self.batch).open("rb") as asked:
            for path in outputs:
                for line in _lines(path):
                    key = str(line.get("custom_id"))
                    if not line:
                        self.unreadable += 1
                    elif key not in self._places:
                        self.foreign += 1
                    elif key in seen:
                        self.repeated += 1
                    elif response := self._response(line, request := self._request(asked, key)):
                        seen.add(key)
                        yield request, response

    def _placed(self) -> dict[str, tuple[int, dict[str, Any]]]:
        """Map each key to (offset of its line in the input file, what stands beside it)."""
        places, offset = {}, 0
        with (
            input_file(self.folder, self.batch).open("rb") as asked,
            _requests_file(self.folder, self.batch).open("rb") as beside,
        ):
            for line, more in zip(asked, beside, strict=True):
                about = json_of(more)
                places[about.pop("key")] = offset, about
                offset += len(line)
        return places

    def _request(self, asked: BinaryIO, key: str) -> Request:
        offset, about = self._places[key]
        asked.seek(offset)
        sampling = Sampling(**about["sampling"])
        messages = json_of(asked.readline())["body"]["messages"]
        return Request(messages, sampling, about["seed"], about["index"], about["stage"], key)

    def _response(self, line: dict[str, Any], request: Request) -> Response | None:
        """The response in a line; None if the batch ended before the request was begun."""
        redact, able = Redactor(self.endpoint.key), self.endpoint.capabilities or Capabilities()
        error, reply = line.get("error"), line.get("response")
        if isinstance(error, dict) and error.get("code") in _NEVER_BEGUN:
            return None
        is_seeded, most = "seed" not in able.refused, request.sampling.max_tokens
        completion = ChatCompletion(is_seeded, most, redact, able.finish_reasons)
        try:
            if not isinstance(reply, dict):
                raise ServerFault(redact(message_of(error)), status_of(error), is_midway=False)
            if (status := reply.get("status_code")) != _OK:
                said = message_of(error or reply.get("body"))
                raise RefusedError(status if isinstance(status, int) else 500, {}, redact(said))
            completion.add_whole(_line(reply.get("body")))
            return completion.responses(1, self.profile.think_tags, 0.0)[0]
        except (RefusedError, ServerFault, ValueError) as fault:
            return failed(failure_of(fault), redact(str(fault)), 0.0)


def _line(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the object of each line; an empty one for a line that holds none."""
    with path.open("rb") as file:
        for line in file:
            try:
                value = json_of(line) if line.strip() else None
            except ValueError:
                value = {}
            if value is not None:
                yield value if isinstance(value, dict) else {}

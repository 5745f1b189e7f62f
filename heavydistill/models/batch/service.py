"""Where batches are answered: the batch API of a provider, or a folder for ``vllm run-batch``.

A batch is billed once it is created. If the reply to that request is lost, by a fault or because
this process was killed, the batch is looked for among those of the account, by its input file,
before it is created again. Faults that may pass are repeated for ``endpoint.timeout_s``.

Not covered: a provider that lists a new batch only some time after it was created.
"""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol
from urllib.parse import urlencode

from heavydistill.config.files import json_of
from heavydistill.config.models import Endpoint
from heavydistill.errors import StoppedError, TeacherError
from heavydistill.models.batch.files import URL, BatchJob
from heavydistill.models.http.failures import RefusedError, wrong_key
from heavydistill.models.http.limits import back_off
from heavydistill.models.http.replies import Redactor, message_of
from heavydistill.models.http.transport import beginning, refusal, requested, submit

if TYPE_CHECKING:
    from aiohttp import ClientResponse

_MOST_BYTES = 16 * 2**20  # of a reply that is not a file
_PAGE = 100
_CONNECT_S, _LONGEST_PAUSE_S = 20.0, 30.0
_REFUSED, _WRONG_KEY, _NOT_THERE = 400, 401, 404
_BUSY, _FAULTS = 429, 500
_Status = Literal["open", "completed", "expired", "cancelled", "failed"]
_ENDED: tuple[_Status, ...] = ("completed", "expired", "cancelled")
_log = logging.getLogger("heavydistill.models")


@dataclass(frozen=True, slots=True)
class BatchState:
    """What a service says of a batch."""

    status: _Status
    answered: int = 0  # requests with an answer or an error
    outputs: tuple[str, ...] = field(default=())  # ids or paths of the files with answers
    why: str = ""  # why it failed as a whole


class BatchService(Protocol):
    """Answers batches."""

    place: str
    """Where it is, for messages."""

    def order(self, batch: BatchJob) -> str:
        """What the user has to do so that a batch is answered; empty for nothing."""

    def send(self, batch: BatchJob, path: Path, save: Callable[[], None]) -> None:
        """Send a batch with the input file at ``path``; may be repeated after a kill.

        ``save`` is called whenever the state of the batch has changed.
        """

    def state(self, batch: BatchJob) -> BatchState:
        """Ask for the state of a batch that was sent."""

    def fetch(self, state: BatchState, folder: Path, batch: BatchJob) -> list[Path]:
        """The files with the answers, in ``folder`` if they have to be copied."""

    def delete(self, state: BatchState, batch: BatchJob) -> None:
        """Delete the input file and the files with the answers; a failure is a warning."""


class BatchApi:
    """OpenAI's API for files and batches, with the key of an endpoint.

    Every method raises TeacherError if the API refuses a request, and StoppedError if it does not
    answer.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint, self._url = endpoint, endpoint.urls[0].rstrip("/")
        self._redact, self.place = Redactor(endpoint.key), self._url

    def order(self, batch: BatchJob) -> str:
        """Nothing."""
        return ""

    def send(self, batch: BatchJob, path: Path, save: Callable[[], None]) -> None:
        """Upload the input file and create the batch, unless the API has them already."""
        was_begun, batch.is_begun = batch.is_begun, True
        save()
        if not batch.file_id:
            known = self._uploaded(path.name) if was_begun else ""
            batch.file_id = known or str(self._call("POST", "files", upload=path)["id"])
            save()
        if not batch.batch_id:
            known = self._created(batch.file_id) if was_begun else ""
            batch.batch_id = known or self._create(batch.file_id)
            save()

    def _create(self, file_id: str) -> str:
        def found() -> dict[str, str] | None:
            known = self._created(file_id)
            return {"id": known} if known else None

        asked = {"input_file_id": file_id, "endpoint": URL, "completion_window": "24h"}
        return str(self._call("POST", "batches", found, json=asked)["id"])

    def _uploaded(self, name: str) -> str:
        """The id of the uploaded file of this name; empty if there is none."""
        files = self._listed("files", purpose="batch")
        return next((str(each["id"]) for each in files if each.get("filename") == name), "")

    def _created(self, file_id: str) -> str:
        """The id of the batch with this input file; empty if there is none."""
        batches = self._listed("batches")
        return next((str(b["id"]) for b in batches if b.get("input_file_id") == file_id), "")

    def state(self, batch: BatchJob) -> BatchState:
        """Ask for a batch."""
        said = self._call("GET", f"batches/{batch.batch_id}")
        status, counts = str(said.get("status")).lower(), said.get("request_counts") or {}
        done = [counts.get(name) for name in ("completed", "failed")]
        answered = sum(count for count in done if isinstance(count, int))
        if status == "failed":
            faults = (said.get("errors") or {}).get("data") or [said.get("errors") or status]
            why = "; ".join(dict.fromkeys(self._redact(message_of(fault)) for fault in faults[:3]))
            return BatchState("failed", answered, why=why)
        names = ("output_file_id", "error_file_id")
        outputs = tuple(said[name] for name in names if said.get(name))
        ended = next((name for name in _ENDED if name == status), None)
        return BatchState(ended or "open", answered, outputs if ended else ())

    def fetch(self, state: BatchState, folder: Path, batch: BatchJob) -> list[Path]:
        """Download the files with answers and with errors."""
        paths = []
        for number, file in enumerate(state.outputs):
            paths.append(folder / f"{batch.name}.output-{number}.jsonl")
            self._call("GET", f"files/{file}/content", into=paths[-1])
        return paths

    def delete(self, state: BatchState, batch: BatchJob) -> None:
        """Delete the files, which hold all prompts and answers."""
        for file in (batch.file_id, *state.outputs):
            try:
                self._call("DELETE", f"files/{file}")
            except (TeacherError, StoppedError) as error:
                _log.warning("The file %s remains at %s: %s", file, self._url, error.what)

    def _listed(self, path: str, **query: str) -> Iterator[dict[str, Any]]:
        """Yield the entries of a list, the newest first."""
        query["limit"] = str(_PAGE)
        while True:
            page = self._call("GET", f"{path}?{urlencode(query)}")
            entries = page.get("data") or []
            yield from entries
            if not page.get("has_more") or not entries:
                return
            query["after"] = entries[-1]["id"]

    def _call(
        self,
        method: str,
        path: str,
        found: Callable[[], dict[str, Any] | None] | None = None,
        **what: Any,
    ) -> dict[str, Any]:
        """Send a request; repeats it after faults that may pass.

        ``found`` looks for what the request may have made before its reply was lost.
        """
        from aiohttp import ClientError

        patience_s, times = 0.0 if method == "DELETE" else self._endpoint.timeout_s, 0
        until = time.monotonic() + patience_s
        while True:
            try:
                return submit(self._once(method, path, **what)).result()
            except RefusedError as error:
                if method == "DELETE" and error.status == _NOT_THERE:
                    return {}
                if error.status != _BUSY and error.status < _FAULTS:
                    raise self._refused(path, error) from None
                fault: Exception = error
            except (ClientError, OSError, TimeoutError, ValueError) as error:
                fault = error
            times += 1
            if time.monotonic() > until:
                raise StoppedError(
                    f"{self._url}/{path} does not work: {self._redact(str(fault) or repr(fault))}",
                    "Repeat the same command later: it finds its batches, and nothing is billed "
                    "twice.",
                ) from fault
            time.sleep(back_off(times, min(_LONGEST_PAUSE_S, self._endpoint.timeout_s)))
            if found and (known := found()):
                return known

    async def _once(
        self,
        method: str,
        path: str,
        json: object = None,
        upload: Path | None = None,
        into: Path | None = None,
    ) -> dict[str, Any]:
        """Send one request; ``upload`` is a file to send, and ``into`` takes the reply's bytes."""
        from aiohttp import ClientTimeout, FormData

        timeout = ClientTimeout(sock_connect=_CONNECT_S, sock_read=self._endpoint.timeout_s)
        what: dict[str, Any] = {"json": json}
        if upload:
            form = FormData({"purpose": "batch"})
            form.add_field("file", upload.open("rb"), filename=upload.name)
            what = {"data": form}
        url, key = f"{self._url}/{path}", self._endpoint.key
        async with requested(method, url, key, timeout, **what) as answer:
            if answer.status >= _REFUSED:
                raise await refusal(answer, self._redact)
            if into:
                await _saved(answer, into)
                return {}
            reply = json_of(await beginning(answer, _MOST_BYTES))
            if not isinstance(reply, dict):
                raise ValueError("the reply is no JSON object")
            return reply

    def _refused(self, path: str, error: RefusedError) -> TeacherError:
        if error.status == _WRONG_KEY:
            return wrong_key(self._url, self._endpoint, error.status)
        fix = "Correct what it names, or leave out --batch to send the requests one by one."
        if error.status == _NOT_THERE:
            fix = f"Use the key with which it was made ({self._endpoint.key_env})."
        return TeacherError(f"{self._url}/{path} is refused: {error}", fix)


async def _saved(answer: ClientResponse, path: Path) -> None:
    with path.open("wb") as file:
        async for part in answer.content.iter_any():
            file.write(part)


class BatchFolder:
    """A folder in which somebody runs ``vllm run-batch``.

    An output file is complete when it has a line for each request, as vLLM writes it.
    """

    def __init__(self, folder: Path, words: list[str]) -> None:
        self._folder, self._words, self.place = folder, words, str(folder)

    def order(self, batch: BatchJob) -> str:
        """Say the command that answers a batch."""
        place = Path(batch.batch_id)
        files = ["-i", str(place), "-o", str(_output_of(place))]
        command = shlex.join(["vllm", "run-batch", *files, *self._words])
        return f"Run where the GPUs are: {command}"

    def send(self, batch: BatchJob, path: Path, save: Callable[[], None]) -> None:
        """Put the input file into the folder."""
        batch.is_begun = True
        self._folder.mkdir(parents=True, exist_ok=True)
        place = self._folder.absolute() / path.name
        if not place.exists():
            part = place.with_suffix(".part")
            shutil.copyfile(path, part)
            os.replace(part, place)
        if not batch.batch_id:
            batch.batch_id = str(place)
            save()

    def state(self, batch: BatchJob) -> BatchState:
        """Count the lines of the output file."""
        output, lines = _output_of(Path(batch.batch_id)), 0
        if output.is_file():
            with output.open("rb") as file:
                lines = sum(line.endswith(b"\n") for line in file)
        is_whole = lines >= batch.requests
        return BatchState("completed" if is_whole else "open", lines, (str(output),))

    def fetch(self, state: BatchState, folder: Path, batch: BatchJob) -> list[Path]:
        """The output file, where it is."""
        return [Path(path) for path in state.outputs]

    def delete(self, state: BatchState, batch: BatchJob) -> None:
        """Delete input and output file."""
        for path in (batch.batch_id, *state.outputs):
            Path(path).unlink(missing_ok=True)


def _output_of(place: Path) -> Path:
    return place.with_name(f"{place.stem}.output.jsonl")

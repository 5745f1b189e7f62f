"""Records answered requests as the rows of a run, which ``show``, ``report`` and ``build`` read.

    config.yaml                      the configuration of the models, as in a run
    traces/served-00000000.parquet   the rows, in the order of the answers

A row is in its file before the answer ends, unless the disk takes too long. For each row, or
several that wait, the newest file is written anew, under another name first, so that after a kill
at any time all files are whole. A file is full at some rows or bytes; beyond
``serve.max_out_bytes`` the oldest ones are deleted. Keys in texts are replaced by their names (see
``hub.secrets``).

As long as the service runs, it claims the folder as a run in progress does, so a build waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from heavydistill.config.files import new_file
from heavydistill.config.run import RunConfig, dump_config, load_config
from heavydistill.config.serve import ServeConfig
from heavydistill.errors import ConfigError, RunError
from heavydistill.heavy.judge_votes import is_by_user
from heavydistill.hub.secrets import known_secrets, scrubber
from heavydistill.schema import FAILED, SERVED, Trace, Turn, from_row, to_row, turns_as_json
from heavydistill.serve.feedback import Feedback, with_feedback
from heavydistill.serve.figures import Retries
from heavydistill.serve.request import MODELS, ApiError
from heavydistill.store.atomic import Workplace, refuse_taken, require_writable
from heavydistill.store.traces import (
    TRACES_FOLDER,
    read_files,
    rows_in,
    trace_files,
    write_traces,
    writing,
)

_ROWS, _BYTES = 32, 2**20  # of a full file
_NAME = re.compile(r"served-(\d{8})\.parquet")
_FEWEST_FILES = 8  # in the space of all; a file is full earlier if there is less of it
_PATIENCE_S = 10.0  # with a disk that hangs, for each answer and verdict
_log = logging.getLogger(__name__)


class RequestRecord:
    """The rows of a folder, which is created; one thread writes them.

    Args:
        folder: Folder of the run; it may have the rows of an earlier service.
        config: Configuration of the models.
        retries: Counts the rows that are there already.

    Raises:
        ConfigError: The folder is in use, has rows of another configuration, or cannot be written.
    """

    def __init__(self, folder: Path, config: ServeConfig, retries: Retries) -> None:
        self._folder, self._traces = folder, folder / TRACES_FOLDER
        self._rounds, self._most_bytes = config.deliberate.rounds, config.serve.max_out_bytes
        self._clean = scrubber(known_secrets(config.model_dump()))
        self._files: dict[str, Path] = {}  # maps the id of an answer to the file of its row
        self._rows: list[Trace] = []  # rows of the newest file
        self._number = 0  # of the newest file
        self._waiting = SimpleQueue[tuple[Callable[[], Trace], Future[bool]]]()
        self._most_waiting = config.serve.max_requests  # there are more only if the disk hangs
        require_writable(folder)
        with contextlib.ExitStack() as held:
            held.enter_context(Workplace(folder).claimed())
            self._require_same(config)
            self._read_again(retries)
            self._thread = held.enter_context(ThreadPoolExecutor(1, "record"))
            self._held = held.pop_all()

    async def add(self, row: Callable[[], Trace]) -> bool:
        """Write a row, which is made in the thread; whether that worked. The log says why not."""
        done: Future[bool] = Future()
        if self._waiting.qsize() < self._most_waiting:
            self._waiting.put((row, done))
            self._thread.submit(self._write_waiting)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PATIENCE_S):
                    return await asyncio.wrap_future(done)
        _log.error("1 answered request(s) are not recorded: %s does not answer", self._traces)
        return False

    async def decide(self, feedback: Feedback) -> int:
        """Set the verdict of a user; returns the number of responses that have one now.

        Raises:
            ApiError: There is no such row or choice, or it cannot be written.
        """
        decided = self._thread.submit(self._decide, feedback)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await asyncio.wrap_future(decided)
        except TimeoutError:
            message = f"The verdict cannot be written: {self._traces} does not answer."
            raise ApiError(503, message, code="not_written") from None

    def close(self) -> None:
        """Write what is left, and release the folder."""
        self._held.close()

    def _require_same(self, config: ServeConfig) -> None:
        """Write the configuration, or compare it with that of the rows that are there."""
        tree = config.model_dump(exclude={"serve", "problems", "journal"})
        served = {"source": SERVED}
        own = RunConfig.model_validate({**tree, "out": str(self._folder), "problems": served})
        file = self._folder / "config.yaml"
        if not file.is_file() or (self._folder / "summary.json").exists():
            refuse_taken(self._folder)
            with writing(self._folder):
                self._folder.mkdir(exist_ok=True)
                with new_file(file) as written:
                    written.write(dump_config(own).encode())
        elif load_config(file).identity != own.identity:
            raise ConfigError(
                f"out: {self._folder} has rows of other models or another configuration",
                "Give another --out.",
            )

    def _read_again(self, retries: Retries) -> None:
        """Read which rows are there; removes a file that a killed service has begun."""
        for begun in self._traces.glob(".*.unfinished"):
            begun.unlink()
        paths = trace_files(self._folder) if any(self._traces.glob("*.parquet")) else []
        for path in paths:
            for row in rows_in(path, ["problem.id", "problem.source", "status"]):
                problem: dict[str, str] = row["problem"]
                self._files[problem["id"]] = path
                model, _, conversation = problem["source"].removeprefix(f"{SERVED}:").partition(":")
                if model in MODELS and not row["status"].startswith(FAILED):
                    retries.note(model, conversation)
        numbers = (_NAME.fullmatch(path.name) for path in paths)
        self._number = max((int(number[1]) + 1 for number in numbers if number), default=0)

    def _write_waiting(self) -> None:
        """Write all rows that wait, at once; those of clients that went are left out."""
        waiting = [self._waiting.get() for _ in range(self._waiting.qsize())]
        held = [(row, done) for row, done in waiting if done.set_running_or_notify_cancel()]
        written = self._write([row for row, _ in held]) if held else []
        for (_, done), is_written in zip(held, written, strict=True):
            done.set_result(is_written)

    def _write(self, new: list[Callable[[], Trace]]) -> list[bool]:
        """Write rows at once, or one by one if one of them cannot be; whether each is written."""
        try:
            self._add(new)
        except Exception as error:  # the answer is worth more than its row
            if len(new) > 1 and not isinstance(error, RunError):
                return [is_written for row in new for is_written in self._write([row])]
            why = error if isinstance(error, RunError) else type(error).__name__
            _log.error("%d answered request(s) are not recorded: %s", len(new), why)
            return [False] * len(new)
        return [True] * len(new)

    def _add(self, new: list[Callable[[], Trace]]) -> None:
        path = self._traces / f"served-{self._number:08d}.parquet"
        rows = [*self._rows, *(self._scrubbed(row()) for row in new)]
        write_traces(rows, self._traces, name=path.name)
        self._files |= {row.problem.id: path for row in rows}
        self._rows = rows
        try:
            most = min(_BYTES, self._most_bytes // _FEWEST_FILES)
            if len(rows) >= _ROWS or path.stat().st_size >= most:
                self._rows, self._number = [], self._number + 1
                self._delete_oldest()
        except OSError as error:  # the rows are written
            _log.error("Rows beyond serve.max_out_bytes cannot be deleted: %s", error.strerror)

    def _decide(self, feedback: Feedback) -> int:
        path = self._files.get(feedback.id)
        if path is None:
            message = f"There is no recorded answer {feedback.id!r}. Send the id of an answer."
            raise ApiError(404, message, "id", "answer_not_found")
        rows = list(read_files([path]))
        (place,) = (n for n, row in enumerate(rows) if row.problem.id == feedback.id)
        rows[place] = with_feedback(rows[place], feedback, self._rounds)
        try:
            write_traces(rows, self._traces, name=path.name)
        except RunError as error:
            raise ApiError(503, f"The verdict cannot be written: {error.what}.") from error
        if self._rows and self._rows[0].problem.id == rows[0].problem.id:
            self._rows = rows
        samples = (*rows[place].pool, *rows[place].deliberations)
        return sum(is_by_user(each.verdict.verifier) for each in samples if each.verdict)

    def _delete_oldest(self) -> None:
        paths = sorted(self._traces.glob("*.parquet"))
        sizes = [path.stat().st_size for path in paths]
        while sum(sizes) > self._most_bytes and len(paths) > 1:
            oldest = paths.pop(0)
            del sizes[0]
            oldest.unlink()
            self._files = {id: path for id, path in self._files.items() if path != oldest}
            _log.warning("%s is deleted, because serve.max_out_bytes are reached", oldest)

    def _scrubbed(self, trace: Trace) -> Trace:
        """The row without keys; turns are searched before they are JSON, which hides line ends."""

        def clean(value: Any) -> Any:
            if isinstance(value, str):
                return self._clean(value)
            if isinstance(value, dict):
                return {name: clean(each) for name, each in value.items()}
            return [clean(each) for each in value] if isinstance(value, list) else value

        def clean_turns(turns: list[Turn]) -> str:
            return turns_as_json([from_row(Turn, clean(to_row(turn))) for turn in turns])

        problem = replace(trace.problem, history_json=clean_turns(trace.problem.history))
        deliberations = [
            replace(each, turns_json=clean_turns(each.turns)) if each.turns_json else each
            for each in trace.deliberations
        ]
        cleaned = replace(trace, problem=problem, deliberations=deliberations)
        return from_row(Trace, clean(to_row(cleaned)))

"""Divides a run into n shards, which share its journal and its budget account.

Shard i has the problems i, i + n, i + 2n, ... and a separate pipeline, in a process of this machine
(``ProcessPool``) or as a task of a Ray cluster (``ray.RayPool``). Ray restarts a shard on another
node if its node is lost. Earlier responses are in the journal, so that only requests in flight are
sent again. Shards and the run communicate through files in the folder of the run's rows, which all
machines see.

Slots and rate limits of an endpoint are divided by the number of shards, because no process sees
the requests of others; this does not apply to a server started by a shard. The budget is not
divided: all shards reserve amounts in one account in the journal (see ``models.ledger``).

Not covered: changing the number of shards during a run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import multiprocessing
import os
import socket
import threading
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import heavydistill
from heavydistill.errors import (
    ConfigError,
    HeavydistillError,
    JournalError,
    RunError,
    StoppedError,
    TeacherError,
)
from heavydistill.models.resolve import ResolvedModel, ResolvedRun
from heavydistill.models.vllm import server as serving
from heavydistill.run.interrupts import as_exceptions, held, loading
from heavydistill.store.traces import LEAF_FOLDER

if TYPE_CHECKING:
    from heavydistill.run.runner import OnBatch, OnSample, Row

_STOP = "stop"
_AGAIN = "Run the command again."
_POLL_S = 0.5
_GRACE_S = 10.0
_log = logging.getLogger(__name__)

Watch = Callable[[], HeavydistillError | None]
"""Called several times a second during a run; an error that it returns ends the run."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """State of the main process that a shard on another machine needs."""

    version: str  # version of this package
    folder: Path  # working folder, for relative paths
    token: Path  # file in the journal, just created by the run
    environment: dict[str, str] = field(repr=False)  # environment variables, including keys

    def apply(self) -> None:
        """Apply this state to the current process.

        Raises:
            ConfigError: This machine has another version of this package, or lacks the folder.
            JournalError: This machine's journal is not the run's journal.
        """
        host = socket.gethostname()
        if heavydistill.__version__ != self.version:
            raise ConfigError(
                f"Node {host} has heavydistill {heavydistill.__version__}, the driver "
                f"{self.version}",
                "Install the same version on all nodes.",
            )
        try:
            os.chdir(self.folder)
        except OSError as error:
            raise ConfigError(
                f"Node {host} cannot enter the working folder {self.folder}: {error.strerror}",
                "Run the command in a folder that all nodes see under the same path.",
            ) from error
        if not self.token.exists():
            raise JournalError(
                f"Node {host} does not see the journal {self.token.parent} as the driver does",
                "Give a folder on a file system that all nodes share: --journal FOLDER.",
            )
        # Ray sets one thread for a worker that requests no CPUs.
        os.environ.pop("OMP_NUM_THREADS", None)
        os.environ.update(self.environment)


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of a run, which can be sent to another process."""

    number: int  # index of the shard, from 0
    count: int  # number of shards of the run
    run: ResolvedRun  # with this shard's part of slots and rate limits
    rows: Path  # folder of the rows of the run
    known_unfit: tuple[int, ...] = ()  # see ``LoadProblems``
    server: tuple[str, ...] = ()  # command of the server that the shard starts; empty for none
    surroundings: Surroundings | None = None  # None on this machine


@dataclass(frozen=True, slots=True)
class ShardEnd:
    """The outcome of a shard that has ended."""

    name: str  # prefix of the names of its row files
    failure: HeavydistillError | None  # error that ended the shard; None if it is complete


class ShardPool(Protocol):
    """Interface for running the shards of a run as processes or on a cluster."""

    count: int  # number of shards
    surroundings: Surroundings | None  # for shards on other machines

    def start(self, shards: list[Shard]) -> None:
        """Start all shards."""

    def ended(self) -> dict[int, ShardEnd]:
        """Return the outcomes of the shards that have ended, by shard number.

        Raises:
            RunError: A shard is lost and will not be restarted.
        """

    def close(self) -> None:
        """End all shards at once."""


def run_shard(shard: Shard) -> ShardEnd:
    """Run a shard to its end; it leaves its rows and counts in files."""
    name = f"{shard.number:04d}-{uuid.uuid4().hex[:8]}"
    try:
        if shard.surroundings:
            shard.surroundings.apply()
        with loading():
            from heavydistill.run.recipe.pipeline import build_heavy_pipeline

        def stop() -> StoppedError | None:
            is_stopped = (shard.rows / _STOP).exists()
            return StoppedError("The run was stopped", _AGAIN) if is_stopped else None

        out = Path(shard.run.config.out or shard.rows)
        log = out.with_name(f"{out.name}.vllm-{shard.number}.log")
        opened = contextlib.closing(_Report(shard, name))
        with opened as report, with_server(shard.run, shard.server, log) as (run, failure):
            pipeline = build_heavy_pipeline(
                run,
                report.on_batch,
                known_unfit=list(shard.known_unfit),
                part=(shard.number, shard.count),
                holder=name,
            )
            pipeline.keep_in(shard.rows, name)
            pipeline.on_sample, pipeline.shown = report.on_sample, report
            pipeline.watch = lambda: failure() or stop()
            pipeline.run_to_files()
    except HeavydistillError as error:
        return ShardEnd(name, error)
    except KeyboardInterrupt:
        return ShardEnd(name, StoppedError("Interrupted", _AGAIN))
    except Exception as error:
        message = f"Shard {shard.number} failed: {type(error).__name__}: {error}"
        fix = f"This is a defect, please report it with this:\n{traceback.format_exc()}"
        return ShardEnd(name, RunError(message, fix))
    return ShardEnd(name, None)


@contextlib.contextmanager
def with_server(
    run: ResolvedRun,
    command: Sequence[str] | None,
    log: Path,
    on_start: serving.OnStart | None = None,
    kept: serving.KeptServer | None = None,
) -> Iterator[tuple[ResolvedRun, Watch]]:
    """Start a server; yield (run that uses it, function that returns an error if it has ended).

    Without a ``command`` the run is yielded unchanged. A server of ``kept`` goes on afterwards.
    """
    if not command:
        yield run, lambda: None
        return
    with contextlib.nullcontext(kept) if kept else serving.KeptServer() as servers:
        server = servers.serving(command, log, on_start)
        place = {"start_vllm": False, "base_url": server.url}
        endpoint = run.config.endpoint.model_copy(update=place)
        yield run.with_endpoint(endpoint), server.failure


class _Report(logging.Handler):
    """A file with one line for each warning and for each batch that left a step, without texts.

    A file, not a queue: a process killed while it writes to a queue would block the others.
    """

    def __init__(self, shard: Shard, name: str) -> None:
        super().__init__()
        self._writing = threading.Lock()
        self._file = (shard.rows / f"{name}.jsonl").open("a", encoding="utf-8")

    def close(self) -> None:
        self._file.close()
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        self._write(log=[record.name, record.levelno, record.getMessage()])

    def on_batch(self, step: str, rows: list[Row]) -> None:
        self._write(step=step, rows=[_counted(row) for row in rows])

    def on_sample(self, step: str, tokens: int, is_whole: bool) -> None:
        self._write(step=step, tokens=tokens, is_whole=is_whole)

    def _write(self, **line: object) -> None:
        with self._writing:
            if not self._file.closed:  # an abandoned thread may still warn
                print(json.dumps(line), file=self._file, flush=True)


def _counted(row: Row) -> Row:
    """Return the parts of a row that a status counts; for thinking, only whether there is any."""
    kept: Row = {key: row[key] for key in ("status", "from_journal") if key in row}
    for column in ("pool", "deliberations"):
        if column in row:
            kept[column] = [
                item | {"reasoning": item["reasoning"][:1], "answer_text": ""}
                for item in row[column]
            ]
    return {"problem": {"id": row["problem"]["id"]}, **kept}


class _Reports:
    """Reads the reports of all shards; a problem counts once, even if its shard was restarted."""

    def __init__(self, rows: Path, on_batch: OnBatch, on_sample: OnSample) -> None:
        self._rows, self._on_batch, self._on_sample = rows, on_batch, on_sample
        self._offsets: Counter[Path] = Counter()
        self._seen: dict[str, set[str]] = {}

    def read(self) -> None:
        """Read the new lines of all reports, and call the callbacks for them."""
        for path in self._rows.glob("*.jsonl"):
            with path.open("rb") as file:
                file.seek(self._offsets[path])
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._offsets[path] += len(whole)
            for line in whole.splitlines():
                self._pass_on(**json.loads(line))

    def _pass_on(
        self,
        step: str = "",
        rows: list[Row] | None = None,
        tokens: int | None = None,
        is_whole: bool = True,
        log: tuple[str, int, str] | None = None,
    ) -> None:
        if log:
            logging.getLogger(log[0]).log(log[1], "%s", log[2])
        if tokens is not None:
            self._on_sample(step, tokens, is_whole)
        seen = self._seen.setdefault(step, set())
        if new := [row for row in rows or () if row["problem"]["id"] not in seen]:
            seen.update(row["problem"]["id"] for row in new)
            self._on_batch(step, new)


def run_shards(
    pool: ShardPool,
    shards: list[Shard],
    on_batch: OnBatch,
    on_sample: OnSample = lambda step, tokens, is_whole: None,
    watch: Watch = lambda: None,
) -> None:
    """Run all shards to their end; they leave their rows in the folder of rows.

    Raises:
        RunError: A shard failed or is lost; the others are ended at once.
        StoppedError, TeacherError, KeyboardInterrupt: The run cannot continue; raised after the
            requests in flight of all shards were answered.
    """
    from heavydistill.run.runner import logging_to

    rows, ends = shards[0].rows, dict[int, ShardEnd]()
    (rows / LEAF_FOLDER).mkdir(parents=True, exist_ok=True)
    reports = _Reports(rows, on_batch, on_sample)

    def wait(raises: bool) -> None:
        while True:
            ends.update(pool.ended())
            reports.read()
            failures = [end.failure for end in ends.values() if end.failure]
            if raises and (error := next(iter(failures), None) or watch()):
                raise error
            if len(ends) == len(shards):
                return
            time.sleep(_POLL_S)

    with logging_to(rows / "pipeline.log"), as_exceptions() as ignore_signals:
        try:
            pool.start(shards)
            wait(raises=True)
        except (KeyboardInterrupt, StoppedError, TeacherError) as stop:
            if str(stop) != "SIGTERM":
                _log.warning("Waiting for the requests in flight. Ctrl-C again stops at once.")
                (rows / _STOP).touch()
                with contextlib.suppress(KeyboardInterrupt):
                    wait(raises=False)
            raise
        finally:
            ignore_signals()
            pool.close()
            _keep_one_attempt(rows / LEAF_FOLDER, ends)


def _keep_one_attempt(leaf: Path, ends: Mapping[int, ShardEnd]) -> None:
    """Keep the rows of one attempt per shard: the attempt that ended, otherwise the longest.

    A shard that lost its node has rows of several attempts. File names contain the numbers of
    shard, attempt and file.
    """
    attempts: dict[int, dict[str, list[Path]]] = {}
    for file in leaf.glob("*.parquet"):
        name = file.stem.rpartition("-")[0]
        attempts.setdefault(int(name.partition("-")[0]), {}).setdefault(name, []).append(file)
    for number, files in attempts.items():
        longest = max(files, key=lambda name: len(files[name]))
        kept = ends[number].name if number in ends else longest
        for file in (file for name in files.keys() - {kept} for file in files[name]):
            file.unlink()


def shards_of(
    run: ResolvedRun,
    pool: ShardPool,
    rows: Path,
    known_unfit: tuple[int, ...] = (),
    server: list[str] | None = None,
) -> list[Shard]:
    """Return the shards of a run, as many as ``pool`` runs.

    Args:
        run: The run.
        pool: Runs the shards.
        rows: Folder for their rows.
        known_unfit: See ``LoadProblems``.
        server: Command with which each shard starts a server; None for no server.

    Raises:
        ConfigError: A limit of an endpoint is smaller than the number of shards.
    """
    part = partial(_part_of, shards=pool.count)
    own = tuple(server or ()) if run.config.endpoint.start_vllm else ()
    shared = dataclasses.replace(
        run,
        thinkers=tuple(map(part, run.thinkers)),
        deliberator=part(run.deliberator),
        judge=run.judge and part(run.judge),
    )
    return [
        Shard(number, pool.count, shared, rows.absolute(), known_unfit, own, pool.surroundings)
        for number in range(pool.count)
    ]


def _part_of(model: ResolvedModel, shards: int) -> ResolvedModel:
    """Return a model with the part of one shard in the limits of its endpoint."""
    endpoint = model.endpoint
    if not endpoint.is_served or endpoint.start_vllm:
        return model
    parts = {}
    for key in ("concurrency", "requests_per_minute", "tokens_per_minute"):
        if limit := getattr(endpoint, key):
            parts[key] = limit // shards
            if not parts[key]:
                raise ConfigError(
                    f"endpoint.{key} is {limit}, too small to divide by {shards} shards",
                    f"Raise it, or run at most {limit} shards (--processes).",
                )
    return dataclasses.replace(model, endpoint=endpoint.model_copy(update=parts))


class ProcessPool:
    """Shards in processes of this machine, which end with this process."""

    surroundings: Surroundings | None = None

    def __init__(self, count: int) -> None:
        self.count = count
        self._context = multiprocessing.get_context("spawn")
        self._started: list[tuple[BaseProcess, Connection]] = []
        self._ends: dict[int, ShardEnd] = {}

    def start(self, shards: list[Shard]) -> None:
        with held():  # only this process receives Ctrl-C, and stops the shards
            for shard in shards:
                receiver, sender = self._context.Pipe(duplex=False)
                name = f"heavydistill shard {shard.number}"
                process = self._context.Process(target=_work, args=(shard, sender), name=name)
                process.start()
                sender.close()
                self._started.append((process, receiver))

    def ended(self) -> dict[int, ShardEnd]:
        for number, (process, receiver) in enumerate(self._started):
            exitcode = process.exitcode  # read before the pipe: a process sends, then ends
            if number in self._ends:
                continue
            with contextlib.suppress(EOFError):
                if receiver.poll():
                    self._ends[number] = receiver.recv()
                    continue
            if exitcode is not None:
                raise RunError(
                    f"The process of shard {number} ended with code {exitcode}",
                    "A negative code is a signal; -9 often means that memory ran out. Repeat the "
                    "same command: it goes on from the journal.",
                )
        return self._ends

    def close(self) -> None:
        for process, _ in self._started:
            process.terminate()
        deadline = time.monotonic() + _GRACE_S
        for process, receiver in self._started:
            process.join(max(0.0, deadline - time.monotonic()))
            process.kill()
            process.join()
            receiver.close()


def _work(shard: Shard, sender: Connection) -> None:
    """Target function of a shard's process."""
    parent = multiprocessing.parent_process()
    if parent is None:
        raise RuntimeError("a shard must run in a process of its own")

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    sender.send(run_shard(shard))

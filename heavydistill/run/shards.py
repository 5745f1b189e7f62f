"""One run as n shards, which share its journal and its account.

Shard i has the problems i, i + n, i + 2n, ... and a pipeline of its own, in a process of this
machine (``ProcessPool``) or as a task of a Ray cluster, which starts it again elsewhere when its
node is lost (``ray.RayPool``). What a shard asked before is in the journal, so that only requests
in flight are sent again. Shards and the run that started them speak through files in the folder of
the run's rows, which all machines see.

Slots and limits of an endpoint are divided by the number of shards, since no process sees what
others send; a server that a shard starts for itself is not shared. The budget is not divided: all
shards reserve in one account in the journal (see ``models.ledger``).

Not covered: shards that begin or end while a run lasts.
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
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

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
"""Called all the time while a run lasts; the error that it returns ends the run."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a shard on another machine takes over from the run."""

    version: str  # of this package
    folder: Path  # working folder, so that relative paths mean the same
    token: Path  # file in the journal that the run has just made
    environment: dict[str, str] = field(repr=False)  # variables, among them keys

    def take_over(self) -> None:
        """Make this process like the run's.

        Raises:
            ConfigError: This machine has another version of this package, or not the folder.
            JournalError: The journal here is not the run's.
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
                "Give the command from a folder that all nodes see under the same path.",
            ) from error
        if not self.token.exists():
            raise JournalError(
                f"Node {host} does not see the journal {self.token.parent} as the driver does",
                "Name one on a file system that all nodes share: --journal FOLDER.",
            )
        # Ray allows one thread to a worker that names no processors.
        os.environ.pop("OMP_NUM_THREADS", None)
        os.environ.update(self.environment)


@dataclass(frozen=True, slots=True)
class Shard:
    """A part of a run; can be sent to another process."""

    number: int  # from 0
    count: int  # number of shards of the run
    run: ResolvedRun  # with the part of the endpoints that is this shard's
    rows: Path  # folder of the rows of the run
    known_unfit: tuple[int, ...] = ()  # see ``LoadProblems``
    server: tuple[str, ...] = ()  # command of the server that it starts; empty for none
    surroundings: Surroundings | None = None  # of a shard on another machine


@dataclass(frozen=True, slots=True)
class ShardEnd:
    """How a shard ended."""

    name: str  # first part of the names of its files of rows
    failure: HeavydistillError | None  # why it ended too early, if it did


class ShardPool(Protocol):
    """Whatever runs shards."""

    count: int  # number of shards
    surroundings: Surroundings | None  # what they take over on other machines

    def start(self, shards: list[Shard]) -> None:
        """Begin all of them."""

    def ended(self) -> dict[int, ShardEnd]:
        """How the shards that have ended did, by their numbers.

        Raises:
            RunError: One was lost, for good.
        """

    def close(self) -> None:
        """End at once whatever still runs."""


def run_shard(shard: Shard) -> ShardEnd:
    """Run a shard to its end; rows and counts are in files then."""
    name = f"{shard.number:04d}-{uuid.uuid4().hex[:8]}"
    try:
        if shard.surroundings:
            shard.surroundings.take_over()
        with loading():
            from heavydistill.run.recipe import build_heavy_pipeline

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
        told = f"Shard {shard.number} failed: {type(error).__name__}: {error}"
        fix = f"This is a defect, please report it with this:\n{traceback.format_exc()}"
        return ShardEnd(name, RunError(told, fix))
    return ShardEnd(name, None)


@contextlib.contextmanager
def with_server(
    run: ResolvedRun,
    command: Sequence[str] | None,
    log: Path,
    on_start: serving.OnStart | None = None,
) -> Iterator[tuple[ResolvedRun, Watch]]:
    """(the run with the address of the server that is started, what tells that this has ended)."""
    if not command:
        yield run, lambda: None
        return
    with serving.served(list(command), run.config.endpoint, log, on_start) as server:
        yield run.at(server.endpoint), server.failure


class _Report(logging.Handler):
    """A file with a line for each batch that left a step, without its texts, and for each warning.

    Not a queue: whoever is killed while it writes to one blocks all others.
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

    def on_sample(self, step: str, tokens: int) -> None:
        self._write(step=step, tokens=tokens)

    def _write(self, **line: Any) -> None:
        with self._writing:
            if not self._file.closed:  # a thread that was given up may still warn
                print(json.dumps(line), file=self._file, flush=True)


def _counted(row: Row) -> Row:
    """What a status counts of a row: of its texts it matters only whether there is any thinking."""
    kept: Row = {key: row[key] for key in ("status", "from_journal") if key in row}
    for column in ("pool", "deliberations"):
        if column in row:
            kept[column] = [
                item | {"reasoning": item["reasoning"][:1], "answer_text": ""}
                for item in row[column]
            ]
    return {"problem": {"id": row["problem"]["id"]}, **kept}


class _Reports:
    """Reads the reports of all shards. A problem counts once, however often its shard began."""

    def __init__(self, rows: Path, on_batch: OnBatch, on_sample: OnSample) -> None:
        self._rows, self._on_batch, self._on_sample = rows, on_batch, on_sample
        self._offsets: Counter[Path] = Counter()
        self._seen: dict[str, set[str]] = {}

    def read(self) -> None:
        """Pass on what is new."""
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
        log: tuple[str, int, str] | None = None,
    ) -> None:
        if log:
            logging.getLogger(log[0]).log(log[1], "%s", log[2])
        if tokens is not None:
            self._on_sample(step, tokens)
        seen = self._seen.setdefault(step, set())
        if new := [row for row in rows or () if row["problem"]["id"] not in seen]:
            seen.update(row["problem"]["id"] for row in new)
            self._on_batch(step, new)


def run_shards(
    pool: ShardPool,
    shards: list[Shard],
    on_batch: OnBatch,
    on_sample: OnSample = lambda step, tokens: None,
    watch: Watch = lambda: None,
) -> None:
    """Run all shards to their ends; the rows are in files of the folder of rows then.

    Raises:
        RunError: A shard broke, or was lost for good. The others are ended at once.
        StoppedError, TeacherError, KeyboardInterrupt: After the requests in flight in all
            shards were answered.
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
    """Keep the rows of one attempt of each shard: the one that ended, else the longest.

    A shard that lost its node has rows of several attempts. File names hold the number of the
    shard, of the attempt and of the file.
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
    """The shards of a run, as many as ``pool`` runs, which put their rows into ``rows``.

    Each starts its teacher's ``server``, a command, if that has no address yet.

    Raises:
        ConfigError: There is less than one slot or request a minute for each.
    """

    def part(model: ResolvedModel) -> ResolvedModel:
        endpoint = model.endpoint
        if not endpoint.is_served or endpoint.start_vllm:
            return model
        parts = {}
        for key in ("concurrency", "requests_per_minute", "tokens_per_minute"):
            if limit := getattr(endpoint, key):
                parts[key] = limit // pool.count
                if not parts[key]:
                    raise ConfigError(
                        f"endpoint.{key} is {limit}, which {pool.count} shards cannot share out",
                        f"Raise it, or run at most {limit} shards (--processes).",
                    )
        return dataclasses.replace(model, endpoint=endpoint.model_copy(update=parts))

    own = tuple(server or ()) if run.config.endpoint.start_vllm else ()
    shared = dataclasses.replace(
        run,
        thinker=run.thinker and part(run.thinker),
        deliberator=part(run.deliberator),
        judge=run.judge and part(run.judge),
    )
    return [
        Shard(number, pool.count, shared, rows.absolute(), known_unfit, own, pool.surroundings)
        for number in range(pool.count)
    ]


class ProcessPool:
    """Shards in processes of this machine, which end with this one."""

    surroundings: Surroundings | None = None

    def __init__(self, count: int) -> None:
        self.count = count
        self._context = multiprocessing.get_context("spawn")
        self._started: list[tuple[BaseProcess, Connection]] = []
        self._ends: dict[int, ShardEnd] = {}

    def start(self, shards: list[Shard]) -> None:
        with held():  # this process hears Ctrl-C, and tells them
            for shard in shards:
                receiver, sender = self._context.Pipe(duplex=False)
                name = f"heavydistill shard {shard.number}"
                process = self._context.Process(target=_work, args=(shard, sender), name=name)
                process.start()
                sender.close()
                self._started.append((process, receiver))

    def ended(self) -> dict[int, ShardEnd]:
        for number, (process, receiver) in enumerate(self._started):
            exitcode = process.exitcode  # looked at first: what it sends comes before its end
            if number in self._ends:
                continue
            with contextlib.suppress(EOFError):
                if receiver.poll():
                    self._ends[number] = receiver.recv()
                    continue
            if exitcode is not None:
                raise RunError(
                    f"The process of shard {number} ended with code {exitcode}",
                    "A negative code is a signal; -9 is often the system short of memory. The same "
                    "command goes on from the journal.",
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
    """The target of a process of this machine."""
    parent = multiprocessing.parent_process()
    if parent is None:
        raise RuntimeError("a shard must run in a process of its own")

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    sender.send(run_shard(shard))

"""The progress of a run: counted as batches leave its steps, and written to a small file.

``status.json`` is in the hidden folder of the run (see ``store.atomic``) and is deleted with it. It
is rewritten every ``EVERY_S`` seconds. An old file therefore means that the run hangs; a file in a
folder that no process has locked means that the run was killed. If the file cannot be written, the
run continues and warns once.

Not covered: the time before the first request, i.e. checking references and starting a server.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from heavydistill.config.files import json_of, text_in
from heavydistill.errors import ConfigError
from heavydistill.models.ledger import Balance, account_of, balance_of
from heavydistill.models.resolve import ResolvedModel, ResolvedRun
from heavydistill.store.atomic import Workplace
from heavydistill.store.redact import name_alone

STATUS = "status.json"
EVERY_S = 2.0
PACE_S = 300.0
"""Paces are measured over this many past seconds."""
THINKING = "thinking"
_STILL_S, _TIMES_USUAL = 60.0, 5.0
_FEWEST_RECEIVED = 4  # samples in that time from which the remaining time is estimated
_VERSION = 9
_THINKS = "sample_trajectories"

Row = dict[str, Any]

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class StageStatus:
    """Progress of a step that uses a model.

    A sample is received when its response arrives; it is finished when its problem has left the
    step with all of its samples.
    """

    name: str  # name for display
    problems: int  # problems that will leave the step
    per_problem: int  # samples per problem; 0 if that varies, as for a judge
    done: int = 0  # problems that have left the step
    finished: int = 0  # samples of these problems; 0 for a judge
    from_journal: int = 0  # finished samples that were in the journal
    thoughts: int = 0  # finished samples with thinking
    failures: dict[str, int] = field(default_factory=dict)  # finished samples lost, by reason
    prompt_tokens: int = 0  # prompt tokens of the finished samples
    completion_tokens: int = 0  # completion tokens of the finished samples
    received: int = 0  # samples received from a model by this process or its shards
    received_tokens: int = 0  # completion tokens of the received samples
    written_tokens: int = 0
    """Completion tokens of a model in this process or its shards, also of unfinished samples."""


@dataclass(slots=True, kw_only=True)
class Status:
    """Progress of a run; the content of the status file."""

    version: int = _VERSION  # version of the file format
    began: float = 0.0  # start of the run in seconds since 1970
    at: float = 0.0  # time of this status in seconds since 1970
    thinker: str  # name of the thinker, or names; empty if pools are read
    deliberator: str  # name of the deliberator
    k: int  # K, trajectories per problem
    d: int  # D, deliberations per cache
    problems: int  # problems of the run
    stages: list[StageStatus]  # stages that use a model, in order
    budget: str = ""  # budget of the run; empty for none
    loaded: int = 0  # problems that have entered the run
    finished: int = 0  # problems that have left the last step
    statuses: dict[str, int] = field(default_factory=dict)
    """Number of finished problems by status: ``ok``, ``too_few_usable`` and ``failed``."""
    mean_at_k: float | None = None  # M@K of the problems whose trajectories are judged
    heavy_mean_at_d: float | None = None  # HM@D of the last round, over the problems judged so far
    problems_per_minute: float | None = None
    """Recent problems per minute; this and the next two fields are null until known."""
    tokens_per_s: float | None = None  # new completion tokens per second
    left_s: float | None = None  # estimated remaining seconds
    requests: int | None = None  # requests in flight at servers; null without servers
    spent_tokens: int = 0  # server tokens used by all runs into this folder
    spent_usd: float | None = None  # cost of these tokens; 0 without servers, null without a price
    waits_for: str = ""  # batches that have to be answered before the next pass; empty for none

    @property
    def samples(self) -> tuple[int, int]:
        """Return (samples received, samples that the run needs), not counting a judge's."""
        stages = [stage for stage in self.stages if stage.per_problem]
        answered = sum(
            max(stage.done * stage.per_problem, stage.from_journal + stage.received)
            for stage in stages
        )
        return answered, sum(stage.problems * stage.per_problem for stage in stages)


OnStatus = Callable[[Status], None]


class _Moment(NamedTuple):
    at: float
    finished: int  # problems
    received: int  # samples
    tokens: int  # completion tokens of the received samples, and of those in progress if known


class StatusWriter:
    """Counts what leaves the steps of a run, and writes its status.

    ``on_status`` is called with each written status. A replay uses no servers.
    """

    def __init__(
        self,
        path: Path,
        run: ResolvedRun,
        problems: int,
        asks_servers: bool,
        on_status: OnStatus | None = None,
    ) -> None:
        config = run.config
        self._run, self._problems, self._began = run, problems, time.time()
        self._path, self._on_status = path, on_status
        self._account = account_of(config) if asks_servers else None
        # Whether every model is free or has a price.
        self._is_priced = all(model.profile.usd(1, 1) is not None for model in run.models)
        self._lock = threading.Lock()
        self._ends = threading.Event()
        self._is_silent = False
        self.begin()

    def begin(self) -> None:
        """Count from nothing: the pipeline starts, once more if the run has several passes."""
        config, run = self._run.config, self._run
        thinkers = " and ".join(map(name_alone, config.attempts_by_thinker))
        with self._lock:
            self._steps = _stages(run, self._problems)
            self._status = Status(
                began=self._began,
                thinker=thinkers,
                deliberator=name_alone(config.roles[1]),
                k=config.think.k,
                d=config.deliberate.d,
                problems=self._problems,
                stages=list(self._steps.values()),
                budget=config.budget or "",
            )
            # The last step of each stage that gives verdicts.
            judging = "judge" if run.judge else "verify"
            steps = (f"{judging}_pool", f"{judging}_deliberations_{config.rounds}")
            # Share of correct samples of each problem that has left these steps.
            self._right: dict[str, list[float]] = {step: [] for step in steps}
            self._moments: deque[_Moment] = deque([self._moment()])
            self._received_at = time.monotonic()

    def wait_for(self, what: str) -> None:
        """Say what the run waits for between two passes."""
        with self._lock:
            self._status.waits_for = what

    def on_batch(self, step: str, rows: list[Row]) -> None:
        """Count a batch that left a step."""
        with self._lock:
            status = self._status
            if step in self._steps:
                for row in rows:
                    _count(self._steps[step], row, step)
            if not any(stage.received for stage in status.stages) and (
                not status.loaded or any(row.get("from_journal") for row in rows)
            ):  # loading models and reading the journal do not count in a pace
                self._moments = deque([self._moment()])
            if step.startswith("load_"):
                status.loaded += len(rows)
            elif step == "label_traces":
                status.finished += len(rows)
                for row in rows:
                    _add(status.statuses, row["status"].partition(":")[0])
            elif step in self._right:
                for samples in (_samples(row, step) for row in rows):
                    labels = [(each["verdict"] or {}).get("label") for each in samples]
                    self._right[step].append(labels.count("correct") / max(1, len(labels)))

    def on_sample(self, step: str, tokens: int, is_whole: bool = True) -> None:
        """Count a response that a step received from its model, or tokens of unfinished ones."""
        with self._lock:
            if not (counts := self._steps.get(step)):
                return
            self._received_at = time.monotonic()
            if is_whole:
                counts.received += 1
                counts.received_tokens += tokens
            else:
                counts.written_tokens += tokens

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Keep the file up to date until the block ends, then delete it."""
        self.write()

        def keep_writing() -> None:
            while not self._ends.wait(EVERY_S):
                self.write()

        thread = threading.Thread(target=keep_writing, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ends.set()
            thread.join()
            with contextlib.suppress(OSError):
                self._path.unlink()
            if self._on_status:
                self._on_status(self.status())

    def write(self) -> None:
        """Replace the file with the current status."""
        status, new = self.status(), self._path.with_suffix(".new")
        try:
            new.write_text(json.dumps(dataclasses.asdict(status)), encoding="utf-8")
            os.replace(new, self._path)
        except OSError as error:
            if not self._is_silent:
                _log.warning("%s cannot be written, so `watch` sees nothing: %s", new, error)
            self._is_silent = True
        if self._on_status:
            self._on_status(status)

    def status(self) -> Status:
        balance = self._balance()
        with self._lock:
            per_minute, per_second, left = self._pace()
            free = None if self._account else 0.0
            mean, heavy_mean = (fmean(each) if each else None for each in self._right.values())
            return dataclasses.replace(
                copy.deepcopy(self._status),
                at=time.time(),
                mean_at_k=mean,
                heavy_mean_at_d=heavy_mean,
                problems_per_minute=per_minute,
                tokens_per_s=per_second,
                left_s=left,
                requests=balance.in_flight if balance else None,
                spent_tokens=round(balance.spent_tokens) if balance else 0,
                spent_usd=balance.spent_usd if balance and self._is_priced else free,
            )

    def _balance(self) -> Balance | None:
        """Return the balance of the account; None if there is none or it cannot be read now."""
        with contextlib.suppress(ConfigError, OSError):
            return balance_of(self._account) if self._account else None
        return None

    def _moment(self) -> _Moment:
        """Return the current counts; call this while holding the lock."""
        stages = self._status.stages
        received = sum(stage.received for stage in stages)
        tokens = sum(max(stage.received_tokens, stage.written_tokens) for stage in stages)
        return _Moment(time.monotonic(), self._status.finished, received, tokens)

    def _pace(self) -> tuple[float | None, float | None, float | None]:
        """Return recent (problems/minute, tokens/second, seconds left); the lock must be held."""
        now = self._moment()
        while len(self._moments) > 1 and now.at - self._moments[1].at > PACE_S:
            self._moments.popleft()
        then = self._moments[0]
        self._moments.append(now)
        seconds = now.at - then.at
        if seconds <= 0:
            return None, None, None
        return (
            60 * (now.finished - then.finished) / seconds or None,
            (now.tokens - then.tokens) / seconds or None,
            self._left(),
        )

    def _left(self) -> float | None:
        """Return the estimated remaining seconds, at the pace until the last sample arrived.

        From then on they count down, because other samples are in progress. None if too few samples
        arrived, or none for longer than estimated. The lock must be held.
        """
        then, now = self._moments[0], self._moments[-1]
        answered, needed = self._status.samples
        if answered >= needed:
            return 0.0
        arrived = next(moment.at for moment in self._moments if moment.received == now.received)
        received = now.received - then.received
        # Servers that bring nothing for far longer than usual may never bring anything again.
        usual_s = max(_STILL_S, _TIMES_USUAL * (now.at - then.at) / max(1, received))
        if self._account and now.at - self._received_at > usual_s:
            return None
        if received < min(_FEWEST_RECEIVED, needed):
            return None
        left = (arrived - then.at) * (needed - answered) / received - (now.at - arrived)
        return left if left > 0 else None


def read_status(path: Path) -> Status | None:
    """Return the status in a file; None if the file does not exist.

    Raises:
        ConfigError: The file has another version, or contains no status.
    """
    try:
        tree = json_of(text_in(path))
        if tree["version"] != _VERSION:
            raise ValueError(f"version {tree['version']}")
        stages = [StageStatus(**stage) for stage in tree.pop("stages")]
        return Status(**tree, stages=stages)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(
            f"{path} cannot be read: {error}",
            "Watch with the version of heavydistill that runs it.",
        ) from error


def running(run: Path) -> tuple[str, Status] | None:
    """Return (name, status) of a run that is in progress or was killed; None without a status.

    The name is the run's name within an evaluation; empty for a single run.

    Raises:
        ConfigError: A status cannot be read.
    """
    place = Workplace(run).path
    if status := read_status(place / STATUS):
        return "", status
    for path in sorted(place.glob(f"new/.*.unfinished/{STATUS}")):
        if status := read_status(path):
            return path.parent.name.removeprefix(".").removesuffix(".unfinished"), status
    return None


def thinking_steps(run: ResolvedRun) -> dict[str, ResolvedModel]:
    """Return the thinker of each step that samples trajectories, by the name of the step."""
    several = len(run.thinkers) > 1
    return {f"{_THINKS}_{n}" if several else _THINKS: t for n, t in enumerate(run.thinkers, 1)}


def thinking_stages(run: ResolvedRun) -> dict[str, ResolvedModel]:
    """Return the thinkers by the names of their stages."""
    several = len(run.thinkers) > 1
    return {f"{THINKING}, {t.profile.name}" if several else THINKING: t for t in run.thinkers}


def _stages(run: ResolvedRun, total: int) -> dict[str, StageStatus]:
    """Return the status of each step that uses a model, by step name."""
    config, rounds = run.config, run.config.rounds
    thinking = zip(thinking_steps(run), thinking_stages(run).items(), strict=True)
    names = {step: (name, thinker.samples) for step, (name, thinker) in thinking}
    if run.judge:
        names["judge_pool"] = ("judging trajectories", 0)
    for n in range(1, rounds + 1):
        number = "" if rounds == 1 else f", round {n}"
        names[f"deliberate_{n}"] = (f"deliberating{number}", config.deliberate.d)
        if run.judge:
            names[f"judge_deliberations_{n}"] = (f"judging deliberations{number}", 0)
    return {
        step: StageStatus(name=name, problems=total, per_problem=samples)
        for step, (name, samples) in names.items()
    }


def _count(stage: StageStatus, row: Row, step: str) -> None:
    """Count a row that left the step of a stage."""
    stage.done += 1
    stage.from_journal += row.get("from_journal", 0)
    samples = () if step.startswith("judge_") else _samples(row, step)
    for sample in samples[-stage.per_problem :]:  # the last of the pool are this thinker's
        stage.finished += 1
        stage.prompt_tokens += max(0, sample["prompt_tokens"])
        stage.completion_tokens += max(0, sample["completion_tokens"])
        stage.thoughts += bool(sample["reasoning"])
        if sample["finish_reason"] != "stop":
            is_cut = sample["finish_reason"] == "length"
            _add(stage.failures, "truncated" if is_cut else sample["failure"] or "error")


def _samples(row: Row, step: str) -> list[Row]:
    """Return the generations of a row that the step made; a failed row may have none."""
    if step.startswith(_THINKS) or step.endswith("pool"):
        return list(row.get("pool", ()))
    round = int(step.rpartition("_")[2])
    return [each for each in row.get("deliberations", ()) if each["round"] == round]


def _add(counts: dict[str, int], name: str) -> None:
    counts[name] = counts.get(name, 0) + 1

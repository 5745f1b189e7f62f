"""How far a run is: counted as batches leave its steps, and kept in a small file for others.

``status.json`` stands in the hidden folder of the run (see ``store.atomic``) and goes with it. It
is replaced as a whole every ``EVERY_S`` seconds, whether anything was finished or not, so its age
tells whether the run is alive. Where it cannot be written the run goes on, and says so once.

Shares of what is right are over the problems that are done so far. The early ones are the quick
ones, so they do not estimate the end.

Not covered: what a run does before it asks, i.e. checking references and starting a server.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heavydistill.errors import ConfigError
from heavydistill.heavy.ballot import ballot_of
from heavydistill.metrics.counts import unanswered_because
from heavydistill.models.ledger import Balance, account_of, balance_of
from heavydistill.models.request import Work
from heavydistill.models.resolve import ResolvedRun
from heavydistill.schema import Generation, Verdict, from_row
from heavydistill.store.atomic import Workplace
from heavydistill.store.redact import name_alone

STATUS = "status.json"
EVERY_S = 2.0
PACE_S = 300.0
"""Paces are those of so many seconds back."""
THINKING = "thinking"
TRUNCATED, NO_VERDICT = "truncated", "no_verdict"
"""Why a sample cannot be used though its request did not fail."""
_VERSION = 3
_LOADS = ("load_problems", "load_pools")
_THINKS, _LABELS = "sample_trajectories", "label_traces"

Row = dict[str, Any]

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class StageStatus:
    """A step that asks a model."""

    name: str
    """Name for people."""
    total: int
    """Problems that will leave it."""
    samples: int
    """Samples per problem; 0 where that depends on the problem, as for a judge."""
    done: int = 0
    """Problems that have left it."""
    asked: int = 0
    """Samples that have left it."""
    from_journal: int = 0
    """Samples of these that the journal had."""
    thoughts: int = 0
    """Samples of these with thinking; 0 for a judge's."""
    failures: dict[str, int] = field(default_factory=dict)
    """Samples that cannot be used, by reason."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    """Completion tokens of samples that have left it."""
    new_tokens: float = 0.0
    """Completion tokens without the journal's; a share of them where a problem has both."""
    sent: int = 0
    """Samples that the model was asked for, without the journal's."""
    ended: int = 0
    """Samples of these whose responses are there."""
    in_work_tokens: int = 0
    """Tokens of these responses, also of those that have not left the step."""

    @property
    def failed(self) -> int:
        """Samples that cannot be used."""
        return sum(self.failures.values())

    @property
    def written(self) -> float:
        """New tokens, also of samples that have not left the step."""
        return max(self.new_tokens, self.in_work_tokens)

    @property
    def tokens(self) -> int:
        """Completion tokens, the journal's and those of samples in the step included."""
        return self.completion_tokens + round(self.written - self.new_tokens)


@dataclass(slots=True, kw_only=True)
class Status:
    """A run at a moment; what the file holds."""

    version: int = _VERSION
    host: str = ""
    """Machine of the run."""
    pid: int = 0
    """Process of the run there."""
    born: int = 0
    """Start of that process in ticks of the machine; 0 where it does not say."""
    began: float = 0.0
    """Start of the run in seconds since 1970."""
    told: float = 0.0
    """Time of this status, likewise."""
    thinker: str
    """Thinker; empty where pools are read."""
    deliberator: str
    k: int
    d: int
    problems: int
    """Problems of the run."""
    stages: list[StageStatus]
    """Steps that ask, in their order."""
    loaded: int = 0
    """Problems that have entered."""
    finished: int = 0
    """Problems that have left the last step."""
    statuses: dict[str, int] = field(default_factory=dict)
    """Finished problems by status: ``ok``, ``too_few_usable`` and ``failed``."""
    strata: dict[str, int] = field(default_factory=dict)
    """Finished problems by stratum."""
    mean_at_k: float | None = None
    """M@K of the problems whose trajectories are judged."""
    heavy_mean_at_d: float | None = None
    """HM@D of the last round, likewise."""
    judged: int = 0
    """Samples with a verdict that ended by themselves."""
    unanswered: int = 0
    """Samples of these that hold no final answer."""
    problems_per_minute: float | None = None
    """Pace of late; None until it is known, as for the next two."""
    tokens_per_s: float | None = None
    """New completion tokens."""
    left_s: float | None = None
    """Seconds that the rest takes at this pace."""
    requests: int | None = None
    """Requests in flight at servers; None where none is asked."""
    usd: float | None = None
    """Cost of all runs into the folder; 0 where no server is asked, None without a price."""

    def is_alive(self) -> bool | None:
        """Whether its process is there now; None where this machine cannot tell."""
        if self.host != socket.gethostname():
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return _born(self.pid) == self.born


OnStatus = Callable[[Status], None]


@dataclass(frozen=True, slots=True)
class _Moment:
    """Work done at a time."""

    at: float
    finished: int
    tokens: float
    share: float
    """Share of the samples of the run that are there."""


class _Mean:
    """A mean over problems, as they come."""

    def __init__(self) -> None:
        self._total, self._problems = 0.0, 0

    def add(self, share: float) -> float:
        """The mean with one more problem."""
        self._total, self._problems = self._total + share, self._problems + 1
        return self._total / self._problems


class StatusWriter:
    """Counts what leaves the steps of a run, and writes its status; a replay asks no servers.

    ``on_status`` is called with each status that is written.
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
        thinker, deliberator = map(name_alone, config.roles)
        self._steps = _stages(run, problems)
        self._status = Status(
            host=socket.gethostname(),
            pid=os.getpid(),
            born=_born(os.getpid()),
            began=time.time(),
            thinker="" if config.pools else thinker,
            deliberator=deliberator,
            k=config.think.k,
            d=config.deliberate.d,
            problems=problems,
            stages=list(self._steps.values()),
        )
        self._path, self._on_status = path, on_status
        self._account = account_of(config) if asks_servers else None
        # All that are asked have a price, or cost nothing.
        self._is_priced = all(model.profile.usd(1, 1) is not None for model in run.models)
        self._rounds = config.rounds
        self._judges = "judge_" if run.judge else "verify_"
        self._work: dict[tuple[str, int], Work] = {}
        self._mean_at_k, self._heavy_mean_at_d = _Mean(), _Mean()
        self._moments: deque[_Moment] = deque([_Moment(time.monotonic(), 0, 0.0, 0.0)])
        self._lock = threading.Lock()
        self._ends = threading.Event()
        self._is_silent = False

    def on_batch(self, step: str, rows: list[Row]) -> None:
        """Count a batch that left a step."""
        with self._lock:
            status = self._status
            if step in self._steps:
                _count(self._steps[step], rows, step)
            if step in _LOADS:
                status.loaded += len(rows)
            elif step == _LABELS:
                status.finished += len(rows)
                for row in rows:
                    _add(status.strata, row["stratum"])
                    _add(status.statuses, row["status"].partition(":")[0])
            if step.startswith(self._judges):
                self._count_verdicts(step, rows)

    def on_work(self, step: str, replica: int, work: Work) -> None:
        """Note what the model of a step was asked so far in one of its replicas."""
        with self._lock:
            self._work[step, replica] = work
            if stage := self._steps.get(step):
                reported = [each for (name, _), each in self._work.items() if name == step]
                stage.sent = sum(each.asked for each in reported)
                stage.ended = sum(each.ended for each in reported)
                stage.in_work_tokens = sum(each.tokens for each in reported)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """While this lasts the file is there and young."""
        self.write()
        thread = threading.Thread(target=self._keep_writing, daemon=True)
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
        """Replace the file by what is known now."""
        status = self.status()
        young = self._path.with_suffix(".new")
        try:
            young.write_text(json.dumps(dataclasses.asdict(status)), encoding="utf-8")
            os.replace(young, self._path)
        except OSError as error:
            if not self._is_silent:
                _log.warning("%s cannot be written, so a watch sees nothing: %s", young, error)
            self._is_silent = True
        if self._on_status:
            self._on_status(status)

    def status(self) -> Status:
        """What is known now."""
        balance = _balance(self._account)
        with self._lock:
            per_minute, per_second, left = self._pace()
            free = None if self._account else 0.0
            return dataclasses.replace(
                copy.deepcopy(self._status),
                told=time.time(),
                problems_per_minute=per_minute,
                tokens_per_s=per_second,
                left_s=left,
                requests=balance.in_flight if balance else None,
                usd=balance.spent_usd if balance and self._is_priced else free,
            )

    def _keep_writing(self) -> None:
        while not self._ends.wait(EVERY_S):
            self.write()

    def _count_verdicts(self, step: str, rows: list[Row]) -> None:
        status = self._status
        for row in rows:
            samples = _generations(row, step)
            right = [bool(s["verdict"]) and s["verdict"]["label"] == "correct" for s in samples]
            share = sum(right) / len(right) if right else 0.0
            if step.endswith("pool"):
                status.mean_at_k = self._mean_at_k.add(share)
            elif step.endswith(f"_{self._rounds}"):
                status.heavy_mean_at_d = self._heavy_mean_at_d.add(share)
            for sample, is_right in zip(samples, right, strict=True):
                if sample["verdict"] and sample["finish_reason"] == "stop":
                    status.judged += 1
                    generation = None if is_right else from_row(Generation, sample)
                    status.unanswered += bool(generation and unanswered_because(generation))

    def _pace(self) -> tuple[float | None, float | None, float | None]:
        """(problems a minute, tokens a second, seconds left) of late; call it under the lock."""
        now = self._moment()
        while len(self._moments) > 1 and now.at - self._moments[1].at > PACE_S:
            self._moments.popleft()
        then = self._moments[0]
        self._moments.append(now)
        seconds = now.at - then.at
        if seconds <= 0:
            return None, None, None
        share = now.share - then.share
        return (
            60 * (now.finished - then.finished) / seconds or None,
            (now.tokens - then.tokens) / seconds or None,
            seconds * (1 - now.share) / share if share > 0 else None,
        )

    def _moment(self) -> _Moment:
        stages = [stage for stage in self._status.stages if stage.samples]
        there = sum(max(s.done * s.samples, s.from_journal + s.ended) for s in stages)
        total = sum(stage.total * stage.samples for stage in stages)
        tokens = sum(stage.written for stage in self._status.stages)
        share = min(1.0, there / max(1, total))
        return _Moment(time.monotonic(), self._status.finished, tokens, share)


def read_status(path: Path) -> Status | None:
    """What is in a file; None if it is not there.

    Raises:
        ConfigError: It is of another version, or no such file.
    """
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        if tree["version"] != _VERSION:
            raise ValueError(f"version {tree['version']}")
        stages = [StageStatus(**stage) for stage in tree.pop("stages")]
        return Status(**tree, stages=stages)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(
            f"{path} cannot be read: {error}", "Watch with the heavydistill that runs it."
        ) from error


def running(run: Path) -> tuple[str, Status] | None:
    """A run that lasts, or that was killed and has not begun again; None if there is none.

    Returns:
        Name of the run inside of an evaluation or a crossing, empty for a run alone; its status.

    Raises:
        ConfigError: As of ``read_status``.
    """
    place = Workplace(run).path
    if status := read_status(place / STATUS):
        return "", status
    for path in sorted(place.glob(f"new/.*.unfinished/{STATUS}")):
        if status := read_status(path):
            return path.parent.name.removeprefix(".").removesuffix(".unfinished"), status
    return None


def _stages(run: ResolvedRun, total: int) -> dict[str, StageStatus]:
    """The steps that ask, by their names."""
    config, rounds = run.config, run.config.rounds
    names = {} if config.pools else {_THINKS: (THINKING, config.think.k)}
    if run.judge:
        names["judge_pool"] = ("judging trajectories", 0)
    for n in range(1, rounds + 1):
        number = "" if rounds == 1 else f", round {n}"
        names[f"deliberate_{n}"] = (f"deliberating{number}", config.deliberate.d)
        if run.judge:
            names[f"judge_deliberations_{n}"] = (f"judging deliberations{number}", 0)
    return {
        step: StageStatus(name=name, total=total, samples=samples)
        for step, (name, samples) in names.items()
    }


def _count(stage: StageStatus, rows: list[Row], step: str) -> None:
    """Count a batch that left the step of a stage."""
    for row in rows:
        samples = list(_votes(row, step) if step.startswith("judge_") else _samples(row, step))
        tokens = sum(max(0, written) for _, _, written, _ in samples)
        reused = row.get("from_journal", 0)
        stage.done += 1
        stage.asked += len(samples)
        stage.from_journal += reused
        stage.completion_tokens += tokens
        stage.new_tokens += tokens * (1 - min(1.0, reused / max(1, len(samples))))
        for failure, read, _, thinks in samples:
            stage.prompt_tokens += max(0, read)
            stage.thoughts += thinks
            _add(stage.failures, failure)


_Sample = tuple[str, int, int, bool]
"""Failure, prompt tokens, completion tokens, whether it has thinking."""


def _samples(row: Row, step: str) -> Iterator[_Sample]:
    usable = {"stop": "", "length": TRUNCATED}
    for each in _generations(row, step):
        failure = usable.get(each["finish_reason"], each["failure"] or "error")
        yield failure, each["prompt_tokens"], each["completion_tokens"], bool(each["reasoning"])


def _votes(row: Row, step: str) -> Iterator[_Sample]:
    """The votes that were asked for the generations of a row."""
    for each in _generations(row, step):
        ballot = each["verdict"] and ballot_of(from_row(Verdict, each["verdict"]))
        for vote in ballot.votes if ballot and not ballot.same_as else ():
            failure = "" if vote.is_valid else vote.failure or NO_VERDICT
            yield failure, vote.prompt_tokens, vote.completion_tokens, False


def _generations(row: Row, step: str) -> list[Row]:
    """Those of a row that are of the step; a row that failed may have come without any."""
    if step == _THINKS or step.endswith("pool"):
        return list(row.get("pool", ()))
    round = int(step.rpartition("_")[2])
    return [each for each in row.get("deliberations", ()) if each["round"] == round]


def _add(counts: dict[str, int], name: str | None) -> None:
    if name:
        counts[name] = counts.get(name, 0) + 1


def _balance(account: Path | None) -> Balance | None:
    """What stands in the account of the run, which others write meanwhile; None if it has none."""
    if account is None:
        return None
    with contextlib.suppress(ConfigError):
        return balance_of(account)
    return None


def _born(pid: int) -> int:
    """When a process began, in ticks since the machine did.

    0 where that is not told; -1 of one that has ended and that nobody waited for.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    state, *fields = stat.rpartition(")")[2].split()
    return -1 if state == "Z" else int(fields[18])

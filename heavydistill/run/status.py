"""How far a run is, in a small file that others read while it lasts.

``status.json`` stands in the hidden folder of the run (see ``workplace``) and goes with it. It is
replaced as a whole every ``EVERY_S`` seconds, by a thread of the run's own process, whether
anything was finished or not: so its age tells whether the run is alive. Where it cannot be written
the run goes on without it, and says so once.

``running`` finds it. An evaluation makes its runs one after the other inside its own hidden folder,
and is found by its own name.

Not covered: what a run does before it asks: checking references, and a server that is started.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heavydistill.errors import ConfigError
from heavydistill.models.ledger import Balance, account_of, balance_of
from heavydistill.models.request import Work
from heavydistill.models.resolve import ResolvedRun
from heavydistill.run.tally import Tally
from heavydistill.store.atomic import Workplace
from heavydistill.store.redact import name_alone

STATUS = "status.json"
EVERY_S = 2.0
PACE_S = 300.0
"""Paces are those of so many seconds back."""
_VERSION = 2

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStatus:
    """A stage; fields as of ``tally.Stage``, ``completion_tokens`` as its ``tokens``."""

    name: str
    total: int
    done: int
    asked: int
    from_journal: int
    sent: int
    ended: int
    failures: dict[str, int]
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What is in the file.

    Attributes:
        version: Of this form.
        host: Machine of the run.
        pid: Its process there.
        born: When that began, in ticks of the machine; 0 where it does not tell.
        began: When the run began, in seconds since 1970.
        told: When this was written, likewise.
        thinker: Who thinks; empty where pools are taken over.
        deliberator: Who deliberates.
        k: Trajectories a problem.
        d: Deliberations a cache.
        problems: All of the run.
        loaded: Those that have entered.
        finished: Those that are done.
        stages: Those that ask, in their order.
        mean_at_k: M@K of the problems whose trajectories are judged; None while there are none.
        heavy_mean_at_d: HM@D of the last round, likewise.
        strata: Finished problems of each.
        statuses: Finished problems of each, ``ok``, ``too_few_usable`` and ``failed``.
        problems_per_minute: Finished, of late; None until it is known.
        tokens_per_s: Written, of late, without those of the journal; None likewise.
        left_s: Seconds that the rest takes at the pace of late; None likewise.
        judged: Samples with a verdict that ended by themselves.
        unanswered: How many of these hold no final answer.
        requests: In flight at servers; None where none is asked.
        usd: Spent by all runs into the folder; 0 where nothing is asked of a server, None where
            a price is not known.
    """

    version: int
    host: str
    pid: int
    born: int
    began: float
    told: float
    thinker: str
    deliberator: str
    k: int
    d: int
    problems: int
    loaded: int
    finished: int
    stages: tuple[StageStatus, ...]
    mean_at_k: float | None
    heavy_mean_at_d: float | None
    strata: dict[str, int]
    statuses: dict[str, int]
    problems_per_minute: float | None
    tokens_per_s: float | None
    left_s: float | None
    judged: int
    unanswered: int
    requests: int | None
    usd: float | None

    def is_alive(self) -> bool | None:
        """Whether its process is there now; None where that cannot be told from this machine."""
        if self.host != socket.gethostname():
            return None
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return _born(self.pid) == self.born


@dataclass(frozen=True, slots=True)
class Seen:
    """A run at a moment.

    Attributes:
        which: Of an evaluation or a crossing, the name of the run; empty for a run alone.
        status: What it told last.
        is_alive: As of ``Status``, at that moment.
    """

    which: str
    status: Status
    is_alive: bool | None


@dataclass(frozen=True, slots=True)
class _Moment:
    """What was done at a time."""

    at: float
    finished: int
    tokens: float
    share: float


class Pulse:
    """Writes the file of a run.

    Args:
        path: Of the file.
        run: Its models and configuration.
        problems: How many there are.
        asks_servers: Whether any is asked; a replay asks none.
    """

    def __init__(self, path: Path, run: ResolvedRun, problems: int, asks_servers: bool) -> None:
        config = run.config
        self._path, self._config = path, config
        self._tally = Tally(config, problems)
        self._account = account_of(config) if asks_servers else None
        # All that are asked have a price, or cost nothing.
        self._is_priced = all(model.profile.usd(1, 1) is not None for model in run.models)
        self._free = None if asks_servers else 0.0
        self._began = time.time()
        self._moments: deque[_Moment] = deque([_Moment(time.monotonic(), 0, 0.0, 0.0)])
        self._lock = threading.Lock()
        self._ends = threading.Event()
        self._is_silent = False

    def on_batch(self, step: str, rows: list[dict[str, Any]]) -> None:
        """Count a batch that left a step."""
        with self._lock:
            self._tally.add(step, rows)

    def on_work(self, step: str, replica: int, work: Work) -> None:
        """Note what the model of a step was asked so far in one of its processes."""
        with self._lock:
            self._tally.at_work(step, replica, work)

    @contextlib.contextmanager
    def beating(self) -> Iterator[None]:
        """While this lasts the file is there and young."""
        self.write()
        thread = threading.Thread(target=self._beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ends.set()
            thread.join()
            with contextlib.suppress(OSError):
                self._path.unlink()

    def write(self) -> None:
        """Replace the file by what is known now."""
        young = self._path.with_suffix(".new")
        try:
            young.write_text(json.dumps(dataclasses.asdict(self.status())), encoding="utf-8")
            os.replace(young, self._path)
        except OSError as error:
            if not self._is_silent:
                _log.warning("%s cannot be written, so a watch sees nothing: %s", young, error)
            self._is_silent = True

    def status(self) -> Status:
        """What is known now."""
        balance = _balance(self._account)
        with self._lock:
            tally, pace = self._tally, self._pace()
            thinker, deliberator = map(name_alone, self._config.roles)
            return Status(
                version=_VERSION,
                host=socket.gethostname(),
                pid=os.getpid(),
                born=_born(os.getpid()),
                began=self._began,
                told=time.time(),
                thinker="" if self._config.pools else thinker,
                deliberator=deliberator,
                k=self._config.think.k,
                d=self._config.deliberate.d,
                problems=tally.total,
                loaded=tally.loaded,
                finished=tally.finished,
                stages=tuple(
                    StageStatus(
                        name=stage.name,
                        total=stage.total,
                        done=stage.done,
                        asked=stage.asked,
                        from_journal=stage.from_journal,
                        sent=stage.sent,
                        ended=stage.ended,
                        failures=dict(stage.failures.most_common()),
                        prompt_tokens=stage.prompt_tokens,
                        completion_tokens=stage.tokens,
                    )
                    for stage in tally.stages.values()
                ),
                mean_at_k=tally.mean_at_k.mean,
                heavy_mean_at_d=tally.heavy_mean_at_d.mean,
                strata=dict(tally.strata),
                statuses=dict(tally.statuses),
                problems_per_minute=pace[0],
                tokens_per_s=pace[1],
                left_s=pace[2],
                judged=tally.judged,
                unanswered=tally.unanswered,
                requests=balance.in_flight if balance else None,
                usd=balance.spent_usd if balance and self._is_priced else self._free,
            )

    def _beat(self) -> None:
        while not self._ends.wait(EVERY_S):
            self.write()

    def _pace(self) -> tuple[float | None, float | None, float | None]:
        """(problems a minute, tokens a second, seconds left) of late; call it under the lock."""
        now = self._moment()
        while len(self._moments) > 1 and now.at - self._moments[1].at > PACE_S:
            self._moments.popleft()
        then = self._moments[0]
        self._moments.append(now)
        seconds = now.at - then.at
        finished, tokens, share = (
            now.finished - then.finished,
            now.tokens - then.tokens,
            now.share - then.share,
        )
        if seconds <= 0:
            return None, None, None
        left = seconds * (1 - now.share) / share if share > 0 else None
        return (
            60 * finished / seconds if finished else None,
            tokens / seconds if tokens else None,
            left,
        )

    def _moment(self) -> _Moment:
        """Share is that of the samples that are there, of those that must be asked for."""
        stages = self._tally.stages.values()
        there = sum(
            max(stage.done * stage.samples, stage.from_journal + stage.ended)
            for stage in stages
            if stage.samples
        )
        all = sum(stage.total * stage.samples for stage in stages)
        tokens = sum(stage.written for stage in stages)
        return _Moment(
            time.monotonic(), self._tally.finished, tokens, min(1.0, there / max(1, all))
        )


def read_status(path: Path) -> Status | None:
    """What is in a file; None if it is not there.

    Raises:
        ConfigError: It is of another version, or no such file.
    """
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
        if tree["version"] != _VERSION:
            raise ValueError(f"version {tree['version']}")
        stages = tuple(StageStatus(**stage) for stage in tree.pop("stages"))
        return Status(**tree, stages=stages)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(
            f"{path} cannot be read: {error}", "Watch with the heavydistill that runs it."
        ) from error


def running(run: Path) -> Seen | None:
    """A run that lasts, or that was killed and has not begun again; None if there is none.

    Args:
        run: The name that the folder of the run or the evaluation will have.

    Raises:
        ConfigError: As of ``read_status``.
    """
    place = Workplace(run).path
    inner = sorted(place.glob(f"new/.*.unfinished/{STATUS}"))
    for path in (place / STATUS, *inner):
        if status := read_status(path):
            name = path.parent.name.removeprefix(".").removesuffix(".unfinished")
            return Seen("" if path.parent == place else name, status, status.is_alive())
    return None


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

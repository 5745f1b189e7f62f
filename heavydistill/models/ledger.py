"""The account of a run's folder: what its runs have spent on served models, and the budget.

An account belongs to the folder of a run, regardless of the configuration, and remains when the
folder is deleted. It is a file in the journal, named by the path of the folder relative to the
journal, so that both can be moved together. If only one was moved, the account is found from the
configuration saved in the folder (``adopt``).

Before a request is sent, its maximum cost is reserved; when it has ended, the reservation is
replaced by its real cost. If a server did not count tokens, or a run was killed with requests in
flight, the maximum cost is booked (a token has at least one byte). A server that ignores
``max_tokens`` can exceed the budget only by the replies in flight, each of which is cut off at a
limit.

The disk space of all lines is allocated when the file is created. If a line still cannot be
written, no further request is sent. On a network file system, locks must work between hosts (NFS
4).

Not covered: the last seconds before a power failure; a folder that was moved and whose old path is
now used by another run; a folder that was moved without its journal before the account existed.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import functools
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heavydistill.config.run import RunConfig, load_config
from heavydistill.errors import ConfigError, StoppedError, remedy
from heavydistill.models.profiles import Price
from heavydistill.models.request import Request, Response, texts_of
from heavydistill.models.tokenizer import TEMPLATE_TOKENS
from heavydistill.schema import Failure

# Failures that occur before a model begins to generate.
_FREE: frozenset[Failure | None] = frozenset(
    {"overloaded", "unreachable", "server", "rejected", "too_long", "context_overflow", "no_credit"}
)
_LINE = 512  # bytes of every line, so that a single write replaces one line

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one or more requests."""

    tokens: float = 0  # Tokens of prompts and responses
    usd: float = 0.0  # US dollars; 0 if the price is not known


_NOTHING = Cost()


@dataclass(frozen=True, slots=True)
class Balance:
    """Amounts spent and reserved by one shard (a line of the account's file) or by all shards."""

    spent_tokens: float = 0  # Tokens booked
    spent_usd: float = 0.0  # Dollars booked; 0 if the price is not known
    reserved_tokens: float = 0  # Maximum tokens of requests in flight
    reserved_usd: float = 0.0  # Maximum dollars of requests in flight
    in_flight: int = 0  # Requests that were sent and have not ended
    ended: int = 0  # Requests that have ended
    starts: int = 0  # How often the run was started
    holder: str = ""  # The attempt at running a shard that owns the line

    @property
    def reserved(self) -> Cost:
        return Cost(self.reserved_tokens, self.reserved_usd)

    @property
    def most(self) -> Cost:
        """Upper bound of the cost: booked and reserved amounts together."""
        tokens = self.spent_tokens + self.reserved_tokens
        return Cost(tokens, self.spent_usd + self.reserved_usd)

    def line(self) -> bytes:
        """This balance as a line of the account's file: JSON, padded to a fixed length."""
        values = {name: getattr(self, name) for name in _NAMES}
        return json.dumps(values).encode().ljust(_LINE)

    def plus(
        self, spent: Cost = _NOTHING, reserved: Cost = _NOTHING, in_flight: int = 0, ended: int = 0
    ) -> Balance:
        """This balance plus the given amounts, which may be negative."""
        return dataclasses.replace(
            self,
            spent_tokens=self.spent_tokens + spent.tokens,
            spent_usd=self.spent_usd + spent.usd,
            reserved_tokens=max(0, self.reserved_tokens + reserved.tokens),
            reserved_usd=max(0.0, self.reserved_usd + reserved.usd),
            in_flight=max(0, self.in_flight + in_flight),
            ended=self.ended + ended,
        )


_NAMES = [field.name for field in dataclasses.fields(Balance)]


def most_cost(requests: list[Request], price: Price | None) -> Cost:
    """Maximum cost of one call that requests these samples of one prompt."""
    most = sum(request.sampling.max_tokens for request in requests)
    return _cost(_bytes(requests[0]), most, price)


def cost_of(
    requests: list[Request], responses: list[Response], price: Price | None, overrun: int = 0
) -> Cost:
    """Cost of a call by the server's token counts; an upper bound if the server did not count.

    There may be fewer ``responses`` than ``requests``, if the server omitted some. ``overrun`` is
    the maximum number of tokens of a reply that exceeded ``max_tokens`` and was cut off.
    """
    prompt = sum(response.prompt_tokens for response in responses)
    written = sum(response.completion_tokens for response in responses)
    if all(min(r.prompt_tokens, r.completion_tokens) >= 0 for r in responses):
        cached = sum(max(0, response.cached_tokens) for response in responses)
        return _cost(prompt, written, price, cached)
    if all(r.failure in _FREE for r in responses):
        return _NOTHING
    written = 0
    for request, response in zip(requests, responses, strict=False):
        most = request.sampling.max_tokens
        text = len((response.reasoning + response.answer_text).encode())
        written += most if response.finish_reason == "error" else min(most, text)
    return _cost(_bytes(requests[0]), max(written, overrun), price)


def _cost(prompt: int, completion: int, price: Price | None, cached: int = 0) -> Cost:
    return Cost(prompt + completion, price.usd(prompt, completion, cached) if price else 0.0)


def account_of(config: RunConfig) -> Path:
    """Path of a run's account, named by the run's folder or, without one, by the run's requests.

    ``config.journal`` must be set.
    """
    journal = Path(config.journal or "")
    if config.out is None:
        return journal / f"{config.identity}.ledger"
    folder = os.path.realpath(config.out)
    way = os.fsencode(os.path.relpath(folder, os.path.realpath(journal)))
    name = re.sub(r"[^\w.-]+", "-", Path(folder).name)[:40]
    return journal / f"{name}-{hashlib.sha256(way).hexdigest()[:12]}.ledger"


def found_account(config: RunConfig) -> Path:
    """Path of a run's account: ``account_of``, or that of its folder before it was moved."""
    account, journal = account_of(config), Path(config.journal or "")
    if account.exists() or not config.out:
        return account
    folder = Path(config.out)
    try:
        saved = load_config(folder / "config.yaml")
    except ConfigError:  # the folder is empty
        return account
    was = Path(saved.out or folder)
    if was.exists() and not (folder.exists() and was.samefile(folder)):
        return account  # the folder is a copy; the old account belongs to the original
    earlier = [
        place / account_of(saved).name for place in (Path(saved.journal or journal), journal)
    ]
    return next(filter(Path.is_file, earlier), account)


def adopt(config: RunConfig) -> None:
    """Rename the existing account of the folder, if any, to the name that ``account_of`` returns.

    Raises:
        ConfigError: The file cannot be renamed.
    """
    account, existing = account_of(config), found_account(config)
    if existing != account:
        try:
            shutil.move(existing, account)
        except OSError as error:
            raise _unusable(existing, error) from error


@contextlib.contextmanager
def account_held(config: RunConfig) -> Iterator[None]:
    """Hold the account of a run's folder while the block runs.

    Raises:
        ConfigError: Another run holds the account, or it cannot be used.
    """
    adopt(config)
    with contextlib.closing(Ledger(account_of(config))) as account, account.running():
        yield


def spent_in(config: RunConfig) -> Cost:
    """Cost of all runs into a folder so far, including the reservations of a killed run.

    Raises:
        ConfigError: The account is damaged.
    """
    return balance_of(found_account(config)).most


def balance_of(file: Path) -> Balance:
    """The balance of an account; zero if the file does not exist.

    Raises:
        ConfigError: The account is damaged.
    """
    return _total(_lines(file.read_bytes(), file)) if file.is_file() else Balance()


@contextlib.contextmanager
def alone(file: Path, taken: str) -> Iterator[None]:
    """Hold the lock of a file while the block runs.

    Raises:
        ConfigError: Another process holds the lock (with the message ``taken``), or the file cannot
            be used.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        lock = file.open("ab")
    except OSError as error:
        raise _unusable(file, error) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(taken, "Wait until it has ended.") from None
        except OSError as error:
            raise _unusable(file, error) from error
        yield


class Ledger:
    """The account of a folder, opened by one process, with a limit in tokens or in money.

    Args:
        file: File of the account; created if it does not exist.
        most_tokens: Limit in tokens; None means no limit.
        most_usd: Limit in US dollars; None means no limit.
        holder: Number of the shard in four digits, followed by an id of this attempt to run it;
            empty for a run in one process.

    Raises:
        ConfigError: The file cannot be used.
    """

    def __init__(
        self,
        file: Path,
        most_tokens: int | None = None,
        most_usd: float | None = None,
        holder: str = "",
    ) -> None:
        self._path, self._holder = file, holder
        self._own = 1 + int(holder[:4]) if holder else 0  # index of this process's line
        self._most_tokens, self._most_usd = most_tokens, most_usd
        self._fault: StoppedError | None = None
        size = (self._own + 1) * _LINE
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
            # If the file is too short for a line, the line was never written.
            if os.fstat(self._file).st_size < size:
                os.posix_fallocate(self._file, 0, size)
        except OSError as error:
            raise _unusable(file, error) from error
        with self._locked() as lines:
            self._start = lines[0].starts
            before = lines[self._own]
            if holder and before.holder != holder:  # equal if a model of this shard opened it
                if before.starts == self._start:
                    booked = lines[0].plus(spent=before.reserved, ended=before.in_flight)
                    self._write(lines, 0, booked)
                self._write(lines, self._own, Balance(starts=self._start, holder=holder))

    @property
    def balance(self) -> Balance:
        with self._locked() as lines:
            return _total(lines)

    def reserve(self, most: Cost) -> bool:
        """Reserve the maximum cost of a call; returns False if calls in flight must end first.

        Raises:
            StoppedError: The call exceeds the remaining budget and no call is in flight, or the
                account cannot be written.
        """
        if self._fault:
            raise self._fault
        with self._locked() as lines:
            if not self._is_mine(lines):
                raise StoppedError(
                    "Another process runs the same command or the same shard, and uses this "
                    "account",
                    "Wait until that process has ended.",
                )
            now = _total(lines)
            after = now.plus(reserved=most).most
            if (self._most_tokens is not None and after.tokens > self._most_tokens) or (
                self._most_usd is not None and after.usd > self._most_usd
            ):
                if now.in_flight:
                    return False
                spent = f"{now.spent_tokens:,.0f} of {self._most_tokens or 0:,} tokens are spent"
                more = f"{most.tokens:,.0f} tokens"
                if self._most_usd is not None:
                    spent = f"{now.spent_usd:.2f} of {self._most_usd:g} USD are spent"
                    more = f"{most.usd:.2g} USD"
                raise StoppedError(
                    f"The budget is used up: {spent}, and the next request may cost {more}",
                    "Give the same command with a higher --budget and the same --out: it "
                    "resumes, and no request is billed twice.",
                )
            self._write(lines, self._own, lines[self._own].plus(reserved=most, in_flight=1))
            return True

    def settle(self, reserved: Cost, cost: Cost) -> None:
        """Replace the reservation of a call by its real cost.

        If the file cannot be written, the reservation remains, and the next ``reserve`` raises.
        """
        try:
            with self._locked() as lines:
                if not self._is_mine(lines):
                    return  # a later attempt has already booked this reservation
                booked = lines[0].plus(spent=cost, ended=1)
                if self._own:
                    # If killed between both writes, too much remains reserved, never too little.
                    self._write(lines, 0, booked)
                    booked = lines[self._own]
                freed = Cost(-reserved.tokens, -reserved.usd)
                self._write(lines, self._own, booked.plus(reserved=freed, in_flight=-1))
        except StoppedError as fault:
            # Raised by the next ``reserve``: raising here would lose the response, which is billed.
            self._fault = fault
            _log.warning("%s", fault)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Hold the account for one run.

        Raises:
            ConfigError: Another run holds the account, or the lock cannot be used.
            StoppedError: The account cannot be written.
        """
        with alone(self._path.with_suffix(".lock"), "A run with the same account is in progress"):
            with self._locked() as lines:  # book the reservations of the last run if it was killed
                now, self._start = _total(lines), lines[0].starts + 1
                ended, spent = now.ended + now.in_flight, now.most
                self._write(lines, 0, Balance(starts=self._start).plus(spent=spent, ended=ended))
            yield

    def close(self) -> None:
        os.close(self._file)

    def _is_mine(self, lines: list[Balance]) -> bool:
        return lines[0].starts == self._start and lines[self._own].holder == self._holder

    @contextlib.contextmanager
    def _locked(self) -> Iterator[list[Balance]]:
        """Yield the lines of the file, which stays locked against other processes."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                size = os.fstat(self._file).st_size
                yield _lines(os.pread(self._file, size, 0), self._path)
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)
        except OSError as error:
            raise StoppedError(
                f"The account {self._path} cannot be written: {error.strerror}",
                f"{remedy(error, 'another --journal')}, and repeat the command; no "
                "request is billed twice.",
            ) from error

    def _write(self, lines: list[Balance], number: int, new: Balance) -> None:
        written = os.pwrite(self._file, new.line(), number * _LINE)
        if written < _LINE:  # a partially written line cannot be read
            os.pwrite(self._file, lines[number].line()[:written], number * _LINE)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        lines[number] = new


def _lines(data: bytes, file: Path) -> list[Balance]:
    return [_parsed(data[at : at + _LINE], file) for at in range(0, max(1, len(data)), _LINE)]


@functools.lru_cache(maxsize=4096)  # most lines have not changed since the last read
def _parsed(line: bytes, file: Path) -> Balance:
    text = line.rstrip(b"\0 ").decode(errors="replace")
    try:
        fields: dict[str, Any] = json.loads(text) if text else {}
        return Balance(**{name: value for name, value in fields.items() if name in _NAMES})
    except (ValueError, TypeError, AttributeError):
        raise ConfigError(
            f"The account {file} is damaged, so the amount spent is not known",
            "Remove the file, and lower --budget by what `heavydistill journal stats` shows.",
        ) from None


def _total(lines: list[Balance]) -> Balance:
    """The balance of the account: the main line and the lines of the current run's shards."""
    total = lines[0]
    for line in lines[1:]:
        if line.starts == total.starts:
            total = total.plus(reserved=line.reserved, in_flight=line.in_flight)
    return total


def _unusable(file: Path, error: OSError) -> ConfigError:
    fix = f"{remedy(error, 'another --journal')}."
    return ConfigError(f"The account {file} cannot be used: {error.strerror}", fix)


def _bytes(request: Request) -> int:
    """Upper bound of the tokens of a request's prompt, including the chat template."""
    return sum(len(text.encode()) + TEMPLATE_TOKENS for text in texts_of(request.messages))

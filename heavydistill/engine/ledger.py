"""What a run has spent on served models, over all its processes and resumptions, and its cap.

A file of one line beside the journal. Before a request is sent, the most that it can cost is
reserved there; when it has ended, what it did cost is booked instead. So the cap holds however
many processes ask at once. What a server did not count is booked at the most that it can have
been: a token is at least a byte. What was in flight when a run was killed is booked at the mean of
what came back, because it may have been billed.

Whoever runs holds a lock on the file's neighbour, so that the same run is not done twice at once.
On a network file system the locks must work between hosts, as they do on NFS 4.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from heavydistill.config import RunConfig
from heavydistill.engine.request import Request, Response
from heavydistill.engine.tokenizer import TEMPLATE_TOKENS
from heavydistill.errors import ConfigError, StoppedError
from heavydistill.schema import Failure

# Failures before a model began to write.
_FREE: frozenset[Failure | None] = frozenset(
    {"overloaded", "unreachable", "server", "rejected", "too_long", "context_overflow", "no_credit"}
)
_LINE = 512  # every line is as long, so that a new one covers the old one in a single write


@dataclass(frozen=True, slots=True)
class Cost:
    """What requests take.

    Attributes:
        tokens: Prompts and responses.
        usd: Money; 0 if the price is not known.
    """

    tokens: float = 0
    usd: float = 0.0


@dataclass(frozen=True, slots=True)
class Balance:
    """The line of the file.

    Attributes:
        spent_tokens: Booked.
        spent_usd: Likewise; 0 if the price is not known.
        reserved_tokens: For what is in flight.
        reserved_usd: Likewise.
        in_flight: Requests that were sent and have not ended.
        ended: Requests that have.
        estimated: Of those, the ones whose tokens nobody counted.
    """

    spent_tokens: float = 0
    spent_usd: float = 0.0
    reserved_tokens: float = 0
    reserved_usd: float = 0.0
    in_flight: int = 0
    ended: int = 0
    estimated: int = 0


@dataclass(frozen=True, slots=True)
class Tariff:
    """What a model's tokens cost.

    Attributes:
        usd_in: US dollars for one token of a prompt; 0 if that is not known.
        usd_out: The same for one of a response.
    """

    usd_in: float = 0.0
    usd_out: float = 0.0

    def most(self, requests: list[Request]) -> Cost:
        """The most that one call for these samples of one prompt can cost."""
        return self._cost(_bytes(requests[0]), sum(r.sampling.max_tokens for r in requests))

    def of(self, requests: list[Request], responses: list[Response]) -> tuple[Cost, bool]:
        """(what a call cost, whether that was counted and not bounded).

        Args:
            requests: What was asked.
            responses: What came of it; fewer if the server left some out.
        """
        counts = [c for r in responses for c in (r.prompt_tokens, r.completion_tokens)]
        if min(counts) >= 0:
            prompt = sum(r.prompt_tokens for r in responses)
            return self._cost(prompt, sum(r.completion_tokens for r in responses)), True
        if all(r.failure in _FREE for r in responses):
            return Cost(), True
        written = 0
        for request, response in zip(requests, responses, strict=False):
            most = request.sampling.max_tokens
            text = len((response.reasoning + response.answer_text).encode())
            written += most if response.finish_reason == "error" else min(most, text)
        return self._cost(_bytes(requests[0]), written), False

    def _cost(self, prompt: float, completion: float) -> Cost:
        usd = prompt * self.usd_in + completion * self.usd_out
        return Cost(prompt + completion, usd)


def account_of(config: RunConfig) -> Path:
    """The file of a run; ``journal`` must be set."""
    return Path(config.journal or "") / f"{config.identity}.ledger"


def balance_of(file: Path) -> Balance:
    """What stands in an account; nothing if there is none."""
    return _parsed(file.read_bytes()) if file.is_file() else Balance()


class Ledger:
    """The account of one run, opened by one process.

    Args:
        file: Made if it is not there.
        most_tokens: The cap, if it is in tokens.
        most_usd: The cap, if it is in money.

    Raises:
        ConfigError: The file cannot be used.
    """

    def __init__(
        self, file: Path, most_tokens: int | None = None, most_usd: float | None = None
    ) -> None:
        self._path = file
        self._most_tokens, self._most_usd = most_tokens, most_usd
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise ConfigError(
                f"The account {file} cannot be used: {error.strerror}", "Name another --journal."
            ) from error

    @property
    def balance(self) -> Balance:
        with self._locked() as balance:
            return balance

    def reserve(self, most: Cost) -> bool:
        """Set aside the most that a call can cost; False while that has to wait for others.

        Raises:
            StoppedError: It does not fit any more, and nothing is in flight.
        """
        with self._locked() as balance:
            if not self._fits(balance, most):
                if balance.in_flight:
                    return False
                raise self._spent(balance, most)
            self._write(
                replace(
                    balance,
                    reserved_tokens=balance.reserved_tokens + most.tokens,
                    reserved_usd=balance.reserved_usd + most.usd,
                    in_flight=balance.in_flight + 1,
                )
            )
            return True

    def settle(self, reserved: Cost, cost: Cost, counted: bool) -> None:
        """Book what a call cost in place of what was reserved for it."""
        with self._locked() as balance:
            self._write(
                replace(
                    balance,
                    spent_tokens=balance.spent_tokens + cost.tokens,
                    spent_usd=balance.spent_usd + cost.usd,
                    reserved_tokens=balance.reserved_tokens - reserved.tokens,
                    reserved_usd=balance.reserved_usd - reserved.usd,
                    in_flight=balance.in_flight - 1,
                    ended=balance.ended + 1,
                    estimated=balance.estimated + (not counted),
                )
            )

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """While this lasts nobody else does this run.

        Raises:
            ConfigError: Somebody does.
        """
        lock = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._book_the_abandoned()
            yield
        except BlockingIOError:
            raise ConfigError(
                "The same run is in progress, and both would pay for the same",
                "Wait for it, or change what is asked, for instance --seed.",
            ) from None
        finally:
            os.close(lock)

    def close(self) -> None:
        os.close(self._file)

    def _book_the_abandoned(self) -> None:
        """What was in flight when the run was killed, at the mean of what came back."""
        with self._locked() as balance:
            share = balance.in_flight / balance.ended if balance.ended else 0
            self._write(
                Balance(
                    spent_tokens=balance.spent_tokens * (1 + share),
                    spent_usd=balance.spent_usd * (1 + share),
                    ended=balance.ended + balance.in_flight,
                    estimated=balance.estimated + balance.in_flight,
                )
            )

    def _fits(self, balance: Balance, most: Cost) -> bool:
        tokens = balance.spent_tokens + balance.reserved_tokens + most.tokens
        usd = balance.spent_usd + balance.reserved_usd + most.usd
        return (self._most_tokens is None or tokens <= self._most_tokens) and (
            self._most_usd is None or usd <= self._most_usd
        )

    def _spent(self, balance: Balance, most: Cost) -> StoppedError:
        if self._most_usd is not None:
            spent = f"{balance.spent_usd:.2f} of {self._most_usd:g} USD are spent"
            more = f"{most.usd:.2g} USD"
        else:
            spent = f"{balance.spent_tokens:,.0f} of {self._most_tokens:,} tokens are spent"
            more = f"{most.tokens:,.0f} tokens"
        return StoppedError(
            f"The budget does not hold another request: {spent}, and it may take {more}",
            "The same command with a higher --budget goes on and pays for nothing twice.",
        )

    @contextlib.contextmanager
    def _locked(self) -> Iterator[Balance]:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            line = os.pread(self._file, _LINE, 0)
            yield _parsed(line)
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _write(self, balance: Balance) -> None:
        os.pwrite(self._file, json.dumps(asdict(balance)).encode().ljust(_LINE), 0)


def _parsed(line: bytes) -> Balance:
    return Balance(**json.loads(line)) if line else Balance()


def _bytes(request: Request) -> int:
    """No fewer than the tokens of its prompt, with what a chat template puts around each turn."""
    return sum(len(turn["content"].encode()) + TEMPLATE_TOKENS for turn in request.messages)

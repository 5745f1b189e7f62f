"""Tells a server that is gone or broken from a request that it cannot bear.

An overload and a refused connection say nothing of the request. Any other fault is held to be
general only once several prompts have met it and nothing else has come since, not even a piece of a
stream. Where fewer prompts are asked, a plain question is asked before one of them is given up, and
what becomes of that is the answer; likewise when the first prompts are all refused.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

from heavydistill.errors import StoppedError, TeacherError
from heavydistill.models.http.completion import ChatCompletion
from heavydistill.models.http.errors import OF_THE_SERVER, OUTAGES
from heavydistill.models.request import Request, Response
from heavydistill.store.journal import prompt_id

_PROMPTS = 3
_SILENT = OUTAGES | OF_THE_SERVER


class CircuitBreaker:
    """Watches all servers of a model for silence."""

    def __init__(self, model: str, patience_s: float) -> None:
        self._model, self._patience_s = model, patience_s
        self._answered_at = self._doubted_at = -math.inf
        self._is_confirmed = False
        self._open: set[ChatCompletion] = set()
        # When each prompt that met nothing else since was sent first.
        self._since: dict[str, float] = {}

    @property
    def heard_at(self) -> float:
        """Time of the loop of the last sign of life; the pieces of a stream that broke are none."""
        return max([self._answered_at, *(reply.heard_at for reply in self._open)])

    @contextlib.contextmanager
    def listening(self, reply: ChatCompletion) -> Iterator[None]:
        """While this lasts the pieces of a reply are signs of life."""
        self._open.add(reply)
        try:
            yield
        finally:
            self._open.remove(reply)

    def note(self, response: Response, now: float) -> None:
        """Note what came of an attempt, at this time of the loop."""
        if response.failure not in _SILENT:
            self._answered_at = now

    def is_general(self, request: Request, response: Response, sent: float, now: float) -> bool:
        """Whether a failure is one of all servers, so that its attempt does not count.

        Raises:
            StoppedError: That is so for longer than anybody should wait.
        """
        heard_at = self.heard_at
        if response.failure not in _SILENT or sent <= heard_at:
            return False
        self._since = {p: since for p, since in self._since.items() if since > heard_at}
        self._since.setdefault(prompt_id(request.messages), sent)
        is_doubted = self._doubted_at > heard_at
        is_sure = response.failure in OF_THE_SERVER or len(self._since) >= _PROMPTS
        is_sure |= is_doubted and self._is_confirmed
        if is_sure and (seconds := now - min(self._since.values())) > self._patience_s:
            raise StoppedError(
                f"No server of {self._model} has answered for {seconds:.0f} s: {response.error}",
                "Give the same command again when one does; what was answered is kept.",
            )
        return is_sure or is_doubted

    def doubts(self, request: Request, sent: float, is_last: bool) -> bool:
        """Whether to ask a plain question, once in a silence: too few prompts tell what is wrong.

        Until the server gives a sign of life all failures are general.
        """
        heard_at = self.heard_at
        since = self._since.get(prompt_id(request.messages), heard_at)
        if since <= heard_at or self._doubted_at > heard_at or len(self._since) >= _PROMPTS:
            return False
        if not is_last and sent - since <= self._patience_s:
            return False
        self._doubted_at, self._is_confirmed = sent, False
        return True

    def judge(self, response: Response) -> None:
        """Take note of what became of the plain question."""
        self._is_confirmed = response.failure in _SILENT


class RejectionBreaker:
    """Watches the first responses of a model."""

    def __init__(self, model: str, where: str) -> None:
        self._model, self._where = model, where
        self._prompts: set[str] | None = set()

    def doubts(self, request: Request, response: Response) -> bool:
        """Whether to ask a plain question, once, as the first prompts are all refused."""
        if self._prompts is None:
            return False
        if response.failure == "rejected":
            self._prompts.add(prompt_id(request.messages))
        is_reached = len(self._prompts) >= _PROMPTS
        if is_reached or response.failure is None:
            self._prompts = None
        return is_reached

    def judge(self, response: Response) -> None:
        """Look at what became of the plain question. Raises TeacherError if it is refused too."""
        if response.failure == "rejected":
            raise TeacherError(
                f"{self._where} refuses all that is asked of {self._model}: {response.error}",
                "Correct the key, the name of the model or the parameter that it speaks of; "
                "`heavydistill doctor` finds out which parameters it takes.",
            )

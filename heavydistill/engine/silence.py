"""Tells a server that is gone from a request that it cannot bear.

An overload and a refused connection say nothing of the request. A time-out and an error of the
server may be due to it, so they are held to be general only once several prompts have met them
and no server has given a sign of life since: a piece of a response, or any answer but those.

Not covered: servers that begin every response and break off, which is no silence.
"""

from __future__ import annotations

import math

from heavydistill.engine.failures import OF_THE_SERVER, OUTAGES
from heavydistill.engine.journal import prompt_id
from heavydistill.engine.request import Request, Response
from heavydistill.errors import StoppedError

_PROMPTS = 3
_SILENT = OUTAGES | OF_THE_SERVER


class Silence:
    """Of all servers of a model.

    Args:
        model: Who is asked.
        patience_s: How long it is borne.

    Attributes:
        heard_at: Time of the loop of the last sign of life.
    """

    def __init__(self, model: str, patience_s: float) -> None:
        self.heard_at = -math.inf
        self._model, self._patience_s = model, patience_s
        self._since: dict[str, float] = {}
        """Of each prompt that met nothing else since, when it was sent first."""

    def note(self, response: Response, now: float) -> None:
        """Whatever came of an attempt, at this time of the loop."""
        if response.failure not in _SILENT:
            self.heard_at = now

    def is_general(self, request: Request, response: Response, sent: float, now: float) -> bool:
        """Whether a failure is one of all servers, so that its attempt does not count.

        Args:
            request: That failed.
            response: How.
            sent: Time of the loop at which it was sent.
            now: Time of the loop.

        Raises:
            StoppedError: That is so for longer than anybody should wait.
        """
        if response.failure not in _SILENT or sent <= self.heard_at:
            return False
        self._since = {p: since for p, since in self._since.items() if since > self.heard_at}
        since = self._since.setdefault(prompt_id(request.messages), sent)
        if response.failure not in OF_THE_SERVER and len(self._since) < _PROMPTS:
            return False
        if (seconds := now - since) > self._patience_s:
            raise StoppedError(
                f"No server of {self._model} has answered for {seconds:.0f} s: {response.error}",
                "Give the same command again when one does; what was answered is kept.",
            )
        return True

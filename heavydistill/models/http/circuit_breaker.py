"""Tells what is wrong with a server or a model from a request that it cannot bear.

An overload and a refused connection say nothing of the request. Any other fault is held to be
general only once several prompts have met it and nothing else has come since, not even a piece of a
stream. Where fewer prompts are asked, a plain question is asked before one of them is given up, and
what becomes of that is the answer; likewise when the first prompts are all refused.

A model that is known to think must bring some thinking at first. Until it has, a response without
is a failure, so that it is asked for again once the server is set right; after that the model may
answer what is easy at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from heavydistill.errors import StoppedError, TeacherError
from heavydistill.models.http.completion import ChatCompletion
from heavydistill.models.http.errors import OF_THE_SERVER, OUTAGES
from heavydistill.models.request import Request, Response
from heavydistill.store.journal import prompt_id

_PROMPTS = 3
_FIRST_WITHOUT = 3  # responses without thinking
_SILENT = OUTAGES | OF_THE_SERVER


class CircuitBreaker:
    """Watches what a model brings at all of its servers, ``where``.

    No silence may be longer than ``patience_s``, and if it ``must_think``, it must bring thinking.
    """

    def __init__(self, model: str, where: str, patience_s: float, must_think: bool) -> None:
        self._model, self._where, self._patience_s = model, where, patience_s
        self._answered_at = self._doubted_at = -math.inf
        self._is_confirmed = False
        self._open: set[ChatCompletion] = set()
        # When each prompt that met nothing else since was sent first.
        self._since: dict[str, float] = {}
        self._refused: set[str] | None = set()  # the first prompts, as long as all are refused
        self._without: int | None = 0 if must_think else None  # as long as none has thinking

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

    def note(self, response: Response) -> None:
        """Note what came of an attempt just now."""
        if response.failure not in _SILENT:
            self._answered_at = asyncio.get_running_loop().time()

    def is_general(self, request: Request, response: Response, sent: float) -> bool:
        """Whether a failure is one of all servers, so that its attempt does not count.

        Raises:
            StoppedError: All servers have failed for longer than a run should wait.
        """
        heard_at = self.heard_at
        if response.failure not in _SILENT or sent <= heard_at:
            return False
        self._since = {p: since for p, since in self._since.items() if since > heard_at}
        self._since.setdefault(prompt_id(request.messages), sent)
        is_doubted = self._doubted_at > heard_at
        is_sure = response.failure in OF_THE_SERVER or len(self._since) >= _PROMPTS
        is_sure |= is_doubted and self._is_confirmed
        seconds = asyncio.get_running_loop().time() - min(self._since.values())
        if is_sure and seconds > self._patience_s:
            raise StoppedError(
                f"No server of {self._model} has answered for {seconds:.0f} s: {response.error}",
                "Give the same command again when one does; what was answered is kept.",
            )
        return is_sure or is_doubted

    def doubts_servers(self, request: Request, sent: float, is_last: bool) -> bool:
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

    def doubts_refusals(self, request: Request, response: Response) -> bool:
        """Whether to ask a plain question, once, as the first prompts are all refused."""
        if self._refused is None:
            return False
        if response.failure == "rejected":
            self._refused.add(prompt_id(request.messages))
        is_reached = len(self._refused) >= _PROMPTS
        if is_reached or response.failure is None:
            self._refused = None
        return is_reached

    def judge(self, response: Response) -> None:
        """Look at what became of the plain question. Raises TeacherError if it is refused too."""
        self._is_confirmed = response.failure in _SILENT
        if response.failure == "rejected":
            raise TeacherError(
                f"{self._where} refuses all that is asked of {self._model}: {response.error}",
                "Correct the key, the name of the model or the parameter that it speaks of; "
                "`heavydistill doctor` finds out which parameters it takes.",
            )

    def checked(self, responses: list[Response]) -> list[Response]:
        """The responses; failures if they lack the thinking, which none has shown so far.

        Raises:
            TeacherError: The first three lack it.
        """
        thinks = any(response.reasoning for response in responses)
        thinks |= any(reply.place != "none" for reply in self._open)  # streams have begun to
        if self._without is None or thinks:
            self._without = None
            return responses
        # A response that was cut off may have been cut off before its thinking ended.
        self._without += sum(response.finish_reason == "stop" for response in responses)
        if self._without >= _FIRST_WITHOUT:
            raise TeacherError(
                f"{self._model} is known to think, and its first {_FIRST_WITHOUT} responses at "
                f"{self._where} hold no thinking",
                "A vLLM server needs --reasoning-parser (`heavydistill teachers` shows the "
                "profile's command), a provider may need a switch in the profile's extra_body or "
                "hide it; `heavydistill doctor` finds out. To do without: "
                "--set endpoint.reasoning=optional.",
            )
        lost: dict[str, Any] = {
            "finish_reason": "error",
            "failure": "no_reasoning",
            "error": "The response holds no thinking.",
        }
        return [replace(r, **lost) if r.finish_reason == "stop" else r for r in responses]

"""Distinguishes failures of a server or a model from failures of single requests.

An overload and a refused connection are never caused by a request. Any other failure may be: a
prompt can break a server or a filter of a gateway, every time. After a few of them without any data
in between, before a request is given up, or if all of the first prompts are refused, a simple test
question is sent. If it is answered, the prompts that failed are at fault: their failures count as
attempts and say nothing about the server, until one of them is answered. If not, it is an outage,
and the question is repeated every minute.

A server that misnames the end of its responses, or puts their answers into the thinking, does so
for all of them: after ``_MOST_IN_A_ROW`` the run stops.

A model that is known to think must return thinking in one of its first responses. Until then, a
response without thinking counts as a failure, so that it is requested again when the server is
configured correctly. Later, responses without thinking are accepted, because the model may answer
easy problems directly.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from heavydistill.errors import StoppedError, TeacherError
from heavydistill.models.http.completion import ChatCompletion
from heavydistill.models.http.failures import OF_THE_SERVER, OUTAGES
from heavydistill.models.http.finish_reasons import PARSER_AT_FAULT, PARSER_FIX
from heavydistill.models.request import Request, Response
from heavydistill.store.journal import prompt_id

_REFUSED_PROMPTS = 3
_UNCLEAR_FAILURES = 3  # without data in between
_ASK_AGAIN_S = 60.0
_IDLE_S = 120.0  # longer than any pause between attempts, so that no request was waiting
_FIRST_WITHOUT = 3  # number of responses without thinking
_MOST_IN_A_ROW = 8  # number of responses in a row that end for a reason that is not known
_log = logging.getLogger("heavydistill.models")
_GONE_S = 60.0
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
_SILENT = OUTAGES | OF_THE_SERVER


class CircuitBreaker:
    """Watches the responses of one model from all of its servers.

    Args:
        model: Served name of the model.
        where: Addresses of the servers, for messages.
        patience_s: Maximum number of seconds without data before the run is stopped.
        must_think: Whether one of the first responses must contain thinking.
        routing: Parameters of the requests that choose a host, for messages.
    """

    def __init__(
        self,
        model: str,
        where: str,
        patience_s: float,
        must_think: bool,
        routing: Mapping[str, object] | None = None,
    ) -> None:
        self._routed = ""
        if routing:
            self._routed = (
                f" No host may satisfy {json.dumps(routing)}, which requests ask for: --extra-body "
                "changes it, e.g. --extra-body '{provider: {quantizations: null}}'."
            )
        self._model, self._where, self._patience_s = model, where, patience_s
        self._answered_at = self._doubted_at = self._failed_at = -math.inf
        self._is_asking = self._is_confirmed = False  # about the test question
        self._gone_since = math.nan  # ``heard_at`` of the silence in which servers were named
        self._open: set[ChatCompletion] = set()
        # Maps each prompt that has only failed since the last data arrived to its first send time.
        self._since: dict[str, float] = {}
        # How often each prompt has failed, maybe by itself, since the last response.
        self._unclear: Counter[str] = Counter()
        self._at_fault: set[str] = set()  # prompts that failed while a test question was answered
        self._refused: set[str] | None = set()  # the first prompts; None once one is accepted
        self._has_answered = False
        self._without: int | None = 0 if must_think else None  # None once a response has thinking
        # What is wrong with the end of the last responses, and how many in a row have it.
        self._wrong_end, self._in_a_row = "", 0
        self._warned: set[str] = set()

    @property
    def heard_at(self) -> float:
        """Event loop time of the last received data; streams that broke off do not count."""
        return max([self._answered_at, *(reply.heard_at for reply in self._open)])

    @contextlib.contextmanager
    def listening(self, reply: ChatCompletion) -> Iterator[None]:
        """Record received pieces of ``reply`` as signs that the server works."""
        self._open.add(reply)
        try:
            yield
        finally:
            self._open.remove(reply)

    def note(self, request: Request, response: Response) -> None:
        """Record the response to an attempt that has just ended."""
        self._has_answered |= response.failure is None
        if response.failure not in _SILENT:
            self._answered_at = asyncio.get_running_loop().time()
            if self._at_fault:
                self._at_fault.discard(prompt_id(request.messages))
            if not self._is_asking:
                self._unclear.clear()
        self._note_end(response)

    def excuses(self, request: Request, response: Response) -> bool:
        """Whether a failure is due to the prompt and says nothing about the servers."""
        may_be = self._at_fault and response.failure in OUTAGES - OF_THE_SERVER
        return bool(may_be) and prompt_id(request.messages) in self._at_fault

    def _note_end(self, response: Response) -> None:
        """Count responses in a row with the same wrong end; warn of the first one."""
        wrong: str = response.unknown_finish_reason
        if response.failure == "answer_in_thinking":
            wrong = PARSER_AT_FAULT
        elif response.failure and not wrong:  # no reply, so it says nothing about ends
            return
        self._in_a_row = self._in_a_row + 1 if wrong == self._wrong_end else 1
        self._wrong_end = wrong
        if wrong and wrong not in self._warned:
            self._warned.add(wrong)
            what, fix = self._end_fault("a response")
            _log.warning("%s. %s", what, fix)

    def require_known_ends(self) -> None:
        """Raise a TeacherError if too many responses in a row have the same wrong end."""
        if self._wrong_end and self._in_a_row >= _MOST_IN_A_ROW:
            raise TeacherError(*self._end_fault(f"{self._in_a_row} responses in a row"))

    def _end_fault(self, responses: str) -> tuple[str, str]:
        """What is wrong with the end of these responses, and the fix."""
        of = f"{responses} of {self._model} at {self._where}"
        if self._wrong_end == PARSER_AT_FAULT:
            return f"In {of} {PARSER_AT_FAULT}", PARSER_FIX
        return (
            f"The server ended {of} with the finish reason {self._wrong_end!r}, which is not known",
            "Responses that hold a final answer are used. Run `heavydistill doctor` with the same "
            "flags: it finds out what the reason means, and runs obey it.",
        )

    def is_outage(self, request: Request, response: Response, sent: float) -> bool:
        """Whether the servers caused a failure, so that the attempt does not count.

        Raises:
            StoppedError: All servers have failed for longer than ``patience_s``.
        """
        if response.failure not in _SILENT:
            return False
        heard_at, prompt = self.heard_at, prompt_id(request.messages)
        is_sure = response.failure in OF_THE_SERVER
        if not is_sure:
            is_sure = self._is_confirmed and self._doubted_at > heard_at
            if not is_sure and self.excuses(request, response):
                return False
            self._unclear[prompt] += 1
        if sent <= heard_at:
            return False
        now, is_new = asyncio.get_running_loop().time(), sent - self._failed_at > _IDLE_S
        self._failed_at = now
        self._since = {p: t for p, t in self._since.items() if t > heard_at and not is_new}
        self._since.setdefault(prompt, sent)
        seconds = now - min(self._since.values())
        if response.failure == "unreachable" and seconds > _GONE_S:
            self._warn_of_ended_servers(heard_at, seconds)
        if is_sure and seconds > self._patience_s:
            raise StoppedError(
                f"No server of {self._model} has answered for {seconds:.0f} s: {response.error}",
                "Repeat the same command when a server answers again; all responses are kept.",
            )
        return is_sure or self._is_asking

    def _warn_of_ended_servers(self, heard_at: float, seconds: float) -> None:
        """Warn, once per silence, that the servers of this machine do not run any more."""
        urls = self._where.split(",")
        if self._gone_since != heard_at and all(
            urlsplit(u).hostname in _THIS_MACHINE for u in urls
        ):
            self._gone_since = heard_at
            _log.warning(
                "Nothing listens at %s any more (%.0f s): the server of %s has ended. Start it "
                "again and the run goes on, or it stops after %g s without an answer.",
                self._where,
                seconds,
                self._model,
                self._patience_s,
            )

    def should_probe(self, request: Request, sent: float, is_last: bool) -> bool:
        """Whether to send a test question, to find out whether the servers or the prompts fail.

        Until the response arrives, all failures count as outages.
        """
        heard_at, prompt = self.heard_at, prompt_id(request.messages)
        if self._is_asking or not self._unclear[prompt]:
            return False
        if self._is_confirmed and self._doubted_at > heard_at:
            is_due = sent - self._doubted_at > _ASK_AGAIN_S
        else:
            since = self._since.get(prompt, heard_at)
            is_due = since > heard_at and (is_last or sent - since > self._patience_s)
            is_due |= self._unclear.total() >= _UNCLEAR_FAILURES
        if is_due:
            self._doubted_at, self._is_asking = asyncio.get_running_loop().time(), True
        return is_due

    def should_probe_refusals(self, request: Request, response: Response) -> bool:
        """Whether to send a test question because all first prompts were refused; at most once."""
        if self._refused is None:
            return False
        if response.failure == "rejected":
            self._refused.add(prompt_id(request.messages))
        is_reached = len(self._refused) >= _REFUSED_PROMPTS
        if is_reached or response.failure is None:
            self._refused = None
        return is_reached

    def note_plain_answer(self, response: Response) -> None:
        """Record the response to the test question.

        Raises:
            TeacherError: The question is refused, and no request has been answered yet.
        """
        self._is_asking, self._is_confirmed = False, response.failure in _SILENT
        if not self._is_confirmed:
            self._at_fault.update(self._unclear)
            self._unclear.clear()
        if response.failure == "rejected" and not self._has_answered:
            raise TeacherError(
                f"{self._where} refuses every request to {self._model}: {response.error}",
                "Correct the key, the name of the model or the parameter in that message; "
                "`heavydistill doctor` with the same flags tests which parameters work."
                f"{self._routed}",
            )

    def require_thinking(self, responses: list[Response]) -> list[Response]:
        """The responses; converted to failures if thinking is required and none has arrived yet.

        Raises:
            TeacherError: The first three responses hold no thinking.
        """
        if self._without is None:  # as nearly always: the open streams are many
            return responses
        thinks = any(response.reasoning for response in responses)
        thinks |= any(reply.place != "none" for reply in self._open)  # or an open stream does
        if thinks:
            self._without = None
            return responses
        # A truncated response may have ended before the end of its thinking, so it is not counted.
        self._without += sum(response.finish_reason == "stop" for response in responses)
        if self._without >= _FIRST_WITHOUT:
            raise TeacherError(
                f"The first {_FIRST_WITHOUT} responses of {self._model} at {self._where} contain "
                "no thinking, although the model is known to think",
                "Start vLLM with --reasoning-parser (`heavydistill teachers NAME` prints the "
                "command); a provider may hide the thinking, or need a switch in the profile's "
                "extra_body (see `heavydistill doctor`). To accept responses without thinking: "
                "--set endpoint.reasoning=optional.",
            )
        lost: dict[str, Any] = {
            "finish_reason": "error",
            "failure": "no_reasoning",
            "error": "The response holds no thinking.",
        }
        return [replace(r, **lost) if r.finish_reason == "stop" else r for r in responses]

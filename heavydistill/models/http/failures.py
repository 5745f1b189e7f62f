"""The kinds of request failures, and the exceptions from which they are determined."""

from __future__ import annotations

import re
from collections.abc import Mapping

from heavydistill.config.models import Endpoint
from heavydistill.errors import TeacherError
from heavydistill.schema import Failure

# Failures that may succeed on another attempt; all others would fail again, or were billed.
REPEATABLE: frozenset[Failure | None] = frozenset(
    {"overloaded", "timeout", "unreachable", "server", "cut_off", "malformed", "answer_in_thinking"}
)
# Failures before the server processed the request; they say nothing about the request itself.
OF_THE_SERVER: frozenset[Failure | None] = frozenset({"overloaded", "unreachable"})
# Failures that a broken server returns for every request.
OUTAGES = REPEATABLE - {"overloaded", "answer_in_thinking"}

# Servers have no common error code for a prompt that is too long; these are the phrases of vLLM,
# SGLang, OpenAI, llama.cpp, TGI and others.
_TOO_LONG = re.compile(
    r"context_length_exceeded|context[ _](?:length|size)|context window|max_model_len|too long"
    r"|maximum (?:input|prompt|number of tokens)|reduce the length"
    r"|`inputs` (?:tokens|must have less than)",
    re.IGNORECASE,
)
# TGI states the tokens of prompt and response, which show whether the prompt alone would fit.
_TGI_SAID = re.compile(r"must be <= (\d+)\. Given: (\d+) `inputs` tokens")
# If the prompt alone would fit, these servers also mention the response.
_RESPONSE_TOO = re.compile(r"in the completion|max_(?:completion_|new_)?tokens", re.IGNORECASE)
# Limit of tokens per minute that this single request exceeds, with any status.
_NEVER_FITS = re.compile(r"request too large|tokens must be reduced", re.IGNORECASE)
_NO_CREDIT = re.compile(r"insufficient[ _](?:quota|balance|credit|funds)", re.IGNORECASE)
_OVERLOADED = (429, 503, 529)
_PAYMENT_REQUIRED, _TOO_LARGE = 402, 413


class OverrunError(Exception):
    """A reply is far longer than ``max_tokens``; ``tokens`` is an upper bound of its length."""

    def __init__(self, what: str, tokens: int) -> None:
        super().__init__(what)
        self.tokens = tokens


class ServerFault(Exception):
    """An error that a server sends instead of a completion, or in the middle of one.

    ``status`` is the corresponding HTTP status; ``is_midway`` is True if the error came in a
    stream, possibly after part of the response.
    """

    def __init__(self, message: str, status: int, is_midway: bool) -> None:
        super().__init__(f"the server reports an error: {message}")
        self.status, self.is_midway = status, is_midway


class RefusedError(Exception):
    """The server replied with an HTTP error."""

    def __init__(self, status: int, headers: Mapping[str, str], message: str) -> None:
        super().__init__(f"HTTP {status}: {message}")
        self.status, self.headers = status, headers


def wrong_key(url: str, endpoint: Endpoint, status: int) -> TeacherError:
    """The error for a server that refuses the key."""
    return TeacherError(
        f"{url} refuses the key in {endpoint.key_env} ({status})"
        f"{'' if endpoint.key else ', which is not set'}",
        f"Run `export {endpoint.key_env}=...` with a valid key, or name another variable with "
        "--set endpoint.api_key_env=NAME, and repeat the command.",
    )


def failure_of(error: Exception) -> Failure:
    """Classify the failure of a request by its exception."""
    from aiohttp import ClientConnectorError, ClientError, ConnectionTimeoutError

    if isinstance(error, RefusedError):
        return _failure_of_status(error.status, str(error))
    if isinstance(error, ServerFault):
        kind = _failure_of_status(error.status, str(error))
        return "cut_off" if kind == "server" and error.is_midway else kind
    if isinstance(error, ClientConnectorError | ConnectionTimeoutError):
        return "unreachable"
    if isinstance(error, TimeoutError):
        return "timeout"
    is_cut_off = isinstance(error, ClientError | OSError | OverrunError)
    return "cut_off" if is_cut_off else "malformed"


def _failure_of_status(status: int, text: str) -> Failure:
    if status == _PAYMENT_REQUIRED or _NO_CREDIT.search(text):
        return "no_credit"
    if _NEVER_FITS.search(text):
        return "too_long"
    if status in _OVERLOADED:
        return "overloaded"
    if status >= 500:
        return "server"
    if status == _TOO_LARGE or _TOO_LONG.search(text):
        if match := _TGI_SAID.search(text):
            return "too_long" if int(match[2]) >= int(match[1]) else "context_overflow"
        return "context_overflow" if _RESPONSE_TOO.search(text) else "too_long"
    return "rejected"

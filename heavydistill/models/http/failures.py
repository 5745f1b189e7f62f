"""The kinds of failures of a request, and the exceptions that they are read from."""

from __future__ import annotations

import re
from collections.abc import Mapping

from heavydistill.config.models import Endpoint
from heavydistill.errors import TeacherError
from heavydistill.schema import Failure

# Failures after which another attempt may succeed; others would repeat, or were billed.
REPEATABLE: frozenset[Failure | None] = frozenset(
    {"overloaded", "timeout", "unreachable", "server", "cut_off", "malformed"}
)
# Failures before the server began with the request, which say nothing about it.
OF_THE_SERVER: frozenset[Failure | None] = frozenset({"overloaded", "unreachable"})
# Failures that a broken server causes for every request.
OUTAGES = REPEATABLE - {"overloaded"}

# Servers have no common code for a prompt that is too long; these are the words of vLLM, SGLang,
# OpenAI, llama.cpp, TGI and others.
_TOO_LONG = re.compile(
    r"context_length_exceeded|context[ _](?:length|size)|context window|max_model_len|too long"
    r"|maximum (?:input|prompt|number of tokens)|reduce the length"
    r"|`inputs` (?:tokens|must have less than)",
    re.IGNORECASE,
)
# TGI names the tokens of prompt and response, which tell whether the prompt alone would fit.
_TGI_SAID = re.compile(r"must be <= (\d+)\. Given: (\d+) `inputs` tokens")
# The prompt alone would fit: then these servers also mention the response.
_RESPONSE_TOO = re.compile(r"in the completion|max_(?:completion_|new_)?tokens", re.IGNORECASE)
# A limit of tokens per minute that this request alone exceeds, with any status.
_NEVER_FITS = re.compile(r"request too large|tokens must be reduced", re.IGNORECASE)
_NO_CREDIT = re.compile(r"insufficient[ _](?:quota|balance|credit|funds)", re.IGNORECASE)
_OVERLOADED = (429, 503, 529)
_PAYMENT_REQUIRED, _TOO_LARGE = 402, 413


class OverrunError(Exception):
    """A reply goes on far past ``max_tokens``; ``tokens`` is an upper bound of its length."""

    def __init__(self, what: str, tokens: int) -> None:
        super().__init__(what)
        self.tokens = tokens


class ServerFault(Exception):
    """An error that a server sends instead of a completion or its rest.

    ``status`` is the HTTP status that it stands for; ``is_midway`` says whether it came in a
    stream, maybe after a part of the response.
    """

    def __init__(self, message: str, status: int, is_midway: bool) -> None:
        super().__init__(f"the server reports an error: {message}")
        self.status, self.is_midway = status, is_midway


class RefusedError(Exception):
    """The server answers with an HTTP error."""

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
    """The kind of a failure."""
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
        if said := _TGI_SAID.search(text):
            return "too_long" if int(said[2]) >= int(said[1]) else "context_overflow"
        return "context_overflow" if _RESPONSE_TOO.search(text) else "too_long"
    return "rejected"

"""The kinds of failures of a request, and what a server says in place of an answer.

JSON of any depth, counts, errors, ids and names become values of known types, whatever a server has
sent; counts are read by the same rule from a journal. Not covered: the texts of a model, which
``completion`` reads.
"""

from __future__ import annotations

import email.utils
import json
import math
import re
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from heavydistill.config.models import Endpoint
from heavydistill.errors import TeacherError, printable
from heavydistill.schema import Failure

UNKNOWN = -1
_MOST_COUNTED = 2**31
_MOST_SAID = 500
_STATUS_UNKNOWN = 500
# What providers call the errors whose number they do not give.
_NAMES_OF_STATUS = {
    400: "invalid_request_error invalid_argument context_length_exceeded exceed_context_size_error",
    401: "authentication_error invalid_api_key unauthenticated",
    402: "billing_error insufficient_balance insufficient_quota",
    403: "permission_denied permission_error",
    404: "model_not_found not_found_error",
    429: "rate_limit_error rate_limit_exceeded resource_exhausted too_many_requests",
    503: "unavailable unavailable_error",
    529: "overloaded_error",
}
_STATUS_OF = {name: status for status, names in _NAMES_OF_STATUS.items() for name in names.split()}
# Another attempt may succeed. All else is the same the next time, or was billed.
REPEATABLE: frozenset[Failure | None] = frozenset(
    {"overloaded", "timeout", "unreachable", "server", "cut_off", "malformed"}
)
# What says nothing of the request: the server did not even begin with it.
OF_THE_SERVER: frozenset[Failure | None] = frozenset({"overloaded", "unreachable"})
# What a server that is broken does to one request after the other.
OUTAGES = REPEATABLE - {"overloaded"}

# Servers have no common code for it; these are the words of vLLM, SGLang, OpenAI, llama.cpp, TGI
# and others.
_TOO_LONG = re.compile(
    r"context_length_exceeded|context[ _](?:length|size)|context window|max_model_len|too long"
    r"|maximum (?:input|prompt|number of tokens)|reduce the length"
    r"|`inputs` (?:tokens|must have less than)",
    re.IGNORECASE,
)
# TGI names the tokens of both, so the prompt's tell whether it would fit alone.
_TGI_SAID = re.compile(r"must be <= (\d+)\. Given: (\d+) `inputs` tokens")
# The prompt alone would fit: the same servers then speak of the response too.
_RESPONSE_TOO = re.compile(r"in the completion|max_(?:completion_|new_)?tokens", re.IGNORECASE)
# A limit of tokens a minute that this request alone exceeds, whatever the status.
_NEVER_FITS = re.compile(r"request too large|tokens must be reduced", re.IGNORECASE)
_NO_CREDIT = re.compile(r"insufficient[ _](?:quota|balance|credit|funds)", re.IGNORECASE)
_OVERLOADED = (429, 503, 529)
_PAYMENT_REQUIRED, _TOO_LARGE = 402, 413


class OverrunError(Exception):
    """A reply goes on far past the ``max_tokens`` of its request; it had ``tokens`` at most."""

    def __init__(self, what: str, tokens: int) -> None:
        super().__init__(what)
        self.tokens = tokens


class ServerFault(Exception):
    """An error that a server sends in place of a completion, or of the rest of one.

    ``status`` is the HTTP status that it stands for; ``is_midway`` says whether it came in a
    stream, so that a part of the response may have come.
    """

    def __init__(self, message: str, status: int, is_midway: bool) -> None:
        super().__init__(f"the server reports an error: {message}")
        self.status, self.is_midway = status, is_midway


class RefusedError(Exception):
    """The server answers with an HTTP error."""

    def __init__(self, status: int, headers: Mapping[str, str], message: str) -> None:
        super().__init__(f"HTTP {status}: {message}")
        self.status, self.headers = status, headers


def parsed(data: bytes | str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: The text is not JSON, or is nested deeper than Python can read.
    """
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None


def count(value: object) -> int:
    """A count of tokens: a plain integer of 0 to 2^31 - 1, else -1 for unknown."""
    return value if type(value) is int and 0 <= value < _MOST_COUNTED else UNKNOWN


def seconds(value: object) -> float:
    """A duration: a finite number from 0 on, else 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 <= value <= sys.float_info.max else 0.0


@dataclass(frozen=True, slots=True)
class Redactor:
    """Makes one printable line of what a server says, without the key, which some repeat.

    The key is replaced before anything is cut off, so no part of it is left at the cut.
    """

    key: str = ""

    def __call__(self, said: object, most: int = _MOST_SAID) -> str:
        """At most ``most`` characters of a text, or of any other value as JSON."""
        if not isinstance(said, str):
            try:
                said = json.dumps(said, ensure_ascii=False)
            except RecursionError:
                said = f"a {type(said).__name__} that is nested too deep"
        text = " ".join(printable(said).split())
        return (text.replace(self.key, "***") if self.key else text)[:most]


def message_of(error: Any) -> Any:
    """What an error says, however it is wrapped."""
    while isinstance(error, dict):
        names = ("error", "message", "detail")
        inner = next((error[name] for name in names if error.get(name)), None)
        if inner is None:
            break
        # Its kind stands beside the message, and may be all that says what is wrong.
        kind = next((error[n] for n in ("code", "type") if isinstance(error.get(n), str)), None)
        error = f"{inner} ({kind})" if isinstance(inner, str) and kind else inner
    return error


def status_of(error: Any) -> int:
    """The HTTP status that an error in a body stands for; 500 if it names none."""
    fields = error if isinstance(error, dict) else {"code": error}
    for value in map(fields.get, ("code", "status", "type")):
        if isinstance(value, str):
            value = (
                int(value) if re.fullmatch("[45][0-9]{2}", value) else _STATUS_OF.get(value.lower())
            )
        if type(value) is int and 400 <= value < 600:
            return value
    return _STATUS_UNKNOWN


def wrong_key(url: str, endpoint: Endpoint, status: int) -> TeacherError:
    """The error of a server that refuses the key."""
    return TeacherError(
        f"{url} refuses the key in {endpoint.key_env} ({status})"
        f"{'' if endpoint.key else ', which is not set'}",
        f"Set {endpoint.key_env} to a valid key, or name another variable with "
        "endpoint.api_key_env, and give the same command again.",
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


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server wants to be left alone; None if it does not say, or says nonsense."""
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "")
        with suppress(ValueError):
            wait_s = float(value) * unit_s
            if math.isfinite(wait_s) and wait_s >= 0:
                return wait_s
            continue
        with suppress(ValueError, OverflowError):  # of dates that no calendar has
            if date := email.utils.parsedate_tz(value):
                return max(0.0, email.utils.mktime_tz(date) - time.time())
    return None

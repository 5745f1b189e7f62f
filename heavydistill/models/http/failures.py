"""Which kind of failure an error is, and what may be done about it; see ``schema.Failure``."""

from __future__ import annotations

import email.utils
import math
import re
import time
from collections.abc import Mapping
from contextlib import suppress

from heavydistill.models.http.completion import OverrunError, ServerFault
from heavydistill.models.http.transport import RefusedError
from heavydistill.schema import Failure

# What another attempt may mend. All else is the same the next time, or was paid for.
REPEATABLE: frozenset[Failure | None] = frozenset(
    {"overloaded", "timeout", "unreachable", "server", "cut_off", "malformed"}
)
# What says nothing of the request: the server did not even begin with it.
OF_THE_SERVER: frozenset[Failure | None] = frozenset({"overloaded", "unreachable"})
# What a server that is broken does to one request after the other.
OUTAGES: frozenset[Failure | None] = frozenset(
    {"timeout", "unreachable", "server", "cut_off", "malformed"}
)

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


def failure_of(error: Exception) -> Failure:
    """The kind of a failure.

    Args:
        error: Raised by ``wire``, aiohttp or the system, or by reading a completion.
    """
    from aiohttp import ClientConnectorError, ClientError, ConnectionTimeoutError

    if isinstance(error, RefusedError):
        return _of_status(error.status, str(error))
    if isinstance(error, ServerFault):
        kind = _of_status(error.status, str(error))
        return "cut_off" if kind == "server" and error.is_midway else kind
    if isinstance(error, ClientConnectorError | ConnectionTimeoutError):
        return "unreachable"
    if isinstance(error, TimeoutError):
        return "timeout"
    is_cut_off = isinstance(error, ClientError | OSError | OverrunError)
    return "cut_off" if is_cut_off else "malformed"


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server wants to be left alone; None if it does not say, or says nonsense."""
    for name, unit_s in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        told = headers.get(name, "")
        with suppress(ValueError):
            seconds = float(told) * unit_s
            if math.isfinite(seconds) and seconds >= 0:
                return seconds
            continue
        with suppress(ValueError, OverflowError):  # of dates that no calendar has
            if date := email.utils.parsedate_tz(told):
                return max(0.0, email.utils.mktime_tz(date) - time.time())
    return None


def _of_status(status: int, text: str) -> Failure:
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
